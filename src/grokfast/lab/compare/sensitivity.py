"""Many settings: which reaches the level first, how sharply the others fall off, how sure that is.

A setting is judged by s, the median over seeds of its steps to the level (`seeds.py`). Between two neighbours on an
axis log s is taken to be linear in log x.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Literal, NamedTuple

import numpy as np

from grokfast.lab.compare.names import experiment_settings
from grokfast.lab.compare.seeds import Bound, Spread, make_arms, spread_of, steps_of
from grokfast.lab.runs.directory import Run
from grokfast.lab.tasks import TASKS

MOST = 12  # values of an axis of a table; more are put into bins
BINS = 6
ALWAYS = ("filter", "optim.weight_decay")  # the numbers that every recommendation names


class Candidate(NamedTuple):
    """A setting by the numbers that were varied, and the steps that each of its runs took."""

    values: Mapping[str, float]
    taken: list[Bound]

    @property
    def steps(self) -> Spread:
        return spread_of(self.taken)

    @property
    def reached(self) -> bool:
        """Whether the median was measured."""
        return self.steps.median.exact


class Family(NamedTuple):
    """Runs of one task and one kind of filter that differ in numbers only, one of them at three values or more."""

    task: str
    filter: str | None
    level: str
    candidates: list[Candidate]  # the best first
    fixed: Mapping[str, float]  # numbers that were not varied and are worth showing
    runs: int
    optimizer: str

    @property
    def title(self) -> str:
        return f"{self.task}, {self.filter or 'no filter'}, {self.optimizer}"

    @property
    def axes(self) -> list[str]:
        """The numbers that were varied, the one that matters most first."""
        return by_importance(self.candidates)


class Axis(NamedTuple):
    """A number that was varied, with its values; or, if there are many, bins from the lowest to the highest in each."""

    name: str
    bins: list[tuple[float, float]]

    @property
    def labels(self) -> list[str]:
        return [f"{low:g}" if low == high else f"{low:.3g} to {high:.3g}" for low, high in self.bins]

    def place(self, value: float) -> int:
        return next(i for i, (_, high) in enumerate(self.bins) if value <= high)


# Runs ---------------------------------------------------------------------------------------------------------------


def find_families(runs: Sequence[Run]) -> list[Family]:
    """The families among runs of one task, judged at one level."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        keys = keys_of_numbers(run).values()
        rest = {key: value for key, value in experiment_settings(run).items() if key not in keys}
        alike.setdefault(repr((rest, sorted(keys))), []).append(run)
    return [family for members in alike.values() if (family := make_family(members)) is not None]


def make_family(runs: Sequence[Run]) -> Family | None:
    """The family of runs that differ in numbers only; None where no number has three values."""
    arms, keys, run = make_arms(runs), keys_of_numbers(runs[0]), runs[0]
    settings = [experiment_settings(arm.runs[0]) for arm in arms]
    found = [{name: known[key] for name, key in keys.items()} for known in settings]
    counts = {name: len({values[name] for values in found}) for name in keys}
    axes = [name for name, count in counts.items() if count > 1]
    if max(counts.values(), default=0) < 3:
        return None
    ranked = rank(
        Candidate({name: values[name] for name in axes}, [steps_of(run) for run in arm.runs])
        for arm, values in zip(arms, found, strict=True)
    )
    named = [name for name, key in keys.items() if key.startswith(ALWAYS) and name not in axes]
    level = f"validation {run.measure} {run.level:g}"
    fixed = {name: found[0][name] for name in named}
    count, optimizer = sum(len(arm.runs) for arm in arms), run.settings["optim"]["optimizer"]
    return Family(run.task, run.filter, level, ranked, fixed, count, optimizer)


def keys_of_numbers(run: Run) -> dict[str, str]:
    """The settings of a run that are numbers and a way to learn the same problem, by a short name that is its own."""
    task = TASKS.get(run.task)
    learning = {f"task.{f.name}" for f in fields(task) if f.metadata.get("learning")} if task is not None else set()
    settings = experiment_settings(run)
    shared = {key.partition(".")[2] for key in settings if key.startswith(("optim.", "task."))}
    found: dict[str, str] = {}
    for key, value in settings.items():
        part, _, name = key.rpartition(".")
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if number and (key in learning or part in ("", "filter", "optim")):
            found[f"filter_{name}" if part == "filter" and name in shared else name] = key
    return found


