"""A level comes from the run: where runs stopped, that is where they are judged, everywhere on the page."""

from __future__ import annotations

import html
from pathlib import Path

import pytest
from made import made_run

from grokfast.lab.report import write_figures, write_report
from grokfast.lab.report.results import results_page, summary_table
from grokfast.lab.runs.directory import Run

LOSSES = [0.9, 0.7, 0.3, 0.01]  # 0.6 is crossed at 30, 0.95 at 40


def run_to(folder: Path, seed: int, until: float, losses: list[float]) -> Run:
    return made_run(folder, "Grokfast-EMA", seed, losses, task="modmul", until=until, steps=100)


def body(runs: list[Run], out: Path, **options: float) -> str:
    page = write_report(runs, out, **options)[0].read_text()
    return html.unescape(page.split("<body>", 1)[1])


def test_runs_that_stopped_at_a_level_are_judged_there(tmp_path: Path) -> None:
    runs = [run_to(tmp_path / "runs", seed, 0.6, LOSSES[:3]) for seed in (0, 1)]
    page = body(runs, tmp_path / "r.html")
    assert "Grokfast-EMA reaches 0.6 after 30 steps" in page
    assert "Steps until the validation accuracy is 0.6" in page
    assert "steps to 0.6" in page
    assert "--level" not in page
    assert "| steps to 0.6 | 30 | 910 |" in summary_table(runs)
    assert "steps to 0.6" in results_page(runs)


def test_mixed_levels_are_judged_at_the_task_s_and_the_page_says_so(tmp_path: Path) -> None:
    runs = [run_to(tmp_path / "runs", 0, 0.6, LOSSES[:3]), run_to(tmp_path / "runs", 1, 0.95, LOSSES)]
    page = body(runs, tmp_path / "r.html")
    assert "Steps until the validation accuracy is 0.95" in page
    assert "1 run stopped earlier, at 0.6, and counts as not having reached 0.95" in page
    assert "Grokfast-EMA reaches 0.6 after 30 steps" in body(runs, tmp_path / "r.html", level=0.6)


@pytest.mark.parametrize("level", [0.6, 0.2])
def test_a_level_can_be_given(tmp_path: Path, level: float) -> None:
    runs = [run_to(tmp_path / "runs", seed, 0.95, LOSSES) for seed in (0, 1)]
    steps = {0.6: 30, 0.2: 20}[level]
    judged = [run.judged_at(level) for run in runs]
    assert f"Grokfast-EMA reaches {level:g} after {steps} steps" in body(runs, tmp_path / "r.html", level=level)
    assert f"| steps to {level:g} | {steps} | 910 |" in summary_table(judged)
    assert f"steps to {level:g}" in results_page(judged)
    assert write_figures(runs, tmp_path / "figures", "svg", level=level)
