"""The objective of a search: the number of a run that it makes smaller, or by which two arms are compared."""

from __future__ import annotations

import math
from typing import Any

from grokfast.lab.runs.directory import Run
from grokfast.lab.search.workers import distances_of
from grokfast.lab.stats import HOLD, Steps, steps_to
from grokfast.lab.tasks import find_task

OBJECTIVES = ("held", "first", "stable", "seconds", "accuracy", "loss", "best_loss")  # or a number the task records
LEVEL = ("held", "first", "stable", "seconds")  # those that are about reaching a level
BEYOND = 1e9  # seconds added for a run that never reaches its level: a fast failure must not win


def number_of(run: Run, objective: str) -> Steps:
    """The objective of a run, or a lower bound of it; smaller is better."""
    last = run.rows[-1]
    if objective in ("held", "first", "stable"):
        return steps_to(run.crossing(objective), diverged=run.status == "diverged")
    if objective == "seconds":
        found = number_of(run, "held")
        seconds = max((row.seconds for row in run.rows if row.step <= found.value), default=0.0)
        return Steps(seconds if math.isfinite(found.value) else math.inf, found.exact)
    if objective == "best_loss":
        value = min((row.val_loss for row in run.rows if math.isfinite(row.val_loss)), default=None)
    else:
        value = {"accuracy": last.val_accuracy, "loss": last.val_loss, **(last.more or {})}.get(objective)
    if value is None or not math.isfinite(value):
        return Steps(math.inf, False)
    return Steps(-value if more_is_better(objective, run.task) else value, True)


def value_of(run: Run, objective: str) -> float:
    """The number that a search makes smaller.

    A run that never reaches its level counts as budget * (1 + gap): more than any run that does, and less the closer
    it came. For `held` the gap is the largest one of the best stretch of evaluations, for `first` the smallest
    one, for the others the last one. The budget, not the steps that were taken, also counts for a run that diverged.
    """
    found = number_of(run, objective)
    if found.exact or objective not in LEVEL:
        return found.value
    gaps = [each for _, each in distances_of(run, objective)]
    if objective == "stable":
        nearest = gaps[-1]
    else:
        length = 1 if objective == "first" else min(1 + (run.settings.get("hold") or HOLD), len(gaps))
        nearest = min(max(gaps[i : i + length]) for i in range(len(gaps) - length + 1))
    steps = run.settings["steps"] * (1.0 + nearest)
    last = run.rows[-1]
    return BEYOND + last.seconds * steps / last.step if objective == "seconds" else steps


def more_is_better(objective: str, task: str) -> bool:
    """Whether more is better: such a number is minimised with its sign changed."""
    if objective in OBJECTIVES:
        return objective == "accuracy"
    return find_task(task).recorded.get(objective, False)


def check_objective(objective: str, task: Any, *, measures: bool) -> None:
    known = (*OBJECTIVES, *task.recorded)
    if objective not in known:
        raise ValueError(f"objective must be one of {', '.join(known)}, got {objective}")
    if objective not in OBJECTIVES and not measures:
        raise ValueError(f"objective {objective} needs --measures, got it without")
    if objective == "accuracy" and task.measure != "accuracy":
        raise ValueError("objective accuracy needs a task with an accuracy, got one without")
