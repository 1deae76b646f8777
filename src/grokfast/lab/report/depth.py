"""Pictures of single runs in depth: filters, gradients and weights, and the inside of a network."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import grokfast
from grokfast.lab.analysis.frequency import response
from grokfast.lab.analysis.inside import Inside, Moment
from grokfast.lab.analysis.spectrum import filtered_spectra, measured_gain, update_gain
from grokfast.lab.analysis.trajectory import Trajectory, paths_by_seed, state_b
from grokfast.lab.analysis.weights import Products
from grokfast.lab.filters import FILTERS, describe
from grokfast.lab.paper import find_arm
from grokfast.lab.report.curves import MOST, run_colours
from grokfast.lab.report.pictures import COLOURS, GREY, Picture, axis, line, make_view, shade
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.settings import filter_of
from grokfast.lab.tables import experiment_name, label

SEEDS = 3  # views of paths side by side
STATES = ("circle", "square", "diamond")  # A, B, C
EARLY = "#8a94a0"  # the earlier phase of training
FLOOR = 1e-3  # of gains in pictures: a zero of a filter would stretch the axis without end
LOWEST = 1e-8  # of losses on a log axis


# Filters --------------------------------------------------------------------------------------------------------------


def known_filters(runs: Sequence[Run]) -> dict[grokfast.Filter, str]:
    """The distinct filters of runs whose class is known here, with the colours of their arms; the paper's first."""
    colours, found = run_colours(runs), dict[grokfast.Filter, str]()
    known = [run for run in runs if run.settings["filter"] in FILTERS]
    for run in sorted(known, key=lambda run: find_arm(run.experiment) is None):
        with contextlib.suppress(ValueError, TypeError, OverflowError):  # damaged settings
            filter = filter_of(run.settings)
            if filter is not None and filter not in found and response(filter):
                found.setdefault(filter, colours.get(run.experiment, GREY))
    shown = dict(list(found.items())[:MOST])
    free = [colour for colour in COLOURS if colour not in shown.values()]
    for filter, colour in shown.items():  # several filters may have a grey arm, or arms of one colour in two tasks
        if colour == GREY or list(shown.values()).count(colour) > 1:
            shown[filter] = free.pop(0) if free else colour
    return shown


def response_picture(filters: Mapping[grokfast.Filter, str]) -> Picture:
    """|h| dashed and |1 + h| solid over frequency with the cutoff marked, and the impulse responses."""
    gains: list[dict[str, Any]] = []
    impulses: list[dict[str, Any]] = []
    for filter, colour in filters.items():
        found, name = response(filter), describe(filter)
        gains.append(line(name, found.frequency, np.maximum(found.total, FLOOR), colour, what="1 + h"))
        gains.append(line(name, found.frequency, np.maximum(found.slow, FLOOR), colour, "dashed", what="h alone"))
        if found.cutoff is not None:
            level = float(np.interp(found.cutoff, found.frequency, found.slow))
            gains.append(line(name, [found.cutoff], [level], colour, "rings", what="cutoff of h"))
        impulses.append(line(name, np.arange(len(found.impulse)), found.impulse, colour))
    views = [
        make_view(gains, axis("cycles per step", log=True), axis("gain", log=True)),
        make_view(impulses, axis("steps after a gradient"), axis("its weight in h")),
    ]
    names = {describe(filter): colour for filter, colour in filters.items()}
    return Picture("response", "Transfer function and impulse response of the filters", views, names)


