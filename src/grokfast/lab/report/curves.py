"""Accuracy and loss over training steps, arm by arm: the median over seeds with a band, thinned for the screen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grokfast.lab.compare.seeds import Arm, make_arms
from grokfast.lab.report.colours import MOST, number_arms, rank
from grokfast.lab.report.pictures import NO_ARM, Panel, Plot, Series, picture_name
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


def task_plots(tasks: Iterable[Sequence[Run]]) -> list[Plot]:
    """The curves of each task, from the runs of each."""
    plots = [curves_plot(make_arms(runs), runs[0].task) for runs in tasks]
    return [plot for plot in plots if plot.panels]


def curves_plot(arms: Sequence[Arm], task: str) -> Plot:
    """Accuracy and loss over steps; the loss alone where there is no accuracy."""
    panels = [
        Panel("steps", what, curve_series(arms, what), log_y=what == "loss", percent=what == "accuracy")
        for what in ("accuracy", "loss")
    ]
    shown = [panel for panel in panels if panel.series]
    what = " and ".join(panel.y for panel in shown)
    return Plot(picture_name("curves", task), f"{task}: {what} over training steps", shown)


def curve_series(arms: Sequence[Arm], what: str) -> list[Series]:
    """Validation with its band, training dashed, and a mark at each crossing."""
    numbers = number_arms(arms)
    arms, others = select_groups(arms)
    found = [line for arm in arms for line in arm_series(arm, what, numbers[arm.key])]
    return faint_series(others, what) + found


def arm_series(arm: Arm, what: str, number: int) -> list[Series]:
    train, val, found = band(arm, f"train_{what}"), band(arm, f"val_{what}"), list[Series]()
    if train is not None:
        found.append(Series(number, arm.title, train.steps, train.middle, "dashed", named=False, what="training"))
    if val is not None:
        named = what == "accuracy" or not has_accuracy(arm)
        line = Series(number, arm.title, val.steps, val.middle, low=val.low, high=val.high, named=named)
        found.append(line._replace(what="validation"))
    marks = crossing_marks(arm, what)
    if marks:
        steps, values = zip(*marks, strict=True)
        found.append(Series(number, arm.title, steps, values, "marks", named=False, what="validation"))
    return found


def has_accuracy(arm: Arm) -> bool:
    return any(row.val_accuracy is not None for run in arm.runs for row in run.rows)


def faint_series(arms: Sequence[Arm], what: str) -> list[Series]:
    """Many curves as one line with gaps, in grey: they show where the crowd is, and take little space."""
    bands = [found for arm in arms if (found := band(arm, f"val_{what}", points=FAINT_POINTS)) is not None]
    if not bands:
        return []
    steps, values = (np.concatenate([[*b[i], np.nan] for b in bands]).astype(np.float32) for i in (0, 1))
    named = what == "accuracy" or not any(map(has_accuracy, arms))
    return [Series(NO_ARM, f"{len(bands)} others", steps, values, "faint", named=named, what="validation")]


def crossing_marks(arm: Arm, what: str) -> list[tuple[int, float]]:
    """Where each run first reached its level, on the curve of `what`."""
    crossed = [(run.crossing().step, run.rows) for run in arm.runs]
    values = [(row.step, getattr(row, f"val_{what}")) for step, rows in crossed for row in rows if row.step == step]
    return [(step, value) for step, value in values if value is not None]


def select_groups(arms: Sequence[Arm]) -> tuple[list[Arm], list[Arm]]:
    """The arms to show, baselines and the paper's arms first, then the fastest; and the others; in their order."""
    kept = {arm.key for arm in sorted(arms, key=rank)[:MOST]}
    return [arm for arm in arms if arm.key in kept], [arm for arm in arms if arm.key not in kept]


def band(arm: Arm, field: str, *, points: int = POINTS) -> Band | None:
    """The curve of one field of the rows in at most `points` points; None where the runs do not have it.

    A run that stopped when it had reached its level keeps its last value, as early stopping would. One that is not
    finished has no value beyond its end.
    """
    curves = [(run, *curve) for run in arm.runs if (curve := curve_of(run.rows, field)) is not None]
    if not curves:
        return None
    steps = np.unique(np.concatenate([steps for _, steps, _ in curves]))
    ends = [y[-1] if run.status == "complete" and run.loop["until"] is not None else np.nan for run, _, y in curves]
    table = np.stack([np.interp(steps, x, y, np.nan, end) for (_, x, y), end in zip(curves, ends, strict=True)])
    known = ~np.isnan(table).all(0)
    steps, table = steps[known], table[:, known]
    middle, low, high = np.nanmedian(table, 0), np.nanmin(table, 0), np.nanmax(table, 0)
    reached = [step for run in arm.runs if (step := run.crossing().step) is not None]
    kept = thin(steps, middle, points, always=np.searchsorted(steps, reached).clip(0, len(steps) - 1))
    return Band(steps[kept], *(part[kept].astype(np.float32) for part in (middle, low, high)))


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
