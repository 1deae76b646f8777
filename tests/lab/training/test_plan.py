"""A plan: each configuration once, what is left, and how long it may take."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import tiny

from grokfast.lab import load_runs
from grokfast.lab.paper.published import EMA
from grokfast.lab.request import ask, resolve
from grokfast.lab.tasks.modular.task import ModularConfig
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.plan import (
    complete_runs,
    distinct,
    estimate,
    measured_step_seconds,
    missing_data,
    shorten,
    what_is_left,
)
from grokfast.lab.training.train import train


def test_equal_configurations_are_planned_once_in_order() -> None:
    a, b = tiny(), tiny(seed=1)
    assert distinct([a, b, tiny(checkpoint_seconds=1.0), tiny(seed=2)]) == [a, b, tiny(seed=2)]


def test_quick_versions_have_the_steps_that_their_task_says() -> None:
    assert shorten(tiny(seed=3)) == tiny(seed=3, steps=20)
    assert shorten(resolve(ask("imdb"))).loop.steps == 5


def test_tasks_without_data_are_named_with_the_reason(tmp_path: Path) -> None:
    configs = [resolve(ask("mnist", data_dir=str(tmp_path), seed=seed)) for seed in (0, 1)]
    missing = missing_data([*configs, tiny()])
    assert list(missing) == ["mnist"]
    assert "missing data: put" in str(missing["mnist"])


def test_the_estimate_shrinks_with_what_is_done(tmp_path: Path) -> None:
    configs = [tiny(steps=60), tiny(steps=60, seed=1)]
    assert estimate(configs, tmp_path) == pytest.approx(2 * 60 * ModularConfig.step_seconds)
    stop = Watcher(should_stop=lambda: True)  # at the first evaluation
    (row,) = train(configs[0], tmp_path, stop).run.rows
    assert estimate(configs, tmp_path) == pytest.approx((2 * 60 - row.step) * ModularConfig.step_seconds)


def test_what_is_left_is_what_is_not_complete(tmp_path: Path) -> None:
    configs = [tiny(seed=seed) for seed in range(3)]
    done = train(configs[0], tmp_path).run
    train(configs[1], tmp_path, Watcher(should_stop=lambda: True))
    assert what_is_left(configs, tmp_path) == configs[1:]
    assert [run.path for run in complete_runs(configs, tmp_path)] == [done.path]


def test_a_run_that_stops_at_the_level_is_expected_to_end_where_the_papers_did(tmp_path: Path) -> None:
    config = resolve(EMA.having(until=0.95))
    assert estimate([config], tmp_path) == pytest.approx(910 * config.task.step_seconds)


def test_measured_speed_replaces_that_of_the_task(tmp_path: Path) -> None:
    train(tiny(steps=120, seed=1, eval_every=60), tmp_path)
    train(tiny(steps=20, seed=2), tmp_path)  # too short to count
    (long, _) = load_runs(tmp_path)
    per_second = (long.summary or {})["steps_per_second"]
    assert estimate([tiny(steps=120)], tmp_path) == pytest.approx(120 / per_second)


def test_a_damaged_run_says_nothing_about_speed(tmp_path: Path) -> None:
    run = train(tiny(steps=120, eval_every=60), tmp_path).run
    (run.path / "summary.json").write_text("{")
    assert measured_step_seconds(tmp_path) == {}
