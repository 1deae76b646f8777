"""Accuracy and loss over training steps, arm by arm."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from grokfast.lab.compare.seeds import Arm, make_arms
from grokfast.lab.report.groups import FAINT_POINTS, band, select_groups
from grokfast.lab.report.pictures import COLOURS, Panel, Plot, Series, picture_name
from grokfast.lab.runs.directory import Run

MOST = 2 * len(COLOURS)  # curves that can be told apart; beyond that the rest is grey


def task_plots(tasks: Iterable[Sequence[Run]]) -> list[Plot]:
    """The curves of each task, from the runs of each."""
    plots = [curves_plot(make_arms(runs), runs[0].task) for runs in tasks]
    return [plot for plot in plots if plot.panels]


def curves_plot(arms: Sequence[Arm], task: str) -> Plot:
    """Accuracy and loss over steps; the loss alone where there is no accuracy."""
    panels = [Panel("steps", what, curve_series(arms, what), log_y=what == "loss") for what in ("accuracy", "loss")]
    shown = [panel for panel in panels if panel.series]
    what = " and ".join(panel.y for panel in shown)
    return Plot(picture_name("curves", task), f"{task}: {what} over training steps", shown)


def curve_series(arms: Sequence[Arm], what: str) -> list[Series]:
    """Validation with its band, training dashed, and a mark at each crossing."""
    found: list[Series] = []
    arms, others = select_groups(arms, MOST)
    for i, arm in enumerate(arms):
        train, val = band(arm, f"train_{what}"), band(arm, f"val_{what}")
        if train is not None:
            found.append(Series(i, arm.title, train.steps, train.middle, "dashed", named=False))
        if val is not None:
            named = what == "accuracy" or band(arm, "val_accuracy") is None
            found.append(Series(i, arm.title, val.steps, val.middle, low=val.low, high=val.high, named=named))
        marks = crossing_marks(arm, what)
        if marks:
            steps, values = zip(*marks, strict=True)
            found.append(Series(i, arm.title, steps, values, "marks", named=False))
    return faint_series(others, what, len(arms)) + found


def faint_series(arms: Sequence[Arm], what: str, number: int) -> list[Series]:
    """Many curves as one line with gaps, in grey: they show where the crowd is, and take little space."""
    bands = [found for arm in arms if (found := band(arm, f"val_{what}", points=FAINT_POINTS)) is not None]
    if not bands:
        return []
    steps, values = (np.concatenate([append_gap(b[i]) for b in bands]) for i in (0, 1))
    named = what == "accuracy" or all(band(arm, "val_accuracy") is None for arm in arms)
    return [Series(number, f"{len(bands)} others", steps, values, "faint", named=named)]


def append_gap(values: Any) -> Any:
    return np.append(values, np.nan).astype(np.float32)


def crossing_marks(arm: Arm, what: str) -> list[tuple[int, float]]:
    """Where each run first reached its level, on the curve of `what`."""
    found: list[tuple[int, float]] = []
    for run in arm.runs:
        step = run.crossing().step
        row = next((row for row in run.rows if row.step == step), None)
        value = getattr(row, f"val_{what}") if row is not None else None
        if step is not None and value is not None:
            found.append((step, value))
    return found
