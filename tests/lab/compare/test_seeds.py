"""The rule over seeds: which runs make an arm, which run of a seed counts, censored medians, levels, means."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from made import made_run, swept_run
from tiny import tiny

from grokfast.lab.compare.seeds import (
    Bound,
    at_one_level,
    by_task,
    make_arms,
    mean,
    spread_of,
    steps_of,
    stopped_before,
)
from grokfast.lab.runs.writer import create_run


def test_runs_that_differ_in_more_than_seed_and_length_are_other_arms(tmp_path: Path) -> None:
    same = [swept_run(tmp_path, 100, seed=0), swept_run(tmp_path, 100, seed=1, steps=500, evaluations=50)]
    changes = [{"weight_decay": 1.0}, {"p": 5}, {"filter": "ema"}, {"fast": False}, {"lr": 0.1}]
    others = [swept_run(tmp_path, 100, **change) for change in changes]
    arms = make_arms([*same, *others])
    assert [arm.runs for arm in arms] == [same, *([run] for run in others)]
    assert len({arm.name for arm in arms}) == len(arms)


def test_arms_of_one_name_are_told_apart_by_the_settings_that_differ(tmp_path: Path) -> None:
    arms = make_arms([swept_run(tmp_path, 100, lr=lr, filter="ema") for lr in (0.1, 0.01)])
    start = "EMA, alpha 0.98, lamb 2, weight decay 0.005"
    assert [arm.title for arm in arms] == [f"{start}, learning rate {lr}, seed 0" for lr in (0.1, 0.01)]


def test_of_two_runs_of_one_seed_the_one_with_the_larger_budget_counts(tmp_path: Path) -> None:
    short, long = made_run(tmp_path, "Baseline", 0, [9.0]), made_run(tmp_path, "Baseline", 0, [9.0, 8.0])
    open = made_run(tmp_path, "Baseline", 0, [9.0] * 9, finish=False)
    for order in ([short, long, open], [open, long, short]):
        (arm,) = make_arms(order)
        assert arm.runs == [long]
        assert {run.path for run, _ in arm.left_out} == {short.path, open.path}
        assert all(reason == "no: another run of seed 0 does" for _, reason in arm.left_out)


def test_a_short_run_that_never_crossed_is_left_out_beside_a_long_one(tmp_path: Path) -> None:
    long = made_run(tmp_path, "Baseline", 0, [9.0] * 10)
    short = made_run(tmp_path, "Baseline", 1, [9.0] * 4)
    half = made_run(tmp_path, "Baseline", 2, [9.0] * 5)
    crossed = made_run(tmp_path, "Baseline", 3, [1.0])
    (arm,) = make_arms([long, short, half, crossed])
    assert arm.runs == [long, half, crossed]
    assert arm.left_out == [(short, "no: too short")]


def test_a_run_that_diverged_counts_as_never_however_short_it_is(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Baseline", seed, [9.0] * 8 + [1.0]) for seed in (0, 1)]
    lost = made_run(tmp_path, "Baseline", 2, [math.nan])
    assert steps_of(lost).value == math.inf
    (arm,) = make_arms([*runs, lost])
    assert str(arm.steps()) == "90 (90 to never)"
    (alone,) = make_arms([lost])
    assert (str(alone.steps()), alone.steps().median.exact) == ("never", False)


def test_a_run_without_an_evaluation_makes_no_arm(tmp_path: Path) -> None:
    run = create_run(tiny(), tmp_path, {})
    assert make_arms([run]) == []


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([], ""),
        ([30], "30"),
        ([30, 30], "30"),
        ([20, 40], "30 (20 to 40)"),
        ([20, None], "> 59 (20 to > 99)"),
        ([20, None, None], "> 99 (20 to > 99)"),
        ([20, 30, None], "30 (20 to > 99)"),
        ([20, 30, 40, None], "35 (20 to > 99)"),
        ([None, None], "> 99"),
    ],
)
def test_median_and_range_of_crossings(steps: list[int | None], text: str) -> None:
    assert str(spread_of([Bound(99, False) if step is None else Bound(step) for step in steps])) == text


def test_a_median_that_a_shorter_censored_run_may_move_is_a_bound() -> None:
    assert str(spread_of([Bound(20), Bound(25, False), Bound(30)])) == "> 25 (20 to > 30)"


def test_medians_that_were_measured_come_first() -> None:
    measured, bound = spread_of([Bound(900)]), spread_of([Bound(10, False)])
    assert min([bound, measured], key=lambda found: found.order) is measured


def test_means_leave_out_what_is_missing() -> None:
    assert mean([None, 2.0]).text() == "2"
    assert mean([None]).text() == ""
    assert mean([0.5, 0.7]).text(2) == "0.60 ± 0.14"
    assert mean([20.5, 20.5004]).text(3) == "20.5002 ± 0.0003"
    assert mean([-1.0, 1.0]).text(2) == "0.0 ± 1.4"


def test_runs_that_stopped_at_one_level_are_judged_there_and_mixed_ones_where_the_task_says(tmp_path: Path) -> None:
    early = made_run(tmp_path, "Baseline", 0, [0.9, 0.3], task="modmul", until=0.6)
    late = made_run(tmp_path, "Baseline", 1, [0.9, 0.3, 0.01], task="modmul", until=0.95)
    assert [run.level for run in at_one_level([early])] == [0.6]
    judged = at_one_level([early, late])
    assert [(run.level, run.crossing().step, stopped_before(run)) for run in judged] == [
        (0.95, None, True),
        (0.95, 30, False),
    ]
    assert [run.crossing().step for run in at_one_level([early, late], 0.6)] == [20, 20]
    assert [run.level for run in by_task([early, late], 0.5)["modmul"]] == [0.5, 0.5]


def test_a_level_that_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    accuracy, loss = made_run(tmp_path, "Baseline", 0, [0.9], task="mnist"), made_run(tmp_path, "Baseline", 0, [9.0])
    with pytest.raises(ValueError, match="all judged by accuracy or all by loss"):
        by_task([accuracy, loss], 0.6)
    with pytest.raises(ValueError, match=r"level must be in \(0, 1\], got 60"):
        by_task([accuracy], 60.0)
    assert by_task([loss], 60.0)["qm9"][0].crossing().step == 10
