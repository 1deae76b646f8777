"""`grokfast compare RUN RUN`: the settings in which runs differ, and their results."""

from __future__ import annotations

import argparse
import json

from rich.table import Table

from grokfast.lab.commands.common import add_json, add_runs_dir, show
from grokfast.lab.config import flatten
from grokfast.lab.runs.describe import cell, describe
from grokfast.lab.runs.directory import Run, find_run

RESULTS = ("status", "step", "first", "stable", "val_accuracy", "best_val_loss", "seconds")


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="+", metavar="RUN", help="names of runs, or the beginnings of their names")
    add_runs_dir(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    runs = [find_run(name, args.runs_dir) for name in args.names]
    if args.json:
        print(json.dumps([{**describe(run), "config": run.settings, "summary": run.summary} for run in runs], indent=1))
    else:
        show(comparison_table(runs))
    return 0


def comparison_table(runs: list[Run]) -> Table:
    """A column per run: first the settings that differ, then the results."""
    table = Table("", title="settings that differ, and results")
    for run in runs:
        table.add_column(run.name, overflow="fold")
    flat = [flatten(run.settings) for run in runs]
    for name in dict.fromkeys(name for settings in flat for name in settings):
        values = [settings.get(name) for settings in flat]
        if any(value != values[0] for value in values):
            table.add_row(name, *map(cell, values))
    table.add_section()
    described = [describe(run) for run in runs]
    for name in RESULTS:
        table.add_row(name, *(cell(found[name]) for found in described))
    return table
