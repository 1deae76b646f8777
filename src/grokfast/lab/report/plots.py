"""What the pictures show, as data: drawn by plotly for the page (charts.py), by matplotlib for papers (figures.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

import grokfast
from grokfast.lab.analysis.frequency import response
from grokfast.lab.analysis.spectrum import filtered_spectra, measured_gain, update_gain
from grokfast.lab.analysis.trajectory import deviation, distances, project
from grokfast.lab.analysis.weights import Products, products
from grokfast.lab.config import make_filter
from grokfast.lab.report.groups import FAINT_POINTS, Group, band, group_runs, most_telling
from grokfast.lab.report.pictures import COLOURS, Panel, Plot, Series
from grokfast.lab.compare.results import by_task, crossing, filter_name, label
from grokfast.lab.runs.directory import Run, RunError

MOST = 2 * len(COLOURS)  # curves that can be told apart; of more than that the rest is grey
SEGMENT = 1024  # of spectra: shorter ones do not reach below the cutoff of the paper's filters
FLOOR = 1e-3  # of gains in pictures: a zero of a filter would stretch the axis without end
Made = TypeVar("Made")


def curves_plot(groups: Sequence[Group], task: str) -> Plot:
    """Accuracy and loss over steps; the loss alone where there is no accuracy."""
    panels = [Panel("steps", what, curve_series(groups, what), log_y=what == "loss") for what in ("accuracy", "loss")]
    shown = [panel for panel in panels if panel.series]
    what = " and ".join(panel.y for panel in shown)
    return Plot(f"curves-{task}", f"{task}: {what} over training steps", shown)


def curve_series(groups: Sequence[Group], what: str) -> list[Series]:
    """Validation with its band, training dashed, and a mark at each crossing."""
    found: list[Series] = []
    groups, others = most_telling(groups, MOST)
    for i, (name, _) in enumerate(groups):
        train, val = band(groups[i], f"train_{what}"), band(groups[i], f"val_{what}")
        if train is not None:
            found.append(Series(i, name, train.steps, train.middle, "dashed", named=False))
        if val is not None:
            named = what == "accuracy" or band(groups[i], "val_accuracy") is None
            found.append(Series(i, name, val.steps, val.middle, low=val.low, high=val.high, named=named))
        marks = crossing_marks(groups[i], what)
        if marks:
            steps, values = zip(*marks, strict=True)
            found.append(Series(i, name, steps, values, "marks", named=False))
    return faint_series(others, what, len(groups)) + found


def faint_series(groups: Sequence[Group], what: str, number: int) -> list[Series]:
    """Many curves as one line with gaps, in grey: they show where the crowd is, and take little space."""
    bands = [found for group in groups if (found := band(group, f"val_{what}", points=FAINT_POINTS)) is not None]
    if not bands:
        return []
    steps, values = (np.concatenate([append_gap(b[i]) for b in bands]) for i in (0, 1))
    named = what == "accuracy" or no_accuracy(groups)
    return [Series(number, f"{len(bands)} others", steps, values, "faint", named=named)]


def append_gap(values: Any) -> Any:
    return np.append(values, np.nan).astype(np.float32)


def no_accuracy(groups: Sequence[Group]) -> bool:
    return all(band(group, "val_accuracy") is None for group in groups)


def crossing_marks(group: Group, what: str) -> list[tuple[int, float]]:
    """Where each run first reached its level, on the curve of `what`."""
    found: list[tuple[int, float]] = []
    for run in group.runs:
        step = crossing(run).step
        row = next((row for row in run.rows if row.step == step), None)
        value = getattr(row, f"val_{what}") if row is not None else None
        if step is not None and value is not None:
            found.append((step, value))
    return found


def response_plot(filters: Sequence[grokfast.Filter]) -> Plot:
    """|h| dashed and |1 + h| solid over frequency with the cutoff marked, and the impulse responses."""
    gains: list[Series] = []
    impulses: list[Series] = []
    for i, filter in enumerate(filters):
        found, name = response(filter), filter_name(filter)
        gains.append(Series(i, name, found.frequency, np.maximum(found.total, FLOOR)))
        gains.append(Series(i, name, found.frequency, np.maximum(found.slow, FLOOR), "dashed", named=False))
        if found.cutoff is not None:
            level = float(np.interp(found.cutoff, found.frequency, found.slow))
            gains.append(Series(i, name, [found.cutoff], [level], "marks", texts=["cutoff"], named=False))
        impulses.append(Series(i, name, np.arange(len(found.impulse)), found.impulse, named=False))
    panels = [
        Panel("cycles per step", "gain", gains, log_y=True),
        Panel("steps after a gradient", "its weight in h", impulses, log_x=False),
    ]
    return Plot("response", "Transfer function and impulse response of the filters", panels)


def theorem_plot(filters: Sequence[grokfast.Filter]) -> Plot:
    """Appendix A in numbers: updates of SGD with momentum, with the filter over without, are multiplied by 1 + H."""
    found: list[Series] = []
    for i, filter in enumerate(filters):
        gain = update_gain(filter, momentum=0.9)
        shown = np.unique(np.geomspace(1, len(gain.frequency) - 1, 400).astype(int))
        found.append(Series(i, filter_name(filter), gain.frequency[shown], np.abs(gain.theory[shown])))
        every = slice(1, None, max(1, len(gain.frequency) // 40))
        found.append(
            Series(i, filter_name(filter), gain.frequency[every], np.abs(gain.measured[every]), "marks", named=False)
        )
    title = "Updates of SGD with momentum 0.9: 1 + h in theory (line) and measured (rings)"
    return Plot("theorem", title, [Panel("cycles per step", "updates with / without the filter", found, log_y=True)])


def spectrum_plot(run: Run) -> Plot:
    """Power of the sampled gradients over frequency by phase of training; what the filter made of it, and should."""
    spectra: list[Series] = []
    for i, (name, phase) in enumerate(filtered_spectra(run, segment=SEGMENT).items()):
        spectra.append(Series(i, name, phase.before.frequency, phase.before.density))
        spectra.append(Series(i, name, phase.after.frequency, phase.after.density, "dashed", named=False))
    panels = [Panel("cycles per step", "power before (solid) and after the filter", spectra, log_y=True)]
    if run.config.filter.filter is not None:
        gain, number = measured_gain(run, segment=SEGMENT), len(spectra) // 2
        theory = Series(number, "|1 + H|² in theory", gain.frequency, gain.theory)
        measured = Series(number + 1, "measured", gain.frequency, gain.measured, "dotted")
        panels.append(Panel("cycles per step", "power after / before", [theory, measured], log_y=True))
    return Plot("spectrum", f"Spectrum of the gradients of {label(run)}", panels)


def trajectory_plot(known: Products) -> Plot:
    """Paths of the weights in the plane of most variance, with the states A, B and C; how far they get over time."""
    paths: list[Series] = []
    far: list[Series] = []
    for i, (run, steps, points) in enumerate(project(known.runs, known=known).paths):
        name = label(run)
        paths.append(Series(i, name, points[:, 0], points[:, 1]))
        states = [int(np.searchsorted(steps, step)) for step in distances(run, known=known).steps]
        paths.append(Series(i, name, points[states, 0], points[states, 1], "marks", texts="ABC", named=False))
        moved = deviation(run, known=known)
        far.append(Series(i, name, moved.steps[1:], moved.l2[1:], named=False))
    panels = [
        Panel("first principal axis", "second principal axis", paths, log_x=False),
        Panel("steps", "distance from the initial weights", far, log_y=True),
    ]
    return Plot("trajectories", "Paths of the weights from their initial values", panels)


def filters_of(runs: Sequence[Run]) -> list[grokfast.Filter]:
    """The distinct filters of runs."""
    found = [make_filter(run.config.filter) for run in runs]
    return list(dict.fromkeys(filter for filter in found if filter is not None))


def task_plots(runs: Sequence[Run]) -> list[Plot]:
    """The curves of each task."""
    plots = [curves_plot(group_runs(group), task) for task, group in by_task(list(runs)).items()]
    return [plot for plot in plots if plot.panels]


def filter_plots(runs: Sequence[Run]) -> list[Plot]:
    filters = filters_of(runs)[: len(COLOURS)]
    # The theorem is measured by training, which takes a second for each filter.
    return [response_plot(filters), theorem_plot(filters[:3])] if filters else []


def gradient_plots(runs: Sequence[Run]) -> list[Plot]:
    """Spectra of the first runs that recorded gradients, as far as they are long enough to have one."""
    found = [attempt(spectrum_plot, run) for run in [run for run in runs if run.config.loop.gradients][:MOST]]
    plots = [plot for plot in found if plot is not None]
    return [plot._replace(name=f"spectrum-{i}") for i, plot in enumerate(plots)]


def kept_weights(runs: Sequence[Run]) -> list[Products]:
    """What the weights that runs kept have to say, those of one model together: read once, for pictures and tables."""
    alike: dict[Any, list[Run]] = {}
    for run in runs:
        if run.config.loop.snapshots and run.summary is not None and not run.summary.get("diverged"):
            alike.setdefault(run.config.task, []).append(run)
    found = [attempt(products, members) for members in alike.values()]
    return [known for known in found if known is not None]


def weight_plots(weights: Sequence[Products]) -> list[Plot]:
    """Trajectories, those of one model together."""
    found = [attempt(trajectory_plot, known) for known in weights]
    plots = [plot for plot in found if plot is not None]
    return [plot._replace(name=f"trajectories-{i}") if i else plot for i, plot in enumerate(plots)]


def attempt(make: Callable[[Any], Made], of: Any) -> Made | None:
    """What is made of runs, or None of those that are too short for it or have left the numbers."""
    try:
        return make(of)
    except (RunError, ValueError):
        return None
