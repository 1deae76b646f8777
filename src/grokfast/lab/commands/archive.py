"""`grokfast archive RUN -o results`: slim copies of complete runs, to keep as evidence."""

from __future__ import annotations

import argparse

from grokfast.lab.commands.common import add_chosen_runs, add_out, chosen_runs, complain, drop_unreadable
from grokfast.lab.runs.archive import archive_run


def add(parser: argparse.ArgumentParser) -> None:
    add_chosen_runs(parser)
    add_out(parser, "results", "directory of the copies; those that are there are left alone", "DIR")


def run(args: argparse.Namespace) -> int:
    for run in drop_unreadable(chosen_runs(args)):
        if run.status == "complete":
            print(f"archived: {archive_run(run, args.out)}")
        else:
            complain(f"{run.name} is left out: it is not complete")
    return 0
