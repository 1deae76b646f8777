"""A duel for a training function of your own: `ab(train_fn, space, ...)`.

FOLDER/runs.jsonl holds the finished runs, one per line, so the same call continues where it stopped. A run is known by
the source of `train_fn` and of the user's own code that it refers to, its settings and its seed: after a change of this
code nothing is taken from the old one.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from grokfast.lab.own_code import source_of
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.files import naming
from grokfast.lab.runs.metrics import Row, finite, row_from_plain
from grokfast.lab.search.contest import Contest, Duel, check_sizes
from grokfast.lab.search.outcome import Outcome, outcome_of, write_outcome
from grokfast.lab.search.progress import Progress, begin_in, carry_out, progress_line
from grokfast.lab.search.search import Journal
from grokfast.lab.search.space import Choices, Part, Range, read_varied
from grokfast.lab.search.workers import Job, Limits, Tell, distance, leading
from grokfast.lab.settings import Settings, short_hash
from grokfast.lab.stats import HOLD
from grokfast.lab.tasks.base import Measure, check_one_of
from grokfast.lab.values import check_within

TRIALS = "trials-{}.jsonl"  # what was proposed for a train_fn
ROUNDING = 1e-6  # by which the mean of single precision numbers may exceed 1
LINE_SECONDS = 10.0  # between lines about the progress


@dataclass
class _Report:
    """What a training function calls: `if report(step, accuracy): break`."""

    settings: Settings
    limits: Limits | None = None
    began: float = field(default_factory=time.perf_counter)
    rows: list[Row] = field(default_factory=list[Row])
    curve: list[tuple[int, float]] = field(default_factory=list[tuple[int, float]])
    held: int = 0  # reports in a row that reach the level

    def __call__(self, step: int, value: float) -> bool:
        """Report the validation measure after a step; True if training may stop."""
        step, value = self._numbers(step, value)
        measure, level, last = self.settings["measure"], self.settings["until"], self.rows[-1].step if self.rows else 0
        if step <= last:
            raise ValueError(f"step must go up from report to report, got {step} after {last}")
        if measure == "accuracy" and 1 < value < 1 + ROUNDING:
            value = 1.0
        if measure == "accuracy" and value > 1:
            raise ValueError(f"accuracy must be in [0, 1], got {value:g}: report a fraction, not percent")
        if value < 0:
            raise ValueError(f"{measure} must be >= 0, got {value:g}")
        if step > self.settings["steps"]:  # what happens beyond the budget does not count
            return True
        accuracy, loss = (value, math.nan) if measure == "accuracy" else (None, value)
        row = Row(step, 0.0, None, loss, accuracy, 0.0, 0.0, None, 0.0, step, time.perf_counter() - self.began)
        self.rows.append(row)
        if level is not None:
            reached = value >= level if measure == "accuracy" else value <= level
            self.held = self.held + 1 if reached else 0
        if self.limits is not None:
            self.curve.append((step, distance(row, self.limits.objective, self.settings["level"], measure)))
            if self.limits.given_up(self.curve) is not None:
                return True
        return not math.isfinite(value) or step >= self.settings["steps"] or self.held > self.settings["hold"]

    def _numbers(self, step: Any, value: Any) -> tuple[int, float]:
        """Step and value as plain numbers; they may be tensors."""
        found: list[float] = []
        for name, given in (("step", step), ("value", value)):
            if isinstance(given, str) or not hasattr(given, "__float__"):
                raise ValueError(f"{name} must be a number, got {given!r}")
            found.append(float(given))
        if not found[0].is_integer():
            raise ValueError(f"step must be a whole number, got {found[0]:g}")
        return int(found[0]), found[1]


def ab(
    train_fn: Callable[[dict[str, Any], int, _Report], object],
    space: Mapping[str, Mapping[str, Any]],
    *,
    steps: int,
    level: float | None = None,
    measure: Measure = "accuracy",
    hold: int | None = None,
    tunings: int = 8,
    trials: int = 15,
    seeds: int = 5,
    tuning_seeds: int = 1,
    seed: int = 0,
    folder: str | Path | None = None,
    tell: Tell = print,
) -> Outcome:
    """Tune each arm several times with the same number of trials, run its best settings on fresh seeds, and compare.

    Args:
        train_fn: `train_fn(settings, seed, report)` trains; it calls `report(step, value)` with the validation measure
            now and then, and ends when that returns True.
        space: for each arm its settings: `(low, high, "log")`, with "even", "log" or "memory" as the scale, is a range
            to tune over; a list holds choices; anything else is fixed, also a pair such as `(0.9, 0.98)`. The first arm
            is the reference. Call an arm `reference+something` if it adds something: then both are also run at the
            settings that were found for the other.
        steps: budget of a run.
        level: the value of the measure that a run must reach and hold. None: the last value at the budget is compared.
        measure: "accuracy", a fraction that reaches the level from below, or "loss".
        hold: further reports in a row at which the level must be reached (default: as in a duel).
        tunings: independent searches of each arm.
        trials: settings that each search tries.
        seeds: fresh seeds of each tuning; none of them is used for tuning.
        tuning_seeds: seeds of each trial.
        seed: the first seed.
        folder: keeps the runs, so that a call that was interrupted continues, and the outcome.
        tell: gets lines about the cost and the progress.

    Examples:
        >>> def train_fn(settings, seed, report):
        ...     for step in range(1, 101):
        ...         if report(step, min(1.0, step * settings["speed"] * (1 + seed % 7 / 100) / 100)):
        ...             break
        >>> space = {"slow": {"speed": 1.5}, "fast": {"speed": [2.0, 2.5]}}
        >>> outcome = ab(train_fn, space, level=0.95, steps=100, trials=2, tell=lambda line: None)
        >>> outcome.verdicts[0]["word"]
        'faster'
    """
    if not callable(train_fn):
        raise ValueError(f"train_fn must be a function, got {train_fn!r}")
    check_within("steps", steps, "[1, 2^63)")
    check_one_of("measure", measure, *get_args(Measure))
    if level is not None:
        check_within("level", level, "(0, 1]" if measure == "accuracy" else "(0, inf)")
    arms = {name: read_space(values) for name, values in space.items()}
    if len(arms) < 2:
        raise ValueError(f"space must hold at least two arms, got {len(arms)}")
    given: Settings = {
        "task": "ab",
        "filter": None,
        "optimizer": "",
        "steps": steps,
        "until": level,
        "level": 1.0 if level is None else level,
        "hold": HOLD if hold is None else hold,
        "extra_steps": 0,
        "measure": measure,
        "train_fn": source_of(train_fn),
    }
    objective = measure if level is None else "held" if given["hold"] else "first"
    duel = Duel(given, arms, "own", objective, tunings, trials, seeds, tuning_seeds, seed)
    check_sizes(duel)
    where = None if folder is None else Path(folder)
    if where is not None:
        begin_in(where, "duel.json", duel.shared(), free=("train_fn",))
        if (where / "runs.jsonl").exists() and not (where / TRIALS.format(given["train_fn"])).exists():
            tell("train_fn, or code that it refers to, was changed since: its runs are trained again")
        (where / TRIALS.format(given["train_fn"])).touch()  # also if nothing is tuned
    pool = _Here(train_fn, where, tell)
    for name, (fixed, ranges) in arms.items():
        tell(f"{name}: {space_text(fixed, ranges)}")
    tell(f"{duel.total:,} runs of train_fn, at most {steps:,} steps each")
    contest = Contest(duel, job_of(duel), dict, Journal(where and where / TRIALS.format(given["train_fn"]), tell))
    with nullcontext() if where is None else leading(where):
        if not carry_out(contest.advance, lambda: duel.total, pool, pool.watch):
            raise KeyboardInterrupt
        outcome = outcome_of(contest, lambda setting: json.dumps(setting, default=repr))
        return outcome if where is None else write_outcome(outcome, where)


def read_space(values: Mapping[str, Any]) -> Part:
    """What is fixed and what is tuned in an arm."""
    found = {name: read_varied(name, value) for name, value in values.items()}
    ranges = tuple(each for each in found.values() if isinstance(each, Choices | Range))
    return {name: value for name, value in found.items() if not isinstance(value, Choices | Range)}, ranges


def space_text(fixed: Mapping[str, Any], ranges: tuple[Choices | Range, ...]) -> str:
    """What is tuned and what is fixed in an arm, in words.

    >>> space_text({"betas": (0.9, 0.98)}, (Range("lr", 0.01, 1.0, "log"), Choices("kind", ("a", "b"))))
    "tunes lr from 0.01 to 1 (log), kind out of 'a', 'b'; fixed are betas (0.9, 0.98)"
    """
    tuned = [
        f"{each.name} from {each.low:g} to {each.high:g} ({each.scale})"
        if isinstance(each, Range)
        else f"{each.name} out of {', '.join(map(repr, each.values))}"
        for each in ranges
    ]
    kept = [f"{name} {value!r}" for name, value in fixed.items()]
    return f"tunes {', '.join(tuned) or 'nothing'}; fixed {'are ' + ', '.join(kept) if kept else 'is nothing'}"


def job_of(duel: Duel) -> Callable[[str, str, dict[str, Any], int, Limits | None], Job]:
    """Makes jobs: the name of a run says its arm, and hashes everything that decides its result."""

    def make(arm: str, part: str, given: dict[str, Any], seed: int, limits: Limits | None) -> Job:
        settings = {**duel.given, "seed": seed, "settings": given}
        key = hashlib.sha256(json.dumps(settings, sort_keys=True, default=repr).encode()).hexdigest()[:8]
        return Job(Path(part) / f"{arm}-s{seed}-{key}", settings, limits)

    return make


class _Here:
    """Trains in this process, one run after the other, unless runs.jsonl holds it already."""

    size = 1

    def __init__(self, train_fn: Callable[..., object], folder: Path | None, tell: Tell) -> None:
        self._train_fn, self._tell, self._waiting = train_fn, tell, list[Job]()
        self._path = None if folder is None else folder / "runs.jsonl"
        self._rows = read_runs(self._path, tell) if self._path is not None and self._path.exists() else {}
        self._told = time.monotonic() - LINE_SECONDS

    def find(self, job: Job) -> Run | None:
        rows = self._rows.get(str(job.path))
        return None if rows is None else made_run(job, rows)

    def submit(self, job: Job) -> None:
        self._waiting.append(job)

    def wait(self, seconds: float) -> list[tuple[Job, str | None]]:
        job = self._waiting.pop()
        report = _Report(job.settings, job.limits)
        self._train_fn(dict(job.settings["settings"]), job.settings["seed"], report)
        if not report.rows:
            within = f"within {job.settings['steps']} steps, got no call"
            raise RunError(f"train_fn must call report(step, value) {within}: {job.settings['settings']}")
        self._rows[str(job.path)] = report.rows
        if self._path is not None:
            entry = [str(job.path), [[finite(value) for value in row] for row in report.rows]]
            line = json.dumps([*entry, short_hash(entry)]) + "\n"
            with naming(self._path), self._path.open("ab") as file:
                file.write(line.encode())
        return [(job, None)]

    def watch(self, progress: Progress) -> None:
        """Tell the time that all will take once it is known, then a line now and then."""
        if progress.seconds_left is not None and time.monotonic() - self._told >= LINE_SECONDS:
            self._told = time.monotonic()
            self._tell(progress_line(progress))


def made_run(job: Job, rows: list[Row]) -> Run:
    last = rows[-1].val_loss if job.settings["measure"] == "loss" else rows[-1].val_accuracy
    summary = {"diverged": last is None or not math.isfinite(last)}
    kept: dict[str, Any] = {"experiment": "", "environment": {}, "tables": {}}
    return Run.from_table(job.path, settings=job.settings, summary=summary, rows=lambda: rows, **kept)


def read_runs(path: Path, tell: Tell) -> dict[str, list[Row]]:
    """The finished runs of a file. What was cut off or damaged is trained again."""
    found: dict[str, list[Row]] = {}
    sound = b""
    content = path.read_bytes()
    for line in content.splitlines(keepends=True):
        try:
            name, rows, digest = json.loads(line)
            if digest != short_hash([name, rows]) or not line.endswith(b"\n"):
                raise ValueError("its digest differs")
            found[name] = [row_from_plain(dict(zip(Row._fields, row, strict=True))) for row in rows]
            sound += line
        except (ValueError, TypeError):
            tell(f"warning: {path} has a damaged line: this run is trained again")
    if sound != content:
        path.write_bytes(sound)
    return found
