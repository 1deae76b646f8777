"""A plan: each configuration once, what is left, how long it may take, and that one failure does not stop it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tiny import comparable, tiny

from grokfast.lab import load_runs
from grokfast.lab.config import RunConfig
from grokfast.lab.request import ask, resolve
from grokfast.lab.runs.directory import Run
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.plan import (
    Plan,
    PlanOutcome,
    Turn,
    carry_out,
    distinct,
    estimate,
    measured_step_seconds,
    missing_data,
    shorten,
)
from grokfast.lab.training.train import Outcome, train


class Trainer:
    """Trains what a plan asks for, and remembers it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.turns: list[tuple[int, Turn]] = []  # with the seed

    def __call__(self, config: RunConfig, turn: Turn) -> Outcome:
        self.turns.append((config.loop.seed, turn))
        return train(config, self.folder)


# Making a plan ------------------------------------------------------------------------------------------------------


def test_equal_configurations_are_planned_once_in_order() -> None:
    a, b = tiny(), tiny(seed=1)
    assert distinct([[a, b], [tiny(checkpoint_seconds=1.0), tiny(seed=2)]]) == [a, b, tiny(seed=2)]


def test_quick_versions_have_the_steps_that_their_task_says() -> None:
    assert shorten(tiny(seed=3)) == tiny(seed=3, steps=20)
    assert shorten(resolve(ask("imdb"))).loop.steps == 5


def test_tasks_without_data_are_named_with_the_reason(tmp_path: Path) -> None:
    configs = [resolve(ask("mnist", data_dir=str(tmp_path), seed=seed)) for seed in (0, 1)]
    missing = missing_data([*configs, tiny()])
    assert list(missing) == ["mnist"]
    assert "missing data: put" in str(missing["mnist"])
    assert Plan([*configs, tiny()], tmp_path).without(missing).configs == [tiny()]


# Time ---------------------------------------------------------------------------------------------------------------


def test_the_estimate_shrinks_with_what_is_done(tmp_path: Path) -> None:
    plan = Plan([tiny(steps=60), tiny(steps=60, seed=1)], tmp_path)
    whole = estimate(plan)
    assert whole == pytest.approx(2 * 60 * 0.027)
    assert estimate(plan, plan.configs[1:]) == pytest.approx(whole / 2)
    stop = Watcher(should_stop=lambda: True)  # at the first evaluation
    (row,) = train(plan.configs[0], tmp_path, stop).run.rows
    assert estimate(plan) == pytest.approx((2 * 60 - row.step) * 0.027)
    carry_out(plan, Trainer(tmp_path))
    assert estimate(plan) == 0


def test_a_run_is_expected_to_end_where_the_caller_says(tmp_path: Path) -> None:
    assert estimate(Plan([tiny(steps=60)], tmp_path, lambda config: 10)) == pytest.approx(10 * 0.027)


def test_measured_speed_replaces_that_of_the_task(tmp_path: Path) -> None:
    train(tiny(steps=120, seed=1, eval_every=60), tmp_path)
    train(tiny(steps=20, seed=2), tmp_path)  # too short to count
    (long, _) = load_runs(tmp_path)
    per_second = (long.summary or {})["steps_per_second"]
    assert estimate(Plan([tiny(steps=120)], tmp_path)) == pytest.approx(120 / per_second)


def test_a_damaged_run_says_nothing_about_speed(tmp_path: Path) -> None:
    run = train(tiny(steps=120, eval_every=60), tmp_path).run
    (run.path / "summary.json").write_text("{")
    assert measured_step_seconds(load_runs(tmp_path)) == {}


# Carrying it out ----------------------------------------------------------------------------------------------------


def test_a_complete_run_is_not_trained_again(tmp_path: Path) -> None:
    plan, trainer = Plan([tiny(), tiny(seed=1)], tmp_path), Trainer(tmp_path)
    train(tiny(), tmp_path)
    assert carry_out(plan, trainer) == PlanOutcome({})
    assert [seed for seed, _ in trainer.turns] == [1]
    assert plan.left == []
    assert len(plan.complete) == 2


def test_an_interrupted_run_is_resumed(tmp_path: Path) -> None:
    rows: list[int] = []
    watcher = Watcher(on_row=lambda row: rows.append(row.step), should_stop=lambda: len(rows) == 3)
    run = train(tiny(), tmp_path, watcher).run
    before = run.rows
    assert carry_out(Plan([tiny()], tmp_path), Trainer(tmp_path)) == PlanOutcome({})
    assert run.rows[:3] == before  # the clock too: they were not computed again
    assert comparable(run.rows) == comparable(train(tiny(), tmp_path / "whole").run.rows)


def test_a_failure_does_not_stop_the_rest(tmp_path: Path) -> None:
    def fail_first(config: RunConfig, turn: Turn) -> Outcome:
        if turn.number == 1:
            raise RuntimeError("out of luck")
        return train(config, tmp_path)

    plan = Plan([tiny(), tiny(seed=1)], tmp_path)
    outcome = carry_out(plan, fail_first)
    ((name, error),) = outcome.failed.items()
    assert name.startswith("modmul-baseline-wd0-s0-")
    assert str(error) == "out of luck"
    assert [run.loop["seed"] for run in plan.complete] == [1]


@pytest.mark.parametrize("how", ["the run stops", "the process is interrupted"])
def test_an_interrupt_ends_the_plan(tmp_path: Path, how: str) -> None:
    asked: list[int] = []

    def stop(config: RunConfig, turn: Turn) -> Outcome:
        asked.append(turn.number)
        if how == "the process is interrupted":
            signal.raise_signal(signal.SIGINT)
        return Outcome(Run(tmp_path), complete=False)

    assert carry_out(Plan([tiny(), tiny(seed=1)], tmp_path), stop) == PlanOutcome({}, interrupted=True)
    assert asked == [1]


def test_turns_count_what_is_left_and_its_time(tmp_path: Path) -> None:
    train(tiny(), tmp_path)
    trainer = Trainer(tmp_path)
    carry_out(Plan([tiny(), tiny(seed=1), tiny(seed=2)], tmp_path), trainer)
    assert [(turn.number, turn.total) for _, turn in trainer.turns] == [(1, 2), (2, 2)]
    assert [turn.seconds for _, turn in trainer.turns] == pytest.approx([2 * 30 * 0.027, 30 * 0.027])
