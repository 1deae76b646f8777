"""Arms over seeds: medians, censored runs, the baseline's best, and what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from grokfast.lab.config import LoopConfig, RunConfig, resolve
from grokfast.lab.metrics import Crossing, Row
from grokfast.lab.paper import arm_config, arms
from grokfast.lab.runs import Run, create_run, open_for_writing
from grokfast.lab.tables import arm_rows, gather, mean, results_page, spread
from grokfast.lab.train import summarize


def row(step: int, loss: float, accuracy: float | None) -> Row:
    return Row(step, loss, accuracy, loss, accuracy, 1.0, 1.0, None, 0.1, step, float(step))


def made(folder: Path, arm: str, seed: int, losses: list[float], *, task: str = "qm9", finish: bool = True) -> Run:
    """A run of an arm whose evaluations every 10 steps are as given."""
    found = next(a for a in arms(task) if a.name == arm)
    config = arm_config(found, LoopConfig(seed=seed, steps=10 * len(losses), eval_every=10))
    run = create_run(config, folder)
    accuracy = (lambda x: 1 - x) if task != "qm9" else (lambda x: None)
    rows = [row(10 * i, loss, accuracy(loss)) for i, loss in enumerate(losses, 1)]
    with open_for_writing(run) as writer:
        for each in rows:
            writer.append(each)
        if finish:
            writer.finish({}, summarize(config, rows, []))
    return run


def test_arms_are_summed_up_over_seeds_beside_the_baseline_s_best(tmp_path: Path) -> None:
    runs = [made(tmp_path, "Baseline", seed, [9.0, 6.0, 4.0]) for seed in (0, 1)]
    runs += [made(tmp_path, "Grokfast", 0, [9.0, 4.5, 3.0, 2.0]), made(tmp_path, "Grokfast", 1, [9.0, 3.5, 3.0, 2.5])]
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
        made(tmp_path, "Baseline", seed, losses) for seed, losses in enumerate(([9.0, 9.0], [9.0, 9.0], [9.0, 1.0]))
    ]
    head, base = arm_rows(runs, "qm9")
    assert base[head.index("steps to 5")] == "> 20 (20 to > 20)"


def test_unfinished_runs_are_named_and_not_counted(tmp_path: Path) -> None:
    runs = [made(tmp_path, "Baseline", 0, [0.5, 0.1], task="mnist")]
    runs.append(made(tmp_path, "Grokfast", 0, [0.5, 0.3], task="mnist", finish=False))
    page = results_page(runs)
    assert "| Grokfast |" not in page
    assert "- Not finished, not in the table: Grokfast, seed 0, step 20 of 20, best accuracy 0.7, best loss 0.3" in page


def test_of_two_runs_of_one_seed_the_longer_counts(tmp_path: Path) -> None:
    short, long = made(tmp_path, "Baseline", 0, [9.0]), made(tmp_path, "Baseline", 0, [9.0, 8.0])
    assert gather([short, long], "qm9")[0].runs == gather([long, short], "qm9")[0].runs == [long]


def test_other_experiments_are_not_arms(tmp_path: Path) -> None:
    config = arm_config(arms("modmul")[0])
    other = resolve(RunConfig(type(config.task)(p=89), config.filter, config.optim, LoopConfig(steps=10)))
    assert results_page([create_run(other, tmp_path)]) == ""


@pytest.mark.parametrize(
    ("steps", "text"),
    [([], ""), ([30], "30"), ([30, 30], "30"), ([20, 40], "30 (20 to 40)"), ([20, None], "> 99 (20 to > 99)")],
)
def test_median_and_range_of_crossings(steps: list[int | None], text: str) -> None:
    assert spread([Crossing(99, step) for step in steps]) == text


def test_means_leave_out_what_is_missing() -> None:
    assert mean([None, 2.0], ".1f") == "2.0"
    assert mean([None], ".1f") == ""
