"""Pictures of many settings: steps to the level over the numbers that were varied."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from grokfast.lab.compare import sensitivity
from grokfast.lab.compare.names import enumerate_words, words
from grokfast.lab.compare.sensitivity import Candidate, Family, find_families
from grokfast.lab.report.pictures import (
    NO_ARM,
    HeatMap,
    Panel,
    Parallel,
    Picture,
    Plot,
    Series,
    Strand,
    Style,
    Tile,
    picture_name,
)
from grokfast.lab.runs.directory import Run


def sweep_plots(tasks: Iterable[Sequence[Run]]) -> list[Picture]:
    return [plot for runs in tasks for name, family in named_families(runs).items() for plot in pictures(family, name)]


def named_families(runs: Sequence[Run]) -> dict[str, Family]:
    """The families among runs of one task, by a name for their pictures."""
    return {picture_name(f.task, f.filter or "baseline", str(i)): f for i, f in enumerate(find_families(runs))}


def pictures(family: Family, name: str) -> list[Picture]:
    """The steps over the one number that was varied, or over the two that matter most; and all of them side by side."""
    if len(family.axes) == 1:
        return [profile(family, name)]
    return [heat_map(family, name), parallel(family, name)]


def profile(family: Family, name: str) -> Plot:
    (axis,) = family.axes
    line = sorted((c for c in family.candidates if c.reached), key=lambda c: c.values[axis])
    taken = [(c.values[axis], bound) for c in family.candidates for bound in c.taken if math.isfinite(bound.value)]
    series: list[Series] = []
    if line:
        x, y = [c.values[axis] for c in line], [c.steps.median.value for c in line]
        series.append(Series(NO_ARM, "median over seeds", x, y))
    kinds: tuple[tuple[Style, str, bool], ...]
    kinds = ("marks", "each run", True), ("crosses", "not reached by then", False)
    for style, text, exact in kinds:
        points = [(value, bound.value) for value, bound in taken if bound.exact == exact]
        if points:
            x, y = zip(*points, strict=True)
            series.append(Series(NO_ARM, text, x, y, style))
    positive = min(candidate.values[axis] for candidate in family.candidates) > 0
    panel = Panel(words(axis), f"steps to {family.level}", series, log_x=positive, log_y=True)
    return Plot(f"sweep-{name}", f"{family.title}: steps over {words(axis)}", [panel])


def heat_map(family: Family, name: str) -> HeatMap:
    first, second, *rest = family.axes
    x, y = (sensitivity.make_axis(family.candidates, name) for name in (first, second))
    cells, best = sensitivity.make_grid(family.candidates, x, y), family.candidates[0]
    tiles = [[None if cell is None else tile(cell, best) for cell in row] for row in cells]
    title = f"{family.title}: steps to {family.level} over {words(first)} and {words(second)}"
    title += f", the best over {enumerate_words([words(axis) for axis in rest])}" if rest else ""
    return HeatMap(f"sweep-{name}", title, words(first), words(second), x.labels, y.labels, tiles)


def tile(candidate: Candidate, best: Candidate) -> Tile:
    star = "★ " if candidate is best and candidate.reached else ""
    median = candidate.steps.median
    text = f"{star}{short(median.value) if candidate.reached else median}"
    return Tile(median.value if candidate.reached else None, text, described(candidate))


def parallel(family: Family, name: str) -> Parallel:
    """The steps stand on the last beam; a setting that did not reach the level ends at its top."""
    scales = {axis: scale(family.candidates, axis) for axis in family.axes}
    reached = [math.log(c.steps.median.value) for c in family.candidates if c.reached]
    low, high = (min(reached), max(reached)) if reached else (0.0, 0.0)
    strands: list[Strand] = []
    for candidate in reversed(family.candidates):
        shade = unit(math.log(candidate.steps.median.value), low, high) if candidate.reached else None
        heights = [scales[axis][candidate.values[axis]] for axis in family.axes]
        strands.append(Strand([*heights, 1.0 if shade is None else 0.9 * shade], shade, described(candidate)))
    beams = {words(axis): ticks(scales[axis]) for axis in family.axes}
    marks = [(0.0, short(math.exp(low))), (0.45, short(math.exp((low + high) / 2))), (0.9, short(math.exp(high)))]
    marks = marks if high > low else marks[:1] if reached else []
    beams["steps"] = [*marks, (1.0, "not reached")]
    return Parallel(f"strands-{name}", f"{family.title}: every setting", beams, strands)


def scale(candidates: Sequence[Candidate], name: str) -> dict[float, float]:
    """Heights of the values of an axis, on a log scale where all are positive."""
    places = {c.values[name]: sensitivity.coordinate(name, c.values[name]) for c in candidates}
    if min(places.values()) > 0:
        places = {value: math.log(place) for value, place in places.items()}
    low, high = min(places.values()), max(places.values())
    return {value: unit(place, low, high) for value, place in sorted(places.items())}


def ticks(heights: Mapping[float, float]) -> list[tuple[float, str]]:
    """Values to write on an axis: all that keep a distance, with the first and the last."""
    many = len(heights) > sensitivity.MOST
    apart = 0.15 if many else 0.06
    *found, last = [
        (height, f"{value:{'.2g' if many and value < 0.9 else '.4g'}}") for value, height in heights.items()
    ]
    kept: list[tuple[float, str]] = []
    for tick in found:
        if (not kept or tick[0] - kept[-1][0] > apart) and last[0] - tick[0] > apart:
            kept.append(tick)
    return [*kept, last]


def unit(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.0


# Words -----------------------------------------------------------------------------------------------------------


def described(candidate: Candidate) -> str:
    return f"{values_text(candidate.values)}: {steps_text(candidate)}"


def steps_text(candidate: Candidate) -> str:
    """The steps of a setting over its seeds, in words."""
    steps = candidate.steps
    seeds = "1 seed" if steps.count == 1 else f"{steps.count} seeds, {steps.interval}"
    return f"{steps.median.in_words} steps ({seeds})" if math.isfinite(steps.median.value) else f"never ({seeds})"


def values_text(values: Mapping[str, float]) -> str:
    return ", ".join(f"{words(name)} {value:.6g}" for name, value in values.items())


def short(steps: float) -> str:
    """Steps in a small space.

    >>> short(1310.0), short(12345.0)
    ('1,310', '12.3k')
    """
    return f"{steps:,.0f}" if steps < 10_000 else f"{steps / 1000:.3g}k"
