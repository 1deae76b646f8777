"""Advice from a run without a filter: the authors' rule, the paper's ranges, and why there is none."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import made_run, write_run
from tiny import tiny

from grokfast.lab.analysis.advice import Advice, Proposal, advise
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.files import write_json
from grokfast.lab.runs.metrics import Crossing, Row
from grokfast.lab.runs.writer import create_run


def grok(folder: Path, *, overfit: int, generalise: int | None, steps: int, finish: bool = True, **changes: Any) -> Run:
    """A run evaluated every 10 steps that learns its training data, and generalises, at given steps."""
    rows: list[Row] = []
    for step in range(10, steps + 1, 10):
        val = 0.96 if generalise is not None and step >= generalise else 0.1
        train = 1.0 if step >= overfit else 0.5
        rows.append(Row(step, 1.0, train, 1.0, val, 1.0, 1.0, None, 1e-3, step, 1.0))
    return write_run(folder, tiny(steps=steps, eval_every=10, **changes), rows, finish=finish)


def flags_of(proposal: Proposal) -> dict[str, str]:
    words = shlex.split(proposal.command)
    assert words[:3] == ["grokfast", "train", "modmul"]
    return dict(zip(words[3::2], words[4::2], strict=True))


def refused(advice: Advice) -> str:
    assert advice.proposals == []
    (reason,) = advice.why
    return reason


def test_the_rule_gives_alpha_and_window_for_the_measured_delay(runs_dir: Path) -> None:
    found = advise(grok(runs_dir, overfit=50, generalise=5_000, steps=6_000))
    assert (found.overfit, found.generalised, found.ratio) == (Crossing(40, 50), Crossing(4_990, 5_000), 100.0)
    ema, ma = found.proposals
    assert ema.filter["alpha"] == pytest.approx(0.1 ** (1 / 100), abs=1e-4)
    assert (ema.text, ma.text) == ("EMA, alpha 0.9772, lamb 2", "MA, window size 100, lamb 5")
    assert "README" in " ".join(found.why)


@pytest.mark.parametrize(("generalise", "alpha", "window"), [(100, 0.8, 10), (20_000, 0.99, 229)])
def test_proposals_stay_in_the_ranges_the_paper_recommends(
    runs_dir: Path, generalise: int, alpha: float, window: int
) -> None:
    found = advise(grok(runs_dir, overfit=20, generalise=generalise, steps=20_000))
    ema, ma = found.proposals
    assert (ema.filter["alpha"], ma.filter["window_size"]) == (alpha, window)
    assert any("[0.8, 0.99] (section 4.1)" in line for line in found.why)


def test_the_command_is_the_same_run_with_a_filter_and_nothing_else(runs_dir: Path) -> None:
    run = grok(runs_dir, overfit=50, generalise=2_000, steps=3_000, seed=3, lr=2e-3, weight_decay=0.1, until=0.9)
    ema, ma = map(flags_of, advise(run).proposals)
    for found in (ema, ma):
        kept = {
            "--seed": "3",
            "--lr": "0.002",
            "--weight-decay": "0.1",
            "--until": "0.9",
            "--p": "7",
            "--steps": "3000",
        }
        assert kept.items() <= found.items()
    assert (ema["--filter"], ma["--filter"]) == ("ema", "ma")
    assert float(ema["--alpha"]) == pytest.approx(0.1 ** (50 / 2_000), abs=1e-4)
    assert ma["--window-size"] == "40"


def test_a_baseline_without_decay_keeps_none(runs_dir: Path) -> None:
    run = grok(runs_dir, overfit=50, generalise=2_000, steps=3_000, weight_decay=0.0)
    assert all(flags_of(proposal)["--weight-decay"] == "0.0" for proposal in advise(run).proposals)


def test_a_run_that_has_not_generalised_gives_a_lower_bound_and_says_so(runs_dir: Path) -> None:
    found = advise(grok(runs_dir, overfit=100, generalise=None, steps=5_000, finish=False))
    assert found.ratio == 50.0
    assert found.ratio_range == (50.0, None)
    text = " ".join(found.uncertain)
    assert "lower bound" in text
    assert "not finished (step 5,000 of 5,000)" in text


def test_runs_without_an_answer_say_why(runs_dir: Path) -> None:
    filtered = grok(runs_dir, overfit=50, generalise=5_000, steps=5_000, filter="ema")
    assert "with a filter already (ema)" in refused(advise(filtered))
    assert "training accuracy was at most 0.500" in refused(
        advise(grok(runs_dir, overfit=900, generalise=None, steps=500))
    )
    assert "no delay to shorten" in refused(advise(grok(runs_dir, overfit=100, generalise=150, steps=300)))
    assert "too early to see a delay" in refused(advise(grok(runs_dir, overfit=100, generalise=None, steps=110)))
    assert "It has 4 evaluations" in refused(advise(grok(runs_dir, overfit=10, generalise=40, steps=40)))
    assert "It has 0 evaluations" in refused(advise(create_run(tiny(seed=5), runs_dir, {})))
    assert "no accuracy" in refused(advise(made_run(runs_dir, "Baseline", 0, [9.0] * 20)))


def test_recorded_gradients_are_heard(runs_dir: Path) -> None:
    run = grok(runs_dir, overfit=50, generalise=2_000, steps=3_000, gradients=2)
    assert "say nothing yet" in " ".join(advise(run).why)
    write_json(run.path / "gradients.json", {"names": ["w", "w"]})
    noise = np.random.default_rng(0).normal(size=(3_000, 2, 2)).astype(np.float32)
    (run.path / "gradients.f32").write_bytes(noise.tobytes())
    white = advise(run)
    assert "little to amplify" in " ".join(white.why)
    slow = noise + 20 * np.sin(2 * np.pi * np.arange(3_000) / 512).astype(np.float32)[:, None, None]
    (run.path / "gradients.f32").write_bytes(slow.tobytes())
    heard = advise(run)
    assert heard.slow_power is not None
    assert white.slow_power is not None
    assert heard.slow_power > 0.9 > 10 * white.slow_power
    assert "little to amplify" not in " ".join(heard.why)
    assert "% of the gradient power lies below this EMA's cutoff (white noise: 1.8%)." in " ".join(heard.why)
