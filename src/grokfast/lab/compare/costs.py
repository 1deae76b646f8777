"""Costs and distances of runs over seeds, beside the paper's, as rows of text for page and Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab.analysis.trajectory import DistanceRow, Spread, distance_table
from grokfast.lab.analysis.weights import Products
from grokfast.lab.paper.published import Costs, find_arm
from grokfast.lab.report.groups import Group
from grokfast.lab.compare.results import crossing
from grokfast.lab.runs.directory import Run
from grokfast.lab.compare.arms import spread

SIDES = ("AB", "BC", "AC")


def distance_rows(weights: Sequence[Products]) -> list[list[str]]:
    """Distances between the states A, B and C over seeds, beside the paper's; [] where no weights were kept."""
    rows = [row for known in weights for row in distance_table(known.runs, known=known)]
    head = ["runs", *(f"{side}, {kind}" for kind in ("l2", "1000 x mean square", "paper") for side in SIDES)]
    return [head, *([row.name, *spreads(row)] for row in rows)] if rows else []


def spreads(row: DistanceRow) -> list[str]:
    kinds = (row.l2, row.mean_squares, row.published)
    return [spread_text(side) for kind in kinds for side in (kind if kind is not None else [None] * len(SIDES))]


def spread_text(spread: Spread | None) -> str:
    if spread is None or spread.mean is None:
        return "-"
    text = f"{spread.mean:.4g}" + (f" ± {spread.deviation:.2g}" if spread.deviation is not None else "")
    return f"{text} (n = {spread.seeds})"


def cost_rows(groups: Sequence[Group]) -> list[list[str]]:
    """What each configuration took on this machine, the mean over seeds, and on the paper's."""
    head = ["run", "steps to the level", "seconds to it", "ms per step, evaluations included", "peak memory, MB"]
    paper = ["paper: seconds", "paper: ms per step", "paper: memory, MB"]
    return [[*head, "filter's state, MB", *paper], *([g.name, *group_costs(g), *published_costs(g)] for g in groups)]


def group_costs(group: Group) -> list[str]:
    measured = zip(*(costs(run) for run in group.runs), strict=True)
    return [spread([crossing(run) for run in group.runs]), *map(mean_text, measured)]


def costs(run: Run) -> tuple[float | None, ...]:
    rows, summary, step = run.rows, run.summary or {}, crossing(run).step
    seconds = next((row.seconds for row in rows if row.step == step), None)
    latency = 1e3 * rows[-1].seconds / rows[-1].step if rows else None
    memory = [value / 2**20 if (value := summary.get(key)) else None for key in ("peak_memory_bytes", "filter_bytes")]
    return seconds, latency, *memory


def published_costs(group: Group) -> list[str]:
    arm = find_arm(group.runs[0].config)
    found = arm.published.costs if arm is not None and arm.published is not None else None
    if found is None or group.runs[0].config.plain:
        return [""] * len(Costs._fields)
    return [mean_text([found.seconds]), mean_text([1e3 * found.step_seconds]), mean_text([found.memory_mb])]


def mean_text(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    middle = sum(known) / len(known)
    return f"{middle:,.0f}" if middle >= 100 else f"{middle:.3g}"
