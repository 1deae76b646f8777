"""The runs of a sweep, and which process has which: an Optuna study in study.db beside the run directories.

A run directory is the truth about its run. The study says what was proposed, what is taken and what was pruned:

    WAITING     to be trained by the first process that asks
    RUNNING     taken by a member, which holds a file lock as long as it is alive
    COMPLETE    its summary is written
    PRUNED      stopped early by its intermediate values; a checkpoint is left
    FAIL        by an error, or interrupted: then the run is offered again as a new trial, and resumed

A process that takes a run releases the claims of dead members, then offers one of the runs that have no trial, all
under the lock of the sweep. Wherever it is killed between these steps, the study still shows which runs are missing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import FrozenTrial, TrialState

from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.writer import run_path
from grokfast.lab.sweep.members import is_alive, join, remove_dead_members
from grokfast.lab.sweep.space import Choices, Dimension, Point
from grokfast.lab.sweep.spec import directory_name, load_spec
from grokfast.lab.sweep.storage import open_study
from grokfast.lab.sweep.trial import Ending
from grokfast.lab.values import tuples

ATTEMPTS = 3  # at a run whose worker died


class Claim(NamedTuple):
    """A run that this process has taken."""

    trial: optuna.Trial
    point: Point


class Tally(NamedTuple):
    """How far a sweep has come; `failed` gives the reasons."""

    total: int
    complete: int
    pruned: list[Point]
    failed: dict[Point, str]
    running: list[Point]

    @property
    def left(self) -> int:
        return self.total - self.complete - len(self.pruned) - len(self.failed)


class Sweep:
    """A sweep's directory, opened by one process; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs = folder, folder / "runs"
        self.spec = load_spec(folder)
        self._lock = filelock.FileLock(folder / "lock")
        self._member: str | None = None
        with self._lock:
            self.study, self.close = open_study(folder / "study.db", directory_name(self.spec))

    def __enter__(self) -> Sweep:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @contextmanager
    def joined(self) -> Generator[None]:
        """While this lasts, the runs that this process takes are its own."""
        with join(self.folder) as self._member:
            yield

    # Taking and giving back ------------------------------------------------------------------------------------------

    def claim(self) -> Claim | None:
        """Take a run that nobody has; None where there is none at the moment."""
        assert self._member is not None, "a process that has not joined counts as dead"
        with self._lock:
            self._release_dead_claims()
            while self._has_offer():
                trial = self.study.ask(distributions_of(self.spec.dimensions))
                point = point_of(trial) or self._accept(trial)
                if point is not None:
                    trial.set_user_attr("member", self._member)
                    return Claim(trial, point)
            return None

    def _has_offer(self) -> bool:
        """Offer a missing run unless one is waiting; False where none is left and the search may propose no more."""
        trials = self.trials()
        if any(t.state == TrialState.WAITING for t in trials):
            return True
        last = self.last(trials)
        for point in self.points(trials):
            attempt = next_attempt(last[point]) if point in last else 1
            if attempt is not None:
                self._offer(point, attempt)
                return True
        proposed = sum(is_fresh(t) for t in trials)
        # By the count: no two processes propose the same, and a sweep that was killed continues as it would have.
        self.study.sampler = optuna.samplers.TPESampler(seed=self.spec.seeds[0] + 1000 * proposed)
        return proposed < (self.spec.trials or 0)

    def _accept(self, trial: optuna.Trial) -> Point | None:
        """Note what a search proposed; None where it had proposed the same before: that is not run again."""
        point = Point(setting_of(trial.params, self.spec.dimensions), self.spec.seeds[0])
        if point in self.last(self.trials()):
            trial.set_user_attr("repeated", True)
            self.study.tell(trial, state=TrialState.FAIL)
            return None
        trial.set_user_attr("point", note_of(point, 1, fresh=True))
        return point

    def finish(self, claim: Claim, ending: Ending) -> None:
        """Record how a run that was taken has ended."""
        with self._lock:
            match ending.state:
                case "complete":
                    self.study.tell(claim.trial, ending.value)
                case "pruned":
                    claim.trial.report(ending.value, ending.step)
                    self.study.tell(claim.trial, state=TrialState.PRUNED)
                case "stopped" | "failed":
                    claim.trial.set_user_attr(ending.state, ending.error)
                    self.study.tell(claim.trial, state=TrialState.FAIL)

    # Repairing -------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Offer again what failed in an earlier session, and complete runs whose directory is gone."""
        with self._lock:
            self._release_dead_claims()
            remove_dead_members(self.folder)
            for point, trial in self.last(self.trials()).items():
                removed = trial.state == TrialState.COMPLETE and self.run(point).status != "complete"
                if removed or trial.state == TrialState.FAIL:
                    self._offer(point, 1)

    def _release_dead_claims(self) -> None:
        """Give up the runs of members that are gone."""
        for trial in self.trials(TrialState.RUNNING):
            if not is_alive(self.folder, trial.user_attrs.get("member")):
                self.study.tell(trial.number, state=TrialState.FAIL)

    def _offer(self, point: Point, attempt: int) -> None:
        params = {name: stored(value) for name, value in point.setting}
        self.study.enqueue_trial(params, user_attrs={"point": note_of(point, attempt)})

    def points(self, trials: Sequence[FrozenTrial]) -> list[Point]:
        """All runs known so far: every point of a grid, or every proposal of a search with every seed."""
        if self.spec.search == "grid":
            return self.spec.points()
        settings = dict.fromkeys(point.setting for t in trials if (point := point_of(t)))
        return [Point(setting, seed) for setting in settings for seed in self.spec.seeds]

    # Looking ---------------------------------------------------------------------------------------------------------

    def run(self, point: Point) -> Run:
        """The run directory of a point, whether it exists or not."""
        return Run(run_path(self.spec.config(point), self.runs))

    def trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=states or None)

    def last(self, trials: Sequence[FrozenTrial]) -> dict[Point, FrozenTrial]:
        """The trial that counts for each run: the last one."""
        return {point: t for t in trials if (point := point_of(t))}

    def tally(self) -> Tally:
        trials = self.trials()
        last = self.last(trials)
        total = self.spec.total - sum("repeated" in t.user_attrs for t in trials) * len(self.spec.seeds)
        states = TrialState.COMPLETE, TrialState.PRUNED, TrialState.RUNNING
        complete, pruned, running = ([p for p, t in last.items() if t.state == state] for state in states)
        failed = {point: reason for point, trial in last.items() if (reason := failure(trial))}
        return Tally(total, len(complete), pruned, failed, running)


