"""Accuracy and loss over training steps, arm by arm: the median over seeds with a band, thinned for the screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grokfast.lab.report.pictures import COLOURS, GREY, Picture, axis, line, make_view, note, picture_name
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Row
from grokfast.lab.tables import Arm, arms

POINTS = 160  # of a curve in a page: about what a screen shows, few enough for a small file
FAINT_POINTS = 50  # of one among many
MOST = len(COLOURS)  # curves that can be told apart; the others are grey
# The colours of the paper's arms, by name; those of different tasks are in different pictures.
PAPER = {
    "Baseline": 0,
    "Grokfast-MA": 1,
    "Grokfast-EMA": 2,
    "Grokfast": 2,
    "1-stage MA": 3,
    "Baseline, decay of Grokfast": 3,
    "2-stage MA": 4,
    "Grokfast, decay of the baseline": 4,
    "2-stage MA, slow only": 5,
}
OF_FILTER = {None: 0, "ma": 1, "ema": 2}  # the colour of a filter, if none of the paper's arms has it
FIRST_FREE = 3  # the colours before it are kept for baseline, MA and EMA


class _Band(NamedTuple):
    """A curve over steps: the median over seeds, the lowest and the highest."""

    steps: NDArray[np.int64]
    middle: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


# Pictures -------------------------------------------------------------------------------------------------------------


def curves_picture(shown: Sequence[Arm], task: str) -> Picture | None:
    """Accuracy and loss over steps; the loss alone if there is no accuracy; None without any evaluation.

    Solid: validation with its band over seeds. Dashed: training. Beyond the arms that colours can tell apart, the
    others are grey.
    """
    colours = arm_colours(shown)
    known = [arm for arm in shown if colours[arm.key] != GREY]
    others = [arm for arm in shown if colours[arm.key] == GREY]
    views: list[dict[str, Any]] = []
    measured: list[str] = []
    names: dict[str, str] = {}
    for what in ("accuracy", "loss"):
        lines = faint_lines(others, what) + [one for arm in known for one in arm_lines(arm, what, colours[arm.key])]
        if lines:
            level = [arm.runs[0].level for arm in shown[:1] if arm.runs[0].measure == what]
            scale = axis(what, percent=True, domain=[0, 1]) if what == "accuracy" else axis(what, log=True)
            views.append(make_view(lines, axis("steps", log=True), scale, rules=level))
            measured.append(what)
            names |= {one["name"]: one["colour"] for one in sorted(lines, key=lambda one: one["style"] == "faint")}
    if not views:
        return None
    title = f"{task}: {' and '.join(measured)} over training steps"
    return Picture(picture_name("curves", task), title, views, names)


def arm_lines(arm: Arm, what: str, colour: str) -> list[dict[str, Any]]:
    train, val, found = band(arm, f"train_{what}"), band(arm, f"val_{what}"), list[dict[str, Any]]()
    if train is not None:
        found.append(line(arm.title, train.steps, train.middle, colour, "dashed", what="training"))
    if val is not None:
        found.append(line(arm.title, val.steps, val.middle, colour, low=val.low, high=val.high, what="validation"))
    return found


def faint_lines(others: Sequence[Arm], what: str) -> list[dict[str, Any]]:
    """Many curves in grey, with few points each."""
    bands = [found for arm in others if (found := band(arm, f"val_{what}", points=FAINT_POINTS)) is not None]
    name = f"{len(bands)} others"
    return [line(name, each.steps, each.middle, GREY, "faint", what="validation") for each in bands]


def labelled_curves(shown: Mapping[str, Arm], title: str = "") -> Picture:
    """Validation curves of a few arms, each with its name and its median steps beside it instead of a legend.

    Names are put left and right of the curves in turn, at different heights, the fastest first on the left.
    """
    ordered = sorted(shown.items(), key=lambda pair: pair[1].steps().order)
    colours = arm_colours([arm for _, arm in ordered])
    lines: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for place, (name, arm) in enumerate(ordered):
        curve = band(arm, "val_accuracy")
        if curve is None:
            continue
        colour = colours[arm.key]
        lines.append(line(name, curve.steps, curve.middle, colour, low=curve.low, high=curve.high, what="validation"))
        left = place == 0 or place == len(ordered) - 1
        height = (0.75, 0.45, 0.6)[place % 3]
        here = int(np.argmax(curve.middle >= height)) if (curve.middle >= height).any() else len(curve.steps) - 1
        # A band is wider than the median: the words keep clear of it.
        edge = curve.high if left else curve.low
        clear = int(np.argmax(edge >= height)) if (edge >= height).any() else here
        x = float(curve.steps[clear]) * (0.93 if left else 1.07)
        words = f"{name}\n{arm.steps().median} steps"
        notes.append(note(x, height, words, "right" if left else "left", colour=colour))
    level = [arm.runs[0].level for arm in shown.values()][:1]
    first = next(iter(shown.values())).runs[0]
    drawn = make_view(
        lines,
        axis("training steps", log=True),
        axis("validation accuracy", percent=True, domain=[0, 1]),
        notes=notes,
        rules=level,
    )
    return Picture("labelled", title or f"{first.task}: validation accuracy over training steps", [drawn])


# Colours --------------------------------------------------------------------------------------------------------------


def arm_colours(shown: Sequence[Arm]) -> dict[str, str]:
    """A colour for each arm of one task, by its key: the paper's and baselines first, then the fastest, then grey."""
    wanted: dict[str, int | None] = {}
    for arm in sorted(
        shown, key=lambda arm: (arm.paper is None, arm.settings["filter"] is not None, arm.steps().order)
    ):
        filter = arm.settings["filter"]
        wanted[arm.key] = OF_FILTER.get(filter) if arm.paper is None else PAPER.get(arm.paper.name)
    return assign(wanted)


