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

import itertools
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.search.objective import check_objective, number_of, value_of
from grokfast.lab.search.progress import Ask
from grokfast.lab.search.space import Choices, Dimension, Range, distributions_of, params_of, value_from
from grokfast.lab.search.workers import Job, Limits, Tell, distances_of, pruned_at
from grokfast.lab.settings import Settings, resolve, short_hash
from grokfast.lab.stats import Steps, spread_of
from grokfast.lab.tasks import find_task
from grokfast.lab.values import plain

AT_ONCE = 4  # trials of a search that do not see each other's results
STARTUP = 10  # trials that are drawn at random before TPE begins
ENOUGH = 4  # complete runs before another is compared with them
GRAIN = 0.05  # smaller differences do not count: before a run generalises, its accuracy is noise

METHODS = ("grid", "tpe")


# When a run is given up -----------------------------------------------------------------------------------------------


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


# The search ---------------------------------------------------------------------------------------------------------


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
