"""What the tests of sweeps and duels share: pools that train in this process, or that only pretend to train."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tiny import SIZES, TINY_FLAGS, comparable, tiny

from grokfast.lab import Run, load_runs
from grokfast.lab.commands.cli import main
from grokfast.lab.runs.metrics import Row
from grokfast.lab.search import duel, sweep
from grokfast.lab.search.progress import Progress
from grokfast.lab.search.workers import Job, find, pruned_at, reason_of, train_job
from grokfast.lab.settings import Settings
from grokfast.lab.training.run import train

BASE: dict[str, Any] = {
    "task": "modmul", "filter": "ema", **SIZES, "threads": 1, "device": "cpu", "steps": 8, "eval_every": 2
}  # fmt: skip
FLAGS = ["modmul", "--filter", "ema", *TINY_FLAGS, "--eval-every", "2"]


def quiet(line: str) -> None:
    """Drop a message."""


def ignore(progress: Progress) -> None:
    """Drop what is told about the progress."""


class InThisProcess:
    """A pool that trains in this process: workers take seconds to start."""

    size = 1

    def __init__(self, *args: Any, **more: Any) -> None:
        self._waiting: list[Job] = []

    def find(self, job: Job) -> Run | None:
        return find(job)

    def submit(self, job: Job) -> None:
        self._waiting.append(job)

    def wait(self, seconds: float) -> list[tuple[Job, str | None]]:
        job = self._waiting.pop()
        try:
            train_job(job, lambda: False, quiet, None)
        except Exception as error:
            return [(job, reason_of(error)[0])]
        return [(job, None)]

    def __enter__(self) -> InThisProcess:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def train_here(patch: Any) -> None:
    """Let sweeps and duels train in this process."""
    for module in (sweep, duel):
        patch.setattr(module, "open_pool", InThisProcess)


def main_here(words: Sequence[str]) -> int:
    """A command that trains in its own process."""
    sweep.open_pool = duel.open_pool = InThisProcess  # type: ignore[assignment]
    return main(words)


class KilledError(Exception):
    """The leader is gone."""


Curve = Callable[[Settings, int], float]  # the validation accuracy of settings after a step


class Pretended:
    """A pool that draws curves instead of training, and ends its jobs in any order. `runs` is its disk.

    With `dies` a worker dies now and then; with `kills` the leader does: the next pool with the same disk continues.
    """

    def __init__(
        self, curve: Curve, size: int = 1, seed: int = 0, runs: dict[Path, Run] | None = None, *,
        dies: float = 0.0, kills: float = 0.0,
    ) -> None:  # fmt: skip
        self.size, self.runs, self.begun = size, {} if runs is None else runs, list[Job]()
        self._curve, self._dice, self._dies, self._kills = curve, random.Random(seed), dies, kills
        self._running: list[Job] = []

    def find(self, job: Job) -> Run | None:
        return self.runs.get(job.path)

    def submit(self, job: Job) -> None:
        assert len(self._running) < self.size
        self._running.append(job)
        self.begun.append(job)

    def wait(self, seconds: float) -> list[tuple[Job, str | None]]:
        if self._dice.random() < self._kills:
            raise KilledError
        job = self._running.pop(self._dice.randrange(len(self._running)))
        if self._dice.random() < self._dies:
            return [(job, None)]
        self.runs[job.path] = pretended_run(job, self._curve)
        return [(job, None)]


def pretended_run(job: Job, curve: Curve) -> Run:
    """The run that a worker would leave: cut where it falls behind its limits or holds its level."""
    rows: list[Row] = []
    settings = job.settings
    level = settings["level"] if settings["until"] is None else settings["until"]
    for step in range(settings["eval_every"], settings["steps"] + 1, settings["eval_every"]):
        value = curve(settings, step)
        rows.append(Row(step, 1.0, 1.0, 1.1 - value, value, 1.0, 1.0, None, 0.1, step, step / 100))
        run = run_of(job.path, settings, rows)
        if pruned_at(run, job.limits) is not None:
            break
        if (
            settings["until"] is not None
            and sum(row.val_accuracy >= level for row in rows[-1 - settings["hold"] :]) > settings["hold"]
        ):  # type: ignore[operator]
            break
    return run


def bump(name: str, best: float, speed: float = 1.0) -> Curve:
    """Curves that rise fastest where the logarithm of a setting is near that of its best value."""

    def curve(settings: Settings, step: int) -> float:
        luck = random.Random(settings["seed"]).uniform(0.95, 1.05)
        rate = speed * luck / (1.0 + 2.0 * abs(math.log(settings[name] / best)))
        return min(1.0, rate * step / settings["steps"])

    return curve


def assert_same_as_alone(runs: Path, wanted: Sequence[Settings], scratch: Path) -> None:
    """Every run is there once, complete, and as if it had been trained alone without interruption."""
    found = {run.name: run for run in load_runs(runs)}
    assert len(found) == len(wanted)
    for settings in wanted:
        alone = train({**settings, "checkpoint_seconds": 30.0}, scratch)
        assert found[alone.name].done
        assert comparable(found[alone.name].rows) == comparable(alone.rows)


def rows_of(*accuracies: float, losses: tuple[float, ...] = (), train_loss: float = 1.0) -> list[Row]:
    """Evaluations every 10 steps and 2 seconds."""
    pairs = zip(accuracies, losses or [1.0] * len(accuracies), strict=True)
    return [
        Row(10 * i, train_loss, 1.0, loss, accuracy, 1.0, 1.0, None, 0.1, i, 2.0 * i)
        for i, (accuracy, loss) in enumerate(pairs, start=1)
    ]


def made(rows: list[Row], *, diverged: bool = False, **values: Any) -> Run:
    """A run of the tiny task with these evaluations."""
    settings = tiny(**{"filter": "ema", "steps": 40, "eval_every": 10, **values})
    return run_of(Path("made"), settings, rows, diverged=diverged)


def run_of(path: Path, settings: Settings, rows: list[Row], *, diverged: bool = False) -> Run:
    """A run that has no directory."""
    kept: Any = {"experiment": "", "environment": {}, "tables": {}}
    return Run.from_table(path, settings=settings, summary={"diverged": diverged}, rows=lambda: list(rows), **kept)
