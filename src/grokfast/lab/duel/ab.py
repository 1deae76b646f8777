"""The verdict of a duel for a training script of your own: `ab(train_fn, space, ...)`.

FOLDER/runs.jsonl holds the finished runs, one per line, so the same call again continues where it stopped.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args

import optuna

from grokfast.lab.compare.seeds import Bound, check_level, spread_of
from grokfast.lab.duel.arms import adds_to, control_name
from grokfast.lab.duel.outcome import CAVEAT, Result, Verdict, arm_rows, verdicts
from grokfast.lab.duel.plan import Duel, Setting
from grokfast.lab.request import Request
from grokfast.lab.runs.directory import RunError
from grokfast.lab.runs.files import write_atomically
from grokfast.lab.sweep.objective import Curve, gap, is_hopeless
from grokfast.lab.sweep.space import Choices, Dimension, Range
from grokfast.lab.sweep.study import distributions_of, setting_of
from grokfast.lab.tasks.base import Measure, check_one_of

TrainFunction = Callable[[dict[str, Any], int, "Report"], object]


class Trained(NamedTuple):
    """One run: how far it was from the level at each report, how long it took, and how it ended."""

    curve: Curve  # up to the budget
    seconds: float
    pruned: bool
    diverged: bool = False  # the last value was not a finite number

    @property
    def reached(self) -> int | None:
        return next((step for step, gap in self.curve if gap == 0), None)

    @property
    def steps(self) -> Bound:
        """As in a duel: a run that never got there takes longer than it was run, one that diverged never gets there."""
        if self.reached is not None:
            return Bound(self.reached)
        return Bound(math.inf if self.diverged else self.curve[-1][0], False)

    @property
    def time(self) -> Bound:
        return Bound(self.seconds if math.isfinite(self.steps.value) else math.inf, self.steps.exact)

    def value(self, budget: int) -> float:
        """What the search makes smaller: as in a sweep, a run that never got there counts as more than its budget."""
        lowest = min((gap for _, gap in self.curve), default=1.0)
        return budget * (1.0 + lowest) if self.reached is None else self.reached


@dataclass
class Report:
    """What a training function calls: `if report(step, accuracy): break`."""

    level: float
    measure: Measure
    steps: int
    others: list[Curve]
    curve: Curve = field(default_factory=Curve)
    pruned: bool = False
    diverged: bool = False

    def __call__(self, step: int, value: float) -> bool:
        """Report the validation measure after a step; True where training may stop."""
        step, value = int(step), float(value)  # they may be tensors
        if step > self.steps:  # what happens beyond the budget does not count
            return True
        distance, self.diverged = gap(value, self.level, self.measure), not math.isfinite(value)
        self.curve.append((step, distance))
        self.pruned = distance > 0 and is_hopeless(self.curve, self.others, step)
        return distance == 0 or self.pruned or step >= self.steps


class Findings(NamedTuple):
    """The arms at their best settings, and the verdicts. `print(findings)` says it in words."""

    results: list[Result]
    verdicts: list[Verdict]

    def __str__(self) -> str:
        head, *rows = arm_rows(self.results)
        shown = [f"{row[0]}: {head[1]} {row[1]}, reached {row[4]}, {row[5] or 'nothing to tune'}" for row in rows]
        return "\n".join([*shown, *(verdict.text for verdict in self.verdicts), CAVEAT])


def ab(
    train_fn: TrainFunction,
    space: Mapping[str, Mapping[str, Any]],
    *,
    level: float,
    steps: int,
    measure: Measure = "accuracy",
    trials: int = 20,
    seeds: int = 10,
    tuning_seeds: int = 1,
    seed: int = 0,
    folder: str | Path | None = None,
) -> Findings:
    """Tune each arm with the same number of trials, run its best setting on fresh seeds, and compare.

    Args:
        train_fn: `train_fn(settings, seed, report)` trains; it calls `report(step, value)` with the validation measure
            now and then, and ends when that returns True.
        space: for each arm its settings: `(low, high)` or `(low, high, "log")` is a range to tune over, a list holds
            choices, anything else is fixed. The first arm is the reference. Call an arm `reference+something` if it
            adds something: where it turns out better, the reference is also run at the settings found for it.
        level: the value of the measure that a run must reach.
        steps: budget of a run.
        measure: "accuracy", which reaches the level from below, or "loss".
        trials: settings tried for each arm.
        seeds: fresh seeds of the verdict; none of them is used for tuning.
        tuning_seeds: seeds of each trial.
        seed: the first tuning seed.
        folder: keeps the runs, so that a call that was interrupted continues. It belongs to one train_fn: name another
            folder when you change the code.

    Examples:
        >>> def train_fn(settings, seed, report):
        ...     for step in range(10, 101, 10):
        ...         if report(step, step * settings["speed"] / 100):
        ...             break
        >>> findings = ab(train_fn, {"slow": {"speed": 1.0}, "fast": {"speed": [2.0, 2.5]}}, level=0.95, steps=100)
        >>> findings.verdicts[0].found.word
        'helps'
    """
    lowest = {"steps": (steps, 1), "trials": (trials, 1), "seeds": (seeds, 1), "tuning_seeds": (tuning_seeds, 1)}
    for name, (value, low) in {**lowest, "seed": (seed, 0)}.items():
        if value < low:
            raise ValueError(f"{name} must be >= {low}, got {value}")
    check_one_of("measure", measure, *get_args(Measure))
    check_level(level, [measure])
    duel = Duel(Request("ab"), "tuned", trials, tuning_seeds, seed)
    runner = Runner(train_fn, level, measure, steps, None if folder is None else Path(folder))
    arms = {name: read_space(values) for name, values in space.items()}
    if len(arms) < 2:
        raise ValueError(f"space must hold at least two arms, got {len(arms)}")
    results: list[Result] = []
    for name, (fixed, dimensions) in arms.items():
        best = {**fixed, **dict(tune(runner, name, fixed, dimensions, duel) if dimensions else ())}
        results.append(run_fresh(runner, name, best, duel.fresh(seeds)))
    controls = controls_of(results, {name: [d.name for d in dimensions] for name, (_, dimensions) in arms.items()})
    results += [run_fresh(runner, name, setting, duel.fresh(seeds)) for name, setting in controls]
    return Findings(results, list(verdicts(results)))


def controls_of(results: Sequence[Result], tuned: Mapping[str, Sequence[str]]) -> list[tuple[str, dict[str, Any]]]:
    """For each arm that beats what it adds to: that at the same settings, unless these are its own anyway."""
    known = {result.name: result.setting for result in results}
    found: list[tuple[str, dict[str, Any]]] = []
    for arm, reference in ((v.arm, v.reference) for v in verdicts(results) if (v.by, v.word) == ("steps", "helps")):
        shared = {name: known[arm][name] for name in tuned[reference] if name in known[arm]}
        setting = {**known[reference], **shared}
        if adds_to(arm, reference) and setting != known[reference]:
            found.append((control_name(reference, arm), setting))
    return found


def run_fresh(runner: Runner, name: str, setting: dict[str, Any], seeds: Sequence[int]) -> Result:
    """What a setting takes on fresh seeds."""
    found = {seed: runner.run(name, setting, seed) for seed in seeds}
    taken = {seed: run.steps for seed, run in found.items()}
    return Result(name, setting, "", {}, taken, {seed: run.time for seed, run in found.items()}, {})


def read_space(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[Dimension]]:
    """What is fixed and what is tuned in an arm."""
    fixed: dict[str, Any] = {}
    dimensions: list[Dimension] = []
    for name, value in values.items():
        if isinstance(value, list):
            if not value or not all(isinstance(each, Hashable) for each in value):
                raise ValueError(f"{name} must have choices, one or more, of numbers, words or tuples, got {value}")
            dimensions.append(Choices(name, tuple(value)))
        elif isinstance(value, tuple) and len(value) in (2, 3) and value[2:] in ((), ("log",)):
            low, high, log = value[0], value[1], len(value) == 3
            numbers = all(isinstance(end, int | float) and math.isfinite(end) for end in (low, high))
            if not numbers or not low < high or (log and low <= 0):
                raise ValueError(f"{name} must have {'0 < ' if log else ''}low < high, got {value}")
            dimensions.append(Range(name, low, high, log))
        else:
            fixed[name] = value
    return fixed, dimensions


def tune(runner: Runner, name: str, fixed: dict[str, Any], dimensions: list[Dimension], duel: Duel) -> Setting:
    """The best of as many settings as there are trials, by the median over the tuning seeds."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=duel.seed))
    found: dict[Setting, float] = {}
    for _ in range(duel.trials):
        trial = study.ask(distributions_of(dimensions))
        setting = setting_of(trial.params, dimensions)
        runs = [runner.run(name, {**fixed, **dict(setting)}, each, prune=True) for each in duel.tuning]
        value = spread_of([Bound(run.value(runner.steps)) for run in runs]).median.value
        study.tell(trial, value)
        found[setting] = value
    return min(found, key=lambda setting: found[setting])


