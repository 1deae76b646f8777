"""The results of a sweep, from its run directories: each setting over its seeds, the best first."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from grokfast.lab.compare.seeds import Bound, Spread, spread_of
from grokfast.lab.runs.metrics import Best, best
from grokfast.lab.sweep.objective import UNKNOWN, bound_of
from grokfast.lab.sweep.space import Point
from grokfast.lab.sweep.spec import Objective, Spec, more_is_better
from grokfast.lab.sweep.study import Sweep, Tally

HEADINGS = {
    "stable": "steps to {level} for good",
    "first": "steps to {level}",
    "accuracy": "final validation accuracy",
    "loss": "best validation loss",
    "seconds": "seconds to {level} for good",
}


class Standing(NamedTuple):
    """A setting and the numbers of its runs, by seed, smaller is better: where more is, signs are turned."""

    setting: dict[str, Any]
    points: list[Point]
    bounds: list[Bound]
    complete: int
    pruned: int
    failed: int

    @property
    def spread(self) -> Spread:
        return spread_of(self.bounds)

    @property
    def censored(self) -> int:
        """How many complete runs did not get there."""
        return self.spread.censored - self.pruned - self.failed


def rank_settings(sweep: Sweep, tally: Tally) -> list[Standing]:
    """All settings, the best first."""
    by_setting: dict[tuple[tuple[str, Any], ...], list[Point]] = {}
    for point in sweep.points(sweep.trials()):
        by_setting.setdefault(point.setting, []).append(point)
    found = [make_standing(sweep, tally, points) for points in by_setting.values()]
    return sorted(found, key=lambda standing: (standing.spread.order, standing.failed))


def make_standing(sweep: Sweep, tally: Tally, points: list[Point]) -> Standing:
    runs = {point: sweep.run(point) for point in points}
    done = {point: run for point, run in runs.items() if run.status == "complete"}
    pruned = [point for point in points if point in tally.pruned and point not in done]
    failed = [point for point in points if point in tally.failed and point not in done]
    known = [point for point in points if point in (*done, *pruned, *failed)]
    bounds = [bound_of(done[point], sweep.spec.objective) if point in done else UNKNOWN for point in known]
    return Standing(dict(points[0].setting), points, bounds, len(done), len(pruned), len(failed))


def nearest(sweep: Sweep, found: list[Standing]) -> tuple[Point, Best] | None:
    """The run that came nearest to its level, and its best evaluation; None where no run has any."""
    best_of = {
        point: best(run.rows, run.measure) for s in found for point in s.points if (run := sweep.run(point)).rows
    }
    reached = {point: each for point, each in best_of.items() if each is not None}
    if not reached:
        return None
    sign = 1 if sweep.run(next(iter(reached))).measure == "loss" else -1
    return min(reached.items(), key=lambda pair: sign * pair[1].value)


def heading(spec: Spec) -> str:
    """What settings are ranked by. A run that stops at its level does not show whether it would have stayed there."""
    configs = [spec.config(Point(setting, spec.seeds[0])) for setting in spec.settings()]
    levels = {f"validation {config.task.measure} {config.level:g}" for config in configs}
    words = HEADINGS.get(spec.objective, f"final {spec.objective}").format(
        level=levels.pop() if len(levels) == 1 else "its level"
    )
    stops = all(config.loop.until is not None and not config.loop.extra_steps for config in configs)
    return words.removesuffix(" for good") if stops else words


def bound_text(bound: Bound, objective: Objective) -> str:
    """A number as a person reads it.

    >>> bound_text(Bound(1200, False), "stable"), bound_text(Bound(-0.75), "accuracy"), bound_text(UNKNOWN, "loss")
    ('> 1,200', '0.75', '-')
    """
    if math.isinf(bound.value):
        return "-"
    if objective in ("first", "stable"):
        return str(bound)
    return f"{'' if bound.exact else '> '}{abs(bound.value):.4g}"


def to_json(standing: Standing, objective: Objective) -> dict[str, Any]:
    """A standing as plain data; where a number is not exact, the true one is above it, or it is not known: null."""
    sign = -1.0 if more_is_better(objective) else 1.0
    median = standing.spread.median
    found = [sign * bound.value if math.isfinite(bound.value) else None for bound in (median, *standing.bounds)]
    counts = {name: getattr(standing, name) for name in ("censored", "complete", "pruned", "failed")}
    return {"setting": standing.setting, "median": found[0], "exact": median.exact, "values": found[1:], **counts}
