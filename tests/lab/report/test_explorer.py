"""The filter explorer in a real browser: its numbers are the library's, by keyboard too, on a phone and offline."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny

import grokfast
from grokfast.lab.analysis.frequency import impulse_response
from grokfast.lab.report.page.explorer import explorer_page, recorded_gradient
from grokfast.lab.training.train import train

PAGE = Path(__file__).parents[3] / "docs" / "explorer.html"
Visit = Callable[..., Any]
CASES = [
    (kind, {"alpha": alpha, "lamb": lamb, "window": window})
    for kind, alpha, lamb, window in [
        ("ema", 0.98, 2.0, 1),
        ("ema", 0.5, 0.3, 1),
        ("ma", 0.5, 5.0, 100),
        ("ma", 0.5, 1.0, 1),
    ]
]


def make(kind: str, values: dict[str, Any]) -> grokfast.Filter:
    if kind == "ema":
        return grokfast.EMA(alpha=values["alpha"], lamb=values["lamb"])
    return grokfast.MA(window_size=values["window"], lamb=values["lamb"])


def run_filter(filter: grokfast.Filter, grads: list[float]) -> list[float]:
    weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = torch.optim.SGD([weight], lr=0.0)
    handle, found = grokfast.attach(optimizer, filter), list[float]()
    for grad in grads:
        weight.grad = torch.tensor([grad], dtype=torch.float64)
        handle.apply()
        found.append(weight.grad.item())
        optimizer.step()
    return found


def test_the_page_in_the_docs_is_up_to_date() -> None:
    assert explorer_page() == PAGE.read_text(encoding="utf-8"), "make results"


def test_its_numbers_are_those_of_the_library(visit: Visit) -> None:
    page = visit(PAGE, ready=".explorer polyline")
    frequencies, grads = [1e-4, 0.003, 0.02, 0.1, 0.37, 0.5], recorded_gradient([]).values[:150]
    for kind, values in CASES:
        filter, call = make(kind, values), f"{json.dumps(kind)}, {json.dumps(values)}"
        for name, of in (("slow", "h"), ("total", "1+h")):
            found = page.evaluate(f"{json.dumps(frequencies)}.map(f => grokfastExplorer.gains({call}, f).{name})")
            theory = filter.frequency_response([2 * math.pi * f for f in frequencies], of=of).abs().tolist()
            assert found == pytest.approx(theory, abs=1e-9)
        assert page.evaluate(f"grokfastExplorer.impulse({call}, 120)") == pytest.approx(
            impulse_response(filter, 120).tolist(), abs=1e-12
        )
        assert page.evaluate(f"grokfastExplorer.apply({call}, {json.dumps(grads)})") == pytest.approx(
            run_filter(filter, grads), abs=1e-9
        )
        theory = filter.cutoff_frequency()
        assert page.evaluate(f"grokfastExplorer.cutoff({call})") == (theory and pytest.approx(theory, rel=1e-6))


@pytest.mark.parametrize("width", [390, 1400])
def test_sliders_redraw_by_keyboard_without_the_network(visit: Visit, width: int) -> None:
    page = visit(PAGE, width=width, ready=".explorer polyline")
    lines = "[...document.querySelectorAll('.explorer polyline')].map(line => line.getAttribute('points'))"
    says = "document.querySelector('.explorer [role=status]').textContent"
    before, text = page.evaluate(lines), page.evaluate(says)
    assert "multiplied by 3, " in text
    assert len(before) == 5
    page.focus("input[name=lamb]")
    page.keyboard.press("ArrowRight")
    after = page.evaluate(lines)
    assert "multiplied by 3.1, " in page.evaluate(says)
    assert all(a != b for a, b in zip(before[:2], after[:2], strict=True))
    page.select_option("select[name=kind]", "ma")
    assert page.is_visible("input[name=window]")
    assert not page.is_visible("input[name=alpha]")
    assert page.evaluate(lines) != after
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints == []
    assert page.requests == [PAGE.as_uri()]


def test_a_report_takes_the_gradients_of_its_own_runs(tmp_path: Path) -> None:
    run = train(tiny(gradients=20, steps=40), tmp_path).run
    found = recorded_gradient([train(tiny(seed=3), tmp_path).run, run])
    assert found.where.startswith(f"{run.name}, a weight of ")
    assert len(found.values) == 36
    assert max(map(abs, found.values)) == 1.0
    (run.path / "gradients.f32").write_bytes(b"")
    assert recorded_gradient([run]) == recorded_gradient([])
