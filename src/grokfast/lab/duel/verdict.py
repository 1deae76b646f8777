"""Which of two arms needs less, over seeds: a ratio of medians, an interval, a verdict.

    r = median of the reference / median of the challenger, > 1 where the challenger needs less

The median of censored numbers is that of `compare.seeds`: a number, or a lower bound. So r is a number, or is only
known to lie between two. The interval holds the middle 95% of r over resampled seeds: whole pairs where both arms have
the same seeds, else each arm by itself. It is about the luck of seeds, not about the luck of tuning.

    no difference   the interval lies within 10% of 1
    helps, hurts    the interval lies above 1, below 1
    not decided     anything else, and fewer than five seeds
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from grokfast.lab.compare.seeds import Bound, Spread, spread_of

Word = Literal["helps", "no difference", "hurts", "not decided"]
Numbers = Mapping[int, Bound]  # what the run of each seed took

CONFIDENCE = 0.95
RESAMPLES = 2000
MARGIN = 1.1  # ratios nearer to 1 are no difference that matters
SAME = "as fast"
LEAST = 5  # seeds: with fewer, arms that are alike are disjoint by chance too often
POWER = 1.43  # (1.96 + 0.84) / 1.96: how much narrower the interval must be to decide four times out of five


class Between(NamedTuple):
    """A number that is known to lie between two, which may be the same."""

    low: float
    high: float


class Comparison(NamedTuple):
    """A challenger beside a reference, by one measure."""

    ratio: Between
    interval: Between
    reference: Spread
    challenger: Spread
    seeds: int  # of the arm that has fewer
    paired: bool
    word: Word
    more_seeds: int | None  # that would probably decide; None where it is decided, or more seeds do not help


def compare(reference: Numbers, challenger: Numbers, *, resamples: int = RESAMPLES) -> Comparison:
    """Compare what two arms took, by seed. The same numbers always give the same result.

    >>> slow, fast = ({seed: Bound(n * (100 + seed)) for seed in range(6)} for n in (2, 1))
    >>> found = compare(slow, fast)
    >>> found.word, found.ratio
    ('helps', Between(low=2.0, high=2.0))
    """
    seeds, paired = min(len(reference), len(challenger)), set(reference) == set(challenger)
    sides = [[numbers[seed] for seed in sorted(numbers)] for numbers in (reference, challenger)]
    spreads = [spread_of(side) for side in sides]
    if seeds == 0:
        ratio = interval = Between(0.0, math.inf)
    else:
        ratio = ratio_of(*spreads)
        found = [ratio_of(*map(spread_of, pair)) for pair in resampled(sides, resamples, paired=paired)]
        interval = middle(found)
    word = decide(interval) if seeds >= LEAST else "not decided"
    more = seeds_to_decide(interval, seeds) if word == "not decided" else None
    return Comparison(ratio, interval, spreads[0], spreads[1], seeds, paired, word, more)


def ratio_of(reference: Spread, challenger: Spread) -> Between:
    """The ratio of two medians, as far as it is known."""
    above, below = reference.median, challenger.median
    if math.isinf(below.value):
        return Between(0.0, 0.0 if above.exact else math.inf)
    ratio = above.value / below.value
    return Between(ratio if below.exact else 0.0, ratio if above.exact else math.inf)


def resampled(sides: Sequence[Sequence[Bound]], count: int, *, paired: bool) -> Iterator[list[list[Bound]]]:
    """Each side with its seeds drawn again, with replacement; the same ones on both sides where they are paired."""
    source = random.Random(0)
    for _ in range(count):
        places = [source.choices(range(len(side)), k=len(side)) for side in sides]
        yield [[side[i] for i in places[0 if paired else n]] for n, side in enumerate(sides)]


def middle(found: Sequence[Between]) -> Between:
    """From the lowest to the highest value that the middle part of these may have."""
    left_out = math.floor((1 - CONFIDENCE) / 2 * len(found))
    lows, highs = sorted(each.low for each in found), sorted(each.high for each in found)
    return Between(lows[left_out], highs[-1 - left_out])


def median_interval(bounds: Sequence[Bound]) -> Between:
    """The interval of one arm's median over resampled seeds."""
    medians = [spread_of(side).median for (side,) in resampled([bounds], RESAMPLES, paired=True)]
    return middle([Between(m.value, m.value if m.exact else math.inf) for m in medians])


