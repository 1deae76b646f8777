"""Runs that differ in nothing but the seed, as one curve with a band."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grokfast.lab.config import RunConfig, fingerprint
from grokfast.lab.metrics import Row
from grokfast.lab.paper import find_arm
from grokfast.lab.results import label
from grokfast.lab.runs import Run

POINTS = 250  # of a curve in a page: more than a screen shows, few enough for a small file
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


def band(group: Group, field: str) -> Band | None:
    """The curve of one field of the rows; None where the runs do not have it.

    A run that stopped when it had reached its level keeps its last value, as early stopping would. One that is not
    finished has no value beyond its end.
    """
    curves = [(run, *curve) for run in group.runs if (curve := curve_of(run.rows, field)) is not None]
    if not curves:
        return None
    steps = thin(np.unique(np.concatenate([steps for _, steps, _ in curves])))
    table = np.stack([np.interp(steps, x, y, left=np.nan, right=beyond(run, y)) for run, x, y in curves])
    known = ~np.isnan(table).all(0)
    table = table[:, known]
    parts = (np.nanmedian(table, 0), np.nanmin(table, 0), np.nanmax(table, 0))
    return Band(steps[known], *(part.astype(np.float32) for part in parts))


def beyond(run: Run, values: NDArray[np.float64]) -> float:
    return float(values[-1]) if run.summary is not None and run.config.loop.until is not None else np.nan


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
