"""A plan: distinct configurations to train one after the other, what is left of it, and how long that may take.

A complete run is left alone and an interrupted one is resumed, so the same plan again always continues where it
stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path

from grokfast.lab.config import RunConfig, to_json
from grokfast.lab.paper.published import published_of
from grokfast.lab.runs.directory import Run, RunError, load_runs
from grokfast.lab.runs.names import fingerprint
from grokfast.lab.runs.writer import run_path
from grokfast.lab.tasks.data import DataError
from grokfast.lab.training.train import make_task

TIMED_STEPS = 100  # a shorter run mostly measures its start


def complete_runs(configs: Iterable[RunConfig], folder: Path) -> list[Run]:
    """The runs that are done."""
    runs = [Run(run_path(config, folder)) for config in configs]
    return [run for run in runs if run.status == "complete"]


def what_is_left(configs: Iterable[RunConfig], folder: Path) -> list[RunConfig]:
    """The runs that are still to be trained, wholly or in part."""
    return [config for config in configs if Run(run_path(config, folder)).status != "complete"]


def distinct(configs: Iterable[RunConfig]) -> list[RunConfig]:
    """Each configuration once, in the order of its first appearance."""
    found: dict[str, RunConfig] = {}
    for config in configs:
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


def estimate(configs: Iterable[RunConfig], folder: Path) -> float:
    """Seconds that these runs may still take."""
    speed = measured_step_seconds(folder)
    return sum(expected_seconds(config, speed, steps_done(config, folder)) for config in configs)


def expected_seconds(config: RunConfig, speed: Mapping[str, float], done: int = 0) -> float:
    """Seconds that a run may take after `done` steps, at the speed of each task that is known."""
    return max(expected_steps(config) - done, 0) * speed.get(config.task_name, config.task.step_seconds)


def expected_steps(config: RunConfig) -> int:
    """The steps that the paper reports where the run stops at the level, else the whole budget."""
    published = published_of(to_json(config)).steps
    if published is None or config.loop.until is None:
        return config.loop.steps
    return min(config.loop.steps, published + config.loop.extra_steps)


def steps_done(config: RunConfig, folder: Path) -> int:
    with contextlib.suppress(RunError):  # damaged: training it will say so
        rows = Run(run_path(config, folder)).rows
        return rows[-1].step if rows else 0
    return 0


def measured_step_seconds(folder: Path) -> dict[str, float]:
    """Seconds per step of each task that has complete runs in a folder: their median."""
    found: dict[str, list[float]] = {}
    for run in load_runs(folder):
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
