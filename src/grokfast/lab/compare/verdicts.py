"""How two arms compare, and how arms and claims are put into words."""

from __future__ import annotations

from typing import Literal, NamedTuple

from grokfast.lab.compare.seeds import Arm, Mean, Spread

Verdict = Literal["better", "alike", "worse"]


class Finding(NamedTuple):
    """One claim: what came of it, and the numbers."""

    verdict: str
    text: str
    in_short: bool = False  # one of those that the README names


def judge(a: Spread, b: Spread) -> Verdict:
    """Whether the slowest of one is faster than the fastest of the other, or the other way round."""
    if a.high.exact and a.high.value < b.low.value:
        return "better"
    return "worse" if b.high.exact and b.high.value < a.low.value else "alike"


def judge_means(a: Mean, b: Mean, *, high: bool) -> Verdict:
    """Whether two means lie further apart than their standard deviations together, and on which side."""
    if a.mean is None or b.mean is None or abs(a.mean - b.mean) <= (a.deviation or 0.0) + (b.deviation or 0.0):
        return "alike"
    return "better" if (a.mean > b.mean) == high else "worse"


def taken(arm: Arm) -> str:
    """How many steps an arm takes, with range and seeds."""
    steps = arm.steps()
    if steps.count == 1:
        return f"{steps.median.in_words} steps (one seed)"
    span = "" if steps.low == steps.high else f"{steps.interval.replace('> ', 'more than ')}, "
    return f"{steps.median.in_words} steps ({span}{steps.count} seeds)"
