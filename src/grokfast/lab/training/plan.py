"""A plan: distinct configurations to train one after the other, what is left of it, and how long that may take.

A complete run is left alone and an interrupted one is resumed, so the same plan again always continues where it
stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from grokfast.lab.config import RunConfig, fingerprint
from grokfast.lab.runs.directory import Run, RunError, load_runs
from grokfast.lab.runs.writer import run_path
from grokfast.lab.tasks.data import DataError
from grokfast.lab.training.train import Outcome, make_task

TIMED_STEPS = 100  # the speed of a shorter run is mostly that of its start


def whole_budget(config: RunConfig) -> int:
    return config.loop.steps


class Plan(NamedTuple):
    """What to train, each configuration once, and where."""

    configs: list[RunConfig]
    folder: Path
    expected: Callable[[RunConfig], int] = whole_budget  # the steps after which a run is expected to end

    @property
    def complete(self) -> list[Run]:
        """The runs that are done."""
        runs = [Run(run_path(config, self.folder)) for config in self.configs]
        return [run for run in runs if run.status == "complete"]

    @property
    def left(self) -> list[RunConfig]:
        """What is still to be trained, wholly or in part."""
        done = {run.path for run in self.complete}
        return [config for config in self.configs if run_path(config, self.folder) not in done]

    def without(self, tasks: Iterable[str]) -> Plan:
        """The same plan without the runs of some tasks."""
        left_out = set(tasks)
        return self._replace(configs=[config for config in self.configs if config.task_name not in left_out])


class Turn(NamedTuple):
    """The place of a run among those that are left."""

    number: int
    total: int
    seconds: float  # that it and the runs after it may take


class PlanOutcome(NamedTuple):
    """How a plan ended."""

    failed: dict[str, Exception]  # by the name of the run
    interrupted: bool = False


# Making a plan ------------------------------------------------------------------------------------------------------


def distinct(groups: Iterable[Iterable[RunConfig]]) -> list[RunConfig]:
    """Each configuration once, in the order of its first appearance."""
    found: dict[str, RunConfig] = {}
    for config in (config for group in groups for config in group):
        found.setdefault(fingerprint(config), config)
    return list(found.values())


def shorten(config: RunConfig) -> RunConfig:
    """The same run with a few steps only, to see that it works."""
    return dataclasses.replace(config, loop=dataclasses.replace(config.loop, steps=config.task.quick_steps))


def missing_data(configs: Iterable[RunConfig]) -> dict[str, Exception]:
    """The tasks whose data cannot be read, and why: better to know at once than in the middle of the night."""
    found: dict[str, Exception] = {}
    for task, config in {config.task_name: config for config in configs}.items():
        try:
            make_task(config)
        except (DataError, OSError) as error:
            found[task] = error
    return found


# Time ---------------------------------------------------------------------------------------------------------------


def estimate(plan: Plan, configs: Iterable[RunConfig] | None = None) -> float:
    """Seconds that these runs of a plan may still take, all that are left by default."""
    speed = measured_step_seconds(load_runs(plan.folder))
    left = plan.left if configs is None else configs
    return sum(
        max(plan.expected(config) - steps_done(config, plan.folder), 0)
        * speed.get(config.task_name, config.task.step_seconds)
        for config in left
    )


def steps_done(config: RunConfig, folder: Path) -> int:
    with contextlib.suppress(RunError):  # damaged: training it will say so
        rows = Run(run_path(config, folder)).rows
        return rows[-1].step if rows else 0
    return 0


def measured_step_seconds(runs: Iterable[Run]) -> dict[str, float]:
    """Seconds per step of each task that has complete runs: their median."""
    found: dict[str, list[float]] = {}
    for run in runs:
        with contextlib.suppress(RunError, OSError, KeyError, TypeError):  # a damaged run says nothing
            summary = run.summary or {}
            if summary.get("steps", 0) >= TIMED_STEPS and summary["steps_per_second"]:
                found.setdefault(run.task, []).append(1 / summary["steps_per_second"])
    return {task: statistics.median(seconds) for task, seconds in found.items()}


def duration(seconds: float) -> str:
    """A time to plan a day by.

    >>> [duration(seconds) for seconds in (8, 100, 5000, 30000)]
    ['8 s', '2 min', '83 min', '8.3 h']
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# Carrying it out ----------------------------------------------------------------------------------------------------


def carry_out(plan: Plan, train: Callable[[RunConfig, Turn], Outcome]) -> PlanOutcome:
    """Train what is left of a plan; a run that fails does not stop the others.

    Args:
        plan: what to train.
        train: trains one configuration to its end. If its run is not complete then, the user has stopped it.
    """
    failed: dict[str, Exception] = {}
    left = plan.left
    for index, config in enumerate(left):
        turn = Turn(index + 1, len(left), estimate(plan, left[index:]))
        try:
            if not train(config, turn).complete:
                return PlanOutcome(failed, interrupted=True)
        except KeyboardInterrupt:
            return PlanOutcome(failed, interrupted=True)
        except Exception as error:  # whatever it is: the runs after it may take all night and do not depend on it
            failed[run_path(config, plan.folder).name] = error
    return PlanOutcome(failed)
