"""What came of a sweep, from its run directories: each setting over its seeds, the best first."""

from __future__ import annotations

import math
import statistics
from typing import Any, NamedTuple

from rich.table import Table

from grokfast.lab.results import cell
from grokfast.lab.sweep.objective import crossing_of, value_of
from grokfast.lab.sweep.space import Point
from grokfast.lab.sweep.spec import Objective
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

    @property
    def median(self) -> float:
        return statistics.median(self.values) if self.values else math.inf


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
    return Standing(dict(points[0].setting), budget, len(done), censored, pruned, failed, whole)


def standings_table(found: list[Standing], objective: Objective, top: int) -> Table:
    """The best settings, with the median and the range over seeds."""
    table = Table(box=None, header_style="bold", pad_edge=False, title=f"the best settings by {HEADINGS[objective]}")
    failures = any(s.failed for s in found)
    prunings = any(s.pruned for s in found)
    also = (["pruned"] if prunings else []) + (["failed"] if failures else [])
    for column in (*(found[0].setting if found else []), "runs", "median", "from", "to", "censored", *also):
        table.add_column(column, justify="right", no_wrap=True)
    for s in found[:top]:
        numbers = [text(v, s.budget, objective) for v in (s.median, *(s.values[:1] + s.values[-1:] or [math.inf] * 2))]
        counts = [str(n) for n, shown in ((s.pruned, prunings), (s.failed, failures)) if shown]
        table.add_row(*map(cell, s.setting.values()), str(s.complete), *numbers, str(s.censored), *counts)
    return table


def text(value: float, budget: int, objective: Objective) -> str:
    """A value as a person reads it; what lies beyond the budget is not known."""
    if math.isinf(value):
        return "-"
    if objective in ("stable", "first"):
        return f"> {budget:,}" if value > budget else f"{value:,.0f}"
    return f"{abs(value):.4g}"


def as_json(s: Standing, objective: Objective) -> dict[str, Any]:
    """A standing as plain data, accuracies the right way round."""
    sign = -1.0 if objective == "accuracy" else 1.0
    values = [sign * value if math.isfinite(value) else None for value in (s.median, *s.values)]
    counts = {"complete": s.complete, "censored": s.censored, "pruned": s.pruned, "failed": s.failed}
    return {"setting": s.setting, "median": values[0], "values": values[1:], **counts}
