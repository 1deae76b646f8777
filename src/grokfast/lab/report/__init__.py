"""Pictures and pages of runs, from their directories only: nothing here trains."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grokfast.lab.analysis.weights import products_by_model
from grokfast.lab.compare.results import comparable_runs
from grokfast.lab.compare.seeds import by_task
from grokfast.lab.report.curves import task_plots
from grokfast.lab.report.draw_matplotlib import draw
from grokfast.lab.report.duels import duel_plot
from grokfast.lab.report.evidence import load
from grokfast.lab.report.page.page import page
from grokfast.lab.report.page.story import story_head
from grokfast.lab.report.pictures import Picture
from grokfast.lab.report.plots import filter_plots, gradient_plots, theorem_plots, weight_plots
from grokfast.lab.report.story import story_plot, tell
from grokfast.lab.report.sweeps import sweep_plots
from grokfast.lab.report.when import Outcome
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.files import write_atomically


def write_report(
    runs: Sequence[Run], out: Path, *, level: float | None = None, duels: Sequence[Outcome] = ()
) -> tuple[Path, Path]:
    """Write the page to `out` and the curves to a PNG beside it; runs that cannot be read are named on the page.

    All runs are judged at `level`; by default at the one they stopped at, or that of their task.
    """
    readable, unreadable = comparable_runs(runs)
    tasks = by_task(readable, level)
    if not tasks:
        raise ValueError("a report needs at least one run, got none")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, page(tasks, unreadable, duels=duels).encode())
    picture = out.with_name("curves.png" if out.stem == "index" else f"{out.stem}.png")
    return out, draw([*(duel_plot(*duel) for duel in duels), *task_plots(tasks.values())], picture)


def write_demo(runs: Sequence[Run], out: Path) -> tuple[Path, Path]:
    """Write the demo's page and picture: its story above everything else, which is folded away."""
    story = tell(runs, load())
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, page(by_task(runs), story=story_head(story, runs[0], out)).encode())
    return out, draw([story_plot(story)], out.with_name("curves.png" if out.stem == "index" else f"{out.stem}.png"))


def write_figures(runs: Sequence[Run], folder: Path, ending: str, *, level: float | None = None) -> list[Path]:
    """Write every picture of the page to a file of its own, for papers: png, svg or pdf."""
    tasks = by_task(comparable_runs(runs)[0], level)
    if not tasks:
        raise ValueError("figures need at least one run, got none")
    everything = [run for members in tasks.values() for run in members]
    folder.mkdir(parents=True, exist_ok=True)
    plots: list[Picture] = [*task_plots(tasks.values()), *sweep_plots(tasks.values()), *filter_plots(everything)]
    plots += [
        *theorem_plots(everything),
        *gradient_plots(everything),
        *weight_plots(everything, products_by_model(everything)),
    ]
    return [draw([plot], folder / f"{plot.name}.{ending}") for plot in plots]
