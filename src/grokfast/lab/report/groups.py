"""Which arms to show, and the curves of each: the median over its seeds with a band, thinned for the screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grokfast.lab.compare.seeds import Arm
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Row

POINTS = 240  # of a curve in a page: about what a screen shows, few enough for a small file
FAINT_POINTS = 60  # of one among many
Curve = NDArray[np.float32]


class Band(NamedTuple):
    """A curve over steps: the median over seeds, the lowest and the highest."""

    steps: NDArray[np.int64]
    middle: Curve
    low: Curve
    high: Curve


def select_groups(arms: Sequence[Arm], most: int) -> tuple[list[Arm], list[Arm]]:
    """At most so many arms to show, baselines and the paper's arms first, then the fastest; and all others."""
    if len(arms) <= most:
        return list(arms), []

    def rank(i: int) -> tuple[bool, tuple[bool, float, float]]:
        return arms[i].paper is None and arms[i].runs[0].filter is not None, arms[i].steps().order

    kept = set(sorted(range(len(arms)), key=rank)[:most])
    return [arms[i] for i in sorted(kept)], [arm for i, arm in enumerate(arms) if i not in kept]


def band(arm: Arm, field: str, *, points: int = POINTS) -> Band | None:
    """The curve of one field of the rows in at most so many points; None where the runs do not have it.

    A run that stopped when it had reached its level keeps its last value, as early stopping would. One that is not
    finished has no value beyond its end.
    """
    curves = [(run, *curve) for run in arm.runs if (curve := curve_of(run.rows, field)) is not None]
    if not curves:
        return None
    steps = np.unique(np.concatenate([steps for _, steps, _ in curves]))
    table = np.stack([np.interp(steps, x, y, left=np.nan, right=beyond(run, y)) for run, x, y in curves])
    known = ~np.isnan(table).all(0)
    steps, table = steps[known], table[:, known]
    middle, low, high = np.nanmedian(table, 0), np.nanmin(table, 0), np.nanmax(table, 0)
    reached = [step for run in arm.runs if (step := run.crossing().step) is not None]
    kept = thin(steps, middle, points, always=np.searchsorted(steps, reached).clip(0, len(steps) - 1))
    return Band(steps[kept], *(part[kept].astype(np.float32) for part in (middle, low, high)))


def beyond(run: Run, values: NDArray[np.float64]) -> float:
    return float(values[-1]) if run.status == "complete" and run.loop["until"] is not None else np.nan


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
