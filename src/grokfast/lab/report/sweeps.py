"""Many settings: which one reaches the level first, and how much slower the others are; pictures and tables.

A setting is judged by s, the median over seeds of its steps to the level. Between two neighbours on an axis log s is
taken to be linear in log x.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from grokfast.lab.report.pictures import COLOURS, GREY, HEIGHT, Picture, axis, line, make_view, picture_name
from grokfast.lab.runs.directory import Run
from grokfast.lab.settings import OptimConfig, filter_values
from grokfast.lab.stats import Spread, Steps, sentence, spread_of, verdict
from grokfast.lab.tables import arms, enumerate_words, experiment_settings, is_number, steps_of, words
from grokfast.lab.tasks import TASKS

MOST = 12  # values of an axis of a heat map; more are put into bins
BINS = 6
SHOWN = 10  # settings in the table
DARK = "#6b7280"  # grey, which is in no scale of ours; white letters on it can be read
_Tried = tuple[Mapping[str, float], list[Steps]]  # a setting by the numbers that were varied, and the steps of its runs


class _Family(NamedTuple):
    """Runs of one task and one kind of filter that differ in numbers only, one of them at three values or more."""

    name: str  # of its pictures
    title: str
    level: str
    tried: list[_Tried]  # the best first
    fixed: Mapping[str, float]  # numbers that were not varied and are worth showing
    runs: int

    @property
    def axes(self) -> list[str]:
        """The numbers that were varied, the one that matters most first."""
        return sorted(self.tried[0][0], key=lambda name: -importance(self.tried, name))

    @property
    def found(self) -> bool:
        """Whether any setting reached the level."""
        return reached(self.tried[0])


# Families among runs --------------------------------------------------------------------------------------------------


def find_families(runs: Sequence[Run]) -> list[_Family]:
    """The families among runs of one task, judged at one level."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        numbers = varied_numbers(run)
        rest = {key: value for key, value in experiment_settings(run).items() if key not in numbers}
        alike.setdefault(repr((rest, sorted(numbers))), []).append(run)
    made = [family for members in alike.values() if (family := make_family(members)) is not None]
    return [f._replace(name=f"{f.name}-{i}") for i, f in enumerate(made)]


def make_family(runs: Sequence[Run]) -> _Family | None:
    """The family of runs that differ in numbers only; None if no number has three values."""
    found, run = arms(runs), runs[0]
    numbers = [varied_numbers(arm.runs[0]) for arm in found]
    counts = {name: len({values[name] for values in numbers}) for name in varied_numbers(run)}
    axes = [name for name, count in counts.items() if count > 1]
    if not found or max(counts.values(), default=0) < 3:
        return None
    tried = ranked(
        ({name: values[name] for name in axes}, [steps_of(run) for run in arm.runs])
        for arm, values in zip(found, numbers, strict=True)
    )
    named = {**filter_values(run.settings), "weight_decay": 0}
    fixed = {name: value for name, value in numbers[0].items() if name in named and name not in axes}
    filter = run.settings["filter"]
    title = f"{run.task}, {filter or 'no filter'}, {run.settings['optimizer']}"
    level = f"validation {run.measure} {run.level:g}"
    name = picture_name(run.task, filter or "baseline")
    return _Family(name, title, level, tried, fixed, sum(len(arm.runs) for arm in found))


def varied_numbers(run: Run) -> dict[str, float]:
    """The numbers among the settings of a run, without those that define the problem."""
    task = TASKS.get(run.task)
    fields = task.__dataclass_fields__.values() if task is not None else ()
    learning = {field.name for field in fields if field.metadata.get("learning")}
    wanted = {*learning, *filter_values(run.settings), "two_stage", *OptimConfig.__dataclass_fields__}
    settings = experiment_settings(run)
    return {name: value for name, value in settings.items() if name in wanted and is_number(value)}


# Settings -------------------------------------------------------------------------------------------------------------


def steps_in(tried: _Tried) -> Spread:
    return spread_of(tried[1])


def reached(tried: _Tried) -> bool:
    """Whether the median was measured."""
    return steps_in(tried).median.exact


def ranked(tried: Iterable[_Tried]) -> list[_Tried]:
    """The fastest first, by the median over seeds."""
    return sorted(tried, key=lambda one: (steps_in(one).order, tuple(one[0].values())))


def make_bins(tried: Sequence[_Tried], name: str) -> list[tuple[float, float]]:
    """The values of an axis, or bins from the lowest to the highest that hold about as many of them each."""
    values = sorted({known[name] for known, _ in tried})
    if len(values) <= MOST:
        return [(value, value) for value in values]
    cuts = [round(i * len(values) / BINS) for i in range(BINS + 1)]
    return [(values[a], values[b - 1]) for a, b in itertools.pairwise(cuts)]


