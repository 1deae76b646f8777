"""Arms over seeds: medians, censored runs, the baseline's best, and what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from made import create_made, made_run

from grokfast.lab.compare.ablations import ablation_rows, ablations
from grokfast.lab.config import LoopConfig, RunConfig, resolve
from grokfast.lab.paper.experiments import configuration
from grokfast.lab.runs.metrics import Crossing
from grokfast.lab.paper.published import arm_config, arms
from grokfast.lab.report.markdown import MARKS, put_between, results_page, summary_table
from grokfast.lab.runs.directory import create_run
from grokfast.lab.compare.arms import arm_rows, gather, mean, spread


def test_arms_are_summed_up_over_seeds_beside_the_baseline_s_best(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Baseline", seed, [9.0, 6.0, 4.0]) for seed in (0, 1)]
    runs += [
        made_run(tmp_path, "Grokfast", 0, [9.0, 4.5, 3.0, 2.0]),
        made_run(tmp_path, "Grokfast", 1, [9.0, 3.5, 3.0, 2.5]),
    ]
    head, base, fast = arm_rows(runs, "qm9")
    values = dict(zip(head, fast, strict=True))
    assert base[head.index("steps to 5")] == "30"
    assert values["runs"] == "2"
    assert values["steps to 5"] == "20"
    assert values["best loss"] == "2.25 ± 0.35"
    assert values["steps to the baseline's best loss"] == "25 (20 to 30)"
    assert fast[head.index("best loss") + 1] == "0.00348"


def test_a_run_that_never_crosses_counts_as_longer_than_its_budget(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, "Baseline", seed, losses) for seed, losses in enumerate(([9.0, 9.0], [9.0, 9.0], [9.0, 1.0]))
    ]
    head, base = arm_rows(runs, "qm9")
    assert base[head.index("steps to 5")] == "> 20"


def test_unfinished_runs_are_named_and_not_counted(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Baseline", 0, [0.5, 0.1], task="mnist")]
    runs.append(made_run(tmp_path, "Grokfast", 0, [0.5, 0.3], task="mnist", finish=False))
    page = results_page(runs)
    assert "| Grokfast |" not in page
    assert "- Not finished, not in the table: Grokfast, seed 0, step 20 of 20, best accuracy 0.7, best loss 0.3" in page


def test_of_two_runs_of_one_seed_the_longer_counts(tmp_path: Path) -> None:
    short, long = made_run(tmp_path, "Baseline", 0, [9.0]), made_run(tmp_path, "Baseline", 0, [9.0, 8.0])
    assert gather([short, long], "qm9")[0].runs == gather([long, short], "qm9")[0].runs == [long]


def test_other_experiments_are_not_arms(tmp_path: Path) -> None:
    config = arm_config(arms("modmul")[0])
    other = resolve(RunConfig(type(config.task)(p=89), config.filter, config.optim, LoopConfig(steps=10)))
    assert results_page([create_run(other, tmp_path)]) == ""


@pytest.mark.parametrize(
    ("steps", "text"),
    [([], ""), ([30], "30"), ([30, 30], "30"), ([20, 40], "30 (20 to 40)"), ([20, None], "> 60 (20 to > 99)")],
)
def test_median_and_range_of_crossings(steps: list[int | None], text: str) -> None:
    assert spread([Crossing(99, step) for step in steps]) == text


def test_means_leave_out_what_is_missing() -> None:
    assert mean([None, 2.0], ".1f") == "2.0"
    assert mean([None], ".1f") == ""


def test_an_ablation_has_a_line_for_each_value_that_was_run(tmp_path: Path) -> None:
    gain = next(e for e in ablations() if e.name == "fig-ma-gain")
    runs = [
        create_made(tmp_path, configuration(gain, point, LoopConfig(steps=30)), [0.5, 0.01, 0.2])
        for point in gain.points
    ]
    head, none, *others = ablation_rows(runs, gain)
    assert none[: head.index("runs") + 1] == ["none", "0", "1"]
    assert [line[0] for line in others] == [f"MA, window size 100, lamb {lamb:g}" for lamb in (1, 2, 5, 10)]
    assert {line[head.index("steps to the level")] for line in others} == {"20"}
    assert "### MA: the gain lambda" in results_page(runs)
    assert ablation_rows(runs[:2], gain) == []


def test_the_summary_has_the_paper_s_number_of_each_task_and_goes_between_the_marks(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Baseline", 0, [0.5, 0.1], task="mnist"), made_run(tmp_path, "Grokfast", 0, [9.0, 4.0])]
    table = summary_table(runs)
    assert "| mnist | Baseline | 0.01 | 1 | steps to 0.85 | 20 | 44,022 |" in table
    assert "| qm9 | Grokfast | 0.01 | 1 | lowest loss / variance |" in table
    page = f"above\n{MARKS[0]}\nold\n{MARKS[1]}\nbelow\n"
    assert put_between(page, table) == f"above\n{MARKS[0]}\n{table}\n{MARKS[1]}\nbelow\n"
    with pytest.raises(ValueError, match="must hold"):
        put_between("no marks", table)


def test_a_short_run_that_never_crossed_is_left_out_beside_a_long_one(tmp_path: Path) -> None:
    long = made_run(tmp_path, "Baseline", 0, [9.0] * 10)
    short = made_run(tmp_path, "Baseline", 1, [9.0] * 4)
    half = made_run(tmp_path, "Baseline", 2, [9.0] * 5)
    crossed = made_run(tmp_path, "Baseline", 3, [1.0])
    assert gather([long, short, half, crossed], "qm9")[0].runs == [long, half, crossed]
