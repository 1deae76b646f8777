"""Pictures and pages of runs, from their directories only: nothing here trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grokfast.lab.report.draw_matplotlib import draw
from grokfast.lab.report.page.page import write_page
from grokfast.lab.report.pictures import Picture
from grokfast.lab.report.plots import filter_plots, gradient_plots, kept_weights, task_plots, weight_plots
from grokfast.lab.report.sweep import sweep_plots
from grokfast.lab.compare.results import sort_out
from grokfast.lab.runs.directory import Run


def write_report(runs: Sequence[Run], out: Path) -> tuple[Path, Path]:
    """Write the page to `out` and the curves to a PNG beside it; runs that cannot be read are named on the page."""
    readable, unreadable = sort_out(runs)
    page = write_page(readable, out, unreadable=unreadable)
    picture = out.with_name("curves.png" if out.stem == "index" else f"{out.stem}.png")
    return page, draw(task_plots(readable), picture)


def write_figures(runs: Sequence[Run], folder: Path, ending: str, *, also: Sequence[Run] = ()) -> list[Path]:
    """Write every picture of the page to a file of its own, for papers: png, svg or pdf.

    Runs in `also` are drawn as parts of sweeps, and what they recorded is, but not their curves.
    """
    readable, _ = sort_out(runs)
    everything = [*readable, *sort_out(also)[0]]
    if not readable:
        raise ValueError("figures need at least one run, got none")
    folder.mkdir(parents=True, exist_ok=True)
    plots: list[Picture] = [*task_plots(readable), *sweep_plots(everything), *filter_plots(readable)]
    plots += [*gradient_plots(everything), *weight_plots(kept_weights(everything))]
    return [draw([plot], folder / f"{plot.name}.{ending}") for plot in plots]
