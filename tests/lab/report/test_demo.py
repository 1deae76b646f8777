"""The demo's page, for people who have never heard of grokking: it has the numbers of the runs and fits a phone."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import made_run

from grokfast.lab.report import write_demo
from grokfast.lab.report.demo import FILE, demo_story, load
from grokfast.lab.runs.directory import Run

LATE = [0.9] * 90 + [0.01]  # 95% right after 910 steps


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    folder = tmp_path_factory.mktemp("runs")
    losses = {"Grokfast-EMA": LATE, "Grokfast-MA": LATE[12:], "Baseline": LATE[:-1]}
    return [made_run(folder, arm, 0, values, task="modmul") for arm, values in losses.items()]


def points(runs: list[Run]) -> dict[str, np.ndarray]:
    """The curves of the picture: steps, accuracy, lower and upper end of the band."""
    (layer,) = (each for each in demo_story(runs)["picture"].views[0]["layer"] if "transform" in each)
    lines = [row.split(",")[:6] for row in layer["data"]["values"].splitlines()[1:]]
    rows = np.array([[float(cell or "nan") for cell in line] for line in lines])
    return {str(int(k)): rows[rows[:, 0] == k][:, 2:].T for k in np.unique(rows[:, 0])}


def test_the_evidence_that_ships_is_small_and_complete() -> None:
    old = load()
    assert FILE.stat().st_size < 50_000
    assert {"run", "seed", "seeds", "median", "fast_median", "fast_seeds", "better", "better_steps"} <= old.keys()
    assert (old["level"], old["reached"] > 10_000) == (0.95, True)


def test_the_late_rise_of_the_baseline_and_the_gap_are_in_the_picture(runs: list[Run]) -> None:
    old, drawn = load(), points(runs)
    training, validation = drawn["0"], drawn["1"]
    assert len(drawn) == 4  # and both filters
    assert validation[1][validation[0] < 2_000].max() < 0.5
    assert validation[1][validation[0] == old["reached"]] >= old["level"]
    assert np.interp(old["by_heart"], training[0], training[1]) == pytest.approx(old["level"], abs=0.02)  # thinned
    gap = validation[3] - validation[2]
    between = (validation[0] > 2 * old["by_heart"]) & (validation[0] < old["reached"] / 4)
    assert gap[between].min() > 0.5


def head_of(path: Path) -> str:
    text = html.unescape(path.read_text()).partition("<main>")[2].partition("<details>")[0]
    return " ".join(text.split())


def test_the_page_says_in_big_numbers_how_much_sooner_and_what_that_is(runs: list[Run], tmp_path: Path) -> None:
    old = load()
    head = head_of(write_demo(runs, tmp_path / "demo/index.html", playground="playground.html")[0])
    assert f"understands {old['reached'] / 790:.0f} times sooner" in head
    for number in (old["by_heart"], old["reached"], 790):
        assert f"<b>{number:,}</b> steps" in head
    assert f"both from seed {old['seed']}" in head
    assert f"{old['median']:,} and {old['fast_median']:,} steps: {old['median'] / old['fast_median']:.0f} times" in head
    plain = re.sub("</?span>", "", head).replace("\N{MULTIPLICATION SIGN}", "x")
    assert "5 x 43 = 215 = 2 x 97 + 21" in plain
    assert old["run"] in head
    assert f"With {old['better']}, it takes {old['better_steps']}, without a filter" in head
    assert '<a href="playground.html">' in head


def test_a_demo_too_short_to_show_anything_claims_nothing(tmp_path: Path) -> None:
    run = made_run(tmp_path, "Grokfast-EMA", 0, [0.9, 0.8], task="modmul")
    text = write_demo([run], tmp_path / "index.html")[0].read_text()
    assert "times sooner" not in text
    assert "leave out <code>--quick</code>" in text
    assert "grokfast playground" in text


@pytest.mark.parametrize("width", [360, 390, 1400])
def test_the_story_fits_and_the_rest_is_folded_away(
    visit: Callable[..., Any], runs: list[Run], tmp_path: Path, width: int
) -> None:
    page = visit(write_demo(runs, tmp_path / "index.html")[0], width=width)
    assert page.complaints == []
    shown = "[...document.querySelectorAll('.picture')].filter(p => p.querySelector('.view svg')).map(p => p.id)"
    assert page.evaluate(shown) == ["story"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    inside = """[...document.querySelectorAll('#story text')].every(text => {
        const box = text.getBoundingClientRect();
        return box.left >= 0 && box.right <= innerWidth;
    })"""
    assert page.evaluate(inside)
    notes = "[...document.querySelectorAll('#story tspan')].map(t => t.textContent)"
    assert page.evaluate(notes).count("understands here") == 2
    page.click("main > details > summary")
    page.wait_for_selector("#curves-modmul .view svg")
    page.wait_for_selector("#response .view svg")
    assert page.evaluate(shown) == ["story", "curves-modmul", "response"]
    assert page.complaints == []
