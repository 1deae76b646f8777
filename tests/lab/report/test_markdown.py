"""docs/results.md and the table of the README."""

from __future__ import annotations

from pathlib import Path

import pytest
from made import create_made, made_run
from tiny import tiny

from grokfast.lab.report import write_figures
from grokfast.lab.report.markdown import MARKS, other_runs, put_between, results_page, summary_table, table_runs


def test_runs_that_are_not_finished_are_named(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Baseline", 0, [0.5, 0.1], task="mnist")]
    runs.append(made_run(tmp_path, "Grokfast", 0, [0.5, 0.3], task="mnist", finish=False))
    page = results_page(runs)
    assert "| Grokfast | 2 | 1 (unfinished) | > 20 |" in page
    assert "- Not finished: Grokfast, seed 0, step 20 of 20, best accuracy 0.7, best loss 0.3" in page


def test_lengths_are_sorted_as_numbers(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Baseline", seed, [9.0] * (n - 1) + [1.0]) for seed, n in enumerate((105, 131, 79))]
    assert "- Baseline: seeds 0, 1, 2; 790, 1,050 and 1,310 steps; evaluated every 10 steps" in results_page(runs)


def test_a_task_without_an_arm_has_no_section(tmp_path: Path) -> None:
    assert results_page([create_made(tmp_path, tiny(steps=20), [0.5, 0.1])]) == ""


def test_the_summary_goes_between_the_marks(tmp_path: Path) -> None:
    table = summary_table([made_run(tmp_path, "Grokfast", 0, [0.5, 0.1], task="mnist")])
    assert "| mnist | Grokfast | 2 | 1 | steps to 0.85 | 20 | 2,001 |" in table
    page = f"above\n{MARKS[0]}\nold\n{MARKS[1]}\nbelow\n"
    assert put_between(page, table) == f"above\n{MARKS[0]}\n{table}\n{MARKS[1]}\nbelow\n"
    with pytest.raises(ValueError, match="must hold"):
        put_between("no marks", table)


def test_pictures_stand_beside_their_tables(tmp_path: Path) -> None:
    arm = made_run(tmp_path, "Grokfast", 0, [0.5, 0.1], task="mnist")
    again = made_run(tmp_path, "Grokfast", 0, [0.5], task="mnist", gradients=5)
    runs = [arm, again, create_made(tmp_path, tiny(steps=20), [0.5, 0.1])]
    assert (table_runs(runs), other_runs(runs)) == ([arm], [again])
    drawn = write_figures(table_runs(runs), tmp_path / "figures", "png", also=other_runs(runs))
    page = results_page(runs, [path.relative_to(tmp_path) for path in drawn])
    assert page.index("## mnist") < page.index("![curves-mnist](figures/curves-mnist.png)") < page.index("## Costs")
