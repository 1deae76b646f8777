"""`grokfast compare RUN RUN`: the settings in which runs differ, and their results."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from grokfast.lab.commands.common import add_runs_dir, show
from grokfast.lab.runs.describe import cell, describe
from grokfast.lab.runs.directory import Run, find_run

if TYPE_CHECKING:
    from rich.table import Table

HELP = "show how runs differ, in settings and in results"
RESULTS = ("status", "step", "first", "stable", "val_accuracy", "best_val_loss", "seconds")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="RUN", help="names of runs, or the beginnings of their names")
    add_runs_dir(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    runs = [find_run(name, args.runs_dir) for name in args.names]
    if args.json:
        print(json.dumps([{**describe(run), "config": run.settings, "summary": run.summary} for run in runs], indent=1))
    else:
        show(comparison_table(runs))
    return 0


def comparison_table(runs: list[Run]) -> Table:
    """A column per run: first the settings that differ, then the results."""
    from rich.table import Table

    from grokfast.lab.config import flatten

    flat = [flatten(run.settings) for run in runs]
    names = dict.fromkeys(name for settings in flat for name in settings)
    table = Table(title="settings that differ, and results")
    table.add_column("")
    for run in runs:
        table.add_column(run.name, overflow="fold")
    for name in names:
        values = [settings.get(name) for settings in flat]
        if any(value != values[0] for value in values):
            table.add_row(name, *map(cell, values))
    table.add_section()
    described = [describe(run) for run in runs]
    for name in RESULTS:
        table.add_row(name, *(cell(found[name]) for found in described))
    return table
