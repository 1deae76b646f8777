"""The page's pictures for papers: PNG, SVG or PDF, by the ending of the file."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from grokfast.lab.report.charts import colour_of, crossing_marks
from grokfast.lab.report.groups import Group, band, group_runs
from grokfast.lab.results import by_task
from grokfast.lab.runs import Run


def draw_curves(runs: list[Run], path: Path) -> None:
    """One line of pictures for each task: accuracy and loss over steps."""
    tasks = by_task(runs)
    figure = Figure(figsize=(11, 4.6 * len(tasks)), layout="constrained")
    for part, (task, members) in zip(figure.subfigures(len(tasks), 1, squeeze=False)[:, 0], tasks.items(), strict=True):
        draw_task(part, group_runs(members), task)
    figure.savefig(path, dpi=160)


def draw_task(figure: SubFigure, groups: list[Group], task: str) -> None:
    """Accuracy and loss of the runs of one task; the loss alone where there is no accuracy."""
    accuracy, loss = figure.subplots(1, 2)
    for index, group in enumerate(groups):
        draw_group(accuracy, group, colour_of(index), "accuracy")
        draw_group(loss, group, colour_of(index), "loss")
    for axes, name in ((accuracy, "accuracy"), (loss, "loss")):
        axes.set(xscale="log", xlabel="steps", ylabel=f"{task}: {name}")
        axes.grid(alpha=0.25)
    accuracy.set_ylim(-0.02, 1.02)
    loss.set_yscale("log")
    named = accuracy if accuracy.lines else loss
    accuracy.set_visible(bool(accuracy.lines))
    if named.lines:
        handles, labels = named.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.suptitle("solid: validation, dashed: training", fontsize=8)


def draw_group(axes: Axes, group: Group, colour: str, what: str) -> None:
    train, val = band(group, f"train_{what}"), band(group, f"val_{what}")
    if train is not None:
        axes.plot(train.steps, train.middle, color=colour, linestyle="--", linewidth=1, alpha=0.7)
    if val is None:
        return
    axes.plot(val.steps, val.middle, color=colour, linewidth=1.8, label=group.name)
    if len(group.runs) > 1:
        axes.fill_between(val.steps, val.low, val.high, color=colour, alpha=0.18, linewidth=0)
    for step, value in crossing_marks(group, what):
        axes.plot([step], [value], "o", color=colour, markersize=6, fillstyle="none")
