"""Train a configuration to its end: the one way, for `train`, `resume`, `demo`, `reproduce` and `sweep`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import torch

from grokfast.lab import filters, tasks
from grokfast.lab.config import RunConfig, check_device, find_optimizer, from_json, to_json
from grokfast.lab.own_code import is_own_code
from grokfast.lab.request import ask, resolve
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.writer import check_unedited, create_run, open_for_writing, run_path
from grokfast.lab.tasks.base import Task
from grokfast.lab.tasks.contract import check_contract, check_members
from grokfast.lab.tasks.data import check_same_data
from grokfast.lab.training import parallel
from grokfast.lab.training.loop import Watcher, run_loop
from grokfast.lab.training.machine import describe_machine, forget_peak_memory, keep_freed_memory
from grokfast.lab.training.memory import check_memory
from grokfast.lab.training.optimizers import attach_filter, make_optimizers


class Outcome(NamedTuple):
    """A run, and whether it is complete. One that was stopped has left a checkpoint."""

    run: Run
    complete: bool


def train(
    config: RunConfig,
    folder: str | Path,
    watcher: Watcher | None = None,
    *,
    command: list[str] | None = None,
    patience: float = 0.0,
) -> Outcome:
    """Train a configuration to its end, from its last checkpoint; a complete run is left alone.

    Args:
        config: what to train. Its `data_dir` is where the data is now, also for a run that was begun elsewhere.
        folder: of the run directories.
        watcher: gets every evaluation and may stop the run.
        command: what the user typed, for the record.
        patience: seconds to wait for another process that still holds the run.
    """
    # Before the directory is made: data that cannot be read and values out of range leave no trace.
    task = make_task(config)
    run = Run(run_path(config, folder))
    if not run.path.exists():
        rehearse(config, task)
        create_run(config, folder, describe_machine(command, task.data))
    elif run.status == "incomplete":
        check_unedited(run)
    return Outcome(run, train_run(run, config, task, watcher, patience))


def train_task(task: str, folder: str | Path = "runs", **settings: Any) -> Run:
    """`grokfast train TASK` for a script: train one run to its end, or find it if it is complete.

    Args:
        task: the name of a task, as on the command line.
        folder: of the run directories.
        settings: the flags of `grokfast train`, with underscores; the paper's values where nothing is said.

    Examples:
        >>> import tempfile
        >>> sizes = {"p": 5, "width": 8, "heads": 2, "depth": 1}
        >>> run = train_task("modmul", tempfile.mkdtemp(), filter="ema", lamb=1.0, steps=4, **sizes)
        >>> run.status, run.filter, run.rows[-1].step
        ('complete', 'ema', 4)
    """
    return train(resolve(ask(task, **settings)), folder).run


def resume(
    run: Run,
    watcher: Watcher | None = None,
    *,
    data_dir: str | Path | None = None,
    memory_limit: float | None = None,
) -> Outcome:
    """Continue a run under its name; the place of its data and its memory limit may differ from when it began."""
    if run.status == "complete":
        return Outcome(run, True)
    check_unedited(run)
    config = run.config
    given = {"data_dir": data_dir and str(Path(data_dir).absolute()), "memory_limit": memory_limit}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    config = dataclasses.replace(config, loop=dataclasses.replace(config.loop, **changes))
    return Outcome(run, train_run(run, config, make_task(config), watcher))


def train_run(run: Run, config: RunConfig, task: Task, watcher: Watcher | None = None, patience: float = 0.0) -> bool:
    """Train a run that has a directory; False if stopped. One that was begun with other data is refused."""
    begun = run.environment.get("data")
    if begun is not None and task.data is not None:
        check_same_data(begun, task.data)
    if run.status == "complete":
        return True
    with open_for_writing(run, patience=patience) as writer:
        if Run(run.path).status == "complete":  # by the process that had it while we waited
            return True
        with parallel.leading(to_json(config)):
            forget_peak_memory()
            return run_loop(config, task, writer, watcher or Watcher())


def follow(watcher: Watcher) -> None:
    """Train along with rank 0, run by run, until it is done; nothing is written here."""
    while (sent := parallel.from_leader(None)) is not None:
        # Load the user's own code that the command line of rank 0 names.
        tasks.find_task(sent["task"]["name"])
        if sent["filter"] is not None:
            filters.find_filter(sent["filter"]["name"])
        find_optimizer(sent["optim"]["optimizer"])
        config = from_json(sent)
        run_loop(config, make_task(config), None, watcher)


def make_task(config: RunConfig) -> Task:
    """The task of a run, its data read and checked."""
    loop, size = config.loop, config.task.size()
    check_device(loop.device)
    check_memory(config, size)
    torch.set_num_threads(loop.threads)  # now: their number also decides how sums over the data are rounded
    keep_freed_memory()
    task = config.task.make(seed=loop.seed, device=loop.device, data_dir=loop.data_dir)
    if is_own_code(config.task_name):
        check_members(task)
    if not size.weights:
        check_memory(config, size._replace(weights=sum(p.numel() for p in task.model.parameters())))
    return task


def rehearse(config: RunConfig, task: Task) -> None:
    """Build everything that a run needs and throw it away: values out of range are refused before there is a run."""
    if is_own_code(config.task_name):
        check_contract(make_task(config))  # another one: looking at a batch moves its random stream
    for handle in attach_filter(make_optimizers(task.model, config.optim), config)[0]:
        handle.remove()