def name_colours(names: Sequence[str]) -> dict[str, str]:
    """The same for the arms of a duel, by their names: `adamw+ema` has the colour of its filter.

    >>> [COLOURS.index(colour) for colour in name_colours(["adamw", "adamw+ema", "muon", "muon+ema"]).values()]
    [0, 2, 3, 4]
    """
    wanted: dict[str, int | None] = {}
    for name in names:
        _, *added = name.split("+")
        wanted[name] = next((OF_FILTER[word] for word in added if word in OF_FILTER), None if added else 0)
    return assign(wanted)


def run_colours(runs: Sequence[Run]) -> dict[str, str]:
    """The colours of the arms of all tasks, by experiment."""
    tasks: dict[str, list[Run]] = {}
    for run in runs:
        tasks.setdefault(run.task, []).append(run)
    return {key: colour for members in tasks.values() for key, colour in arm_colours(arms(members)).items()}


def assign(wanted: Mapping[str, int | None]) -> dict[str, str]:
    """Different colours: the first to want one gets it, the others get free ones, grey when none is left."""
    found: dict[str, int] = {}
    for key, number in wanted.items():
        if number is not None and number not in found.values():
            found[key] = number
    order = [*range(FIRST_FREE, MOST), *range(FIRST_FREE)]
    free = iter([number for number in order if number not in found.values()])
    for key in wanted:
        if key not in found:
            found[key] = next(free, MOST)
    return {key: COLOURS[found[key]] if found[key] < MOST else GREY for key in wanted}


# Bands ----------------------------------------------------------------------------------------------------------------


def band(arm: Arm, field: str, *, points: int = POINTS) -> _Band | None:
    """The curve of one field of the rows in at most `points` points; None if the runs do not have it.

    A run that stopped at its level keeps its last value. An unfinished run has no value after its end.
    """
    found = [(run, *curve) for run in arm.runs if (curve := finite_points(run.rows, field)) is not None]
    if not found:
        return None
    steps = np.unique(np.concatenate([steps for _, steps, _ in found]))
    ends = [y[-1] if run.done and run.settings["until"] is not None else np.nan for run, _, y in found]
    values = np.stack([np.interp(steps, x, y, np.nan, end) for (_, x, y), end in zip(found, ends, strict=True)])
    known = ~np.isnan(values).all(0)
    steps, values = steps[known], values[:, known]
    middle, low, high = np.nanmedian(values, 0), np.nanmin(values, 0), np.nanmax(values, 0)
    reached = [step for run in arm.runs if (step := run.crossing().step) is not None]
    kept = thin(steps, middle, points, always=np.searchsorted(steps, reached).clip(0, len(steps) - 1))
    return _Band(steps[kept], middle[kept], low[kept], high[kept])


def finite_points(rows: Sequence[Row], field: str) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    pairs = [(row.step, value) for row in rows if (value := getattr(row, field)) is not None and np.isfinite(value)]
    if not pairs:
        return None
    steps, values = zip(*pairs, strict=True)
    return np.array(steps), np.array(values, float)


def thin(
    steps: NDArray[np.int64], values: NDArray[np.float64], points: int, *, always: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Which points to draw, dense early and sparse late: the lowest and the highest of each stretch, and both ends."""
    if len(steps) <= points:
        return np.arange(len(steps))
    always = np.unique(always)[: points // 2]
    edges = np.geomspace(max(1, steps[0]), steps[-1], (points - 2 - len(always)) // 2)
    stretch = np.searchsorted(edges, steps)
    order = np.lexsort((values, stretch))  # by stretch, then by value
    first = np.flatnonzero(np.diff(stretch[order], prepend=-1))
    last = np.append(first[1:], len(steps)) - 1
    return np.unique(np.concatenate([order[first], order[last], always, [0, len(steps) - 1]]))