def read_runs(path: Path) -> dict[str, Trained]:
    """The finished runs of a file. What a process that was killed has left of a line is removed."""
    *lines, rest = path.read_bytes().split(b"\n")
    if rest:
        write_atomically(path, b"".join(line + b"\n" for line in lines))
    try:
        return dict(map(read_line, lines))
    except (ValueError, TypeError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def read_line(line: bytes) -> tuple[str, Trained]:
    key, curve, *rest = json.loads(line)
    return key, Trained([(step, gap) for step, gap in curve], *rest)


class Runner:
    """Trains, unless the folder holds the same run already."""

    def __init__(
        self, train_fn: TrainFunction, level: float, measure: Measure, steps: int, folder: Path | None
    ) -> None:
        self.train_fn, self.level, self.steps = train_fn, level, steps
        self.measure: Measure = measure
        self._path = None if folder is None else folder / "runs.jsonl"
        self._known: dict[str, Trained] = {}
        self._curves: dict[str, list[Curve]] = {}  # of each arm's tuning
        if self._path is not None and self._path.exists():
            self._known = read_runs(self._path)

    def run(self, arm: str, settings: dict[str, Any], seed: int, *, prune: bool = False) -> Trained:
        # A run that a search gave up is no run of a verdict.
        key = json.dumps(
            [arm, settings, seed, self.level, self.measure, self.steps, prune], sort_keys=True, default=repr
        )
        if key not in self._known:
            self._known[key] = self._train(settings, seed, self._curves.get(arm, []) if prune else [])
            self._keep(key)
        done = self._known[key]
        if prune and not done.pruned:
            self._curves.setdefault(arm, []).append(done.curve)
        return done

    def _train(self, settings: dict[str, Any], seed: int, others: list[Curve]) -> Trained:
        report, began = Report(self.level, self.measure, self.steps, others), time.perf_counter()
        self.train_fn(dict(settings), seed, report)
        if not report.curve:
            raise RunError(f"train_fn must call report(step, value) within {self.steps} steps, got no call: {settings}")
        return Trained(report.curve, time.perf_counter() - began, report.pruned, report.diverged)

    def _keep(self, key: str) -> None:
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write((json.dumps([key, *self._known[key]]) + "\n").encode())
