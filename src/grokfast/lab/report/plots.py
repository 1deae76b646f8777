"""Filters, gradients and weights in depth: what the pictures show, as data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

import grokfast
from grokfast.lab.analysis.frequency import response
from grokfast.lab.analysis.paths import paths_by_seed
from grokfast.lab.analysis.spectrum import filtered_spectra, measured_gain, update_gain
from grokfast.lab.analysis.trajectory import Trajectory, state_b
from grokfast.lab.analysis.weights import Products
from grokfast.lab.compare.names import experiment_name, label
from grokfast.lab.filters import describe, known_filter
from grokfast.lab.report.pictures import COLOURS, Panel, Plot, Series
from grokfast.lab.runs.directory import Run, RunError

MOST = 2 * len(COLOURS)  # spectra in one page
SEEDS = 3  # panels of paths side by side
FLOOR = 1e-3  # of gains in pictures: a zero of a filter would stretch the axis without end


def filter_plots(runs: Sequence[Run]) -> list[Plot]:
    """The distinct filters of runs, as far as they are known here."""
    found = dict.fromkeys(known_filter(run.settings["filter"]) for run in runs)
    filters = [filter for filter in found if filter is not None][: len(COLOURS)]
    # The theorem is measured by training, which takes a second for each filter.
    return [response_plot(filters), theorem_plot(filters[:3])] if filters else []


def response_plot(filters: Sequence[grokfast.Filter]) -> Plot:
    """|h| dashed and |1 + h| solid over frequency with the cutoff marked, and the impulse responses."""
    gains: list[Series] = []
    impulses: list[Series] = []
    for i, filter in enumerate(filters):
        found, name = response(filter), describe(filter)
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
    """Appendix A in numbers: the filter multiplies the updates of SGD with momentum by 1 + H."""
    found: list[Series] = []
    for i, filter in enumerate(filters):
        gain, name = update_gain(filter), describe(filter)
        shown = np.unique(np.geomspace(1, len(gain.frequency) - 1, 400).astype(int))
        every = slice(1, None, max(1, len(gain.frequency) // 40))
        found.append(Series(i, name, gain.frequency[shown], np.abs(gain.theory[shown])))
        found.append(Series(i, name, gain.frequency[every], np.abs(gain.measured[every]), "marks", named=False))
    title = "Updates of SGD with momentum 0.9: 1 + h in theory (line) and measured (rings)"
    return Plot("theorem", title, [Panel("cycles per step", "updates with / without the filter", found, log_y=True)])


def gradient_plots(runs: Sequence[Run]) -> list[Plot]:
    """Spectra of the first runs that recorded gradients and are long enough to have a spectrum."""
    plots = make_each(spectrum_plot, [run for run in runs if run.loop["gradients"]][:MOST])
    return [plot._replace(name=f"spectrum-{i}") for i, plot in enumerate(plots)]


def spectrum_plot(run: Run) -> Plot:
    """Power of the sampled gradients over frequency by phase of training; the filter's gain, measured and in theory."""
    spectra: list[Series] = []
    for i, (name, phase) in enumerate(filtered_spectra(run).items()):
        spectra.append(Series(i, name, phase.before.frequency, phase.before.density))
        spectra.append(Series(i, name, phase.after.frequency, phase.after.density, "dashed", named=False))
    panels = [Panel("cycles per step", "power before (solid) and after the filter", spectra, log_y=True)]
    if known_filter(run.settings["filter"]) is not None:
        gain, number = measured_gain(run), len(spectra) // 2
        theory = Series(number, "|1 + H|² in theory", gain.frequency, gain.theory)
        measured = Series(number + 1, "measured", gain.frequency, gain.measured, "dotted")
        panels.append(Panel("cycles per step", "power after / before", [theory, measured], log_y=True))
    return Plot("spectrum", f"Spectrum of the gradients of {label(run)}", panels)


def weight_plots(runs: Sequence[Run], weights: Sequence[Products] = ()) -> list[Plot]:
    """The paths of the first seeds, a panel for each, and how far the weights get over time."""
    seeds = paths_by_seed(runs, weights)[:SEEDS]
    if not seeds:
        return []
    names = dict.fromkeys(experiment_name(path.run) for paths in seeds for path in paths)
    numbers = {name: i for i, name in enumerate(names)}
    planes = [path_panel(paths, numbers, named=i == 0) for i, paths in enumerate(seeds)]
    ways = [(experiment_name(path.run), path) for paths in seeds for path in paths]
    # Log axes have no 0, and a warm-up may leave the weights where they are at first.
    far = [Series(numbers[name], name, p.steps[p.moved > 0], p.moved[p.moved > 0]) for name, p in ways]
    away = Panel("steps", "distance from the initial weights", name_once(far), log_y=True)
    return [
        Plot("trajectories", "Paths of the weights from their initial values, on two principal axes", planes),
        Plot("deviation", "How far the weights get from their initial values", [away]),
    ]


def path_panel(paths: Sequence[Trajectory], numbers: dict[str, int], *, named: bool) -> Panel:
    """The paths of one seed in the plane, with the states A, B and C."""
    series: list[Series] = []
    for i, (run, steps, points, _) in enumerate(paths):
        name = experiment_name(run)
        series.append(Series(numbers[name], name, points[:, 0], points[:, 1], named=named))
        ends = [state_b(steps), len(steps) - 1]
        states, texts = ([0, *ends], "ABC") if i == 0 else (ends, "BC")  # A is the same for all
        marks = points[states]
        series.append(Series(numbers[name], name, marks[:, 0], marks[:, 1], "marks", texts=texts, named=False))
    where = f"seed {paths[0].run.loop['seed']}"
    return Panel(f"first principal axis, {where}", "second principal axis", series, log_x=False)


def name_once(series: Sequence[Series]) -> list[Series]:
    """Each name in the legend once."""
    first = {line.name: i for i, line in reversed(list(enumerate(series)))}
    return [line._replace(named=first[line.name] == i) for i, line in enumerate(series)]


def make_each(make: Callable[[Any], Plot], things: Iterable[Any]) -> list[Plot]:
    """A picture of each, without those that are too short for it or not finite."""
    found: list[Plot] = []
    for each in things:
        with contextlib.suppress(RunError, ValueError):
            found.append(make(each))
    return found
