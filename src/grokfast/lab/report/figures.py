"""Plots as pictures for papers: PNG, SVG or PDF, by the ending of the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from grokfast.lab.report.plots import Panel, Plot, Series

LINES = {"solid": "-", "dashed": "--", "dotted": ":"}


def draw(plots: Sequence[Plot], path: Path) -> Path:
    """Write plots below each other into one picture, which appears whole or not at all."""
    figure = Figure(figsize=(11, 4.6 * max(1, len(plots))), layout="constrained")
    if not plots:
        figure.text(0.5, 0.5, "no evaluation yet", ha="center")
    parts = figure.subfigures(len(plots), 1, squeeze=False)[:, 0] if plots else ()
    for part, plot in zip(parts, plots, strict=True):
        draw_plot(part, plot)
    draft = path.with_name(f".new-{path.name}")
    figure.savefig(draft, dpi=160)
    os.replace(draft, path)
    return path


def draw_plot(figure: SubFigure, plot: Plot) -> None:
    grid = figure.subplots(1, len(plot.panels), squeeze=False)[0]
    for axes, panel in zip(grid, plot.panels, strict=True):
        draw_panel(axes, panel)
    named = [pair for axes in grid for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    figure.suptitle(plot.title, fontsize=9)
    if named:
        lines, names = zip(*named, strict=True)
        figure.legend(lines, names, loc="outside lower center", ncols=4, frameon=False, fontsize=8)


def draw_panel(axes: Axes, panel: Panel) -> None:
    for series in panel.series:
        draw_series(axes, series)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    axes.grid(alpha=0.25)


def draw_series(axes: Axes, series: Series) -> None:
    if series.style == "marks":
        axes.plot(series.x, series.y, "o", color=series.colour, markersize=6, fillstyle="none")
        for x, y, text in zip(series.x, series.y, series.texts, strict=False):
            axes.annotate(text, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=8)
        return
    label = series.name if series.named else None
    width = 1.8 if series.style == "solid" else 1.0
    line = "-." if series.again and series.style == "solid" else LINES[series.style]
    axes.plot(series.x, series.y, line, color=series.colour, linewidth=width, label=label)
    if series.low is not None:
        axes.fill_between(series.x, series.low, series.high, color=series.colour, alpha=0.18, linewidth=0)
