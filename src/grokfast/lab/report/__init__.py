"""Pictures and pages of runs, from their directories only: nothing here trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grokfast.lab.analysis.weights import products_by_model
from grokfast.lab.compare.results import comparable_runs
from grokfast.lab.compare.seeds import by_task
from grokfast.lab.report.curves import task_plots
from grokfast.lab.report.draw_matplotlib import draw
from grokfast.lab.report.page.page import page
from grokfast.lab.report.pictures import Picture
from grokfast.lab.report.plots import filter_plots, gradient_plots, weight_plots
from grokfast.lab.report.sweeps import sweep_plots
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.files import write_atomically


def write_report(runs: Sequence[Run], out: Path, *, level: float | None = None) -> tuple[Path, Path]:
    """Write the page to `out` and the curves to a PNG beside it; runs that cannot be read are named on the page.

    All runs are judged at `level`; by default at the one they stopped at, or that of their task.
    """
    readable, unreadable = comparable_runs(runs)
    tasks = by_task(readable, level)
    if not tasks:
        raise ValueError("a report needs at least one run, got none")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, page(tasks, unreadable).encode())
    picture = out.with_name("curves.png" if out.stem == "index" else f"{out.stem}.png")
    return out, draw(task_plots(tasks.values()), picture)


def write_figures(
    runs: Sequence[Run], folder: Path, ending: str, *, also: Sequence[Run] = (), level: float | None = None
) -> list[Path]:
    """Write every picture of the page to a file of its own, for papers: png, svg or pdf.

    Runs in `also` are drawn as parts of sweeps, and what they recorded is drawn, but not their curves.
    """
    shown = comparable_runs(runs)[0]
    if not shown:
        raise ValueError("figures need at least one run, got none")
    # Judged together, so that a task has one level in all its pictures.
    tasks = by_task([*shown, *comparable_runs(also)[0]], level)
    paths, everything = {run.path for run in shown}, [run for members in tasks.values() for run in members]
    own = [[run for run in members if run.path in paths] for members in tasks.values()]
    folder.mkdir(parents=True, exist_ok=True)
    plots: list[Picture] = [*task_plots(filter(None, own)), *sweep_plots(tasks.values()), *filter_plots(shown)]
    plots += [*gradient_plots(everything), *weight_plots(everything, products_by_model(everything))]
    return [draw([plot], folder / f"{plot.name}.{ending}") for plot in plots]
