"""The demo's page, for a person who has never heard of grokking: it has the numbers of the runs and fits a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import made_run

from grokfast.lab.commands import cli
from grokfast.lab.report import write_demo
from grokfast.lab.report.evidence import FILE, load
from grokfast.lab.report.story import story_plot, tell
from grokfast.lab.runs.directory import Run

RESULTS = Path(__file__).parents[3] / "results"
LATE = [0.9] * 90 + [0.01]  # 95% right after 910 steps


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    losses = {"Grokfast-EMA": LATE, "Grokfast-MA": LATE[12:], "Baseline": LATE[:-1]}
    return [made_run(folder, arm, 0, values, task="modmul") for arm, values in losses.items()]


def test_the_evidence_that_ships_is_what_the_archived_runs_say(tmp_path: Path) -> None:
    assert cli.main(["results", str(RESULTS), "--evidence", str(tmp_path / "evidence.json")]) == 0
    assert (tmp_path / "evidence.json").read_text() == FILE.read_text(), "make results"
    assert FILE.stat().st_size < 200_000
    assert load().level == 0.95


def test_evidence_needs_a_baseline_that_got_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made_run(tmp_path, "Baseline", 0, [0.9, 0.8], task="modmul")
    assert cli.main(["results", str(tmp_path), "--evidence", str(tmp_path / "evidence.json")]) == 1
    assert "no run of the paper's baseline that has reached its level" in capsys.readouterr().err
    assert not (tmp_path / "evidence.json").exists()


def test_the_late_rise_of_the_baseline_is_in_the_picture(runs: list[Run]) -> None:
    old = load()
    training, validation, *filtered = story_plot(tell(runs, old)).panels[0].series
    assert [line.name for line in filtered] == [
        f"{name}, the half it has never seen" for name in ("Grokfast-MA", "Grokfast-EMA")
    ]
    assert validation.y[validation.x < 2_000].max() < 0.5
    assert validation.y[validation.x == old.reached] >= old.level
    assert np.interp(old.by_heart, training.x, training.y) == pytest.approx(old.level, abs=0.02)  # thinned
    assert old.reached > 10_000


def test_the_gap_between_by_heart_and_understood_is_shaded(runs: list[Run]) -> None:
    old = load()
    validation = story_plot(tell(runs, old)).panels[0].series[1]
    gap = validation.high - validation.low
    assert gap[(validation.x > 2 * old.by_heart) & (validation.x < old.reached / 4)].min() > 0.5
    assert gap[validation.x == old.reached] < 0.06


def test_the_page_says_in_big_numbers_how_much_sooner(runs: list[Run], tmp_path: Path) -> None:
    old = load()
    text = write_demo(runs, tmp_path / "demo/index.html")[0].read_text()
    head = text.partition("<main>")[2].partition("<details>")[0]
    assert f"understands {old.reached / 790:.0f} times sooner" in head
    for number in (old.by_heart, old.reached, 790):
        assert f"<b>{number:,}</b> steps" in head
    plain = re.sub("</?span>", "", head).replace("\N{MULTIPLICATION SIGN}", "x")
    assert "5 x 43 = 215 = 2 x 97 + 21" in plain
    assert old.run in head
    assert f"{old.tuned}, it gets there in {old.tuned_steps} without any filter" in " ".join(head.split())
    assert 'docs/results.md">all results</a>' in head


def test_a_demo_too_short_to_show_anything_claims_nothing(tmp_path: Path) -> None:
    run = made_run(tmp_path, "Grokfast-EMA", 0, [0.9, 0.8], task="modmul")
    text = write_demo([run], tmp_path / "index.html")[0].read_text()
    assert "times sooner" not in text
    assert "leave out <code>--quick</code>" in text


@pytest.mark.parametrize("width", [390, 1400])
def test_the_story_fits_and_the_rest_is_folded_away(
    visit: Callable[..., Any], runs: list[Run], tmp_path: Path, width: int
) -> None:
    page = visit(write_demo(runs, tmp_path / "index.html")[0], width=width)
    assert page.complaints == []
    shown = "[...document.querySelectorAll('.plotly-graph-div')].filter(c => c.layout).map(c => c.id)"
    assert page.evaluate(shown) == ["story"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    inside = """[...document.querySelectorAll('.annotation-text')].every(text => {
        const box = text.getBoundingClientRect();
        return box.left >= 0 && box.right <= innerWidth;
    })"""
    assert page.evaluate(inside)
    page.click("main > details > summary")
    page.wait_for_selector("#curves-modmul .main-svg")
    assert page.evaluate(shown) == ["story", "curves-modmul", "response"]
    assert page.complaints == []