# Candidates ---------------------------------------------------------------------------------------------------------


def rank(candidates: Iterable[Candidate]) -> list[Candidate]:
    """The fastest first, by the median over seeds."""
    return sorted(candidates, key=lambda c: (c.steps.order, tuple(c.values.values())))


def make_axis(candidates: Sequence[Candidate], name: str) -> Axis:
    """The values of an axis, or bins that hold about as many of them each."""
    values = sorted({candidate.values[name] for candidate in candidates})
    if len(values) <= MOST:
        return Axis(name, [(value, value) for value in values])
    cuts = [round(i * len(values) / BINS) for i in range(BINS + 1)]
    return Axis(name, [(values[a], values[b - 1]) for a, b in itertools.pairwise(cuts)])


def importance(candidates: Sequence[Candidate], name: str) -> float:
    """The part of the variance of log s that the mean over each value of an axis explains, in [0, 1]."""
    axis = make_axis(candidates, name)
    places = np.array([axis.place(candidate.values[name]) for candidate in candidates])
    steps = np.array([candidate.steps.median.value for candidate in candidates])
    known = steps[np.isfinite(steps)]
    # One that diverged is as slow as the slowest.
    logs = np.log(np.clip(steps, 1.0, known.max(initial=1.0)))
    explained = np.array([logs[places == place].mean() for place in places])
    return float(explained.var() / logs.var()) if np.ptp(logs) > 0 else 0.0


def by_importance(candidates: Sequence[Candidate]) -> list[str]:
    """The axes of ranked candidates, the one that matters most first."""
    return sorted(candidates[0].values, key=lambda name: -importance(candidates, name))


def make_grid(candidates: Sequence[Candidate], x: Axis, y: Axis) -> list[list[Candidate | None]]:
    """The best of ranked candidates for each pair of values of two axes, [y][x]; None where there is none."""
    cells: list[list[Candidate | None]] = [[None] * len(x.bins) for _ in y.bins]
    for candidate in candidates:
        row, column = cells[y.place(candidate.values[y.name])], x.place(candidate.values[x.name])
        row[column] = row[column] or candidate
    return cells


def coordinate(name: str, value: float) -> float:
    """The place of a value on its axis. For alpha it is the memory in steps: 10% more than 0.98 itself is no filter.

    >>> round(coordinate("alpha", 0.98)), coordinate("lamb", 2.0)
    (50, 2.0)
    """
    return 1 / (1 - value) if name == "alpha" and value < 1 else value


def ten_percent_off(candidates: Sequence[Candidate], name: str) -> tuple[float | None, float | None]:
    """How many more steps it takes beside the best of ranked candidates, as a fraction, with 10% less and 10% more.

    The other numbers are those of the best. None: not measured.
    """
    best = candidates[0]
    others = {key: value for key, value in best.values.items() if key != name}
    line = [c for c in candidates if all(c.values[key] == value for key, value in others.items())]
    points = sorted(((coordinate(name, c.values[name]), c) for c in line), key=lambda point: point[0])
    here = coordinate(name, best.values[name])
    if not here or not best.reached:
        return None, None
    less, more = between(points, 0.9 * here), between(points, 1.1 * here)
    median = best.steps.median.value
    return None if less is None else less / median - 1, None if more is None else more / median - 1


def between(points: Sequence[tuple[float, Candidate]], x: float) -> float | None:
    """Steps at a place between two neighbours; None beyond the last, or where a neighbour did not reach the level."""
    for (a, left), (b, right) in itertools.pairwise(points):
        if a <= x <= b:
            if not (left.reached and right.reached):
                return None
            part = math.log(x / a) / math.log(b / a) if a > 0 else (x - a) / (b - a)  # zero has no logarithm
            ends = [math.log(candidate.steps.median.value) for candidate in (left, right)]
            return math.exp((1 - part) * ends[0] + part * ends[1])
    return None


def find_edges(candidates: Sequence[Candidate]) -> dict[str, Literal["lowest", "highest"]]:
    """The axes on which nothing was tried beyond the best of ranked candidates."""
    edges: dict[str, Literal["lowest", "highest"]] = {}
    for name, value in candidates[0].values.items():
        values = [candidate.values[name] for candidate in candidates]
        if value in (min(values), max(values)):
            edges[name] = "lowest" if value == min(values) else "highest"
    return edges
