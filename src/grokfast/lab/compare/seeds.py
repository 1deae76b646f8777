"""THE rule for "over seeds": which runs make an arm, which run of a seed counts, what is the median of censored steps.

An arm is an experiment repeated: its runs share all settings but seed, length, recordings and machine. One run of each
seed counts: a complete one before one that is not, then the one with the larger budget, then the one with more
evaluations. A run that never crossed and is shorter than half of the longest run of its arm says nothing beside it and
is left out.

A run that never crossed is censored: it takes longer than it was run, that is all. The median of an arm is the median
of what each run took at least. It is exact if every censored run was run for longer than that; else it is a lower
bound, written "> n". The interval is from the fastest run to the slowest. A run that diverged never crosses.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from grokfast.lab.compare.names import disambiguate
from grokfast.lab.config import experiment_key
from grokfast.lab.paper.published import PaperArm, find_arm
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Kind, reaches


class Arm(NamedTuple):
    """One experiment over seeds."""

    key: str
    name: str  # no other arm of those made together has it
    paper: PaperArm | None
    runs: list[Run]  # that count, by seed
    left_out: list[tuple[Run, str]]  # that do not, and why

    @property
    def title(self) -> str:
        """The name with its seeds."""
        open = sum(run.status != "complete" for run in self.runs)
        if len(self.runs) == 1:
            return f"{self.name}, seed {self.runs[0].loop['seed']}" + (", unfinished" if open else "")
        return f"{self.name}, {len(self.runs)} seeds" + (f" ({open} unfinished)" if open else "")

    def steps(self) -> Spread:
        """How many steps its runs take to the level."""
        return spread_of([steps_of(run) for run in self.runs])


def make_arms(runs: Iterable[Run]) -> list[Arm]:
    """The arms among runs of one task, in the order of their first run; runs without an evaluation make none.

    Examples:
        >>> from grokfast.lab import load_runs
        >>> for arm in make_arms(load_runs("runs")):
        ...     print(arm.title, arm.steps())  # the median over seeds, and its range
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(experiment_key(run.settings), []).append(run)
    chosen = {key: choose(members) for key, members in found.items()}
    kept = {key: pair for key, pair in chosen.items() if pair[0]}
    names = disambiguate([count[0] for count, _ in kept.values()])
    return [
        Arm(key, name, find_arm(count[0].settings), count, rest)
        for name, (key, (count, rest)) in zip(names, kept.items(), strict=True)
    ]


def choose(runs: Iterable[Run]) -> tuple[list[Run], list[tuple[Run, str]]]:
    """The runs of one experiment that count, in the order of the seeds, and the others with the reason."""
    best: dict[int, Run] = {}
    rest: list[tuple[Run, str]] = []
    for run in sorted((run for run in runs if run.rows), key=preference, reverse=True):
        seed = run.loop["seed"]
        if seed in best:
            rest.append((run, f"no: another run of seed {seed} does"))
        else:
            best[seed] = run
    longest = max((last_step(run) for run in best.values()), default=0)
    ordered = [run for _, run in sorted(best.items())]
    rest += [(run, "no: too short") for run in ordered if not is_informative(run, longest)]
    return [run for run in ordered if is_informative(run, longest)], rest


def is_informative(run: Run, longest: int) -> bool:
    """Whether a run crossed, never will, or was run long enough to count beside the longest."""
    return run.crossing().step is not None or run.diverged or 2 * last_step(run) >= longest


def preference(run: Run) -> tuple[bool, int, int]:
    """A complete run before one that is not; then the larger budget, however early it stopped at its level."""
    rows = run.rows
    return run.status == "complete", run.loop["steps"] if run.status == "complete" else last_step(run), len(rows)


def last_step(run: Run) -> int:
    rows = run.rows
    return rows[-1].step if rows else 0


# Levels -------------------------------------------------------------------------------------------------------------


def by_task(runs: Iterable[Run], level: float | None = None) -> dict[str, list[Run]]:
    """Runs of each task, all judged at one level."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.task, []).append(run)
    if level is not None:
        check_level(level, [run.measure for members in found.values() for run in members])
    return {task: at_one_level(members, level) for task, members in found.items()}


def check_level(level: float, measures: Sequence[str]) -> None:
    if len(set(measures)) > 1:
        raise ValueError(f"a level needs runs that are all judged by accuracy or all by loss, got both and {level:g}")
    highest = math.inf if "loss" in measures else 1.0
    if not 0 < level <= highest:
        raise ValueError(f"level must be in (0, {highest:g}], got {level:g}")


def at_one_level(runs: Sequence[Run], level: float | None = None) -> list[Run]:
    """The same runs of one task, all judged at one level: the given one, else their own, else their task's."""
    own = {run.level for run in runs}
    if level is None and len(own) > 1:
        level = runs[0].judged_by_task
    return list(runs) if level is None else [run.judged_at(level) for run in runs]


