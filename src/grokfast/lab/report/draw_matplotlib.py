"""Plots as pictures for papers: PNG, SVG or PDF, by the ending of the file."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, PercentFormatter

from grokfast.lab.report.pictures import AXIS, NOT_REACHED, HeatMap, Note, Panel, Parallel, Picture, Plot, Series, blend

LINES = {"solid": "-", "dashed": "--", "dotted": ":", "faint": "-"}
SYMBOLS = {"ring": "o", "square": "s", "diamond": "D"}
LETTERS = 180  # of a legend that stand beside each other
WIDTHS = {"solid": 1.8, "dashed": 1.0, "dotted": 1.0, "faint": 0.5}


def draw(plots: Sequence[Picture], path: Path) -> Path:
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


def draw_plot(figure: SubFigure, plot: Picture) -> None:
    figure.suptitle(plot.title, fontsize=9)
    match plot:
        case HeatMap():
            draw_heat_map(figure.subplots(), plot)
        case Parallel():
            draw_parallel(figure.subplots(), plot)
        case Plot():
            draw_lines(figure, plot)


def draw_lines(figure: SubFigure, plot: Plot) -> None:
    grid = figure.subplots(1, len(plot.panels), squeeze=False)[0]
    for axes, panel in zip(grid, plot.panels, strict=True):
        draw_panel(axes, panel)
    named = [pair for axes in grid for pair in zip(*axes.get_legend_handles_labels(), strict=True)]
    if named:
        lines, names = zip(*named, strict=True)
        longest = max(map(len, names)) + 8  # a sample of the line is as wide as 8 letters
        columns = max(1, min(4, LETTERS // longest))
        figure.legend(lines, names, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def draw_heat_map(axes: Axes, plot: HeatMap) -> None:
    """Log steps in colour with the numbers on it; grey where the level was not reached."""
    logs = np.array([[np.log10(t.steps) if t is not None and t.steps else np.nan for t in row] for row in plot.tiles])
    axes.pcolormesh(logs, cmap="viridis_r", edgecolors="white", linewidth=2)
    for row, column in np.ndindex(logs.shape):
        tile = plot.tiles[row][column]
        if tile is not None and tile.steps is None:
            axes.add_patch(Rectangle((column, row), 1, 1, facecolor=NOT_REACHED, edgecolor="white", linewidth=2))
        if tile is not None:
            axes.text(column + 0.5, row + 0.5, tile.text, color=plot.ink(tile), ha="center", va="center", fontsize=8)
    axes.set_xticks([i + 0.5 for i in range(len(plot.columns))], plot.columns)
    axes.set_yticks([i + 0.5 for i in range(len(plot.rows))], plot.rows)
    axes.set(xlabel=plot.x, ylabel=plot.y)


def draw_parallel(axes: Axes, plot: Parallel) -> None:
    for i, (heights, shade, _) in enumerate(plot.strands):
        width = 3.0 if i == len(plot.strands) - 1 else 0.9
        axes.plot(heights, color=blend(shade), linewidth=width, linestyle=":" if shade is None else "-")
    for place, ticks in enumerate(plot.beams.values()):
        axes.axvline(place, color=AXIS, linewidth=1)
        for height, text in ticks:
            axes.annotate(text, (place, height), xytext=(4, 0), textcoords="offset points", fontsize=8, va="center")
    axes.set_xticks(range(len(plot.beams)), list(plot.beams))
    axes.set_yticks([])
    axes.set_xlim(-0.1, len(plot.beams) - 0.7)


def draw_panel(axes: Axes, panel: Panel) -> None:
    for series in panel.series:
        draw_series(axes, series)
    axes.set(xlabel=panel.x, ylabel=panel.y)
    axes.set_xscale("log" if panel.log_x else "linear")
    axes.set_yscale("log" if panel.log_y else "linear")
    axes.grid(alpha=0.25)
    for axis, log in ((axes.xaxis, panel.log_x), (axes.yaxis, panel.log_y)):
        if log:
            set_ticks(axis)
    if panel.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if panel.rows:
        axes.set_yticks(range(len(panel.rows)), panel.rows)
    for note in panel.notes:
        draw_note(axes, note)


def set_ticks(axis: Axis) -> None:
    """Plain numbers on a log axis: powers of ten, more where these are few, and even steps within a decade."""
    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    between = (1.0, 2.0, 5.0) if decades < 2.5 else (1.0,)
    axis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]) if decades < 1 else LogLocator(subs=between))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 1000 else f"{value:g}")


def draw_note(axes: Axes, note: Note) -> None:
    ground = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1}
    look: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "bbox": ground}
    if note.shift is not None:
        right, down = note.shift
        look |= {"xytext": (right, -down), "textcoords": "offset points"}
        look |= {"arrowprops": {"arrowstyle": "->", "color": AXIS}}
    axes.annotate(note.text, (note.x, note.y), **look)


def draw_series(axes: Axes, series: Series) -> None:
    label = series.name if series.named else None
    if series.style in ("marks", "crosses"):
        symbols = ["x"] if series.style == "crosses" else [SYMBOLS[text] for text in series.symbols or ["ring"]]
        for i, symbol in enumerate(symbols):
            part = slice(None) if len(symbols) == 1 else slice(i, i + 1)
            look: dict[str, Any] = {
                "color": series.colour,
                "markersize": 6,
                "fillstyle": "none",
                "label": label if i == 0 else None,
            }
            axes.plot(series.x[part], series.y[part], symbol, **look)
        return
    width = WIDTHS[series.style]
    line = "-." if series.again and series.style == "solid" else LINES[series.style]
    axes.plot(series.x, series.y, line, color=series.colour, linewidth=width, label=label, alpha=series.strength)
    if series.low is not None:
        axes.fill_between(series.x, series.low, series.high, color=series.colour, alpha=0.18, linewidth=0)
