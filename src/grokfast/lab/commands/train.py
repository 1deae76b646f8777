"""Commands that train: train, resume, demo, reproduce."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from rich.table import Table

from grokfast.lab.commands.common import INTERRUPTED, console, say, where
from grokfast.lab.config import FilterConfig, LoopConfig, OptimConfig, RunConfig, check_device, resolve
from grokfast.lab.commands.flags import pick
from grokfast.lab.runs.metrics import Row
from grokfast.lab.paper.published import demo_configs
from grokfast.lab.compare.results import cell, describe, progress_text
from grokfast.lab.runs.directory import Run, RunError, create_run, find_run, run_path
from grokfast.lab.tasks import TASKS, Task
from grokfast.lab.training.tensorboard import event_writer, writer_class
from grokfast.lab.commands.terminal import complain, train_watched
from grokfast.lab.training.loop import check_data_of, data_of, rehearse, task_of


def config_from(args: argparse.Namespace) -> RunConfig:
    """The resolved configuration that the flags of `grokfast train` describe."""
    values = vars(args)
    parts = (pick(kind, values) for kind in (TASKS[args.task], FilterConfig, OptimConfig, LoopConfig))
    return resolve(RunConfig(*parts))


def command_train(args: argparse.Namespace) -> int:
    config = config_from(args)
    path = run_path(config, args.runs_dir)
    task = task_of(config)  # before the directory is made: data that cannot be read leave no trace
    if path.exists():
        check_data_of(Run(path), task)
    if path.exists() and Run(path).status == "complete":
        if not args.json:
            say(args, f"this configuration has been run already: grokfast show {path.name}")
        return report_result(args, Run(path))
    if path.exists():
        raise RunError(f"this run was begun and not finished: grokfast resume {path.name}{where(args)}")
    rehearse(config, task)
    if args.tensorboard:
        writer_class()  # here, where its absence leaves no run
    run = create_run(config, args.runs_dir, command=["grokfast", *sys.argv[1:]], data=data_of(task))
    return train_run(args, run, task)


def command_resume(args: argparse.Namespace) -> int:
    run = find_run(args.name, args.runs_dir)
    if run.status == "complete":
        say(args, f"{run.name} is complete already")
        return report_result(args, run)
    check_device(run.config.loop.device)
    return train_run(args, run, data_dir=args.data_dir)


def command_demo(args: argparse.Namespace) -> int:
    from grokfast.lab.compare.headline import headline
    from grokfast.lab.report import write_report
    from grokfast.lab.compare.results import HEADINGS, result

    runs: list[Run] = []
    for config in demo_configs(quick=args.quick):
        path = run_path(config, args.runs_dir)
        run = Run(path) if path.exists() else create_run(config, args.runs_dir, command=["grokfast", "demo"])
        if run.status == "incomplete" and (code := train_run(args, run)):
            return code
        runs.append(run)
    page, picture = write_report(runs, Path(args.out))
    shown = ("label", "first", "interval", "stable", "published")
    table = Table(*(getattr(HEADINGS, name) for name in shown), title="steps until the validation accuracy is 0.95")
    for run in runs:
        table.add_row(*(getattr(result(run), name) for name in shown))
    console.print(table)
    print(f"{headline(runs)}\nLook at {page} (curves also in {picture}).")
    return 0


def command_reproduce(args: argparse.Namespace) -> int:
    from grokfast.lab import reproduce

    if args.list or not args.names:
        console.print(reproduce.listing(args.runs_dir))
        return 0
    chosen = {name: getattr(args, name) for name in ("seeds", "budget", "quick", "data_dir", "threads")}
    plan = reproduce.make_plan(args.names, args.runs_dir, **chosen)
    say(args, reproduce.summary(plan))
    outcome = reproduce.carry_out(plan, partial(say, args), quiet=args.quiet, command=["grokfast", *sys.argv[1:]])
    if outcome.interrupted:
        complain("stopped: the same command goes on from here")
        return INTERRUPTED
    for shown in reproduce.results(plan, Path(args.out)):
        if not args.quiet:
            console.print(shown, soft_wrap=isinstance(shown, str))
    for line in outcome.failed:
        complain(f"failed: {line}")
    return 1 if outcome.failed else 0


def train_run(args: argparse.Namespace, run: Run, task: Task | None = None, data_dir: str | None = None) -> int:
    """Train a run to its end with progress; Ctrl-C leaves a checkpoint."""
    with events_of(args, run) as write:
        quiet = args.quiet or args.json
        complete = train_watched(run, run.name, quiet=quiet, task=task, data_dir=data_dir, also=write)
    if not complete:
        complain(f"stopped at {progress_text(run)}: grokfast resume {run.name}{where(args)}")
        return INTERRUPTED
    return report_result(args, run)


def report_result(args: argparse.Namespace, run: Run) -> int:
    if args.json:
        print(json.dumps({**describe(run), "path": str(run.path), "summary": run.summary}))
        return 0
    found = describe(run)
    accuracy = f"validation accuracy {found['val_accuracy']:.4f}, " if found["val_accuracy"] is not None else ""
    level = (run.summary or {})["level"]
    loss = "" if accuracy else f"best validation loss {cell(found['best_val_loss'])}, "
    diverged = "diverged, " if (run.summary or {})["diverged"] else ""
    result = f"{loss}first at {level:g}: {found['first']}, for good: {found['stable']}"
    say(args, f"{run.name}: {diverged}{accuracy}{result}, {found['seconds']:.1f} s")
    return 0


def events_of(args: argparse.Namespace, run: Run) -> AbstractContextManager[Callable[[Row], None]]:
    """Where evaluations go besides the terminal: to TensorBoard if asked for."""
    return event_writer(run.path / "tensorboard") if args.tensorboard else nullcontext(lambda row: None)
