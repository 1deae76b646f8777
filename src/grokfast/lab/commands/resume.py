"""`grokfast resume RUN`: continue a run that was interrupted, bit for bit as if it had not been."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

from grokfast.lab.commands.common import RUN_NAME, add_runs_dir
from grokfast.lab.commands.terminal import add_output_flags, train_one
from grokfast.lab.config import find_optimizer
from grokfast.lab.filters import find_filter
from grokfast.lab.own_code import is_own_code
from grokfast.lab.runs.directory import RunError, find_run
from grokfast.lab.tasks import find_task
from grokfast.lab.training.train import resume


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help=RUN_NAME)
    add_runs_dir(parser)
    own = "of the run if it is code of your own, FILE.py:CLASS: a run directory alone never makes grokfast import code"
    parser.add_argument("--task", metavar="NAME", help=f"the task {own}")
    for part in ("filter", "optimizer"):
        parser.add_argument(f"--{part}", metavar="NAME", help=f"the {part} of the run, likewise")
    help = "directory of the data sets now (default: as when the run began)"
    parser.add_argument("--data-dir", metavar="DIR", help=help)
    help = "gigabytes of memory that the run may use now (default: as when the run began)"
    parser.add_argument("--memory-limit", type=float, metavar="X", help=help)
    add_output_flags(parser)


def run(args: argparse.Namespace) -> int:
    run = find_run(args.name, args.runs_dir)
    load_named("task", run.task, args.task, find_task)
    load_named("filter", run.filter, args.filter, find_filter)
    load_named("optimizer", run.optimizer, args.optimizer, find_optimizer)
    begin = partial(resume, run, data_dir=args.data_dir, memory_limit=args.memory_limit)
    return train_one(run, begin, run.loop["steps"], args, f"{run.name} is complete already")


def load_named(part: str, recorded: str | None, named: str | None, load: Callable[[str], Any]) -> None:
    """Load the user's own code that a run needs, if the command line names exactly that."""
    if named is not None and named != recorded:
        raise RunError(f"--{part} must be that of the run, {recorded or 'none'}, got {named}")
    if recorded is not None and is_own_code(recorded):
        if named is None:
            raise RunError(f"the {part} of this run is code of your own: name it again with --{part} {recorded}")
        load(named)
