"""One sentence on the runs of a task: how soon with the filter, how soon without, at which weight decay."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grokfast.lab.compare.names import differences, experiment_settings
from grokfast.lab.compare.seeds import Arm, Bound, at_one_level, make_arms
from grokfast.lab.runs.directory import Run

FAR = 1.5  # times as many steps
MOST = 4  # settings without a filter that are named


def headline(runs: Sequence[Run]) -> str:
    """How soon the fastest setting with a filter reaches the level, and those without one on the same problem."""
    judged = at_one_level(runs)
    arms, level = make_arms(judged), f"{judged[0].level:g}"
    filtered = [arm for arm in arms if arm.runs[0].filter is not None]
    if not filtered:
        rest = rivals(arms, None)
        return f"{settings_decide(arms)}reaching {level} takes {rest}." if rest else "No run has been evaluated yet."
    best = min(filtered, key=lambda arm: arm.steps().order)
    same = [arm for arm in arms if problem(arm) == problem(best)]
    rest = rivals(same, best.steps().median)
    without = f"; without a filter it takes {rest}" if rest else ""
    return f"{note_faster_baseline(best, same)}{claim(best, level)}{without}."


def settings_decide(arms: Sequence[Arm]) -> str:
    """How far apart settings without a filter are, where that is far."""
    known = [arm.steps().median.value for arm in arms if arm.steps().median.exact]
    if not known or max(known) < FAR * min(known):
        return "Without a filter, "
    return f"The settings of the optimizer decide, from {min(known):,.0f} to {max(known):,.0f} steps without a filter: "


def note_faster_baseline(best: Arm, arms: Sequence[Arm]) -> str:
    """Says first that the fastest setting has no filter, where that is so."""
    plain = [arm.steps().median for arm in arms if arm.runs[0].filter is None and arm.steps().median.exact]
    fastest = min((median.value for median in plain), default=math.inf)
    bound = best.steps().median
    faster = fastest < bound.value or (not bound.exact and fastest == bound.value)
    return f"The fastest setting has no filter, {fastest:,.0f} steps. " if faster else ""


def claim(best: Arm, level: str) -> str:
    """What is known of the best setting with a filter."""
    steps, decay = best.steps(), f"at weight decay {best.runs[0].weight_decay:g}"
    if steps.median.exact:
        seeds = f", the median of {steps.count} seeds" if steps.count > 1 else ""
        return f"{best.name} reaches {level} after {steps.median} steps {decay}{seeds}"
    if steps.censored == steps.count:
        return f"No run with a filter has reached {level} yet"
    took = f"{best.name} takes {steps.median.in_words} steps {decay}"
    return f"No setting with a filter has reached {level} in most of its runs yet: {took}"


def problem(arm: Arm) -> dict[str, object]:
    """What was to be learnt: the settings of the task."""
    return {key: value for key, value in experiment_settings(arm.runs[0]).items() if key.startswith("task.")}


def rivals(arms: Sequence[Arm], fastest: Bound | None) -> str:
    """How long the settings without a filter take; where there are many, the fastest of them."""
    plain = [arm for arm in arms if arm.runs[0].filter is None]
    kept = sorted(plain, key=lambda arm: arm.steps().order)[:MOST]
    shown = [arm for arm in plain if arm in kept]
    apart = differences([arm.runs[0] for arm in shown], known=["optim.weight_decay"])
    clauses = [clause(arm, settings, fastest) for arm, settings in zip(shown, apart, strict=True)]
    rest = len(plain) - len(shown)
    return ", ".join(clauses) + (f"; {rest} other settings took longer or did not get there" if rest else "")


def clause(arm: Arm, settings: Sequence[str], fastest: Bound | None) -> str:
    where = " and ".join([f"weight decay {arm.runs[0].weight_decay:g}", *settings])
    steps = arm.steps().median
    if math.isinf(steps.value):
        return f"forever at {where} (it diverges)"
    times = f" ({ratio(steps, fastest)})" if fastest is not None and fastest.exact else ""
    return f"{steps.in_words} steps at {where}{times}"


def ratio(slow: Bound, fast: Bound) -> str:
    times = slow.value / fast.value
    if slow.exact:
        return f"{times:.1f} times as many"
    return f"more than {times:.1f} times as many" if times > 1 else "not run for long enough to tell"