def decide(interval: Between) -> Word:
    """
    >>> [decide(Between(*pair)) for pair in ((1.2, 2.0), (0.95, 1.05), (0.1, 0.9), (0.8, 1.5), (1.01, 1.04))]
    ['helps', 'no difference', 'hurts', 'not decided', 'no difference']
    """
    if interval.low >= 1 / MARGIN and interval.high <= MARGIN:
        return "no difference"
    return "helps" if interval.low > 1 else "hurts" if interval.high < 1 else "not decided"


def seeds_to_decide(interval: Between, seeds: int) -> int | None:
    """How many more seeds would probably decide, as intervals shrink with the root of their number: a rough guess.

    None where an end of the interval is unknown: then longer runs would help, more seeds would not. Unless the interval
    decides as it is, and only the least number of seeds is missing.
    """
    missing = max(LEAST - seeds, 1)
    if decide(interval) != "not decided":
        return missing
    if not 0 < interval.low <= interval.high < math.inf:
        return None
    centre, half = (math.log(interval.high * interval.low) / 2, math.log(interval.high / interval.low) / 2)
    # Either the difference is shown, or that there is none.
    room = max(abs(centre), math.log(MARGIN) - abs(centre))
    return max(missing, math.ceil(seeds * (POWER * half / room) ** 2) - seeds)


# In words -----------------------------------------------------------------------------------------------------------


def sentence(found: Comparison, challenger: str, reference: str) -> str:
    """The verdict as a person says it."""
    claim = f"{challenger} {found.word}" if found.word in ("helps", "hurts") else f"{challenger}: {found.word}"
    if not found.seeds:
        return f"{claim}, as {reference if not found.reference.count else challenger} has no complete run"
    seeds = count_text(found.seeds, "seed") + ("" if found.paired else ", not paired")
    text = ratio_text(found.ratio)
    ratio = f"{text} {'as' if text == SAME else 'than' if known(found.ratio) else 'beside'} {reference}"
    sides = {reference: found.reference, challenger: found.challenger}
    never = [name for name, side in sides.items() if side.count and side.censored == side.count]
    lost = f"; no run of {' or '.join(never)} got there" if never else ""
    text = f"{claim}, {ratio}, 95% interval {interval_text(found)}, {seeds}{lost}"
    if found.word != "not decided":
        return text
    if found.more_seeds is not None:
        return f"{text}; about {count_text(found.more_seeds, 'more seed')} would decide"
    return f"{text}; too many runs did not get there: longer runs would tell more"


def ratio_text(ratio: Between) -> str:
    """
    >>> ratio_text(Between(2, 2)), ratio_text(Between(0.5, 0.5)), ratio_text(Between(3, math.inf))
    ('2x faster', '2x slower', 'at least 3x faster')
    >>> ratio_text(Between(0.8, math.inf)), ratio_text(Between(0, 1.25)), ratio_text(Between(0, 0.5))
    ('at most 1.25x slower', 'at most 1.25x faster', 'at least 2x slower')
    >>> ratio_text(Between(0, 1)), ratio_text(Between(1, math.inf))
    ('not faster', 'not slower')
    """
    low, high = ratio
    if not known(ratio):
        return "unknown"
    if low == high:
        return times(low)
    if number(low if high == math.inf else high) == "1":
        return "not slower" if high == math.inf else "not faster"
    if high == math.inf:
        return f"at {'least' if low >= 1 else 'most'} {times(low)}"
    return f"at {'least' if high <= 1 else 'most'} {times(high)}"


def interval_text(found: Comparison) -> str:
    """From the end nearer to no effect to the other; both ends as what the verdict says."""
    low, high = found.interval
    if not known(found.interval):
        return "unknown"
    if found.word == "hurts":
        return f"{number(1 / high if high else math.inf)} to {number(1 / low if low else math.inf)}"
    if found.word == "helps":
        return f"{number(low)} to {number(high)}"
    return f"{times(low)} to {times(high)}"


def known(found: Between) -> bool:
    return found != Between(0.0, math.inf)


def times(ratio: float) -> str:
    if number(max(ratio, 1 / ratio if ratio else 0.0)) == "1":
        return SAME
    if ratio >= 1:
        return "infinitely faster" if math.isinf(ratio) else f"{number(ratio)}x faster"
    return f"{number(1 / ratio)}x slower" if ratio else "infinitely slower"


def count_text(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def number(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.3g}"