# Trials -------------------------------------------------------------------------------------------------------------


def point_of(trial: optuna.Trial | FrozenTrial) -> Point | None:
    """The run of a trial; None where the process died before it could note it."""
    note = trial.user_attrs.get("point")
    if note is None:
        return None
    return Point(tuple(tuples(note["setting"]).items()), note["seed"])


def note_of(point: Point, attempt: int, *, fresh: bool = False) -> dict[str, Any]:
    """A point as `point_of` reads it, how often it was tried, and whether a search proposed it in this trial."""
    return {"setting": dict(point.setting), "seed": point.seed, "attempt": attempt, "fresh": fresh}


def is_fresh(trial: FrozenTrial) -> bool:
    """Whether a search proposed this trial, so that it counts as one of its trials."""
    return "repeated" in trial.user_attrs or trial.user_attrs.get("point", {}).get("fresh", False)


def next_attempt(trial: FrozenTrial) -> int | None:
    """The number of the attempt after a trial; None where the trial counts, or its run has failed for good."""
    if trial.state != TrialState.FAIL or "failed" in trial.user_attrs:
        return None
    attempt = trial.user_attrs["point"]["attempt"] + ("stopped" not in trial.user_attrs)
    return None if attempt > ATTEMPTS else attempt


def failure(trial: FrozenTrial) -> str | None:
    """Why a run failed for good; None where it did not."""
    if trial.state != TrialState.FAIL or next_attempt(trial) is not None:
        return None
    return trial.user_attrs.get("failed") or f"its worker died {ATTEMPTS} times"


def distributions_of(dimensions: Sequence[Dimension]) -> dict[str, BaseDistribution]:
    """The dimensions as Optuna's distributions."""
    found: dict[str, BaseDistribution] = {}
    for d in dimensions:
        if isinstance(d, Choices):
            found[d.name] = CategoricalDistribution([stored(value) for value in d.values])
        elif isinstance(d.low, int) and isinstance(d.high, int):
            found[d.name] = IntDistribution(d.low, d.high, log=d.log)
        else:
            found[d.name] = FloatDistribution(d.low, d.high, log=d.log)
    return found


def setting_of(params: Mapping[str, Any], dimensions: Sequence[Dimension]) -> tuple[tuple[str, Any], ...]:
    """The setting that Optuna proposes, with our values."""
    known = {(d.name, stored(v)): v for d in dimensions if isinstance(d, Choices) for v in d.values}
    return tuple((name, known.get((name, value), value)) for name, value in params.items())


def stored(value: Any) -> Any:
    """A value as Optuna can store it: Optuna has no tuples."""
    return ":".join(map(str, value)) if isinstance(value, tuple) else value
