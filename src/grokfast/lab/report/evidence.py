"""What the demo shows and `suggest` uses of the archived evidence: evidence.json, written by `make results`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grokfast.lab.analysis.advice import Evidence, Tuned
from grokfast.lab.compare.controls import controls, fastest
from grokfast.lab.compare.seeds import Arm, Spread, by_task, spread_of
from grokfast.lab.config import LoopConfig
from grokfast.lab.duel.arms import FILTER_KNOBS
from grokfast.lab.duel.outcome import Result, verdicts
from grokfast.lab.report.curves import band
from grokfast.lab.report.when import Outcome
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import shorten
from grokfast.lab.values import tuples

FILE = Path(__file__).with_name("evidence.json")
DIGITS = 4  # of an accuracy
PLAIN, FILTERED = "adamw", {f"adamw+{name}": name for name in FILTER_KNOBS}  # arms that advice is drawn from


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
    tuned_tasks: dict[str, Evidence]  # what duels found, by task


def gather(runs: Sequence[Run], outcomes: Iterable[Outcome]) -> Archived | None:
    """From archived runs and duels; None where the baseline has not got there."""
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
    found = run.name, run.loop["seed"], run.level, learnt, first, training, validation
    return Archived(*found, best[0].words, taken(best[1].steps()), tuned_tasks(outcomes))


def taken(steps: Spread) -> str:
    return f"{steps.median} steps" + (f" ({steps.interval}, {steps.count} seeds)" if steps.count > 1 else "")


def tuned_tasks(outcomes: Iterable[Outcome]) -> dict[str, Evidence]:
    """What tuning found for AdamW on tasks as they usually are: without a filter, and with the fastest filter."""
    found: dict[str, Evidence] = {}
    usual = {field.name for field in dataclasses.fields(LoopConfig)}
    for duel, results in outcomes:
        plain = next((result for result in results if result.name == PLAIN), None)
        filtered = [result for result in results if result.name in FILTERED]
        if duel["regime"] == "tuned" and plain and filtered and usual.issuperset(duel["base"]["values"]):
            best = min(filtered, key=lambda result: steps_of(result).order)
            text = next(v.text for v in verdicts(results) if (v.arm, v.by) == (best.name, "steps"))
            found[duel["base"]["task"]] = Evidence(tuned(plain), tuned(best), text)
    return found


def tuned(result: Result) -> Tuned:
    filter = {"filter": FILTERED[result.name]} if result.name in FILTERED else {}
    values = {"optimizer": PLAIN, **filter, **shorten(dict(result.setting), 3)}
    return Tuned(values, taken(steps_of(result)))


def steps_of(result: Result) -> Spread:
    return spread_of(list(result.steps.values()))


def pairs(arm: Arm, field: str) -> list[list[float]]:
    """A curve in as many points as a screen shows."""
    found = band(arm, field)
    if found is None:
        return []
    return [[int(step), round(float(y), DIGITS)] for step, y in zip(found.steps, found.middle, strict=True)]


def to_text(archived: Archived) -> str:
    """As JSON, tuples as lists."""
    return json.dumps(archived._asdict(), separators=(",", ":")) + "\n"


def load() -> Archived:
    """The evidence that is shipped with the package."""
    values: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    tasks = {task: to_evidence(*found) for task, found in values.pop("tuned_tasks").items()}
    return Archived(**values, tuned_tasks=tasks)


def to_evidence(plain: list[Any], filtered: list[Any], verdict: str) -> Evidence:
    return Evidence(to_tuned(plain), to_tuned(filtered), verdict)


def to_tuned(data: list[Any]) -> Tuned:
    values, took = data
    return Tuned(tuples(values), took)
