"""One sentence on the runs of a task: how soon with the filter, how soon without, at which weight decay."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from grokfast.lab.runs.metrics import Crossing
from grokfast.lab.paper.published import as_computed_usually, find_arm
from grokfast.lab.compare.results import crossing
from grokfast.lab.runs.directory import Run


class Setting(NamedTuple):
    """Runs that differ in nothing but the seed, and how soon they reach the level: the median, or at least so long."""

    name: str
    decay: float
    seeds: int
    steps: float
    reached: bool

    def __str__(self) -> str:
        steps = f"{self.steps:,.0f}" if self.reached else f"more than {self.steps:,.0f}"
        return f"{steps} at weight decay {self.decay:g}"


def headline(runs: Sequence[Run]) -> str:
    """How soon the fastest setting with a filter reaches the level, and all of those without on the same task."""
    level = runs[0].config.task.defaults().level
    with_filter = [s for s in summed_up(runs, filtered=True) if s[1].reached]
    if not with_filter:
        return f"No run with a filter has reached {level:g} yet."
    task, fastest = min(with_filter, key=lambda pair: pair[1].steps)
    rivals = [setting for other, setting in summed_up(runs, filtered=False) if other == task]
    many = f", the median of {fastest.seeds} seeds" if fastest.seeds > 1 else ""
    sentence = (
        f"{fastest.name} reaches {level:g} after {fastest.steps:,.0f} steps at weight decay {fastest.decay:g}{many}"
    )
    clauses = [f"{rival} ({ratio(rival, fastest)})" for rival in rivals]
    return f"{sentence}; without a filter it takes {', '.join(clauses)}." if clauses else f"{sentence}."


def ratio(rival: Setting, fastest: Setting) -> str:
    times = rival.steps / fastest.steps
    if not rival.reached:
        return f"more than {times:.1f} times as many" if times > 1 else "not run for long enough to tell"
    return f"{times:.1f} times as many"


def summed_up(runs: Sequence[Run], *, filtered: bool) -> list[tuple[object, Setting]]:
    """Each setting with the task it is of, in the order of the runs."""
    found: dict[object, list[Run]] = {}
    for run in runs:
        config = run.config
        if run.rows and (config.filter.filter is not None) == filtered:
            found.setdefault((as_computed_usually(config), config.filter, config.optim), []).append(run)
    return [(as_computed_usually(members[0].config), sum_up(members)) for members in found.values()]


def sum_up(runs: Sequence[Run]) -> Setting:
    """Of two runs of one seed that which went further counts."""
    by_seed: dict[int, Run] = {}
    for run in sorted(runs, key=lambda run: run.rows[-1].step):
        by_seed[run.config.loop.seed] = run
    steps, reached = median([crossing(run) for run in by_seed.values()])
    arm, config = find_arm(runs[0].config), runs[0].config
    name = arm.name if arm else (config.filter.filter or "the baseline").upper()
    return Setting(name, config.optim.weight_decay or 0.0, len(by_seed), steps, reached)


def median(crossings: Sequence[Crossing]) -> tuple[float, bool]:
    """The median step, or how long half of the runs have at least been seen not to cross."""
    middle = statistics.median([math.inf if c.step is None else c.step for c in crossings])
    if math.isfinite(middle):
        return middle, True
    return statistics.median([c.after for c in crossings if c.step is None]), False
