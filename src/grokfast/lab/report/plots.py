"""Filters, gradients and weights in depth: what the pictures show, as data."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import grokfast
from grokfast.lab.analysis.frequency import response
from grokfast.lab.analysis.paths import paths_by_seed
from grokfast.lab.analysis.spectrum import filtered_spectra, measured_gain, update_gain
from grokfast.lab.analysis.trajectory import Trajectory, state_b
from grokfast.lab.analysis.weights import Products
from grokfast.lab.compare.names import experiment_name, label
from grokfast.lab.config import experiment_key
from grokfast.lab.filters import describe, known_filter
from grokfast.lab.paper.published import find_arm
from grokfast.lab.report.colours import MOST, number_of, number_runs
from grokfast.lab.report.pictures import COLOURS, Panel, Plot, Series, Symbol, shade
from grokfast.lab.runs.directory import Run, RunError

SEEDS = 3  # panels of paths side by side
STATES: tuple[Symbol, ...] = ("ring", "square", "diamond")  # A, B, C
FLOOR = 1e-3  # of gains in pictures: a zero of a filter would stretch the axis without end


def known_filters(runs: Sequence[Run]) -> dict[grokfast.Filter, int]:
    """The distinct filters of runs, as far as they are known here, with the numbers of their arms."""
    numbers, found = number_runs(runs), dict[grokfast.Filter, int]()
    for run in sorted(runs, key=lambda run: (find_arm(run.settings) is None, number_of(run, numbers))):
        filter = known_filter(run.settings["filter"])
        if filter is not None:  # several arms may have it: the paper's come first, of these the plain one
            found.setdefault(filter, number_of(run, numbers))
    return dict(list(found.items())[: len(COLOURS)])


def filter_plots(runs: Sequence[Run]) -> list[Plot]:
    shown = known_filters(runs)
    return [response_plot(shown)] if shown else []


def theorem_plots(runs: Sequence[Run]) -> list[Plot]:
    """Of three filters: it is measured by training, which takes a second for each. No run changes it."""
    shown = dict(list(known_filters(runs).items())[:3])
    return [theorem_plot(shown)] if shown else []


def response_plot(filters: Mapping[grokfast.Filter, int]) -> Plot:
    """|h| dashed and |1 + h| solid over frequency with the cutoff marked, and the impulse responses.

    `filters` have the numbers of their arms.
    """
    gains: list[Series] = []
    impulses: list[Series] = []
    for filter, i in filters.items():
        found, name = response(filter), describe(filter)
        gains.append(Series(i, name, found.frequency, np.maximum(found.total, FLOOR), what="1 + h"))
        slow = Series(i, name, found.frequency, np.maximum(found.slow, FLOOR), "dashed", named=False, what="h alone")
        gains.append(slow)
        if found.cutoff is not None:
            level = float(np.interp(found.cutoff, found.frequency, found.slow))
            gains.append(Series(i, name, [found.cutoff], [level], "marks", named=False, what="cutoff"))
        impulses.append(Series(i, name, np.arange(len(found.impulse)), found.impulse, named=False))
    panels = [
        Panel("cycles per step", "gain", gains, log_y=True),
        Panel("steps after a gradient", "its weight in h", impulses, log_x=False),
    ]
    return Plot("response", "Transfer function and impulse response of the filters (ring: cutoff)", panels)


def theorem_plot(filters: Mapping[grokfast.Filter, int]) -> Plot:
    """Appendix A in numbers: the filter multiplies the updates of SGD with momentum by 1 + H."""
    found: list[Series] = []
    for filter, i in filters.items():
        gain, name = update_gain(filter), describe(filter)
        shown = np.unique(np.geomspace(1, len(gain.frequency) - 1, 400).astype(int))
        every = slice(1, None, max(1, len(gain.frequency) // 40))
        found.append(Series(i, name, gain.frequency[shown], np.abs(gain.theory[shown]), what="theory"))
        rings = Series(i, name, gain.frequency[every], np.abs(gain.measured[every]), "marks", named=False)
        found.append(rings._replace(what="measured"))
    title = "Updates of SGD with momentum 0.9: 1 + h in theory (line) and measured (rings)"
    return Plot("theorem", title, [Panel("cycles per step", "updates with / without the filter", found, log_y=True)])


def gradient_plots(runs: Sequence[Run]) -> list[Plot]:
    """Spectra of runs that recorded gradients and are long enough to have a spectrum: the first of each arm first."""
    numbers = number_runs(runs)
    recorded = arms_in_turn([run for run in runs if run.loop["gradients"]])[:MOST]
    plots = make_each(lambda run: spectrum_plot(run, number_of(run, numbers)), recorded)
    return [plot._replace(name=f"spectrum-{i}") for i, plot in enumerate(plots)]


def arms_in_turn(runs: Sequence[Run]) -> list[Run]:
    """One run of each arm, then a second one of each, and so on."""
    arms: dict[str, list[Run]] = {}
    for run in runs:
        arms.setdefault(experiment_key(run.settings), []).append(run)
    return [run for turn in itertools.zip_longest(*arms.values()) for run in turn if run is not None]


def spectrum_plot(run: Run, number: int) -> Plot:
    """Power of the sampled gradients over frequency by phase of training; the filter's gain, measured and in theory.

    All in the colour of the run's arm: the earlier phases are fainter.
    """
    spectra: list[Series] = []
    phases = filtered_spectra(run)
    for i, (name, phase) in enumerate(phases.items()):
        line = Series(number, name, phase.before.frequency, phase.before.density, what="before the filter")
        spectra.append(line._replace(strength=shade(i, len(phases))))
        after = Series(number, name, phase.after.frequency, phase.after.density, "dashed", named=False)
        if run.filter is not None:
            spectra.append(after._replace(strength=shade(i, len(phases)), what="after the filter"))
    title = "power" if run.filter is None else "power before (solid) and after the filter"
    panels = [Panel("cycles per step", title, spectra, log_y=True)]
    if known_filter(run.settings["filter"]) is not None:
        gain = measured_gain(run)
        theory = Series(number, "|1 + H|² in theory", gain.frequency, gain.theory)
        measured = Series(number, "measured", gain.frequency, gain.measured, "dotted")
        panels.append(Panel("cycles per step", "power after / before", [theory, measured], log_y=True))
    return Plot("spectrum", f"Spectrum of the gradients of {label(run)}", panels)


def weight_plots(runs: Sequence[Run], weights: Sequence[Products] = ()) -> list[Plot]:
    """The paths of the first seeds, a panel for each, and how far the weights get over time."""
    seeds = paths_by_seed(runs, weights)[:SEEDS]
    if not seeds:
        return []
    numbers = number_runs(runs)
    planes = [path_panel(paths, numbers, named=i == 0) for i, paths in enumerate(seeds)]
    ways = [(experiment_name(path.run), path) for paths in seeds for path in paths]
    # Log axes have no 0, and a warm-up may leave the weights where they are at first.
    far = [Series(number_of(p.run, numbers), name, p.steps[p.moved > 0], p.moved[p.moved > 0]) for name, p in ways]
    away = Panel("steps", "distance from the initial weights", name_once(far), log_y=True)
    return [
        Plot(
            "trajectories",
            "Paths of the weights on two principal axes: ring A (initial), square B (step 500), diamond C (end)",
            planes,
        ),
        Plot("deviation", "How far the weights get from their initial values", [away]),
    ]


def path_panel(paths: Sequence[Trajectory], numbers: dict[str, int], *, named: bool) -> Panel:
    """The paths of one seed in the plane, with the states A, B and C."""
    series: list[Series] = []
    for i, (run, steps, points, _) in enumerate(paths):
        name, number = experiment_name(run), number_of(run, numbers)
        series.append(Series(number, name, points[:, 0], points[:, 1], named=named))
        ends = [state_b(steps), len(steps) - 1]
        states, symbols = ([0, *ends], STATES) if i == 0 else (ends, STATES[1:])  # A is the same for all
        marks = points[states]
        series.append(Series(number, name, marks[:, 0], marks[:, 1], "marks", symbols=symbols, named=False))
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
