"""Runs as a table, and the rule over seeds: which runs make an arm, which run of a seed counts, levels, names."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from made import made_run, row, swept_run, write_run
from tiny import tiny

from grokfast import lab
from grokfast.lab.runs.writer import create_run
from grokfast.lab.tables import (
    arms,
    at_one_level,
    by_task,
    curves,
    frame,
    mean_text,
    samples_of,
    seconds_of,
    steps_of,
)

# The table ------------------------------------------------------------------------------------------------------------


def test_a_row_has_settings_and_results_as_numbers(tmp_path: Path) -> None:
    swept_run(tmp_path, 300, filter="ema", lamb=2.0, seed=3)
    swept_run(tmp_path, 9999, weight_decay=0.5)
    create_run(tiny(seed=9), tmp_path, {})
    table = lab.table(tmp_path)
    assert table.height == 3
    first = table.row(0, named=True)
    assert (first["lamb"], first["seed"], first["filter"], first["status"]) == (2.0, 3, "ema", "complete")
    assert (first["first"], first["first_after"], first["censored"]) == (300, 290, False)
    assert first["betas"] == [0.9, 0.98]
    second, third = table.row(1, named=True), table.row(2, named=True)
    assert (second["first"], second["first_after"], second["censored"], second["lamb"]) == (None, 1000, True, None)
    assert (third["status"], third["step"], third["final_val_loss"]) == ("incomplete", 0, None)
    assert table.schema["first"] == pl.Int64
    assert table.schema["best_val_accuracy"] == pl.Float64


def test_a_row_per_evaluation_with_what_only_this_task_measures(tmp_path: Path) -> None:
    rows = [row(10, 0.5, 0.1)._replace(more={"gini": 0.3}), row(20, 0.4, 0.2)]
    run = write_run(tmp_path, tiny(steps=20), rows)
    found = curves([run])
    assert found["step"].to_list() == [10, 20]
    assert found["gini"].to_list() == [0.3, None]
    assert found["name"].unique().to_list() == [run.name]


def test_a_table_of_nothing_is_empty(tmp_path: Path) -> None:
    assert frame([]).height == curves([]).height == lab.table(tmp_path / "nowhere").height == 0


def test_rows_need_neither_torch_nor_polars() -> None:
    code = "import sys; from grokfast.lab.tables import row_of; assert not {'torch', 'polars'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# Arms -----------------------------------------------------------------------------------------------------------------


def test_runs_that_differ_in_more_than_seed_and_length_are_other_arms(tmp_path: Path) -> None:
    same = [swept_run(tmp_path, 100, seed=0), swept_run(tmp_path, 100, seed=1, steps=500, evaluations=50)]
    changes = [{"weight_decay": 1.0}, {"p": 5}, {"filter": "ema"}, {"fast": False}, {"lr": 0.1}]
    others = [swept_run(tmp_path, 100, **change) for change in changes]
    found = arms([*same, *others])
    assert [arm.runs for arm in found] == [same, *([run] for run in others)]
    assert len({arm.name for arm in found}) == len(found)


def test_arms_of_one_name_are_told_apart_by_the_settings_that_differ(tmp_path: Path) -> None:
    found = arms([swept_run(tmp_path, 100, lr=lr, filter="ema") for lr in (0.1, 0.01)])
    start = "EMA, alpha 0.98, lamb 2, weight decay 0.005"
    assert [arm.title for arm in found] == [f"{start}, learning rate {lr}, seed 0" for lr in (0.1, 0.01)]


def test_of_two_runs_of_one_seed_the_one_with_the_larger_budget_counts(tmp_path: Path) -> None:
    short, long = made_run(tmp_path, "Baseline", 0, [9.0]), made_run(tmp_path, "Baseline", 0, [9.0, 8.0])
    open = made_run(tmp_path, "Baseline", 0, [9.0] * 9, finish=False)
    for order in ([short, long, open], [open, long, short]):
        (arm,) = arms(order)
        assert arm.runs == [long]
        assert {run.path for run, _ in arm.left_out} == {short.path, open.path}
        assert all(reason == "another run of seed 0 counts" for _, reason in arm.left_out)


def test_a_short_run_that_never_crossed_is_left_out_beside_a_long_one(tmp_path: Path) -> None:
    long = made_run(tmp_path, "Baseline", 0, [9.0] * 10)
    short = made_run(tmp_path, "Baseline", 1, [9.0] * 4)
    half = made_run(tmp_path, "Baseline", 2, [9.0] * 5)
    crossed = made_run(tmp_path, "Baseline", 3, [1.0])
    (arm,) = arms([long, short, half, crossed])
    assert arm.runs == [long, half, crossed]
    assert arm.left_out == [(short, "too short")]


def test_a_run_that_diverged_counts_as_never_however_short_it_is(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Baseline", seed, [9.0] * 8 + [1.0]) for seed in (0, 1)]
    lost = made_run(tmp_path, "Baseline", 2, [math.nan])
    assert steps_of(lost).value == math.inf
    (arm,) = arms([*runs, lost])
    assert str(arm.steps()) == "90 (90 to never)"
    (alone,) = arms([lost])
    assert (str(alone.steps()), alone.steps().median.exact) == ("never", False)


def test_a_run_without_an_evaluation_makes_no_arm(tmp_path: Path) -> None:
    assert arms([create_run(tiny(), tmp_path, {})]) == []


def test_an_arm_of_the_paper_has_its_name_and_numbers(tmp_path: Path) -> None:
    (arm,) = arms([made_run(tmp_path, "Grokfast-MA", seed, [0.9, 0.01], task="modmul") for seed in (0, 1)])
    assert (arm.title, arm.paper and arm.paper.steps) == ("Grokfast-MA, 2 seeds", 790)


# What a run took ------------------------------------------------------------------------------------------------------


def test_seconds_and_samples_are_counted_to_the_evaluation_that_shows_the_level(tmp_path: Path) -> None:
    run = made_run(tmp_path, "Baseline", 0, [0.9, 0.01, 0.9], task="modmul")
    assert (steps_of(run).value, seconds_of(run).value, samples_of(run).value) == (20, 20.0, 20)
    never = made_run(tmp_path, "Baseline", 1, [0.9, 0.9], task="modmul")
    assert (steps_of(never), seconds_of(never)) == ((20, False), (20.0, False))


def test_means_leave_out_what_is_missing() -> None:
    assert mean_text([None, 2.0]) == "2"
    assert mean_text([None]) == ""
    assert mean_text([0.5, 0.7], 2) == "0.60 ± 0.14"
    assert mean_text([20.5, 20.5004], 3) == "20.5002 ± 0.0003"
    assert mean_text([-1.0, 1.0], 2) == "0.0 ± 1.4"


def test_runs_that_stopped_at_one_level_are_judged_there_and_mixed_ones_at_their_task_s(tmp_path: Path) -> None:
    early = made_run(tmp_path, "Baseline", 0, [0.9, 0.3], task="modmul", until=0.6)
    late = made_run(tmp_path, "Baseline", 1, [0.9, 0.3, 0.01], task="modmul", until=0.95)
    assert [run.level for run in at_one_level([early])] == [0.6]
    assert [(run.level, run.crossing().step) for run in at_one_level([early, late])] == [(0.95, None), (0.95, 30)]
    assert [run.crossing().step for run in at_one_level([early, late], 0.6)] == [20, 20]
    assert [run.level for run in by_task([early, late], 0.5)["modmul"]] == [0.5, 0.5]


def test_a_level_that_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    accuracy, loss = made_run(tmp_path, "Baseline", 0, [0.9], task="mnist"), made_run(tmp_path, "Baseline", 0, [9.0])
    with pytest.raises(ValueError, match="all judged by accuracy or all by loss"):
        by_task([accuracy, loss], 0.6)
    with pytest.raises(ValueError, match=r"level must be in \(0, 1\], got 60"):
        by_task([accuracy], 60.0)
    assert by_task([loss], 60.0)["qm9"][0].crossing().step == 10