def theorem_picture(filters: Mapping[grokfast.Filter, str]) -> Picture:
    """Appendix A in numbers: the filter multiplies the updates of SGD with momentum by 1 + H."""
    found: list[dict[str, Any]] = []
    for filter, colour in filters.items():
        gain, name = update_gain(filter), describe(filter)
        shown = np.unique(np.geomspace(1, len(gain.frequency) - 1, 400).astype(int))
        every = slice(1, None, max(1, len(gain.frequency) // 40))
        found.append(line(name, gain.frequency[shown], np.abs(gain.theory[shown]), colour, what="theory"))
        found.append(line(name, gain.frequency[every], np.abs(gain.measured[every]), colour, "rings", what="measured"))
    title = "Updates of SGD with momentum 0.9: 1 + h in theory (line) and measured (rings)"
    drawn = make_view(found, axis("cycles per step", log=True), axis("updates with / without the filter", log=True))
    return Picture("theorem", title, [drawn], {describe(filter): colour for filter, colour in filters.items()})


# Gradients ------------------------------------------------------------------------------------------------------------


def gradient_pictures(runs: Sequence[Run]) -> list[Picture]:
    """Spectra of runs that recorded gradients and are long enough to have a spectrum: the first of each arm first."""
    colours = run_colours(runs)
    recorded = arms_in_turn([run for run in runs if run.settings.get("gradients")])[: 2 * MOST]
    found: list[Picture] = []
    for run in recorded:
        with contextlib.suppress(RunError, ValueError, OSError):  # too short for a spectrum, not finite, damaged
            found.append(spectrum_picture(run, colours.get(run.experiment, GREY)))
    return [picture._replace(name=f"spectrum-{i}") for i, picture in enumerate(found)]


def arms_in_turn(runs: Sequence[Run]) -> list[Run]:
    """One run of each arm, then a second one of each, and so on."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.experiment, []).append(run)
    return [run for turn in itertools.zip_longest(*groups.values()) for run in turn if run is not None]


def spectrum_picture(run: Run, colour: str) -> Picture:
    """Power of the sampled gradients over frequency by phase of training; the filter's gain, measured and in theory.

    The whole run, or its later phase, has the colour of the run's arm.
    """
    spectra: list[dict[str, Any]] = []
    phases, filtered = filtered_spectra(run), run.settings["filter"] is not None
    if len(phases) > 1:  # they show more than the whole run
        del phases["whole run"]
    tints = dict(zip(phases, [colour] if len(phases) == 1 else [EARLY, colour], strict=True))
    for name, phase in phases.items():
        spectra.append(line(name, *few(phase.frequency, phase.before), tints[name], what="before the filter"))
        if filtered:
            spectra.append(
                line(name, *few(phase.frequency, phase.after), tints[name], "dashed", what="after the filter")
            )
    power = axis("power before (solid) and after the filter" if filtered else "power", log=True)
    views = [make_view(spectra, axis("cycles per step", log=True), power)]
    if run.settings["filter"] in FILTERS:
        gain = measured_gain(run)
        ratios = [
            line("whole run", *few(gain.frequency, gain.theory), colour, what="|1 + H|² in theory"),
            line("whole run", *few(gain.frequency, gain.measured), colour, "dotted", what="measured"),
        ]
        views.append(make_view(ratios, axis("cycles per step", log=True), axis("power after / before", log=True)))
    names = tints if len(tints) > 1 else {}
    return Picture("spectrum", f"Spectrum of the gradients of {label(run)}", views, names)


def few(frequency: Any, values: Any) -> tuple[Any, Any]:
    """As many points as a log axis shows: all of the low frequencies, some of the high ones."""
    shown = np.unique(np.geomspace(1, len(frequency), 200).astype(int)) - 1
    return np.asarray(frequency)[shown], np.asarray(values)[shown]


# Weights --------------------------------------------------------------------------------------------------------------


def weight_pictures(runs: Sequence[Run], weights: Sequence[Products] = ()) -> list[Picture]:
    """The paths of the first seeds, a view for each, and the distance from the initial weights over time."""
    seeds = paths_by_seed(runs, weights)[:SEEDS]
    if not seeds:
        return []
    colours = run_colours(runs)
    planes = [path_view(paths, colours) for paths in seeds]
    ways = [
        (experiment_name(path.run), colours.get(path.run.experiment, GREY), path) for paths in seeds for path in paths
    ]
    # Log axes have no 0, and a warm-up may leave the weights where they are at first.
    far = [line(name, p.steps[p.moved > 0], p.moved[p.moved > 0], colour) for name, colour, p in ways]
    away = make_view(far, axis("steps", log=True), axis("distance from the initial weights", log=True))
    names = {name: colour for name, colour, _ in ways}
    title = "Paths of the weights on two principal axes: ring A (initial), square B (step 500), diamond C (end)"
    return [
        Picture("trajectories", title, planes, names),
        Picture("deviation", "Distance of the weights from their initial values", [away], names),
    ]


def path_view(paths: Sequence[Trajectory], colours: Mapping[str, str]) -> dict[str, Any]:
    """The paths of one seed in the plane, with the states A, B and C."""
    lines: list[dict[str, Any]] = []
    for i, (run, steps, points, _) in enumerate(paths):
        name, colour = experiment_name(run), colours.get(run.experiment, GREY)
        lines.append(line(name, points[:, 0], points[:, 1], colour))
        ends = [state_b(steps), len(steps) - 1]
        states, shapes = ([0, *ends], STATES) if i == 0 else (ends, STATES[1:])  # A is the same for all
        marks = points[states]
        lines.append(line(name, marks[:, 0], marks[:, 1], colour, "rings", shapes=shapes))
    return make_view(lines, axis(f"first principal axis, seed {paths[0].run.seed}"), axis("second principal axis"))


# Inside a network -----------------------------------------------------------------------------------------------------


def inside_pictures(found: Inside, colour: str, place: int) -> list[Picture]:
    """Losses by frequency, sparsity, norms and ranks; `place` tells the pictures of several runs apart.

    All in the colour of the run's arm: of several frequencies or matrices, the later ones are stronger.
    """
    later = [moment for moment in found.moments if moment.step > 0]  # log steps have no 0
    steps = [moment.step for moment in later]

    def curve(
        name: str, of: Callable[[Moment], float], colour: str = colour, style: str = "solid", strength: float = 1.0
    ) -> dict[str, Any]:
        return line(name, steps, [max(of(m), LOWEST) for m in later], colour, style, strength=strength)

    losses = [
        curve("training loss", lambda m: m.train_loss, GREY, "dashed"),
        curve("validation loss", lambda m: m.val_loss),
        curve("restricted loss", lambda m: m.restricted_loss, COLOURS[1]),
        *(
            curve(
                f"without frequency {k}",
                lambda m, i=i: m.excluded_loss[i],
                COLOURS[3],
                "dotted",
                shade(i, len(found.key)),
            )
            for i, k in enumerate(found.key)
        ),
    ]
    sparse = [
        curve("Gini of the embedding", lambda m: m.embedding_gini, COLOURS[4]),
        curve("Gini of the logits", lambda m: m.logits_gini, COLOURS[5]),
        curve("examples with zero loss", lambda m: m.zero_loss, COLOURS[6], "dotted"),
    ]
    matrices = list(found.moments[-1].norms)
    tints = {name: COLOURS[i % MOST] for i, name in enumerate(matrices)}
    norms = [curve(name, lambda m, n=name: m.norms[n], tints[name]) for name in matrices]
    ranks = [curve(name, lambda m, n=name: m.ranks[n], tints[name]) for name in matrices]
    x = axis("steps", log=True)
    return [
        Picture(
            f"inside-loss-{place}",
            "Loss by frequency, and sparsity",
            [make_view(losses, x, axis("loss", log=True)), make_view(sparse, x, axis("share", percent=True))],
            {one["name"]: one["colour"] for one in [*losses, *sparse]},
        ),
        Picture(
            f"inside-layers-{place}",
            "Norm and effective rank of each matrix",
            [make_view(norms, x, axis("norm", log=True)), make_view(ranks, x, axis("effective rank"))],
            tints,
        ),
    ]
