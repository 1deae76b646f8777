"""`grokfast train TASK`: train one run of a task, one of the lab's or the user's own."""

from __future__ import annotations

import argparse
from functools import partial

from grokfast.lab.commands.common import add_runs_dir, resume_command
from grokfast.lab.commands.flags import add_task, add_task_options, request_from
from grokfast.lab.commands.terminal import add_output_flags, train_one
from grokfast.lab.request import resolve
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.writer import run_path
from grokfast.lab.training.train import train


def add(parser: argparse.ArgumentParser) -> None:
    task = add_task(parser)
    parser.usage = f"grokfast train {task or 'TASK'} [flags]"
    if task is None:
        return
    add_runs_dir(parser)
    add_output_flags(parser)
    add_task_options(parser, task)


def run(args: argparse.Namespace) -> int:
    config = resolve(request_from(args, args.task))
    known = Run(run_path(config, args.runs_dir))
    if known.path.exists() and known.status == "incomplete":
        raise RunError(f"this run was begun and not finished: {resume_command(known, args.runs_dir)}")
    begin = partial(train, config, args.runs_dir, command=["grokfast", *args.words])
    is_done = f"this configuration is complete already: grokfast show {known.name}"
    return train_one(known, begin, config.loop.steps, args, is_done)
