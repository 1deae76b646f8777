"""What a sweep makes smaller: one number per run; and which runs are hopeless.

    steps to a level    the step of the crossing; where there is none: budget * (1 + gap)
    gap                 how far a validation measure stays behind the level: 0 at it, 1 as far as can be

A censored run so counts as more than its budget, and the nearer it came the less. The budget itself, not the steps that
were taken, also counts for a run that diverged.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from grokfast.lab.config import RunConfig
from grokfast.lab.runs.metrics import Crossing, Row, best, crossings, validation
from grokfast.lab.runs.directory import Run
from grokfast.lab.sweep.spec import Objective
from grokfast.lab.tasks.base import Measure

ENOUGH = 4  # complete runs before one is judged by them
GRAIN = 0.05  # gaps that differ by less are alike: before it generalises a run only guesses

Curve = list[tuple[int, float]]  # steps and gaps


def gap(value: float | None, level: float, measure: Measure) -> float:
    """How far a measure is from its level, in [0, 1].

    >>> [gap(accuracy, 0.8, "accuracy") for accuracy in (0.9, 0.8, 0.4, 0.0, None)]
    [0.0, 0.0, 0.5, 1.0, 1.0]
    >>> [gap(loss, 0.5, "loss") for loss in (0.5, 1.0, math.inf)]
    [0.0, 0.5, 1.0]
    """
    if value is None or math.isnan(value):
        return 1.0
    if measure == "accuracy":
        return min(max(1.0 - value / level, 0.0), 1.0)
    return 1.0 - level / value if value > level else 0.0


BEYOND = 1e9  # seconds added to those of a run that never got there: a fast failure must not win


def value_of(config: RunConfig, rows: Sequence[Row], objective: Objective) -> float:
    """The number to be made smaller; inf where a run has nothing to show."""
    if not rows:
        return math.inf
    match objective:
        case "accuracy":
            accuracy = rows[-1].val_accuracy
            return math.inf if accuracy is None or math.isnan(accuracy) else -accuracy
        case "loss":
            lowest = best(rows, "loss")
            return math.inf if lowest is None else lowest.value
        case "first" | "stable":
            return steps_to_level(config, rows, objective)
        case "seconds":
            steps = steps_to_level(config, rows, "stable")
            there = next((row for row in rows if row.step == steps), rows[-1])
            late = BEYOND if crossing_of(config, rows, objective).censored else 0.0
            return late + there.seconds * steps / there.step


def crossing_of(config: RunConfig, rows: Sequence[Row], objective: Objective) -> Crossing:
    kind = "first" if objective == "first" else "stable"
    return crossings(rows, config.level, config.task.defaults().measure)[kind]


def steps_to_level(config: RunConfig, rows: Sequence[Row], objective: Objective) -> float:
    """The step of the crossing; where there is none, the best evaluation counts for `first`, the last for `stable`."""
    step = crossing_of(config, rows, objective).step
    if step is not None:
        return float(step)
    gaps = [gap for _, gap in curve_of(config, rows)]
    assert config.loop.steps is not None
    return config.loop.steps * (1.0 + (min(gaps) if objective == "first" else gaps[-1]))


# Pruning ------------------------------------------------------------------------------------------------------------


def curve_of(config: RunConfig, rows: Iterable[Row]) -> Curve:
    """The gap at each evaluation."""
    measure, kept = config.task.defaults().measure, list(rows)
    values = zip(kept, validation(kept, measure), strict=True)
    return [(row.step, gap(value, config.level, measure)) for row, value in values]


def lowest_until(curve: Curve, step: int) -> float:
    return min((gap for at, gap in curve if at <= step), default=1.0)


def hopeless(mine: Curve, others: Sequence[Curve], step: int) -> bool:
    """Whether a run is by now clearly worse than the median of complete runs was at the same step.

    A run that had reached its level and stopped counts as it ended. (optuna's MedianPruner would leave it out, and so
    compare the slow with the slow.)
    """
    if len(others) < ENOUGH:
        return False
    usual = statistics.median(lowest_until(curve, step) for curve in others)
    return lowest_until(mine, step) > usual + GRAIN


class Judge:
    """Compares a run with the complete ones beside it, at each evaluation."""

    def __init__(self, run: Run) -> None:
        self._run, self._others = run, dict[Path, Curve]()
        self._mine = curve_of(run.config, run.rows)
        self._step = 0

    def see(self, row: Row) -> None:
        self._step = row.step
        self._mine += curve_of(self._run.config, [row])

    def hopeless(self) -> bool:
        for path in self._run.path.parent.glob("*/summary.json"):
            if path not in self._others:
                other = Run(path.parent)
                self._others[path] = curve_of(other.config, other.rows)
        return hopeless(self._mine, list(self._others.values()), self._step)
