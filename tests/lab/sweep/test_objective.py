"""The number that a search makes smaller, and which runs are given up early."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from sweeps import BASE, made_run, rows_of

from grokfast.lab.request import resolve
from grokfast.lab.runs.metrics import Row
from grokfast.lab.sweep.objective import BEYOND, Judge, gap, is_hopeless, value_of
from grokfast.lab.sweep.spec import Objective


@pytest.mark.parametrize(
    ("objective", "rows", "value"),
    [
        ("stable", rows_of(0.1, 0.96, 0.5, 0.97), 40.0),
        ("first", rows_of(0.1, 0.96, 0.5, 0.97), 20.0),
        ("seconds", rows_of(0.1, 0.2, 0.96, 0.97), 6.0),
        ("accuracy", rows_of(0.1, 0.9), -0.9),
        ("loss", rows_of(0.1, 0.1, 0.1, losses=(3.0, 0.5, math.nan)), 0.5),
        ("loss", rows_of(0.1, losses=(math.nan,)), math.inf),
        ("stable", rows_of(0.1, 0.96, 0.5, 0.475), 40 * 1.5),
        ("first", rows_of(0.1, 0.95 / 2, 0.0, 0.0), 40 * 1.5),
        ("seconds", rows_of(0.0, 0.0), BEYOND + 2 * 40 / 10 * 2.0),  # a fast failure is not the fastest
        ("stable", [], math.inf),
    ],
)
def test_each_objective_is_a_number_to_be_made_smaller(
    objective: Objective, rows: list[Row], value: float, tmp_path: Path
) -> None:
    assert value_of(made_run(tmp_path, rows), objective) == pytest.approx(value)


def test_the_level_is_that_of_the_run(tmp_path: Path) -> None:
    rows = rows_of(0.1, 0.65)
    assert value_of(made_run(tmp_path, rows, until=0.6), "stable") == 20.0
    assert value_of(made_run(tmp_path, rows), "stable") > 40.0


def test_a_censored_run_is_worse_than_any_other_and_the_nearer_it_came_the_less(tmp_path: Path) -> None:
    ends = [(0.5, 0.5, 0.5, 0.95), (0.95, 0.95, 0.95, 0.94), (0.9, 0.9, 0.9, 0.9), (0.9, 0.9, 0.9, 0.1), (0.0,)]
    runs = [made_run(tmp_path, rows_of(*end), seed=seed) for seed, end in enumerate(ends)]
    values = [value_of(run, "stable") for run in runs]
    assert values == sorted(set(values))
    assert values[0] == 40.0


def test_a_gap_is_0_at_the_level_and_1_far_from_it() -> None:
    assert [gap(v, 0.5, "loss") for v in (0.2, 0.5, 1.0, math.inf, math.nan)] == [0.0, 0.0, 0.5, 1.0, 1.0]


# Pruning --------------------------------------------------------------------------------------------------------------

EARLY = [(10, 0.9), (20, 0.0)]  # reached its level and stopped
LATE = [(10, 0.9), (20, 0.9), (30, 0.9), (40, 0.9)]


def test_a_run_behind_the_median_is_hopeless_from_the_step_where_it_shows() -> None:
    others = [EARLY, EARLY, EARLY, LATE]
    assert [is_hopeless(LATE, others, step) for step in (10, 20, 30)] == [False, True, True]
    assert not is_hopeless(EARLY, others, 20)


def test_no_run_is_hopeless_among_few_or_by_a_small_difference() -> None:
    assert not is_hopeless(LATE, [EARLY] * 3, 20)
    assert not is_hopeless(LATE, [[(10, 0.88), (20, 0.86)]] * 9, 20)


def test_a_judge_compares_with_the_complete_runs_in_its_folder(tmp_path: Path) -> None:
    judge = Judge(resolve(BASE.having(steps=40)), tmp_path)
    for row in rows_of(0.0, 0.0):
        judge.see(row)
    good = [made_run(tmp_path, rows_of(0.5, 0.9), seed=seed) for seed in range(1, 5)]
    assert not judge.is_hopeless()
    for run in good:
        (run.path / "summary.json").write_text("{}")
    assert judge.is_hopeless()


def test_a_judge_of_a_resumed_run_knows_what_came_before(tmp_path: Path) -> None:
    for seed in range(1, 5):
        (made_run(tmp_path, rows_of(0.5, 0.5, 0.5), seed=seed).path / "summary.json").write_text("{}")
    config = made_run(tmp_path, rows_of(0.5, 0.5)).config
    judge = Judge(config, tmp_path)
    judge.see(rows_of(0.0, 0.0, 0.0)[-1])
    assert not judge.is_hopeless()
