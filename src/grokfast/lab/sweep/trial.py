"""One run of a sweep, carried out in whatever process: from where it stands to its end."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

import filelock

from grokfast.lab.training.machine import forget_peak_memory
from grokfast.lab.runs.directory import Run, create_run, run_path
from grokfast.lab.sweep.objective import Judge, value_of
from grokfast.lab.sweep.space import Point
from grokfast.lab.sweep.spec import Spec
from grokfast.lab.commands.terminal import complain, one_line
from grokfast.lab.training.loop import Watcher, data_of, rehearse, task_of, train

PATIENCE = 30.0  # seconds for a process that was killed to be gone


class Ending(NamedTuple):
    """How a run ended: with which value, after which step. A pruned or a stopped one has left a checkpoint."""

    state: Literal["complete", "pruned", "stopped", "failed"]
    value: float = math.inf
    step: int = 0
    error: str = ""


def carry_out(
    spec: Spec,
    point: Point,
    folder: Path,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    command: list[str] | None = None,
) -> Ending:
    """Train a run, or go on with it; an error is told, not raised, so that it does not end the other runs."""
    try:
        run = Run(run_path(spec.config(point), folder))
        state = "complete" if run.status == "complete" else train_on(spec, point, folder, should_stop, command)
        rows = run.rows
        return Ending(state, value_of(run.config, rows, spec.objective), rows[-1].step)
    except Exception as error:  # whatever it is: the runs after it may take all night and need not know
        return Ending("failed", error=one_line(error))


def train_on(
    spec: Spec, point: Point, folder: Path, should_stop: Callable[[], bool], command: list[str] | None
) -> Literal["complete", "pruned", "stopped"]:
    """Train a run from where it stands, to its end or until it is stopped or hopeless."""
    config = spec.config(point)
    run, task = Run(run_path(config, folder)), task_of(config)
    if run.path.exists():
        wait_until_free(run)
    else:
        rehearse(config, task)
        create_run(config, folder, command, data=data_of(task))
    forget_peak_memory()
    judge = Judge(run) if spec.prune else None
    stopped = False

    def stop() -> bool:
        nonlocal stopped
        stopped = should_stop()
        return stopped or (judge is not None and judge.hopeless())

    watcher = Watcher(on_row=judge.see if judge else lambda row: None, on_warning=complain, should_stop=stop)
    if train(run, watcher, task=task, data_dir=config.loop.data_dir):
        return "complete"
    return "stopped" if stopped else "pruned"


def wait_until_free(run: Run) -> None:
    """Give a process that trained this run and was killed the time to go; who then still has it is another matter."""
    lock = filelock.FileLock(run.path / "lock")
    with contextlib.suppress(filelock.Timeout):
        lock.acquire(timeout=PATIENCE)
        lock.release()
