"""Held crossings, censored medians, intervals and verdicts: the only file of the lab that defines these.

A level is a target accuracy or loss. A run reaches it after some steps, or takes longer than its length (censored). A
tuning is a setting that one search found, run on several seeds. An arm is one tuning (a fixed setting) or several.

    unit       the median over the seeds of one tuning; if an arm has one tuning, each of its seeds
    ratio      unit of the reference / unit of the challenger, for every pair of units; its median is reported
    interval   95%, Hodges-Lehmann: the c-th smallest and the c-th largest of these ratios, where c comes from the exact
               distribution of the Mann-Whitney statistic

The interval compares tunings, because all runs of one tuning depend on how good that search was. It needs no random
numbers, so the same runs always give the same verdict. It uses ranks, so a few runs that never reach the level are
possible.

    no difference    the interval is within 10% of 1 (final losses: 1%)
    faster, slower   the interval is above 1, below 1 (final losses: lower, higher)
    undecided        anything else, and too few units: 5 seeds of one tuning, or 8 tunings

`benchmarks/duel_simulation.py` simulates whole duels, tuning included, and shows how often a verdict is wrong.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

_Word = Literal["faster", "slower", "lower", "higher", "no difference", "undecided"]
_Quantity = Literal["steps", "seconds", "loss"]

# Runs of modmul that fall below the level within 20 evaluations: 68 of 111 after they first reach it, 37 of 84 after 10
# further evaluations at it, 10 of 33 after 30. More would be safer, but each run has to continue for that long.
HOLD = 30
CONFIDENCE = 0.95
LEAST_SEEDS = 5  # with four, no interval at 95% can exclude 1
LEAST_TUNINGS = 8
MARGINS: dict[_Quantity, float] = {"steps": 1.1, "seconds": 1.1, "loss": 1.01}  # smaller differences do not matter
MANY = 10_000  # pairs: above this the normal approximation replaces the exact distribution


# Crossings ----------------------------------------------------------------------------------------------------------


class Crossing(NamedTuple):
    """A curve crosses a level between the steps `after` and `step`; if `step` is None, not up to `after`."""

    after: int
    step: int | None

    @property
    def censored(self) -> bool:
        return self.step is None

    def __str__(self) -> str:
        return f"> {self.after:,}" if self.step is None else f"{self.step:,}"


def first_crossing(steps: Sequence[int], reached: Sequence[bool]) -> Crossing:
    """The first evaluated step that reaches the level.

    >>> first_crossing([10, 20, 30, 40], [False, True, False, True])
    Crossing(after=10, step=20)
    """
    return _crossing_at(steps, next((i for i, yes in enumerate(reached) if yes), None), steps[-1] if steps else 0)


def held_crossing(steps: Sequence[int], reached: Sequence[bool], hold: int = HOLD) -> Crossing:
    """The first evaluated step that reaches the level and is followed by `hold` evaluations that reach it too.

    A run that ends too early to tell is censored at its last evaluation below the level.

    >>> held_crossing([10, 20, 30, 40, 50], [True, False, True, True, True], hold=2)
    Crossing(after=20, step=30)
    >>> held_crossing([10, 20, 30, 40, 50], [True, False, True, True, True], hold=3)
    Crossing(after=20, step=None)
    """
    start = 0
    for i, yes in enumerate(reached):
        if not yes:
            start = i + 1
        elif i - start == hold:
            return _crossing_at(steps, start, 0)
    return _crossing_at(steps, None, steps[start - 1] if start else 0)


def stable_crossing(steps: Sequence[int], reached: Sequence[bool]) -> Crossing:
    """The first evaluated step from which every evaluation reaches the level, to the end of the run.

    >>> stable_crossing([10, 20, 30, 40], [False, True, False, True])
    Crossing(after=30, step=40)
    """
    start = next((i + 1 for i in reversed(range(len(reached))) if not reached[i]), 0)
    return _crossing_at(steps, start if start < len(steps) else None, steps[-1] if steps else 0)


def _crossing_at(steps: Sequence[int], index: int | None, after: int) -> Crossing:
    if index is None:
        return Crossing(after, None)
    return Crossing(steps[index - 1] if index else 0, steps[index])


# Censored numbers ---------------------------------------------------------------------------------------------------


class Steps(NamedTuple):
    """A number of steps (or seconds, or a loss). If `exact` is False, the true number is larger; inf means never."""

    value: float
    exact: bool = True

    def __str__(self) -> str:
        if math.isinf(self.value):
            return "never"
        # Rounding must not lift a lower bound above what is known.
        return f"{self.value:,.0f}" if self.exact else f"> {math.floor(self.value):,}"


def steps_to(crossing: Crossing, *, diverged: bool = False) -> Steps:
    """The steps to a crossing; a run that diverged never crosses.

    >>> steps_to(Crossing(90, 100)), steps_to(Crossing(500, None))
    (Steps(value=100, exact=True), Steps(value=500, exact=False))
    """
    if crossing.step is not None:
        return Steps(crossing.step)
    return Steps(math.inf if diverged else crossing.after, False)


@dataclass(frozen=True)
class Spread:
    """Numbers over runs: the median, the lowest, the highest, and how many of them are lower bounds."""

    median: Steps
    low: Steps
    high: Steps
    count: int
    censored: int

    @property
    def order(self) -> tuple[bool, float, float]:
        """Sorts the best first: a median that was measured before one that is only known to be larger."""
        return not self.median.exact, self.median.value, self.high.value

    @property
    def interval(self) -> str:
        """From the lowest to the highest."""
        return str(self.low) if self.low == self.high else f"{self.low} to {self.high}"

    def __str__(self) -> str:
        if not self.count:
            return ""
        return str(self.median) if self.low == self.high else f"{self.median} ({self.interval})"


def spread_of(found: Sequence[Steps]) -> Spread:
    """Median and range of numbers, some of which may be lower bounds.

    The median is that of all values. It is exact if every run that is only a lower bound was run for longer.

    >>> str(spread_of([Steps(100), Steps(200), Steps(400, False)]))
    '200 (100 to > 400)'
    >>> str(spread_of([Steps(20), Steps(99, False)]))
    '> 59 (20 to > 99)'
    """
    if not found:
        return Spread(Steps(math.inf, False), Steps(math.inf, False), Steps(math.inf, False), 0, 0)
    middle = statistics.median([number.value for number in found])
    highest = statistics.median([number.value if number.exact else math.inf for number in found])
    # A run that was stopped before the median may be below or above it.
    exact = math.isfinite(middle) and highest == middle
    exact = exact and all(number.exact or number.value >= middle for number in found)
    exacts = [number for number in found if number.exact]
    low = min(exacts or found, key=lambda number: number.value)
    high = Steps(max(number.value for number in found), len(exacts) == len(found))
    return Spread(Steps(middle, exact), low, high, len(found), len(found) - len(exacts))


def median_interval(found: Sequence[Steps]) -> tuple[Steps, Steps]:
    """The 95% interval of a median, by order statistics; with fewer than six numbers, the lowest and the highest.

    >>> low, high = median_interval([Steps(10 * n) for n in range(1, 11)])
    >>> str(low), str(high)
    ('20', '90')
    """
    if not found:
        return Steps(0.0, False), Steps(math.inf, False)
    size, place = len(found), 0
    chance = 0.5**size
    while chance <= (1 - CONFIDENCE) / 2:
        place += 1
        chance += math.comb(size, place) * 0.5**size
    place = max(place, 1)
    ordered = sorted(found, key=lambda number: number.value)
    # The upper end counts a lower bound as larger than every number.
    upper = sorted(found, key=lambda number: (not number.exact, number.value))[-place]
    return ordered[place - 1], upper


# The verdict --------------------------------------------------------------------------------------------------------

_Tunings = Sequence[Sequence[Steps]]  # a list of tunings, each a list over seeds


@dataclass(frozen=True)
class Verdict:
    """A challenger against a reference. `ratio`, `low` and `high` are > 1 if the challenger needs less."""

    word: _Word
    ratio: float | None  # None if too many runs never reached the level
    low: float  # 0 if there is no lower end
    high: float  # inf if there is no upper end
    challenger: Spread  # over all its runs
    reference: Spread
    seeds: int  # runs of the arm that has fewer
    tunings: int  # of the arm that has fewer
    of: _Quantity = "steps"

    @property
    def decided(self) -> bool:
        return self.word not in ("undecided", "no difference")


def verdict(challenger: _Tunings, reference: _Tunings, *, of: _Quantity = "steps") -> Verdict:
    """Compare two arms.

    Args:
        challenger: its tunings, each a list over fresh seeds; a fixed setting is one tuning, `[[...]]`.
        reference: likewise.
        of: what the numbers are. Final losses are plain numbers: give `Steps(loss)`, and `Steps(math.inf, False)` for a
            run that diverged.

    Examples:
        >>> slow, fast = ([[Steps(n * (100 + seed)) for seed in range(6)]] for n in (2, 1))
        >>> verdict(fast, slow).word, verdict(slow, fast).word, verdict(fast, fast).word
        ('faster', 'slower', 'no difference')
    """
    if of not in MARGINS:
        raise ValueError(f"of must be one of {', '.join(MARGINS)}, got {of!r}")
    for number in (number for arm in (challenger, reference) for tuning in arm for number in tuning):
        if not number.value >= 0 or (of == "loss" and number.value == 0):
            raise ValueError(f"numbers to compare must be {'>' if of == 'loss' else '>='} 0, got {number.value}")
    arms = [[tuning for tuning in arm if tuning] for arm in (challenger, reference)]
    runs = [[number for tuning in arm for number in tuning] for arm in arms]
    counts = [len(arm) for arm in arms]
    units = [[spread_of(t).median for t in arm] if min(counts) > 1 else r for arm, r in zip(arms, runs, strict=True)]
    ratio, low, high = shift_interval(*units)
    tunings, seeds = min(counts), min(map(len, runs))
    enough = tunings >= LEAST_TUNINGS if max(counts) > 1 else seeds >= LEAST_SEEDS
    word = word_of(low, high, of) if enough else "undecided"
    return Verdict(word, ratio, low, high, spread_of(runs[0]), spread_of(runs[1]), seeds, tunings, of)


def word_of(low: float, high: float, of: _Quantity = "steps") -> _Word:
    """
    >>> [word_of(*ends) for ends in ((1.2, 2.0), (0.95, 1.05), (0.1, 0.9), (0.8, 1.5), (1.01, 1.04))]
    ['faster', 'no difference', 'slower', 'undecided', 'no difference']
    """
    if low >= 1 / MARGINS[of] and high <= MARGINS[of]:
        return "no difference"
    if low > 1:
        return "lower" if of == "loss" else "faster"
    if high < 1:
        return "higher" if of == "loss" else "slower"
    return "undecided"


def shift_interval(challenger: Sequence[Steps], reference: Sequence[Steps]) -> tuple[float | None, float, float]:
    """The median of reference / challenger over all pairs, and its interval; lower bounds make it wider."""
    pairs = [_ratio(c, r) for c in challenger for r in reference]
    lows, highs = sorted(pair[0] for pair in pairs), sorted(pair[1] for pair in pairs)
    if not pairs:
        return None, 0.0, math.inf
    middles = statistics.median(lows), statistics.median(highs)
    ratio = middles[0] if middles[0] == middles[1] else None
    place = critical_place(len(challenger), len(reference))
    return (ratio, lows[place - 1], highs[-place]) if place else (ratio, 0.0, math.inf)


def _ratio(challenger: Steps, reference: Steps) -> tuple[float, float]:
    """The bounds of reference / challenger."""
    if math.isinf(challenger.value) or math.isinf(reference.value):
        low = math.inf if math.isinf(reference.value) and challenger.exact else 0.0
        high = 0.0 if math.isinf(challenger.value) and reference.exact else math.inf
        return low, high
    low, high = max(reference.value, 1e-300), max(challenger.value, 1e-300)  # both at the first evaluation: 1
    ratio = low / high
    return ratio if challenger.exact else 0.0, ratio if reference.exact else math.inf


@functools.cache
def critical_place(m: int, n: int) -> int:
    """The largest c with P(U < c) <= 2.5% for the Mann-Whitney U of m and n numbers from one distribution.

    >>> critical_place(3, 4), critical_place(5, 5), critical_place(20, 20)
    (0, 3, 128)
    """
    tail = (1 - CONFIDENCE) / 2
    if m * n > MANY:
        deviation = math.sqrt(m * n * (m + n + 1) / 12)
        return math.floor(m * n / 2 + statistics.NormalDist().inv_cdf(tail) * deviation)
    # The counts of U are the coefficients of the product over i = 1..m of (1 - q^(n+i)) / (1 - q^i).
    ways = [1] + [0] * (m * n // 2)
    for i in range(1, m + 1):
        for u in range(len(ways) - 1, n + i - 1, -1):
            ways[u] -= ways[u - n - i]
        for u in range(i, len(ways)):
            ways[u] += ways[u - i]
    allowed, total = tail * math.comb(m + n, m), 0
    for u, count in enumerate(ways):
        total += count
        if total > allowed:
            return u
    return len(ways)


def baseline_level(finals: Sequence[float]) -> float:
    """The level for "time to the tuned baseline's result": what three quarters of its runs reach. Smaller is better.

    Without a level of its own, a task is judged twice: by the final value at a fixed budget, `verdict(..., of="loss")`,
    and by the steps that each arm takes to this level. Half of the baseline's own runs would miss the median, and one
    bad run would decide the maximum.
    """
    if not finals:
        raise ValueError("finals must hold a number, got none")
    ordered = sorted(math.inf if math.isnan(value) else value for value in finals)
    return ordered[math.ceil(0.75 * len(ordered)) - 1]


# In words -----------------------------------------------------------------------------------------------------------


def sentence(
    found: Verdict, challenger: str, reference: str, control: Verdict | None = None, *, measure: str = "loss"
) -> str:
    """A verdict in English. `control`, the challenger against the reference at its settings, says why.

    `measure` names the final values, if these are compared.

    >>> slow, fast = ([[Steps(n + 5 * seed) for seed in range(6)]] for n in (200, 150))
    >>> sentence(verdict(fast, slow), "ema", "adamw")
    'ema is faster than adamw: 162 against 212 steps (21% to 41% faster).'
    """
    why = "" if control is None else " " + _why(control, measure)
    runs = f"{found.seeds} {'seed' if found.seeds == 1 else 'seeds'}"
    if found.seeds == 0:
        return f"Undecided: {reference if not found.reference.count else challenger} has no complete run."
    if found.tunings > 1 and found.tunings < LEAST_TUNINGS:
        runs = f"{found.tunings} tunings"
    few = found.tunings < LEAST_TUNINGS if found.tunings > 1 else found.seeds < LEAST_SEEDS
    if few:
        least = f"{LEAST_TUNINGS} tunings" if found.tunings > 1 else f"{LEAST_SEEDS} seeds"
        head = f"Undecided, because {runs} are too few (at least {least}): {challenger} against {reference}"
    elif found.decided:
        verb = "ends" if found.of == "loss" else "is"
        head = f"{challenger} {verb} {found.word} than {reference}"
    else:
        kind = "No difference that matters" if found.word == "no difference" else "No clear difference"
        head = f"{kind} between {challenger} and {reference}"
    return f"{head}: {_numbers(found, measure)} ({interval_text(found)}){_failures(found, challenger, reference)}.{why}"


def _numbers(found: Verdict, measure: str) -> str:
    pair = found.challenger.median, found.reference.median
    if found.of == "loss":
        return f"{measure} {_loss(pair[0])} against {_loss(pair[1])}"
    return f"{_plain(pair[0])} against {_plain(pair[1])} {found.of}"


def _plain(number: Steps) -> str:
    return str(number).replace("> ", "more than ")


def _loss(number: Steps) -> str:
    return "inf" if math.isinf(number.value) else f"{number.value:.4g}"


def _failures(found: Verdict, challenger: str, reference: str) -> str:
    sides = ((challenger, found.challenger), (reference, found.reference))
    parts = [f"{side.censored} of {side.count} runs of {name}" for name, side in sides if side.censored]
    verb = "diverged" if found.of == "loss" else "did not reach the level"
    return f"; {' and '.join(parts)} {verb}" if parts else ""


def interval_text(found: Verdict) -> str:
    """The interval of a verdict in words, such as `6% slower to 15% faster`."""
    return range_text(found.low, found.high, found.of)


def range_text(low: float, high: float, of: _Quantity = "steps") -> str:
    """A range of ratios in words: `6% slower to 15% faster`, `at least 20% faster`.

    >>> range_text(0.94, 1.15), range_text(1.2, 2.5), range_text(1.2, math.inf), range_text(0, math.inf)
    ('6% slower to 15% faster', '20% faster to 2.5 times as fast', 'at least 20% faster', 'nothing is known')
    >>> range_text(0.8, math.inf), range_text(0, 0.5), range_text(1.1, 1.3), range_text(0, 1.1)
    ('at most 25% slower', 'at least 2 times as slow', '10% to 30% faster', 'at most 10% faster')
    >>> range_text(3, 4.5), range_text(0.98, 0.99, "loss")
    ('3 to 4.5 times as fast', '1.0% to 2.0% higher')
    """
    more, less = ("lower", "higher") if of == "loss" else ("faster", "slower")
    if (low, high) == (0, math.inf):
        return "nothing is known"
    if high == math.inf:
        return f"at {'least' if low > 1 else 'most'} {_times(low, more, less)}" if low != 1 else f"not {less}"
    if low == 0:
        return f"at {'least' if high < 1 else 'most'} {_times(high, more, less)}" if high != 1 else f"not {more}"
    ends = [_times(low, more, less), _times(high, more, less)]
    if high < 1:
        ends.reverse()
    if ends[0] == ends[1]:
        return ends[0]
    number, _, unit = ends[0].partition(" ")
    shared = ends[1].endswith(f" {unit}") and number.endswith("%") == ("%" in ends[1])
    return f"{number if shared else ends[0]} to {ends[1]}"


def _times(ratio: float, more: str, less: str) -> str:
    size = max(ratio, 1 / ratio if ratio else math.inf)
    word = more if ratio >= 1 else less
    if math.isinf(size):
        return f"infinitely {word}"
    if size >= 2 and more == "faster":
        return f"{size:.2g} times as {'fast' if ratio >= 1 else 'slow'}"
    percent = 100 * (size - 1)
    digits = 1 if percent < 10 and more == "lower" else 0
    return f"{percent:.{digits}f}% {word}"


def _why(control: Verdict, measure: str) -> str:
    """Whether the addition makes the difference, by the reference at the challenger's settings."""
    without = f"{_numbers(control, measure)} ({interval_text(control)})"
    if control.word in ("faster", "lower"):
        return f"The addition helps: against the same settings without it, {without}."
    if control.word in ("slower", "higher"):
        return f"The addition hurts: against the same settings without it, {without}."
    if control.word == "no difference":
        return f"Not the addition: without it, the same settings are as good, {without}."
    return f"The addition's own share is not clear: against the same settings without it, {without}."