def place_in(bins: Sequence[tuple[float, float]], value: float) -> int:
    return next(i for i, (_, high) in enumerate(bins) if value <= high)


def bin_text(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:.3g} to {high:.3g}"


def importance(tried: Sequence[_Tried], name: str) -> float:
    """The part of the variance of log s that the mean over each value of an axis explains, in [0, 1]."""
    bins = make_bins(tried, name)
    places = np.array([place_in(bins, values[name]) for values, _ in tried])
    steps = np.array([steps_in(one).median.value for one in tried])
    known = steps[np.isfinite(steps)]
    logs = np.log(np.clip(steps, 1.0, known.max(initial=1.0)))  # one that diverged is as slow as the slowest
    explained = np.array([logs[places == place].mean() for place in places])
    return float(explained.var() / logs.var()) if np.ptp(logs) > 0 else 0.0


def make_grid(tried: Sequence[_Tried], x: str, y: str) -> list[list[_Tried | None]]:
    """The best of ranked settings for each pair of values of two axes, [y][x]; None if there is none."""
    columns, rows = make_bins(tried, x), make_bins(tried, y)
    cells: list[list[_Tried | None]] = [[None] * len(columns) for _ in rows]
    for one in tried:
        row, column = cells[place_in(rows, one[0][y])], place_in(columns, one[0][x])
        row[column] = row[column] or one
    return cells


def height_of(name: str, value: float) -> float:
    """The place of a value on its axis. For alpha it is 1 / (1 - alpha): 10% more than 0.98 itself is no filter.

    >>> round(height_of("alpha", 0.98)), height_of("lamb", 2.0)
    (50, 2.0)
    """
    return 1 / (1 - value) if name == "alpha" and value < 1 else value


def ten_percent_off(tried: Sequence[_Tried], name: str) -> tuple[float | None, float | None]:
    """The fraction of additional steps if a value of the best setting is 10% lower and 10% higher.

    The other numbers are those of the best. None: not measured.
    """
    best, _ = tried[0]
    others = {key: value for key, value in best.items() if key != name}
    along = [one for one in tried if all(one[0][key] == value for key, value in others.items())]
    points = sorted(((height_of(name, one[0][name]), one) for one in along), key=lambda point: point[0])
    here = height_of(name, best[name])
    if not here or not reached(tried[0]):
        return None, None
    less, more = between(points, 0.9 * here), between(points, 1.1 * here)
    median = steps_in(tried[0]).median.value
    return None if less is None else less / median - 1, None if more is None else more / median - 1


def between(points: Sequence[tuple[float, _Tried]], x: float) -> float | None:
    """Steps at a place between two neighbours; None beyond the last, or if a neighbour did not reach the level."""
    for (a, left), (b, right) in itertools.pairwise(points):
        if a <= x <= b:
            if not (reached(left) and reached(right)):
                return None
            part = math.log(x / a) / math.log(b / a) if a > 0 else (x - a) / (b - a)  # zero has no logarithm
            ends = [math.log(steps_in(one).median.value) for one in (left, right)]
            return math.exp((1 - part) * ends[0] + part * ends[1])
    return None


def find_edges(tried: Sequence[_Tried]) -> dict[str, Literal["lowest", "highest"]]:
    """The axes on which nothing was tried beyond the best of ranked settings; below 0 there is nothing to try."""
    edges: dict[str, Literal["lowest", "highest"]] = {}
    for name, value in tried[0][0].items():
        values = [known[name] for known, _ in tried]
        if value == min(values) and value != 0:
            edges[name] = "lowest"
        elif value == max(values):
            edges[name] = "highest"
    return edges


# What the page says ---------------------------------------------------------------------------------------------------


def described(family: _Family) -> dict[str, Any]:
    """A family as the template shows it."""
    best, *others = family.tried
    longest = max((steps.value for _, took in family.tried for steps in took if math.isfinite(steps.value)), default=0)
    return {
        "axes": enumerate_words([words(name) for name in family.axes]),
        "title": family.title,
        "level": family.level,
        "runs": family.runs,
        "found": family.found,
        "longest": longest,
        "best": values_text(best[0]),
        "fixed": values_text(family.fixed),
        "steps": steps_text(best),
        "seeds": len(best[1]),
        "censored": steps_in(best).censored,
        "edges": {words(name): end for name, end in find_edges(family.tried).items()},
        "second": second_text(best, others[0]) if family.found and others else "",
        "pictures": pictures(family),
        "best_rows": best_rows(family) if family.found else [],
        "beside_rows": beside_rows(family) if family.found else [],
    }


def second_text(best: _Tried, second: _Tried) -> str:
    """The verdict on the best setting against the second."""
    return sentence(verdict([best[1]], [second[1]]), values_text(best[0]), values_text(second[0]))


