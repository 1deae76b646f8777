"""Runs that differ in nothing but the seed, as one curve with a band."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grokfast.lab.config import RunConfig, fingerprint
from grokfast.lab.compare.headline import median
from grokfast.lab.runs.metrics import Row
from grokfast.lab.paper.published import find_arm
from grokfast.lab.compare.results import crossing, label
from grokfast.lab.runs.directory import Run

POINTS = 240  # of a curve in a page: about what a screen shows, few enough for a small file
FAINT_POINTS = 60  # of one among many
Curve = NDArray[np.float32]


class Group(NamedTuple):
    """Runs of one configuration, over seeds."""

    name: str
    runs: list[Run]


class Band(NamedTuple):
    """A curve over steps: the median over seeds, the lowest and the highest."""

    steps: NDArray[np.int64]
    middle: Curve
    low: Curve
    high: Curve


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Runs by configuration without the seed, in the order of their first."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(without_seed(run.config), []).append(run)
    return told_apart([Group(group_name(members), members) for members in found.values()])


def without_seed(config: RunConfig) -> str:
    return fingerprint(dataclasses.replace(config, loop=dataclasses.replace(config.loop, seed=0)))


def group_name(runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        return label(runs[0]) + (", unfinished" if runs[0].summary is None else "")
    arm = find_arm(runs[0].config)
    name = arm.name if arm else runs[0].name.rsplit("-s", 1)[0]
    plain = ", plain path" if runs[0].config.plain else ""
    unfinished = sum(run.summary is None for run in runs)
    return f"{name}{plain}, {len(runs)} seeds" + (f" ({unfinished} unfinished)" if unfinished else "")


def told_apart(groups: Sequence[Group]) -> list[Group]:
    """The same groups, each with a name of its own: where two have one, the mark of the configuration is added."""
    counts = Counter(group.name for group in groups)
    return [
        group._replace(name=f"{group.name} #{without_seed(group.runs[0].config)[:4]}")
        if counts[group.name] > 1
        else group
        for group in groups
    ]


def most_telling(groups: Sequence[Group], most: int) -> tuple[list[Group], list[Group]]:
    """At most so many groups to look at, baselines and the paper's arms, then the fastest; and all others."""
    if len(groups) <= most:
        return list(groups), []

    def late(i: int) -> tuple[bool, bool, float]:
        steps, reached = median([crossing(run) for run in groups[i].runs])
        config = groups[i].runs[0].config
        return find_arm(config) is None and config.filter.filter is not None, not reached, steps

    kept = set(sorted(range(len(groups)), key=late)[:most])
    return [groups[i] for i in sorted(kept)], [group for i, group in enumerate(groups) if i not in kept]


def band(group: Group, field: str, *, points: int = POINTS) -> Band | None:
    """The curve of one field of the rows in at most so many points; None where the runs do not have it.

    A run that stopped when it had reached its level keeps its last value, as early stopping would. One that is not
    finished has no value beyond its end.
    """
    curves = [(run, *curve) for run in group.runs if (curve := curve_of(run.rows, field)) is not None]
    if not curves:
        return None
    steps = np.unique(np.concatenate([steps for _, steps, _ in curves]))
    table = np.stack([np.interp(steps, x, y, left=np.nan, right=beyond(run, y)) for run, x, y in curves])
    known = ~np.isnan(table).all(0)
    steps, table = steps[known], table[:, known]
    middle, low, high = np.nanmedian(table, 0), np.nanmin(table, 0), np.nanmax(table, 0)
    reached = [step for run in group.runs if (step := crossing(run).step) is not None]
    kept = thin(steps, middle, points, always=np.searchsorted(steps, reached).clip(0, len(steps) - 1))
    return Band(steps[kept], *(part[kept].astype(np.float32) for part in (middle, low, high)))


def beyond(run: Run, values: NDArray[np.float64]) -> float:
    return float(values[-1]) if run.summary is not None and run.config.loop.until is not None else np.nan


def curve_of(rows: Sequence[Row], field: str) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    pairs = [(row.step, value) for row in rows if (value := getattr(row, field)) is not None and np.isfinite(value)]
    if not pairs:
        return None
    steps, values = zip(*pairs, strict=True)
    return np.array(steps), np.array(values, float)


def thin(
    steps: NDArray[np.int64], values: NDArray[np.float64], points: int, *, always: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Which points to draw, dense early and sparse late: the lowest and the highest of each stretch, and both ends."""
    if len(steps) <= points:
        return np.arange(len(steps))
    always = np.unique(always)[: points // 2]
    edges = np.geomspace(max(1, steps[0]), steps[-1], (points - 2 - len(always)) // 2)
    stretch = np.searchsorted(edges, steps)
    order = np.lexsort((values, stretch))  # by stretch, then by value
    first = np.flatnonzero(np.diff(stretch[order], prepend=-1))
    last = np.append(first[1:], len(steps)) - 1
    return np.unique(np.concatenate([order[first], order[last], always, [0, len(steps) - 1]]))
