"""`grokfast train TASK`: train one run of a task, or continue it; `grokfast train --resume RUN`: continue any run."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

from grokfast.lab.commands.common import (
    DIVERGED,
    INTERRUPTED,
    add_runs_dir,
    complain,
    resume_command,
    show_command,
)
from grokfast.lab.commands.flags import add_settings, add_task, settings_from
from grokfast.lab.commands.runs import result_line, row_of
from grokfast.lab.commands.terminal import train_watched
from grokfast.lab.filters import find_filter
from grokfast.lab.own_code import is_own_code
from grokfast.lab.runs.directory import Run, RunError, find_run
from grokfast.lab.settings import find_optimizer, name_of, resolve
from grokfast.lab.tasks import find_task
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.run import resume, train

OWN_CODE = {"task": find_task, "filter": find_filter, "optimizer": find_optimizer}


def add(parser: argparse.ArgumentParser) -> None:
    task = add_task(parser, "?", "--resume")
    parser.usage = f"grokfast train {task or 'TASK'} [flags]"
    group = parser.add_argument_group("Output")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")
    group.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    group.add_argument("--tensorboard", action="store_true", help="also write TensorBoard events")
    add_runs_dir(parser)
    if task is not None:
        add_settings(parser, task)
        return
    parser.usage += "\n       grokfast train --resume RUN [flags]"
    group = parser.add_argument_group("Continue a run", "the same command as before continues it, too")
    group.add_argument("--resume", metavar="RUN", help="name or hash of the run, or the beginning of one")
    own = "of the run if it is code of your own, FILE.py:CLASS: a run directory alone never makes grokfast import code"
    group.add_argument("--task", dest="own_task", metavar="NAME", help=f"the task {own}")
    for part in ("filter", "optimizer"):
        group.add_argument(f"--{part}", dest=f"own_{part}", metavar="NAME", help=f"the {part} of the run, likewise")
    help = "directory of the data sets now (default: as when the run began)"
    group.add_argument("--data-dir", metavar="DIR", help=help)
    help = "gigabytes of memory that the run may use now (default: as when the run began)"
    group.add_argument("--memory-limit", type=float, metavar="X", help=help)


def run(args: argparse.Namespace) -> int:
    if args.task is not None:
        settings = resolve(args.task, **settings_from(args))
        run = Run(args.runs_dir / name_of(settings))
        begin = partial(train, settings, args.runs_dir, command=["grokfast", *args.words])
        return train_one(run, begin, settings["steps"], args)
    if args.resume is None:
        args.parser.error("give a TASK, or --resume RUN")
    run = find_run(str(args.resume), args.runs_dir)
    load_own_code(run, args)
    data_dir = args.data_dir and str(Path(args.data_dir).absolute())
    begin = partial(resume, run, data_dir=data_dir, memory_limit=args.memory_limit)
    return train_one(run, begin, run.settings["steps"], args)


def load_own_code(run: Run, args: argparse.Namespace) -> None:
    """Load the user's own code that a run needs, if the command line names exactly that."""
    for part, load in OWN_CODE.items():
        recorded, named = run.settings[part], getattr(args, f"own_{part}")
        if named is not None and named != recorded:
            raise RunError(f"--{part} must be that of the run, {recorded or 'none'}, got {named}")
        if recorded is not None and is_own_code(recorded):
            if named is None:
                raise RunError(f"the {part} of this run is code of your own: {resume_command(run, args.runs_dir)}")
            load(named)


def train_one(run: Run, begin: Callable[[Watcher], Run], steps: int, args: argparse.Namespace) -> int:
    """Train the one run of a command and print its result; gives the exit code."""
    was_done = run.done
    events = run.path / "tensorboard" if args.tensorboard else None
    run = train_watched(begin, run.name, steps, quiet=args.quiet or args.json, events=events)
    if not run.done:
        kept = [0, *(row.step for row in run.rows[-1:]), *(int(p.stem) for p in run.path.glob("checkpoints/*.json"))]
        complain(f"stopped at step {max(kept):,} of {steps:,}: {resume_command(run, args.runs_dir)}")
        return INTERRUPTED
    if args.json:
        print(json.dumps({**row_of(run), "path": str(run.path)}))
    elif not args.quiet:
        if was_done:
            print(f"this run is complete already: {show_command(run, args.runs_dir)}")
        print(result_line(run), flush=True)
    return DIVERGED if run.status == "diverged" else 0
