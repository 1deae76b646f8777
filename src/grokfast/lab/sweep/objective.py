"""The number of a run that a search makes smaller, and which runs are hopeless.

    steps to a level    the step of the crossing; where there is none: budget * (1 + gap)
    gap                 how far a validation measure stays from the level: 0 at it, 1 at the greatest distance;
                        that of the best evaluation for `first`, of the last one for the others

A censored run so counts as more than its budget, and the nearer it came the less. The budget itself, not the steps that
were taken, also counts for a run that diverged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from grokfast.lab.compare.seeds import Bound, seconds_of, spread_of, steps_of
from grokfast.lab.config import RunConfig
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Row, best, validation
from grokfast.lab.runs.writer import run_path
from grokfast.lab.sweep.spec import Objective, more_is_better
from grokfast.lab.tasks.base import Measure

ENOUGH = 4  # complete runs before another is compared with them
GRAIN = 0.05  # smaller differences between gaps do not count: a run only guesses before it generalises
UNKNOWN = Bound(math.inf, False)  # of a run that was pruned, failed or has no such number
BEYOND = 1e9  # seconds added for a run that never reaches its level: a fast failure must not win

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


def bound_of(run: Run, objective: Objective) -> Bound:
    """The number of a run, or a lower bound where only that is known."""
    rows = run.rows
    match objective:
        case "first" | "stable":
            return steps_of(run, objective)
        case "seconds":
            return seconds_of(run, "stable")
        case "accuracy":
            accuracy = rows[-1].val_accuracy
            return UNKNOWN if accuracy is None or math.isnan(accuracy) else Bound(-accuracy)
        case "loss":
            lowest = best(rows, "loss")
            return UNKNOWN if lowest is None else Bound(lowest.value)
        case _:
            value = (rows[-1].more or {}).get(objective)
            return UNKNOWN if value is None else Bound(-value if more_is_better(objective) else value)


def value_of(run: Run, objective: Objective) -> float:
    """The number to be made smaller; inf where a run has none."""
    rows = run.rows
    bound = bound_of(run, objective) if rows else UNKNOWN
    if not rows or bound.exact or objective not in ("first", "stable", "seconds"):
        return float(bound.value)
    gaps = [gap for _, gap in curve_of(rows, run.level, run.measure)]
    steps = run.loop["steps"] * (1.0 + (min(gaps) if objective == "first" else gaps[-1]))
    return BEYOND + rows[-1].seconds * steps / rows[-1].step if objective == "seconds" else steps


# Pruning ------------------------------------------------------------------------------------------------------------


def curve_of(rows: Sequence[Row], level: float, measure: Measure) -> Curve:
    """The gap at each evaluation."""
    values = zip(rows, validation(rows, measure), strict=True)
    return [(row.step, gap(value, level, measure)) for row, value in values]


def lowest_until(curve: Curve, step: int) -> float:
    return min((gap for at, gap in curve if at <= step), default=1.0)


def is_hopeless(mine: Curve, others: Sequence[Curve], step: int) -> bool:
    """Whether a run is by now clearly worse than the median of complete runs was at the same step.

    A run that had reached its level and stopped counts as it ended. (optuna's MedianPruner would leave it out, and so
    compare the slow with the slow.)
    """
    if len(others) < ENOUGH:
        return False
    usual = spread_of([Bound(lowest_until(curve, step)) for curve in others]).median
    return lowest_until(mine, step) > usual.value + GRAIN


class Judge:
    """Compares a run with the complete ones in its folder, at each evaluation."""

    _measure: Measure

    def __init__(self, config: RunConfig, folder: Path) -> None:
        self._folder, self._others = folder, dict[Path, Curve]()
        self._level, self._measure = config.level, config.task.measure
        self._step, self._mine = 0, Curve()
        for row in Run(run_path(config, folder)).rows:
            self.see(row)

    def see(self, row: Row) -> None:
        self._step = row.step
        self._mine += curve_of([row], self._level, self._measure)

    def is_hopeless(self) -> bool:
        for path in self._folder.glob("*/summary.json"):
            if path not in self._others:
                other = Run(path.parent)
                self._others[path] = curve_of(other.rows, other.level, other.measure)
        return is_hopeless(self._mine, list(self._others.values()), self._step)