def stopped_before(run: Run) -> bool:
    """Whether a run stopped at a level of its own that is easier to reach than the one it is judged at."""
    return run.stopped_at_level and run.crossing().step is None


# Steps --------------------------------------------------------------------------------------------------------------


class Bound(NamedTuple):
    """A number, or where `exact` is False a number that the true one is above."""

    value: float
    exact: bool = True

    def __str__(self) -> str:
        if math.isinf(self.value):
            return "never"
        # Rounding must not lift a lower bound above what is known.
        return f"{self.value:,.0f}" if self.exact else f"> {math.floor(self.value):,}"

    @property
    def in_words(self) -> str:
        return str(self).replace("> ", "more than ")


@dataclass(frozen=True)
class Spread:
    """Numbers over seeds: the median, the lowest, the highest, and how many of them are lower bounds."""

    median: Bound
    low: Bound
    high: Bound
    count: int
    censored: int

    @property
    def order(self) -> tuple[bool, float, float]:
        """Sorts the best first: a median that was measured before one that is only known to be larger."""
        return not self.median.exact, self.median.value, self.high.value

    def __str__(self) -> str:
        if not self.count:
            return ""
        return str(self.median) if self.low == self.high else f"{self.median} ({self.interval})"

    @property
    def interval(self) -> str:
        """From the lowest to the highest."""
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"


def steps_of(run: Run, kind: Kind = "first") -> Bound:
    """How many steps a run takes to its level; one that diverged never gets there."""
    crossing = run.crossing(kind)
    if crossing.step is not None:
        return Bound(crossing.step)
    return Bound(math.inf if run.diverged else crossing.after, False)


def seconds_of(run: Run, kind: Kind = "first") -> Bound:
    """How many seconds a run takes to its level, up to the evaluation that shows it."""
    step, rows = run.crossing(kind).step, run.rows
    if step is None:
        return Bound(math.inf if run.diverged else rows[-1].seconds, False)
    return Bound(next(row.seconds for row in rows if row.step == step))


def spread_of(found: Sequence[Bound]) -> Spread:
    """Median and range of numbers, some of which may be lower bounds.

    >>> str(spread_of([Bound(100), Bound(200), Bound(400, False)]))
    '200 (100 to > 400)'
    >>> str(spread_of([Bound(20), Bound(99, False)]))
    '> 59 (20 to > 99)'
    """
    if not found:
        return Spread(Bound(math.inf, False), Bound(math.inf, False), Bound(math.inf, False), 0, 0)
    middle = statistics.median([bound.value for bound in found])
    least = statistics.median([bound.value if bound.exact else math.inf for bound in found])
    # A run that was given up before the middle may belong on either side of it. "Never" is no measurement.
    exact = math.isfinite(middle) and least == middle and all(bound.exact or bound.value >= middle for bound in found)
    exacts = [bound for bound in found if bound.exact]
    low = min(exacts or found, key=lambda bound: bound.value)
    high = Bound(max(bound.value for bound in found), all(bound.exact for bound in found))
    return Spread(Bound(middle, exact), low, high, len(found), len(found) - len(exacts))


AFTER = 500  # steps


def held(run: Run) -> float | None:
    """The part of the evaluations in the 500 steps after the first crossing that are at the level; None without any."""
    first, rows = run.crossing().step, run.rows
    if first is None:
        return None
    later = [row for row in rows if first < row.step <= first + AFTER]
    return statistics.fmean(reaches(later, run.level, run.measure)) if later else None


# Values -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mean:
    """Mean and standard deviation (n - 1) over seeds; one seed has no deviation, none no mean."""

    mean: float | None
    deviation: float | None
    count: int

    def text(self, digits: int = 4) -> str:
        """The mean to this many significant digits, the deviation to as many places behind the point.

        >>> mean([563.7, 363.7, 763.7]).text(), mean([999.7]).text(3), mean([0.5]).text(), mean([]).text()
        ('563.7 ± 200.0', '1,000', '0.5', '')
        """
        if self.mean is None:
            return ""
        size = max(abs(self.mean), self.deviation or 0.0)
        if not math.isfinite(size) or size < 1e-6:
            return f"{self.mean:.{digits}g}"
        places = max(0, digits - 1 - math.floor(math.log10(size)))
        if not self.deviation:
            plain = f"{self.mean:,.{places}f}"
            return plain.rstrip("0").rstrip(".") if "." in plain else plain
        places = max(places, -math.floor(math.log10(self.deviation)))  # so that the deviation has a digit
        return f"{self.mean:,.{places}f} ± {self.deviation:,.{places}f}"


def mean(values: Iterable[float | None]) -> Mean:
    """Mean and standard deviation of the values that are known.

    >>> mean([1.0, 2.0, 3.0, None])
    Mean(mean=2.0, deviation=1.0, count=3)
    """
    known = [value for value in values if value is not None]
    if not known:
        return Mean(None, None, 0)
    return Mean(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, len(known))
