"""One engine for sweeps, duels and `ab`: propose settings, stop bad runs early, decide what is trained next.

The rule of a search. Trial i sees the results of the trials up to number i - at_once, and of no others:

    setting(i) = TPE(sampler seed, i; settings 0 .. i-1, values 0 .. i-at_once)
    limits(i)  = the median distance to the goal of the complete runs of trials 0 .. i-at_once, at each step

Trial i starts once those trials have ended. A run that is behind its limits is stopped (pruned). So proposals and
pruning depend only on results, in their order: timing, the number of workers and kills do not change them. The run
directories are the only state that counts; an interrupted run is continued.

trials.jsonl keeps the proposals, so that another version of Optuna does not change a search that was begun. If the end
of this file is damaged, those trials are proposed again. One exception: a run that failed with an error is left out of
the search, and if it succeeds in a later session, later proposals may change.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.files import read_json, write_json
from grokfast.lab.search.space import Choices, Dimension, Range, distributions_of, params_of, read_varied, value_from
from grokfast.lab.search.workers import (
    ATTEMPTS,
    Job,
    Limits,
    Pool,
    Tell,
    check_engine,
    distances_of,
    leading,
    open_pool,
    pruned_at,
)
from grokfast.lab.settings import Settings, name_of, plain_word, resolve, short_hash
from grokfast.lab.stats import HOLD, Steps, spread_of, steps_to
from grokfast.lab.tasks import find_task
from grokfast.lab.training.machine import stop_on_interrupt
from grokfast.lab.training.run import make_task, rehearse
from grokfast.lab.values import plain

OBJECTIVES = ("held", "first", "stable", "seconds", "accuracy", "loss", "best_loss")  # or a number the task records
LEVEL = ("held", "first", "stable", "seconds")  # those that are about reaching a level
AT_ONCE = 4  # trials of a search that do not see each other's results
STARTUP = 10  # trials that are drawn at random before TPE begins
ENOUGH = 4  # complete runs before another is compared with them
GRAIN = 0.05  # smaller differences do not count: before a run generalises, its accuracy is noise
BEYOND = 1e9  # seconds added for a run that never reaches its level: a fast failure must not win
POLL = 0.5  # seconds between looks at Ctrl-C

METHODS = ("grid", "tpe")


# The number of a run ------------------------------------------------------------------------------------------------


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


def middle(values: Iterable[float]) -> float:
    return spread_of([Steps(value, True) for value in values]).median.value


def limits_of(runs: Sequence[Run], objective: str, best: float = math.inf) -> Limits | None:
    """The limits that complete runs set: the median of their smallest distance so far at each step, plus GRAIN.

    A run that stopped at its level keeps its last distance. (Optuna's MedianPruner leaves such runs out and compares
    slow runs only.) A run that has not reached its level by the step `best` cannot win any more.
    """
    if len(runs) < ENOUGH and best == math.inf:
        return None
    curves = [distances_of(run, objective) for run in runs]
    steps = sorted({step for curve in curves for step, _ in curve})
    columns: list[list[float]] = []
    for curve in curves:
        known, lowest, column = dict(curve), math.inf, list[float]()
        for step in steps:
            lowest = min(lowest, known.get(step, math.inf))
            column.append(lowest)
        columns.append(column)
    middles = [middle(row) + GRAIN if len(runs) >= ENOUGH else math.inf for row in zip(*columns, strict=True)]
    values = [0.0 if step >= best else value for step, value in zip(steps, middles, strict=True)]
    return Limits(objective, steps, values)


# What to search -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sweep:
    """Settings to vary and objective: everything that decides which runs a sweep consists of."""

    given: Settings  # the task, and the settings that all runs share
    dimensions: tuple[Dimension, ...]
    seeds: tuple[int, ...] = (0,)
    objective: str = "held"
    search: str = "grid"
    trials: int | None = None  # settings that a search tries
    prune: bool = False
    sampler_seed: int = 0
    at_once: int = AT_ONCE

    def corners(self) -> list[dict[str, Any]]:
        """All settings of a grid, or the corners of a search."""
        values = [
            [(d.name, value) for value in (d.values if isinstance(d, Choices) else (d.low, d.high))]
            for d in self.dimensions
        ]
        return [dict(combination) for combination in itertools.product(*values)]

    def settings(self, setting: Mapping[str, Any], seed: int) -> Settings:
        """The settings of one run, complete and checked."""
        given: dict[str, Any] = {**self.given, **setting, "seed": seed}
        return resolve(**given)

    @property
    def count(self) -> int:
        """The number of trials."""
        return len(self.corners()) if self.search == "grid" else self.trials or 0


def check_sweep(sweep: Sweep) -> None:
    """Raise ValueError if a sweep cannot be run: each setting of a grid is checked, or the corners of a search."""
    names, task = [d.name for d in sweep.dimensions], find_task(sweep.given["task"])
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]} must be varied once, got it twice")
    if fixed := [name for name in names if name in sweep.given]:
        raise ValueError(f"{fixed[0]} must be either fixed or varied, got --{fixed[0].replace('_', '-')} as well")
    if not sweep.seeds:
        raise ValueError("seeds must be >= 1, got 0")
    if sweep.at_once < 1:
        raise ValueError(f"at_once must be >= 1, got {sweep.at_once}")
    if sweep.search not in METHODS:
        raise ValueError(f"search must be one of {', '.join(METHODS)}, got {sweep.search}")
    ranges = [d.name for d in sweep.dimensions if isinstance(d, Range)]
    if sweep.search == "grid" and ranges:
        raise ValueError(f"range needs --search tpe, got {ranges[0]} without it")
    if sweep.search == "grid" and sweep.trials is not None:
        raise ValueError(f"trials needs --search tpe, got {sweep.trials} without it")
    if sweep.search == "tpe" and (sweep.trials is None or sweep.trials < 1):
        raise ValueError(f"search tpe needs trials >= 1, got {sweep.trials}")
    check_objective(sweep.objective, task, measures=bool(sweep.given.get("measures")))
    for corner in sweep.corners():
        sweep.settings(corner, sweep.seeds[0])


def check_objective(objective: str, task: Any, *, measures: bool) -> None:
    known = (*OBJECTIVES, *task.recorded)
    if objective not in known:
        raise ValueError(f"objective must be one of {', '.join(known)}, got {objective}")
    if objective not in OBJECTIVES and not measures:
        raise ValueError(f"objective {objective} needs --measures, got it without")
    if objective == "accuracy" and task.measure != "accuracy":
        raise ValueError("objective accuracy needs a task with an accuracy, got one without")


# The search ---------------------------------------------------------------------------------------------------------


Ask = Callable[[Job], Run | str | None]  # the run if it has ended, the reason if it failed, None if it is still to come


class Journal:
    """What searches have proposed: a line for each trial, in a file or only in memory."""

    def __init__(self, path: Path | None, tell: Tell = lambda line: None) -> None:
        self._path = path
        self._known: dict[tuple[str, int], dict[str, Any]] = {}
        if path is None or not path.exists():
            return
        sound = 0
        for line in path.read_bytes().splitlines(keepends=True):
            try:
                search, trial, setting, digest = json.loads(line)
                if digest != short_hash([search, trial, setting]) or not line.endswith(b"\n"):
                    raise ValueError
            except (ValueError, TypeError):
                tell(f"warning: {path} is damaged after {len(self._known)} lines: the rest is proposed again")
                with path.open("r+b") as file:
                    file.truncate(sound)
                break
            self._known[search, trial] = setting
            sound += len(line)

    def get(self, search: str, trial: int) -> dict[str, Any] | None:
        return self._known.get((search, trial))

    def add(self, search: str, trial: int, setting: dict[str, Any]) -> None:
        self._known[search, trial] = setting
        if self._path is not None:
            entry = [search, trial, setting]
            with self._path.open("ab") as file:
                file.write((json.dumps([*entry, short_hash(entry)]) + "\n").encode())


class _Trial(NamedTuple):
    """A setting that a search tries, its jobs, and the outcome of each: a run, why it failed, or None so far."""

    setting: dict[str, Any]
    jobs: list[Job]
    runs: list[Run | str | None]

    @property
    def ended(self) -> bool:
        return None not in self.runs

    def results(self) -> list[tuple[Run, bool]]:
        """Each run that did not fail, cut at the step at which it is pruned, and whether it is pruned."""
        found: list[tuple[Run, bool]] = []
        for job, run in zip(self.jobs, self.runs, strict=True):
            if isinstance(run, Run):
                cut = pruned_at(run, job.limits)
                found.append((run, False) if cut is None else (run.up_to(cut), True))
        return found


class Search:
    """A sweep in progress: its trials so far."""

    def __init__(
        self,
        sweep: Sweep,
        make_job: Callable[[dict[str, Any], int, Limits | None], Job],  # of a setting and a seed
        journal: Journal,
        name: str = "",
    ) -> None:
        self.sweep, self.make_job, self.journal, self.name = sweep, make_job, journal, name
        self.trials: list[_Trial] = []
        self._results: dict[int, list[tuple[Run, bool]]] = {}
        self._grid = sweep.corners() if sweep.search == "grid" else []

    def advance(self, ask: Ask) -> bool:
        """Begin every trial that may begin now, and ask for its runs; True once all have ended."""
        for number in range(self.sweep.count):
            if number == len(self.trials):
                if not self._may_begin(number):
                    return False
                self.trials.append(self._begin(number))
            trial = self.trials[number]
            for place, job in enumerate(trial.jobs):
                if trial.runs[place] is None:
                    trial.runs[place] = ask(job)
        return all(trial.ended for trial in self.trials)

    def _seen_by(self, number: int) -> range:
        """The trials whose results count for a trial."""
        return range(max(0, number - self.sweep.at_once + 1))

    def _may_begin(self, number: int) -> bool:
        if self.sweep.search == "grid" and not self.sweep.prune:
            return True
        return all(self.trials[seen].ended for seen in self._seen_by(number))

    def _begin(self, number: int) -> _Trial:
        setting, limits = self._grid[number] if self._grid else self._propose(number), None
        if self.sweep.prune:
            objective = self.sweep.objective
            results = [result for seen in self._seen_by(number) for result in self.results(seen)]
            whole = [run for run, pruned in results if not pruned]
            # With several seeds a trial may win although one of its runs is late.
            counts = objective in ("held", "first") and len(self.sweep.seeds) == 1
            held = [steps.value for run in whole if counts and (steps := number_of(run, objective)).exact]
            limits = limits_of(whole, objective, min(held, default=math.inf))
        jobs = [self.make_job(setting, seed, limits) for seed in self.sweep.seeds]
        return _Trial(setting, jobs, [None] * len(jobs))

    def _propose(self, number: int) -> dict[str, Any]:
        known = self.journal.get(self.name, number)
        if known is None:
            values = [self.value(seen) for seen in self._seen_by(number)]
            settings = [trial.setting for trial in self.trials]
            known = propose(self.sweep.dimensions, self.sweep.sampler_seed, settings, values)
            self.journal.add(self.name, number, known)
        return known

    def results(self, number: int) -> list[tuple[Run, bool]]:
        """`Trial.results` of a trial that has ended, computed once."""
        if number not in self._results:
            self._results[number] = self.trials[number].results()
        return self._results[number]

    def value(self, number: int) -> float | None:
        """The value of a trial for the search: the median over its seeds; None if a run failed."""
        runs = [run for run, _ in self.results(number) if run.rows]
        if len(runs) < len(self.sweep.seeds):
            return None
        return middle(value_of(run, self.sweep.objective) for run in runs)

    def best(self) -> _Trial:
        """The trial with the smallest value among those without pruned runs."""
        found: dict[int, float] = {}
        for number in range(len(self.trials)):
            value = self.value(number)
            if value is not None and not any(pruned for _, pruned in self.results(number)):
                found[number] = value
        if not found:
            reasons = {run for trial in self.trials for run in trial.runs if isinstance(run, str)}
            raise RunError(f"no trial of {self.name or 'this search'} ran to its end: {'; '.join(sorted(reasons)[:3])}")
        return self.trials[min(found, key=lambda number: found[number])]


def propose(
    dimensions: Sequence[Dimension], seed: int, settings: Sequence[dict[str, Any]], values: Sequence[float | None]
) -> dict[str, Any]:
    """The setting to try next. `values` are the results of the first settings; those of the rest are not known yet.

    >>> first = propose([Range("lr", 1e-3, 1e-1, "log")], 0, [], [])
    >>> first == propose([Range("lr", 1e-3, 1e-1, "log")], 0, [], [])
    True
    """
    import optuna
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    # A sampler for each trial: its draws depend on the number of the trial, not on earlier draws.
    sampler = optuna.samplers.TPESampler(seed=seed * 1000 + len(settings), n_startup_trials=STARTUP, constant_liar=True)
    study = optuna.create_study(sampler=sampler)
    known = {name: each for d in dimensions for name, each in distributions_of(d).items()}
    for place, setting in enumerate(settings):
        params = {name: value for d in dimensions for name, value in params_of(d, setting[d.name]).items()}
        used = {name: known[name] for name in params}
        value = values[place] if place < len(values) else None
        ended = TrialState.FAIL if value is None else TrialState.COMPLETE
        state = ended if place < len(values) else TrialState.RUNNING
        number = None if value is None else min(value, 1e300)
        study.add_trial(create_trial(params=params, distributions=used, state=state, value=number))
    params = study.ask(known).params
    return {d.name: plain(value_from(d, params)) for d in dimensions}


# Carrying it out ----------------------------------------------------------------------------------------------------


class Progress(NamedTuple):
    """How far the work has come."""

    done: int  # runs that have ended
    total: int
    running: int
    part: float  # of the runs that are running, by the time that others took
    seconds_left: float | None
    pruned: int
    failed: int


Watch = Callable[[Progress], None]


def carry_out(advance: Callable[[Ask], bool], total: Callable[[], int], pool: Pool, watch: Watch) -> bool:
    """Train what `advance` asks for, again and again, until nothing is missing; False if interrupted."""
    known: dict[Path, Run | str] = {}
    wanted: dict[Path, Job] = {}
    begun: dict[Path, float] = {}
    looked, tries, took = set[Path](), Counter[Path](), list[float]()

    def look(job: Job) -> None:
        run = pool.find(job)
        if run is not None and (run.done or pruned_at(run, job.limits) is not None):
            known[job.path] = run

    def ask(job: Job) -> Run | str | None:
        key = job.path
        if key not in looked:
            looked.add(key)
            look(job)
        if key not in known:
            wanted.setdefault(key, job)
        return known.get(key)

    def progress() -> Progress:
        now, each = time.monotonic(), sum(took) / len(took) if took else None
        part = sum(min((now - since) / each, 0.95) for since in begun.values()) if each else 0.0
        pruned = sum(isinstance(run, Run) and not run.done for run in known.values())
        failed = sum(isinstance(run, str) for run in known.values())
        left = None if each is None else max(total() - len(known) - part, 0.0) * each / pool.size
        return Progress(len(known), total(), len(begun), part, left, pruned, failed)

    with stop_on_interrupt() as interrupted:
        while True:
            wanted.clear()
            if advance(ask):
                watch(progress())
                return True
            if interrupted():
                return False
            for key, job in wanted.items():
                if key not in begun and len(begun) < pool.size:
                    begun[key] = time.monotonic()
                    pool.submit(job)
            watch(progress())
            for job, error in pool.wait(POLL):
                since, key = begun.pop(job.path), job.path
                if error is not None:
                    known[key] = error
                    continue
                look(job)
                if key in known:
                    took.append(time.monotonic() - since)
                    continue
                tries[key] += 1
                if tries[key] >= ATTEMPTS:
                    known[key] = f"its worker died {ATTEMPTS} times"


# In a directory -----------------------------------------------------------------------------------------------------


def plain_sweep(sweep: Sweep) -> dict[str, Any]:
    """A sweep as JSON data."""
    return json.loads(json.dumps(dataclasses.asdict(sweep)))


def begin_in(folder: Path, file: str, data: dict[str, Any], free: Sequence[str] = ()) -> dict[str, Any]:
    """Begin a sweep or duel in a directory, or check that the directory has the same one; returns what is kept there.

    `free` names settings that may differ; then the kept values are used.
    """
    path = folder / file
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise RunError(f"{folder} must be empty or hold {file}, got other files")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, {**data, "digest": short_hash(data)})
        return data
    try:
        begun = read_json(path)
        digest = begun.pop("digest", None)
    except (ValueError, AttributeError) as error:
        raise RunError(f"{path}: {error}") from error
    if digest != short_hash(begun):
        raise RunError(f"{path} was changed since it was written: its digest differs")
    old, new = ({k: v for k, v in flat(each).items() if k not in free} for each in (begun, data))
    if changed := [key for key in {**old, **new} if old.get(key) != new.get(key)]:
        words = [f"{key} is {old.get(key, 'not there')}, got {new.get(key, 'none')}" for key in changed]
        raise RunError(f"{folder} holds another {path.stem}: {'; '.join(words)}")
    return begun


def flat(data: Mapping[str, Any]) -> dict[str, str]:
    """The definition in a directory, by name, as text for a message."""
    given = dict(data.get("given", {}))
    varied = {d["name"]: {k: v for k, v in d.items() if k != "name"} for d in data.get("dimensions", ())}
    rest = {name: value for name, value in data.items() if name not in ("given", "dimensions")}
    return {name: json.dumps(value) for name, value in {**given, **rest, **varied}.items()}


# The result ---------------------------------------------------------------------------------------------------------


def rank_trials(search: Search) -> list[dict[str, Any]]:
    """Every setting of a sweep over its seeds, the best first, as plain rows.

    `median`, `low` and `high` are None if they are not known. `exact` is False if runs that never reached their level
    could still raise the median. Pruned and failed runs count as runs that never reach it.
    """
    sweep = search.sweep
    sign = -1.0 if more_is_better(sweep.objective, sweep.given["task"]) else 1.0
    rows: list[tuple[Any, dict[str, Any]]] = []
    for trial in search.trials:
        if any(row["setting"] == trial.setting for _, row in rows):
            continue  # proposed twice, run once
        results = trial.results()
        done = [run for run, pruned in results if not pruned and run.rows]
        failed = sum(isinstance(run, str) for run in trial.runs)
        bounds = [number_of(run, sweep.objective) for run in done]
        bounds += [Steps(math.inf, False)] * (len(trial.runs) - len(done))
        spread = spread_of(bounds)
        ends = [spread.median, *((spread.high, spread.low) if sign < 0 else (spread.low, spread.high))]
        median, low, high = (sign * end.value if math.isfinite(end.value) else None for end in ends)
        row = {
            "setting": trial.setting,
            "runs": len(done),
            "median": median,
            "low": low,
            "high": high,
            "exact": spread.median.exact,
            "values": [sign * bound.value if math.isfinite(bound.value) else None for bound in bounds],
            "censored": spread.censored - len(trial.runs) + len(done),
            "pruned": sum(pruned for _, pruned in results),
            "failed": failed,
        }
        rows.append(((not spread.median.exact, spread.median.value, failed), row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]


# From Python --------------------------------------------------------------------------------------------------------


def sweep(
    task: str,
    vary: Mapping[str, Any],
    folder: str | Path | None = None,
    *,
    seeds: int = 1,
    seed: int = 0,
    objective: str = "held",
    search: str = "grid",
    trials: int | None = None,
    prune: bool = False,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    tell: Tell = print,
    **given: Any,
) -> list[dict[str, Any]]:
    """Train a task at many settings, each with several seeds; gives every setting over its seeds, the best first.

    Args:
        task: name of a task, or FILE.py:CLASS.
        vary: for each setting a list of values, or a range `(low, high, "log")` for a search; the scale is "even",
            "log" or "memory".
        folder: keeps the runs; the same call continues what was interrupted.
        seeds: seeds of each setting, from `seed` on.
        objective: "held", "first", "stable" or "seconds" to the level; "accuracy", "loss" or "best_loss"; or a number
            that the task records.
        search: "grid" for all combinations, or "tpe" for `trials` settings that Optuna proposes.
        prune: stop runs early that are worse than the median.
        workers: runs at once.
        engine: "local" or "ray", with the `address` of a cluster.
        tell: gets lines about the progress.
        given: settings of all runs.

    Examples:
        >>> for row in sweep("addition", {"weight_decay": [0.1, 1.0]}, seeds=3):  # doctest: +SKIP
        ...     print(row)  # trains six runs, in processes of their own
    """
    dimensions = [read_varied(name, value) for name, value in vary.items()]
    if fixed := [each for each in dimensions if not isinstance(each, Choices | Range)]:
        raise ValueError(f"vary must hold lists and ranges (low, high, scale), got {fixed[0]}")
    asked = Sweep(
        {"task": task, **given}, tuple(dimensions), tuple(range(seed, seed + seeds)), objective, search, trials, prune
    )
    check_engine(engine, workers, address)
    done = run_sweep(
        settle_sweep(asked),
        None if folder is None else Path(folder),
        workers=workers,
        engine=engine,
        address=address,
        tell=tell,
        watch=line_watch(tell),
    )
    return rank_trials(done)


def settle_sweep(sweep: Sweep) -> Sweep:
    """Check a sweep and fix what all its runs share on this machine: device, threads, data directory, target.

    With the objective "held", runs that stop at a target continue until it is known whether they hold it.
    """
    given = dict(sweep.given)
    if sweep.objective == "held" and given.get("until") is not None:
        given.setdefault("hold", HOLD)
    given.setdefault("threads", 1)  # their number changes rounding, so it must not depend on the machine
    found = dataclasses.replace(sweep, given=given)
    if not sweep.dimensions:
        raise ValueError("a sweep needs --grid, --range or --preset, got none")
    check_sweep(found)
    first = found.settings(found.corners()[0], found.seeds[0])
    same = {name: first[name] for name in ("device", "data_dir") if first[name] is not None}
    rehearse(first, make_task(first))  # before the directory is made
    return dataclasses.replace(found, given=dict(sorted({**given, **same}.items())))


def run_sweep(
    sweep: Sweep,
    folder: Path | None,
    *,
    workers: int | None,
    engine: str,
    address: str | None,
    tell: Tell,
    watch: Watch,
    command: list[str] | None = None,
) -> Search:
    """Train the missing runs of a sweep; KeyboardInterrupt if it is stopped."""
    folder = folder or sweep_folder(sweep)
    runs = folder / "runs"

    def make_job(setting: dict[str, Any], seed: int, limits: Limits | None) -> Job:
        settings = sweep.settings(setting, seed)
        return Job(runs / name_of(settings), settings, limits)

    begin_in(folder, "sweep.json", plain_sweep(sweep))
    search = Search(sweep, make_job, Journal(folder / "trials.jsonl", tell))
    pool = open_pool(folder, sweep.given, workers=workers, engine=engine, address=address, tell=tell, command=command)
    with pool, leading(folder):
        ended = carry_out(search.advance, lambda: sweep.count * len(sweep.seeds), pool, watch)
    if not ended:  # not inside: there it would not let the workers save their runs
        raise KeyboardInterrupt
    return search


def sweep_folder(sweep: Sweep) -> Path:
    """The default directory of a sweep: the same for the same command."""
    names = [plain_word(sweep.given["task"]), *(each.name for each in sweep.dimensions)]
    return Path("sweeps") / "-".join([*names, short_hash(plain_sweep(sweep))])


def time_text(seconds: float) -> str:
    """A duration, rounded for planning.

    >>> time_text(8.2), time_text(3000), time_text(30000)
    ('8 s', '50 min', '8.3 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def progress_line(progress: Progress) -> str:
    counts = {"running": progress.running, "pruned": progress.pruned, "failed": progress.failed}
    now = ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "running")
    left = "" if progress.seconds_left is None else f", about {time_text(progress.seconds_left)} left"
    return f"{progress.done} of {progress.total} runs, {now}{left}"


def line_watch(tell: Tell, seconds: float = 10.0) -> Watch:
    """A watch that reports the progress every few seconds."""
    last = time.monotonic()

    def watch(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            tell(progress_line(progress))

    return watch
