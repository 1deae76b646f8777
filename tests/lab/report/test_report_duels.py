"""A duel in the report: the verdict first, then the picture, the arms and the commands, beside ordinary runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import swept_run

from grokfast.lab.commands.cli import main
from grokfast.lab.compare.seeds import Bound
from grokfast.lab.duel.outcome import Result, save_outcome
from grokfast.lab.duel.plan import make_duel, to_json
from grokfast.lab.request import ask

HOSTILE = "<script>document.title='owned'</script>"


def result(name: str, *steps: int) -> Result:
    numbers = {seed: Bound(n) if n <= 1000 else Bound(1000, False) for seed, n in enumerate(steps, 1)}
    return Result(name, {"lr": 0.003}, f"grokfast train {name} {HOSTILE}", {}, numbers, numbers, numbers)


@pytest.fixture(scope="module")
def duel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a duel: runs on fresh seeds of two arms, the verdict."""
    folder = tmp_path_factory.mktemp("duel")
    for arm, step, filter in (("adamw", 800, None), ("adamw+ema", 400, "ema")):
        for seed in (1, 2):
            swept_run(folder / arm / "verdict" / "runs", step, filter=filter, optimizer="adamw", seed=seed)
    swept_run(folder / "adamw" / "tuning" / "runs", 900, optimizer="adamw", seed=0)
    arms = [result("adamw", 800, 820, 840, 860, 2000), result("adamw+ema", 400, 410, 420, 430, 440)]
    save_outcome(folder / "verdict.json", to_json(make_duel(ask("modmul"), "tuned")), arms)
    return folder


@pytest.fixture(scope="module")
def page_path(duel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page on the duel and a run of its own."""
    folder = tmp_path_factory.mktemp("report")
    swept_run(folder / "runs", 300, filter="ma", seed=7)
    assert main(["report", str(duel), str(folder / "runs"), "-o", str(folder / "index.html")]) == 0
    return folder / "index.html"


def test_the_verdict_comes_first_in_words(visit: Callable[..., Any], page_path: Path) -> None:
    page = visit(page_path)
    said = "by steps: adamw+ema helps, 2x faster than adamw, 95% interval"
    assert said in page.inner_text("ul.lead li >> nth=0")
    assert page.inner_text("section h2 >> nth=0") == "Duel: modmul with everything tuned"
    assert page.inner_text("section li >> nth=0").startswith(said)
    assert page.evaluate("document.querySelector('section .plotly-graph-div').id") == "duel-modmul-tuned-0"
    assert page.complaints == []


def test_arms_settings_and_commands_are_shown_and_not_run(visit: Callable[..., Any], page_path: Path) -> None:
    page = visit(page_path)
    section = page.inner_text("section >> nth=0")
    assert "840 (800 to > 1,000)" in section
    assert "4 of 5" in section
    assert "lr 0.003" in section
    assert f"grokfast train adamw+ema {HOSTILE}" in section
    assert page.title() == "Grokfast: 5 runs"  # two of each arm and the one beside them; none of the tuning


@pytest.mark.parametrize("width", [390, 1400])
def test_a_duel_fits_a_phone_and_a_desk(width: int, visit: Callable[..., Any], page_path: Path) -> None:
    assert visit(page_path, width=width).evaluate("document.documentElement.scrollWidth <= innerWidth")
