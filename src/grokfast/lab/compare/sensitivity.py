"""What many runs tell: which setting reaches the level first, how sharply the others fall off, how sure that is.

A setting is judged by s, the median over seeds of the step at which the level is crossed; a run that never crossed it
counts as longer than any. Between two neighbours on an axis log s is taken to be linear in log x.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from grokfast.lab.compare.headline import median
from grokfast.lab.runs.metrics import Crossing

MOST = 12  # values of an axis of a table; more of them are put into bins
BINS = 6
OFF = 0.1


class Trial(NamedTuple):
    """One run: its numbers, its seed, and where it crossed the level."""

    values: Mapping[str, float]
    seed: int
    crossing: Crossing


class Setting(NamedTuple):
    """Trials that differ in nothing but the seed."""

    values: Mapping[str, float]
    crossings: list[Crossing]

    @property
    def steps(self) -> float:
        """The median, or how long half of the trials have at least been seen not to cross."""
        return median(self.crossings)[0]

    @property
    def reached(self) -> bool:
        return median(self.crossings)[1]

    @property
    def low(self) -> float:
        return min(c.step if c.step is not None else math.inf for c in self.crossings)

    @property
    def high(self) -> float:
        return max(c.step if c.step is not None else math.inf for c in self.crossings)

    @property
    def censored(self) -> int:
        return sum(c.censored for c in self.crossings)


class Axis(NamedTuple):
    """A number that was varied, with its values; or, of many, bins from the lowest to the highest value in each."""

    name: str
    bins: list[tuple[float, float]]

    @property
    def labels(self) -> list[str]:
        return [f"{low:g}" if low == high else f"{low:.3g} to {high:.3g}" for low, high in self.bins]

    def place(self, value: float) -> int:
        return next(i for i, (_, high) in enumerate(self.bins) if value <= high)


class Grid(NamedTuple):
    """The best setting for each pair of values of two axes; None where there is none."""

    x: Axis
    y: Axis
    cells: list[list[Setting | None]]  # [y][x]


class Sensitivity(NamedTuple):
    """How many more steps it takes beside the best, as a fraction, with 10% less and 10% more; None: not measured."""

    axis: str
    best: float
    less: float | None
    more: float | None


class Verdict(NamedTuple):
    """The best setting, and what speaks against taking it for granted."""

    best: Setting
    second: Setting | None
    edges: dict[str, Literal["lowest", "highest"]]  # axes on which nothing was tried beyond the best
    overlap: bool | None  # whether the second best has seeds as fast as some of the best's; None with too few seeds


def varied(trials: Sequence[Trial]) -> list[str]:
    """The numbers in which trials differ."""
    names = dict.fromkeys(name for trial in trials for name in trial.values)
    return [name for name in names if len({trial.values[name] for trial in trials}) > 1]


def is_sweep(trials: Sequence[Trial]) -> bool:
    """Whether some number was tried at three values or more."""
    return any(len({trial.values[name] for trial in trials}) > 2 for name in varied(trials))


def rank(trials: Sequence[Trial]) -> list[Setting]:
    """Settings over seeds, the fastest first; of two trials of one seed that which crossed, or went further."""
    names = varied(trials)
    found: dict[tuple[float, ...], dict[int, Crossing]] = {}
    for trial in sorted(trials, key=lambda trial: (not trial.crossing.censored, trial.crossing.after)):
        found.setdefault(tuple(trial.values[name] for name in names), {})[trial.seed] = trial.crossing
    settings = [Setting(dict(zip(names, key, strict=True)), list(seeds.values())) for key, seeds in found.items()]
    return sorted(settings, key=lambda s: (not s.reached, s.steps, s.high, tuple(s.values.values())))


def make_axis(settings: Sequence[Setting], name: str) -> Axis:
    """The values of an axis, or bins that hold about as many of them each."""
    values = sorted({setting.values[name] for setting in settings})
    if len(values) <= MOST:
        return Axis(name, [(value, value) for value in values])
    cuts = [round(i * len(values) / BINS) for i in range(BINS + 1)]
    return Axis(name, [(values[a], values[b - 1]) for a, b in itertools.pairwise(cuts)])


def importance(settings: Sequence[Setting], name: str) -> float:
    """The part of the variance of log s that the mean over each value of an axis explains, in [0, 1]."""
    axis, groups = make_axis(settings, name), dict[int, list[float]]()
    for setting in settings:
        groups.setdefault(axis.place(setting.values[name]), []).append(math.log(max(1.0, setting.steps)))
    logs = [value for group in groups.values() for value in group]
    mean, total = statistics.fmean(logs), statistics.pvariance(logs)
    between = sum(len(group) * (statistics.fmean(group) - mean) ** 2 for group in groups.values()) / len(logs)
    return between / total if total > 0 else 0.0


def by_importance(settings: Sequence[Setting]) -> list[str]:
    """The axes of ranked settings, that which matters most first."""
    return sorted(settings[0].values, key=lambda name: -importance(settings, name))


def make_grid(settings: Sequence[Setting], x: str, y: str) -> Grid:
    """Two axes of ranked settings, with whatever else was varied at its best for each pair."""
    across, down = make_axis(settings, x), make_axis(settings, y)
    cells: list[list[Setting | None]] = [[None] * len(across.bins) for _ in down.bins]
    for setting in settings:
        row, column = cells[down.place(setting.values[y])], across.place(setting.values[x])
        row[column] = row[column] or setting
    return Grid(across, down, cells)


def coordinate(name: str, value: float) -> float:
    """Where a value stands on its axis. Of alpha it is the memory in steps: 10% more of 0.98 itself is no filter.

    >>> round(coordinate("alpha", 0.98)), coordinate("lamb", 2.0)
    (50, 2.0)
    """
    return 1 / (1 - value) if name == "alpha" and value < 1 else value


def sensitivity(settings: Sequence[Setting], name: str, *, off: float = OFF) -> Sensitivity:
    """How much worse it gets beside the best of ranked settings along one axis, the others as they are there."""
    best = settings[0]
    others = {key: value for key, value in best.values.items() if key != name}
    line = [s for s in settings if all(s.values[key] == value for key, value in others.items())]
    points = sorted(((coordinate(name, s.values[name]), s) for s in line), key=lambda point: point[0])
    here = coordinate(name, best.values[name])
    less, more = (relative(between(points, here * factor), best) for factor in (1 - off, 1 + off))
    return Sensitivity(name, best.values[name], *((less, more) if here else (None, None)))


def relative(steps: float | None, best: Setting) -> float | None:
    return None if steps is None or not best.reached else steps / best.steps - 1


def between(points: Sequence[tuple[float, Setting]], x: float) -> float | None:
    """Steps at a place between two neighbours; None beyond the last, or where a neighbour did not reach the level."""
    for (a, left), (b, right) in itertools.pairwise(points):
        if a <= x <= b:
            if not (left.reached and right.reached):
                return None
            part = math.log(x / a) / math.log(b / a) if a > 0 else (x - a) / (b - a)  # zero has no logarithm
            return math.exp((1 - part) * math.log(left.steps) + part * math.log(right.steps))
    return None


def judge(settings: Sequence[Setting]) -> Verdict | None:
    """What ranked settings recommend; None where not one of them reached the level."""
    best, second = settings[0], settings[1] if len(settings) > 1 else None
    if not best.reached:
        return None
    edges: dict[str, Literal["lowest", "highest"]] = {}
    for name, value in best.values.items():
        values = [setting.values[name] for setting in settings]
        if value in (min(values), max(values)):
            edges[name] = "lowest" if value == min(values) else "highest"
    known = second is not None and min(len(best.crossings), len(second.crossings)) > 1
    return Verdict(best, second, edges, second.low <= best.high if known and second is not None else None)