def best_rows(family: _Family) -> list[list[str]]:
    axes = family.axes
    lines = [["place", *map(words, axes), "seeds", "median steps", "lowest to highest", "not reached"]]
    for place, one in enumerate(family.tried[:SHOWN], start=1):
        steps = steps_in(one)
        values = [f"{one[0][name]:.6g}" for name in axes]
        lines.append([str(place), *values, str(steps.count), str(steps.median), steps.interval, str(steps.censored)])
    return lines


def beside_rows(family: _Family) -> list[list[str]]:
    lines = [["setting", "best", "10% less", "10% more"]]
    for name in family.axes:
        changes = ["not measured" if part is None else f"{part:+.1%}" for part in ten_percent_off(family.tried, name)]
        lines.append([words(name), f"{family.tried[0][0][name]:.6g}", *changes])
    return lines


def steps_text(one: _Tried) -> str:
    """The steps of a setting over its seeds, in words."""
    steps = steps_in(one)
    seeds = "1 seed" if steps.count == 1 else f"{steps.count} seeds, {steps.interval}"
    if math.isinf(steps.median.value):
        return f"never ({seeds})"
    return f"{str(steps.median).replace('> ', 'more than ')} steps ({seeds})"


def values_text(values: Mapping[str, float]) -> str:
    return ", ".join(f"{words(name)} {value:.6g}" for name, value in values.items())


# Pictures -------------------------------------------------------------------------------------------------------------


def sweep_pictures(runs: Sequence[Run]) -> list[Picture]:
    """The pictures of all families among runs of one task."""
    return [picture for family in find_families(runs) for picture in pictures(family)]


def pictures(family: _Family) -> list[Picture]:
    """The steps over the one number that was varied, or over the two that matter most; and all of them side by side."""
    return [profile(family)] if len(family.axes) == 1 else [heat_map(family), parallel(family)]


def profile(family: _Family) -> Picture:
    """Each run as a ring, or as a cross if it ended below the level; a line through the medians."""
    (name,) = family.axes
    along = sorted((one for one in family.tried if reached(one)), key=lambda one: one[0][name])
    lines = [
        line(
            "median over seeds", [v[name] for v, _ in along], [steps_in(one).median.value for one in along], COLOURS[0]
        )
    ]
    kinds: tuple[tuple[str, str, bool], ...] = ("each run", "rings", True), ("not reached by then", "crosses", False)
    for text, style, exact in kinds:
        points = [(v[name], s.value) for v, took in family.tried for s in took if s.exact == exact]
        lines.append(line(text, [x for x, _ in points], [y for _, y in points], GREY, style))
    shown = [one for one in lines if len(one["x"])]
    positive = min(values[name] for values, _ in family.tried) > 0
    drawn = make_view(shown, axis(words(name), log=positive), axis(f"steps to {family.level}", log=True))
    names = {one["name"]: one["colour"] for one in shown}
    return Picture(f"sweep-{family.name}", f"{family.title}: steps over {words(name)}", [drawn], names)


def heat_map(family: _Family) -> Picture:
    """Few steps are yellow, many are purple, grey was not reached; a star marks the best."""
    x, y, *rest = family.axes
    cells = make_grid(family.tried, x, y)
    columns, rows = ([bin_text(*ends) for ends in make_bins(family.tried, name)] for name in (x, y))
    logs = [math.log10(steps_in(one).median.value) for one in family.tried if reached(one)]
    dark = min(logs) + 0.55 * (max(logs) - min(logs)) if logs else 0.0
    fields: list[dict[str, Any]] = []
    for j, i in np.ndindex(len(rows), len(columns)):
        one = cells[j][i]
        if one is not None:
            median, known = steps_in(one).median, reached(one)
            log = math.log10(median.value) if known else None
            star = "★ " if known and one is family.tried[0] else ""
            text = f"{star}{short(median.value) if known else median}"
            ink = "white" if log is None or log > dark else "black"
            more = f"{values_text(one[0])}: {steps_text(one)}"
            fields.append({"x": columns[i], "y": rows[j], "log": log, "text": text, "ink": ink, "setting": more})
    nominal = {"type": "nominal", "axis": {"labelAngle": 0, "grid": False, "domain": False, "ticks": False}}
    channels: dict[str, Any] = {
        "x": {"field": "x", "sort": columns, "title": words(x), **nominal},
        "y": {"field": "y", "sort": rows[::-1], "title": words(y), **nominal},
        "tooltip": {"field": "setting", "type": "nominal"},
    }
    scale = {"scheme": "viridis", "reverse": True, "domain": [min(logs, default=0), max(logs, default=1)]}
    value = {"field": "log", "type": "quantitative", "scale": scale, "legend": None}
    colour = {"color": {"condition": {"test": "!isValid(datum.log)", "value": DARK}, **value}}
    ink = {"color": {"field": "ink", "type": "nominal", "scale": None}, "text": {"field": "text", "type": "nominal"}}
    layers = [
        {"mark": {"type": "rect", "stroke": "white", "strokeOpacity": 0.6, "invalid": None}, "encoding": colour},
        {"mark": {"type": "text", "fontSize": 12, "invalid": None}, "encoding": ink},
    ]
    drawn = {"data": {"values": fields}, "encoding": channels, "layer": layers, "height": max(120, 46 * len(rows))}
    drawn["resolve"] = {"scale": {"color": "independent"}}
    title = f"{family.title}: steps to {family.level} over {words(x)} and {words(y)}"
    title += f", the best over {enumerate_words([words(name) for name in rest])}" if rest else ""
    return Picture(f"sweep-{family.name}", title, [drawn])


