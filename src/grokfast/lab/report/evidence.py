"""What the demo shows of archived runs and cannot train in two minutes: evidence.json, written by `make results`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grokfast.lab.compare.controls import controls, fastest
from grokfast.lab.compare.seeds import Arm, by_task
from grokfast.lab.report.curves import band
from grokfast.lab.runs.directory import Run

FILE = Path(__file__).with_name("evidence.json")
DIGITS = 4  # of an accuracy


class Archived(NamedTuple):
    """The paper's baseline, run until it generalised, and the fastest baseline that was found."""

    run: str  # the name of the baseline's run
    seed: int
    level: float
    by_heart: int  # steps until the training accuracy is at the level
    reached: int  # steps until the validation accuracy is
    training: list[list[float]]  # pairs of step and accuracy
    validation: list[list[float]]
    tuned: str  # the settings of the fastest baseline, in words
    tuned_steps: str  # the median over its seeds with the range


def gather(runs: Sequence[Run]) -> Archived | None:
    """From archived runs; None where the baseline has not got there."""
    found = controls(by_task(runs).get("modmul", ()))
    arm, best = found[0].arms["no filter"], fastest(found, "no filter")
    if arm is None or best is None or not arm.steps().median.exact:
        return None
    run = min(arm.runs, key=lambda run: run.loop["seed"])
    first, learnt = run.crossing().step, run.crossing("train").step
    if first is None or learnt is None:
        return None
    alone = arm._replace(runs=[run])
    training, validation = pairs(alone, "train_accuracy"), pairs(alone, "val_accuracy")
    steps = best[1].steps()
    taken = f"{steps.median} steps" + (f" ({steps.interval}, {steps.count} seeds)" if steps.count > 1 else "")
    return Archived(run.name, run.loop["seed"], run.level, learnt, first, training, validation, best[0].words, taken)


def pairs(arm: Arm, field: str) -> list[list[float]]:
    """A curve in as many points as a screen shows."""
    found = band(arm, field)
    if found is None:
        return []
    return [[int(step), round(float(y), DIGITS)] for step, y in zip(found.steps, found.middle, strict=True)]


def to_text(archived: Archived) -> str:
    return json.dumps(archived._asdict(), separators=(",", ":")) + "\n"


def load() -> Archived:
    """The evidence that is shipped with the package."""
    values: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return Archived(**values)
