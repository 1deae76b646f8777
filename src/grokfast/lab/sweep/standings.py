"""What came of a sweep, from its run directories: each setting over its seeds, the best first."""

from __future__ import annotations

import math
import statistics
from typing import Any, NamedTuple

from rich.table import Table

from grokfast.lab.compare.results import cell
from grokfast.lab.sweep.objective import BEYOND, crossing_of, value_of
from grokfast.lab.sweep.space import Point
from grokfast.lab.sweep.spec import Objective, Spec
from grokfast.lab.sweep.study import Sweep, Tally

HEADINGS = {
    "stable": "steps to the level for good",
    "first": "steps to the level",
    "accuracy": "final accuracy",
    "loss": "best loss",
    "seconds": "seconds to the level for good",
}


class Standing(NamedTuple):
    """A setting and what its runs gave; a run that was pruned counts as worse than any."""

    setting: dict[str, Any]
    budget: int
    complete: int
    censored: int
    pruned: int
    failed: int
    values: list[float]  # to be made smaller, the best first
    limit: float  # values above it are not measured, only ranked

    @property
    def median(self) -> float:
        if not self.values:
            return math.inf
        high = statistics.median_high(self.values)  # no mean of a value measured and one that is not
        return high if high > self.limit else statistics.median(self.values)


def standings(sweep: Sweep, tally: Tally) -> list[Standing]:
    """All settings, the best first."""
    seeds: dict[tuple[tuple[str, Any], ...], list[Point]] = {}
    for point in sweep.points(sweep.trials()):
        seeds.setdefault(point.setting, []).append(point)
    found = [standing(sweep, tally, points) for points in seeds.values()]
    return sorted(found, key=lambda s: (s.median, s.failed))


def standing(sweep: Sweep, tally: Tally, points: list[Point]) -> Standing:
    spec, runs = sweep.spec, [sweep.run(point) for point in points]
    done = [run for run in runs if run.status == "complete"]
    values = [value_of(run.config, run.rows, spec.objective) for run in done]
    pruned = sum(p in tally.pruned and run.status != "complete" for p, run in zip(points, runs, strict=True))
    censored = sum(crossing_of(run.config, run.rows, spec.objective).censored for run in done)
    budget = spec.config(points[0]).loop.steps or 0
    failed = sum(point in tally.failed for point in points)
    whole = sorted([*values, *[math.inf] * pruned])
    limit = {"stable": budget, "first": budget, "seconds": BEYOND}.get(spec.objective, math.inf)
    return Standing(dict(points[0].setting), budget, len(done), censored, pruned, failed, whole, limit)


def heading(spec: Spec) -> str:
    """What settings are ranked by. Of a run that stops at the level nobody knows whether it would have stayed."""
    stops = spec.base.loop.until is not None and not spec.base.loop.extra_steps
    return HEADINGS[spec.objective].removesuffix(" for good" if stops else "-")


def standings_table(found: list[Standing], spec: Spec, top: int) -> Table:
    """The best settings, with the median and the range over seeds."""
    table = Table(box=None, header_style="bold", pad_edge=False, title=f"the best settings by {heading(spec)}")
    failures = any(s.failed for s in found)
    prunings = any(s.pruned for s in found)
    also = (["pruned"] if prunings else []) + (["failed"] if failures else [])
    for column in (*(found[0].setting if found else []), "runs", "median", "from", "to", "censored", *also):
        table.add_column(column, justify="right", overflow="fold")
    for s in found[:top]:
        numbers = [text(v, s, spec.objective) for v in (s.median, *(s.values[:1] + s.values[-1:] or [math.inf] * 2))]
        counts = [str(n) for n, shown in ((s.pruned, prunings), (s.failed, failures)) if shown]
        table.add_row(*map(cell, s.setting.values()), str(s.complete), *numbers, str(s.censored), *counts)
    return table


def text(value: float, s: Standing, objective: Objective) -> str:
    """A value as a person reads it; what lies beyond the limit is not known."""
    if math.isinf(value):
        return "-"
    if value > s.limit:
        return "not reached" if objective == "seconds" else f"> {s.budget:,}"
    return f"{value:,.0f}" if objective in ("stable", "first") else f"{abs(value):.4g}"


def as_json(s: Standing, objective: Objective) -> dict[str, Any]:
    """A standing as plain data, accuracies the right way round."""
    sign = -1.0 if objective == "accuracy" else 1.0
    values = [sign * value if value < BEYOND else None for value in (s.median, *s.values)]
    counts = {"complete": s.complete, "censored": s.censored, "pruned": s.pruned, "failed": s.failed}
    return {"setting": s.setting, "median": values[0], "values": values[1:], **counts}