def parallel(family: _Family) -> Picture:
    """Parallel coordinates: a line for each setting from axis to axis, the last of which has the steps.

    From blue, the fastest, to orange; the best is thick. A setting that did not reach the level is grey and ends at the
    top.
    """
    heights = {name: scale_of(family.tried, name) for name in family.axes}
    logs = [math.log(steps_in(one).median.value) for one in family.tried if reached(one)]
    low, high = (min(logs), max(logs)) if logs else (0.0, 0.0)
    titles = [*map(words, family.axes), "steps"]
    points: list[dict[str, Any]] = []
    for place, one in enumerate(reversed(family.tried)):
        shade = unit(math.log(steps_in(one).median.value), low, high) if reached(one) else None
        ends = [*(heights[name][one[0][name]] for name in family.axes), 1.0 if shade is None else 0.9 * shade]
        setting = f"{values_text(one[0])}: {steps_text(one)}"
        best = place == len(family.tried) - 1 and shade is not None
        for title, end in zip(titles, ends, strict=True):
            points.append(
                {"axis": title, "y": round(end, 4), "k": place, "shade": shade, "best": best, "setting": setting}
            )
    marks = [{"axis": words(name), "y": y, "text": text} for name in family.axes for y, text in ticks(heights[name])]
    steps = [(0.0, low), (0.45, (low + high) / 2), (0.9, high)] if high > low else [(0.0, low)] if logs else []
    marks += [{"axis": "steps", "y": y, "text": short(math.exp(log))} for y, log in steps]
    marks.append({"axis": "steps", "y": 1.0, "text": "not reached"})
    across = {
        "field": "axis",
        "type": "nominal",
        "sort": titles,
        "title": None,
        "scale": {"type": "point", "padding": 0.35},
    }
    across["axis"] = {"labelAngle": 0, "grid": True, "gridOpacity": 0.6, "domain": False, "ticks": False}
    y = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [-0.03, 1.03]}}
    blend = {"range": [COLOURS[0], COLOURS[1]], "domain": [0, 1], "interpolate": "rgb"}
    unknown = {"test": "!isValid(datum.shade)", "value": GREY}
    colour = {"condition": unknown, "field": "shade", "type": "quantitative", "scale": blend, "legend": None}
    width = {"condition": {"test": "datum.best", "value": 4}, "value": 1.2}
    shown = {"x": across, "y": y, "color": colour, "detail": {"field": "k"}, "strokeWidth": width}
    tip = {"tooltip": {"field": "setting", "type": "nominal"}}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": points},
            "mark": {"type": "line", "opacity": 0.85, "invalid": None},
            "encoding": shown | tip,
        },
        *(
            {
                "data": {"values": [mark for mark in marks if (mark["axis"] == titles[0]) == first]},
                "mark": {
                    "type": "text",
                    "align": "right" if first else "left",
                    "dx": -6 if first else 6,
                    "fontSize": 12,
                },
                "encoding": {"x": across, "y": y, "text": {"field": "text", "type": "nominal"}},
            }
            for first in (True, False)
        ),
    ]
    drawn = {"layer": layers, "height": HEIGHT}
    return Picture(f"parallel-{family.name}", f"{family.title}: every setting", [drawn])


def scale_of(tried: Sequence[_Tried], name: str) -> dict[float, float]:
    """Heights of the values of an axis, on a log scale if all are positive."""
    places = {values[name]: height_of(name, values[name]) for values, _ in tried}
    if min(places.values()) > 0:
        places = {value: math.log(place) for value, place in places.items()}
    low, high = min(places.values()), max(places.values())
    return {value: unit(place, low, high) for value, place in sorted(places.items())}


def ticks(heights: Mapping[float, float]) -> list[tuple[float, str]]:
    """Values to write on an axis: all that keep a distance, with the first and the last."""
    many = len(heights) > MOST
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


def short(steps: float) -> str:
    """Steps in a small space.

    >>> short(1310.0), short(12345.0)
    ('1,310', '12.3k')
    """
    return f"{steps:,.0f}" if steps < 10_000 else f"{steps / 1000:.3g}k"
