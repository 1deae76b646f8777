"""Runs that differ in nothing but the seed, as one curve with a band."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grokfast.lab.config import RunConfig, fingerprint
from grokfast.lab.metrics import Row
from grokfast.lab.paper import find_arm
from grokfast.lab.results import label
from grokfast.lab.runs import Run

POINTS = 300  # of a curve in a page: more than a screen shows, few enough for a small file
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
    return [Group(group_name(members), members) for members in found.values()]


def without_seed(config: RunConfig) -> str:
    return fingerprint(dataclasses.replace(config, loop=dataclasses.replace(config.loop, seed=0)))


def group_name(runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        return label(runs[0])
    arm = find_arm(runs[0].config)
    name = arm.name if arm else runs[0].name.rsplit("-s", 1)[0]
    return f"{name}, {len(runs)} seeds"


def band(group: Group, field: str) -> Band | None:
    """The curve of one field of the rows; None where the runs do not have it."""
    curves = [curve for run in group.runs if (curve := curve_of(run.rows, field)) is not None]
    if not curves:
        return None
    steps = thin(np.unique(np.concatenate([steps for steps, _ in curves])))
    # A run that has ended has no value: it neither widens the band nor moves the median.
    table = np.stack([np.interp(steps, x, y, left=np.nan, right=np.nan) for x, y in curves])
    known = ~np.isnan(table).all(0)
    table = table[:, known]
    parts = (np.nanmedian(table, 0), np.nanmin(table, 0), np.nanmax(table, 0))
    return Band(steps[known], *(part.astype(np.float32) for part in parts))


def curve_of(rows: Sequence[Row], field: str) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    pairs = [(row.step, value) for row in rows if (value := getattr(row, field)) is not None and np.isfinite(value)]
    if not pairs:
        return None
    steps, values = zip(*pairs, strict=True)
    return np.array(steps), np.array(values, float)


def thin(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most POINTS of these steps, dense early and sparse late, with the first and the last."""
    if len(steps) <= POINTS:
        return steps
    wanted = np.geomspace(max(1, steps[0]), steps[-1], POINTS)
    return np.unique(steps[np.searchsorted(steps, wanted).clip(0, len(steps) - 1)])
