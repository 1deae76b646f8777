"""`grokfast train TASK`: train one run of a task, one of the lab's or the user's own."""

from __future__ import annotations

import argparse
from functools import partial

from grokfast.lab.commands.common import add_output_flags, add_runs_dir, finish, resume_flags
from grokfast.lab.commands.flags import add_task_options, first_line, first_word, list_names, request_from
from grokfast.lab.commands.terminal import train_watched
from grokfast.lab.runs.directory import Run

HELP = "train one run of a task"


def add(parser: argparse.ArgumentParser) -> None:
    task = first_word(parser)
    parser.usage = f"grokfast train {task or 'TASK'} [flags]"
    parser.add_argument("task", metavar="TASK", help="name of a task, or FILE.py:CLASS for one of your own")
    if task is None:
        explain_tasks(parser)
        return
    add_runs_dir(parser)
    add_output_flags(parser)
    add_task_options(parser, task)


def explain_tasks(parser: argparse.ArgumentParser) -> None:
    """List the tasks in the help; flags without a task are refused, as they depend on it."""
    flag = next(iter(parser.get_default("words")[1:]), None)
    if flag not in (None, "-h", "--help"):
        raise ValueError(f"TASK must come before the flags, got {flag}: grokfast train TASK {flag} ...")
    from grokfast.lab.tasks import TASKS

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    tasks = list_names("tasks", {name: first_line(kind) for name, kind in TASKS.items()})
    parser.epilog = f"{tasks}\n\nThe flags of a task: grokfast train TASK --help"


def run(args: argparse.Namespace) -> int:
    from grokfast.lab.request import resolve
    from grokfast.lab.runs.writer import run_path
    from grokfast.lab.training.train import refuse_unfinished, train

    config = resolve(request_from(args, args.task))
    known = Run(run_path(config, args.runs_dir))
    if known.path.exists():
        refuse_unfinished(config, args.runs_dir, resume_flags(known, args.runs_dir))
    is_done, quiet = known.status == "complete", args.quiet or args.json
    begin = partial(train, config, args.runs_dir, command=["grokfast", *args.words])
    events = known.path / "tensorboard" if args.tensorboard else None
    outcome = train_watched(begin, known.name, config.loop.steps, quiet=quiet, events=events)
    if is_done and not quiet:
        print(f"this configuration is complete already: grokfast show {known.name}")
    return finish(args, outcome)
