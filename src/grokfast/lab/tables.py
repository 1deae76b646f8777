"""Runs gathered into the paper's arms over seeds, published beside measured, as Markdown.

Seeds of one arm are summed up by medians and ranges: crossings are skewed, and a run that never crosses counts as
longer than its budget. An arm's runs are its own experiment repeated, so they must differ in nothing but the seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from grokfast.lab.metrics import Crossing, best, first_crossing, reaches
from grokfast.lab.paper import Arm, arms, find_arm
from grokfast.lab.results import crossing, published_steps
from grokfast.lab.runs import Run

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


def results_page(runs: Sequence[Run]) -> str:
    """One table for each task that has runs of the paper's arms."""
    tasks = list(dict.fromkeys(run.config.task_name for run in runs))
    parts = [task_table(runs, task) for task in tasks]
    return "\n".join(part for part in parts if part)


def task_table(runs: Sequence[Run], task: str) -> str:
    """The table of one task; empty where there is no complete run of an arm."""
    groups = [group for group in gather(runs, task) if group.runs]
    if not groups:
        return ""
    defaults = groups[0].runs[0].config.task.defaults()
    head = [text.format(level=defaults.level, measure=defaults.measure) for text in HEADINGS]
    rows = [row(group, groups) for group in groups]
    kept = [i for i in range(len(head)) if any(r[i] for r in rows)]
    lines = [[line[i] for i in kept] for line in (head, ["---"] * len(head), *rows)]
    table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"## {task}\n\n{table}\n\n{notes(groups)}\n"


def gather(runs: Sequence[Run], task: str) -> list[Group]:
    """The arms of a task with their complete runs; of two runs of one seed the longer, then the finer grid."""
    found = {arm.name: dict[int, Run]() for arm in arms(task)}
    for run in runs:
        arm = find_arm(run.config) if run.config.task_name == task and run.summary and not run.config.plain else None
        if arm is None:
            continue
        known = found[arm.name].get(run.config.loop.seed)
        if known is None or worth(run) > worth(known):
            found[arm.name][run.config.loop.seed] = run
    return [Group(arm, [run for _, run in sorted(found[arm.name].items())]) for arm in arms(task)]


def worth(run: Run) -> tuple[int, int]:
    rows = run.rows
    return (rows[-1].step, len(rows))


def row(group: Group, groups: Sequence[Group]) -> list[str]:
    arm, runs = group
    published = arm.published
    base = next((g for g in groups if g.arm.name == "Baseline"), None)
    summaries = [run.summary or {} for run in runs]
    return [
        arm.name,
        f"{arm.weight_decay:g}",
        str(len(runs)),
        spread([crossing(summary, "first") for summary in summaries]),
        spread([crossing(summary, "stable") for summary in summaries]),
        published_steps(arm),
        mean([summary["final_val_accuracy"] for summary in summaries], ".3f"),
        mean([summary["best_val_accuracy"] for summary in summaries], ".3f"),
        "" if published is None or published.accuracy is None else f"{published.accuracy:.3f}",
        mean([summary["best_val_loss"] for summary in summaries], ".4g"),
        "" if published is None or published.loss is None else f"{published.loss:g}",
        "" if base is None or group is base else spread(to_the_best_of(base, runs)),
    ]


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
    """Median and range of steps; the median is unknown where half of the runs have not crossed.

    >>> spread([Crossing(90, 100), Crossing(190, 200), Crossing(400, None)])
    '200 (100 to > 400)'
    """
    if not crossings:
        return ""
    ordered = sorted(crossings, key=lambda c: math.inf if c.step is None else c.step)
    low, high = ordered[0], ordered[-1]
    middle = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    steps = [c.step for c in middle if c.step is not None]
    median = f"{statistics.median(steps):,.0f}" if len(steps) == 2 else str(middle[1])
    return median if len(crossings) == 1 or str(low) == str(high) else f"{median} ({low} to {high})"


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


def notes(groups: Sequence[Group]) -> str:
    """What the reader must know of the runs: budgets, grids, seeds."""
    lines: list[str] = []
    for arm, runs in groups:
        seeds = ", ".join(str(run.config.loop.seed) for run in runs)
        lengths = sorted({f"{run.rows[-1].step:,}" for run in runs})
        grids = sorted({grid(run) for run in runs})
        lines.append(f"- {arm.name}: seeds {seeds}; {' and '.join(lengths)} steps; evaluated {' and '.join(grids)}")
    return "\n".join(lines)


def grid(run: Run) -> str:
    loop = run.config.loop
    if loop.eval_log is not None:
        return f"{loop.eval_log} times per decade"
    return "once per epoch" if loop.eval_every is None else f"every {loop.eval_every:,} steps"
