"""Curves of runs as a picture: accuracy and loss over steps, training dashed, validation solid."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from grokfast.lab.metrics import Row
from grokfast.lab.results import by_task, crossing, label
from grokfast.lab.runs import Run

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe-Ito: safe for all eyes


def draw_curves(runs: list[Run], path: Path) -> None:
    """Write a PNG, SVG or PDF, by the ending of `path`: one line of pictures for each task."""
    tasks = by_task(runs)
    figure = Figure(figsize=(11, 4.2 * len(tasks)), layout="constrained")
    grid = figure.subplots(len(tasks), 2, squeeze=False)
    for (task, group), (left, right) in zip(tasks.items(), grid, strict=True):
        draw_task(left, right, group, task)
    figure.savefig(path, dpi=160)


def draw_task(accuracy: Axes, loss: Axes, runs: list[Run], task: str) -> None:
    """Accuracy and loss of the runs of one task; the loss alone where there is no accuracy."""
    for run, colour in zip(runs, COLOURS * len(runs), strict=False):
        rows = run.rows
        if rows:
            draw_run(accuracy, run, rows, colour, "accuracy")
            draw_run(loss, run, rows, colour, "loss")
    for axes, name in ((accuracy, "accuracy"), (loss, "loss")):
        axes.set(xscale="log", xlabel="steps", ylabel=f"{task}: {name}")
        axes.grid(alpha=0.25)
    accuracy.set_ylim(-0.02, 1.02)
    loss.set_yscale("log")
    named = accuracy if accuracy.lines else loss
    accuracy.set_visible(bool(accuracy.lines))
    if named.lines:
        named.legend(loc="best", frameon=False, fontsize=8, title="solid: validation, dashed: training")


def draw_run(axes: Axes, run: Run, rows: list[Row], colour: str, what: str) -> None:
    steps = [row.step for row in rows]
    train, val = [getattr(row, f"train_{what}") for row in rows], [getattr(row, f"val_{what}") for row in rows]
    if val[0] is None:
        return
    axes.plot(steps, train, color=colour, linestyle="--", linewidth=1, alpha=0.7)
    axes.plot(steps, val, color=colour, linewidth=1.8, label=label(run))
    step = crossing(run.summary, "first").step if run.summary else None
    if step is not None:
        axes.plot([step], [val[steps.index(step)]], "o", color=colour, markersize=6)
