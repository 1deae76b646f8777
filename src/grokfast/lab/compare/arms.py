"""Runs gathered into the paper's arms over seeds, published beside measured, as rows of text.

Seeds of one arm are summed up by medians and ranges: crossings are skewed, and a run that never crosses counts as
longer than its budget. An arm's runs are its own experiment repeated, so they must differ in nothing but the seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from grokfast.lab.runs.metrics import Best, Crossing, best, first_crossing, reaches
from grokfast.lab.paper.published import Arm, arms, find_arm
from grokfast.lab.compare.results import crossing, published_steps, stopped_there
from grokfast.lab.runs.directory import Run

HEADINGS = (
    "arm",
    "weight decay",
    "runs",
    "steps to {level:g}",
    "for good",
    "paper",
    "final accuracy",
    "best accuracy",
    "paper",
    "best loss",
    "paper",
    "steps to the baseline's best {measure}",
)


class Group(NamedTuple):
    """The complete runs of one arm, by seed."""

    arm: Arm
    runs: list[Run]


def arm_rows(runs: Sequence[Run], task: str) -> list[list[str]]:
    """The headings and one line for each arm with a complete run, without columns that are empty; [] without any."""
    groups = gather(runs, task)
    if not groups:
        return []
    defaults = groups[0].runs[0].config.task.defaults()
    head = [text.format(level=defaults.level, measure=defaults.measure) for text in HEADINGS]
    extras = sorted({key for group in groups for run in group.runs for key in run.rows[-1].more or {}})
    head += [f"best {key.replace('_', ' ')}" for key in extras]
    rows = [[*row(group, groups), *(best_extra(whole(group.runs), key) for key in extras)] for group in groups]
    kept = [i for i in range(len(head)) if any(r[i] for r in rows)]
    return [[line[i] for i in kept] for line in (head, *rows)]


def whole(runs: Sequence[Run]) -> list[Run]:
    """Runs that did not stop at the level: those say nothing of final or best values, nor whether they would stay."""
    return [run for run in runs if not stopped_there(run)]


def best_extra(runs: Sequence[Run], key: str) -> str:
    """The best value of what only this task measures: the highest accuracy, the lowest loss."""
    pick = max if "accuracy" in key else min
    values = [[value for row in run.rows if (value := (row.more or {}).get(key)) is not None] for run in runs]
    return mean([pick(known) for known in values if known], ".4g")


def gather(runs: Sequence[Run], task: str) -> list[Group]:
    """The arms of a task with their complete runs."""
    named = [(run, find_arm(run.config)) for run in runs if run.config.task_name == task]
    groups = [Group(arm, by_seed([run for run, its in named if its == arm])) for arm in arms(task)]
    return [group for group in groups if group.runs]


def by_seed(runs: Sequence[Run]) -> list[Run]:
    """One complete run for each seed, in their order: that with the larger budget, the finer grid."""
    found: dict[int, Run] = {}
    for run in runs:
        known = found.get(run.config.loop.seed)
        usable = run.summary is not None and run.rows and not run.config.plain
        if usable and (known is None or worth(run) > worth(known)):
            found[run.config.loop.seed] = run
    longest = max((run.rows[-1].step for run in found.values()), default=0)
    # A short run that never crossed tells nothing beside a long one, and would pull the median down.
    tells = (run for _, run in sorted(found.items()) if crossing(run).step or 2 * run.rows[-1].step >= longest)
    return list(tells)


def worth(run: Run) -> tuple[int, int]:
    """The larger budget first: a run that stopped at the level is not worse for having stopped."""
    return (run.config.loop.steps or 0, len(run.rows))


def row(group: Group, groups: Sequence[Group]) -> list[str]:
    arm, runs = group
    published = arm.published
    base = next((g for g in groups if g.arm.name == "Baseline"), None)
    entire = whole(runs)
    return [
        arm.name,
        f"{arm.weight_decay:g}",
        str(len(runs)),
        spread([crossing(run) for run in runs]),
        spread([crossing(run, "stable") for run in entire]),
        published_steps(arm),
        mean([run.rows[-1].val_accuracy for run in entire], ".3f"),
        mean([value_of(best(run.rows, "accuracy")) for run in entire], ".3f"),
        "" if published is None or published.accuracy is None else f"{published.accuracy:.3f}",
        mean([value_of(best(run.rows, "loss")) for run in entire], ".4g"),
        "" if published is None or published.loss is None else f"{published.loss:g}",
        "" if base is None or group is base else counted(to_the_best_of(base, runs), len(runs)),
    ]


def counted(crossings: Sequence[Crossing], runs: int) -> str:
    """A spread that says of how many runs it is, where that is not all."""
    few = f" [{len(crossings)} of {runs} runs]" if 0 < len(crossings) < runs else ""
    return spread(crossings) + few


def value_of(found: Best | None) -> float | None:
    return None if found is None else found.value


def to_the_best_of(base: Group, runs: Sequence[Run]) -> list[Crossing]:
    """When each run is as good as the baseline of the same seed ever was."""
    found: list[Crossing] = []
    for run in runs:
        other = next((b for b in base.runs if b.config.loop.seed == run.config.loop.seed), None)
        measure = run.config.task.defaults().measure
        target = best(other.rows, measure) if other is not None else None
        if target is not None:
            rows = run.rows
            found.append(first_crossing([r.step for r in rows], reaches(rows, target.value, measure)))
    return found


def spread(crossings: Sequence[Crossing]) -> str:
    """Median and range of steps. A run that has not crossed is known to take longer than it was run, no more.

    >>> spread([Crossing(90, 100), Crossing(190, 200), Crossing(400, None)])
    '200 (100 to > 400)'
    """
    if not crossings:
        return ""
    least = sorted(c.after if c.step is None else c.step for c in crossings)  # what each takes, or more
    open = [c.after for c in crossings if c.step is None]
    middle = statistics.median(least)
    known = statistics.median([math.inf if c.step is None else c.step for c in crossings]) == middle
    # A run that was given up before the middle may belong on either side of it.
    exact = known and all(after >= middle for after in open)
    text = f"{'' if exact else '> '}{middle:,.0f}"
    if least[0] == least[-1]:
        return text
    low = f"> {least[0]:,}" if len(open) == len(crossings) else f"{min(c.step for c in crossings if c.step):,}"
    high = f"{'> ' if open else ''}{least[-1]:,}"
    return f"{text} ({low} to {high})"


def mean(values: Sequence[float | None], form: str) -> str:
    """Mean and standard deviation over seeds.

    >>> mean([0.5, 0.7], ".2f")
    '0.60 ± 0.14'
    """
    known = [value for value in values if value is not None]
    if not known:
        return ""
    middle = format(statistics.fmean(known), form)
    return f"{middle} ± {format(statistics.stdev(known), '.2g')}" if len(known) > 1 else middle
