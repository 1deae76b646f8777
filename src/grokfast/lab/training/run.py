"""Train a run to its end, or continue it: used by scripts, commands, sweeps and duels."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from grokfast.lab.own_code import is_own_code, one_line
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.writer import check_unedited, create_run, open_for_writing
from grokfast.lab.settings import Settings, check_device, filter_of, name_of, optim_of, task_of
from grokfast.lab.tasks.base import Size, Task
from grokfast.lab.tasks.contract import check_contract, check_members, check_same_probe, probe
from grokfast.lab.tasks.data import check_same_data
from grokfast.lab.training.loop import Loop, Watcher, evaluation_steps
from grokfast.lab.training.machine import (
    check_memory,
    describe_machine,
    forget_peak_memory,
    keep_freed_memory,
    random_stream,
)
from grokfast.lab.training.optim import attach_filter, make_optimizers, switch

ENOUGH = 0.3  # seconds to measure how long something takes


def train(
    settings: Settings,
    folder: str | Path = "runs",
    watcher: Watcher | None = None,
    *,
    command: list[str] | None = None,
    patience: float = 0.0,
) -> Run:
    """Train a run to its end, from the last checkpoint if there is one; a complete run is returned as it is.

    Args:
        settings: complete, as `resolve` gives them. `data_dir` is where the data is now, also for a run that was begun
            elsewhere.
        folder: of the run directories.
        watcher: gets every evaluation and may stop the run: then `Run.done` is False.
        command: what the user typed, for the record.
        patience: seconds to wait for another process that still holds the run.
    """
    # Before the directory is made: data that cannot be read and values out of range leave nothing behind.
    task = make_task(settings)
    run = Run(Path(folder) / name_of(settings))
    if not run.path.exists():
        data = rehearse(settings, task)
        run = create_run(settings, folder, describe_machine(command, data))
    return continue_run(run, settings, task, watcher, patience)


def resume(run: Run, watcher: Watcher | None = None, **changes: Any) -> Run:
    """Continue a run. Only `data_dir` and `memory_limit` may change. A run that is done is left alone."""
    settings = {**run.settings, **{name: value for name, value in changes.items() if value is not None}}
    return checked(run) if run.done else continue_run(run, settings, make_task(settings), watcher)


def continue_run(run: Run, settings: Settings, task: Task, watcher: Watcher | None, patience: float = 0.0) -> Run:
    """Train a run that has a directory, from its last checkpoint. One that was begun with other data is refused."""
    check_begun_alike(run, settings, task)
    if run.done:
        return checked(run)
    with open_for_writing(run, patience=patience) as writer:
        if run.done:  # by the process that had it while we waited
            return run
        forget_peak_memory()
        with random_stream(settings["seed"], settings["device"]):
            loop = Loop(settings, task, writer, watcher or Watcher())
            try:
                loop.run()
            finally:
                if loop.tap is not None:
                    loop.tap.close()
    return run


def checked(run: Run) -> Run:
    """A run that is done; RunError if one of its files was changed since."""
    _ = run.settings, run.environment, run.rows
    run.check_large()
    return run


def check_begun_alike(run: Run, settings: Settings, task: Task) -> None:
    """Raise an error if a run was begun with other settings or other data."""
    begun = run.environment.get("data")
    if begun is not None and task.data is not None:
        check_same_data(begun, task.data)
    if not run.done:
        check_unedited(run)
    if isinstance(begun, dict):  # to look at a batch uses a task up
        check_same_probe(task, begun, probe(task if run.done else make_task(settings)))


def make_task(settings: Settings) -> Task:
    """The task of a run, its data read and checked."""
    config = task_of(settings)
    size: Any = config.size()
    if not isinstance(size, Size):
        raise ValueError(f"size of the task {type(config).__name__} must give a Size, got {size!r}")
    check_device(settings["device"])
    check_memory(settings, size)
    torch.set_num_threads(settings["threads"])  # now: their number also decides how sums over the data are rounded
    keep_freed_memory()
    task = config.make(seed=settings["seed"], device=settings["device"], data_dir=settings["data_dir"])
    if is_own_code(settings["task"]):
        check_members(task)
    if not size.weights:
        check_memory(settings, size._replace(weights=sum(p.numel() for p in task.model.parameters())))
    return task


def rehearse(settings: Settings, task: Task) -> Any:
    """Test everything that a run needs before its directory is made; returns the identity of its data.

    A task of the user's own is built three times more: to test its contract, and that it gives the same data twice.
    """
    data, model = task.data, task.model
    if is_own_code(settings["task"]):
        with random_stream(settings["seed"], settings["device"]):
            tried = make_task(settings)
            check_contract(tried)  # first: what it promises is what the probes rely on
            seen = probe(make_task(settings))
            check_same_probe(task, seen, probe(make_task(settings)), "a seed that decides everything random")
        if settings["measure"] == "accuracy" and seen["first_val_accuracy"] is None:
            raise ValueError(
                f'measure of {settings["task"]} must be loss, as it has no accuracy: write measure = "loss"'
            )
        data, model = seen if data is None else data, tried.model
    rehearse_step(settings, model)
    return data


def rehearse_step(settings: Settings, model: nn.Module) -> None:
    """Make the optimizer with its filter; take a step on a copy of the model if one of them is the user's own code."""
    config, filter = optim_of(settings), filter_of(settings)
    own = is_own_code(config.optimizer) or (filter is not None and is_own_code(settings["filter"]))
    model = copy.deepcopy(model) if own else model
    try:
        optimizers = make_optimizers(model, config)
        handles, _ = attach_filter(optimizers, filter, settings["two_stage"])
        for p in model.parameters() if own else ():
            p.grad = torch.full_like(p, 1e-3)
        for optimizer in optimizers if own else ():
            optimizer.step()
    except (ValueError, OSError):
        raise
    except Exception as error:
        if not own:
            raise
        raise ValueError(f"{config.optimizer} cannot train this model: {one_line(error)}") from error
    for handle in handles:
        handle.remove()


# How long will it take? -----------------------------------------------------------------------------------------------


def run_seconds(settings: Settings) -> float:
    """How long a run of the whole budget takes, from a few steps and evaluations that are discarded."""
    task = make_task(settings)
    with random_stream(settings["seed"], settings["device"]):
        optimizers = make_optimizers(task.model, optim_of(settings))
        switch(optimizers, "train")

        def step() -> None:
            loss, _ = task.loss(task.next_batch())
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            float(loss.detach())  # a GPU works on after the call: wait for it

        each, evaluated = time_of(step), time_of(lambda: task.evaluate("val"))
    if settings["eval_log"] is None:  # counted without a list: a budget may be a trillion steps
        evaluations = math.ceil(settings["steps"] / (settings["eval_every"] or task.epoch_steps))
    else:
        evaluations = len(list(evaluation_steps(settings, task.epoch_steps, 0)))
    return settings["steps"] * each + evaluations * evaluated


def time_of(work: Callable[[], object]) -> float:
    """The mean time of a call, without the first one."""
    work()
    began, calls = time.perf_counter(), 0
    while not calls or time.perf_counter() - began < ENOUGH:
        work()
        calls += 1
    return (time.perf_counter() - began) / calls
