"""`grokfast show RUN`: the configuration of a run, and its results."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

from rich.table import Table

from grokfast.lab.commands.common import RUN_NAME, add_json, add_runs_dir, resume_command, show
from grokfast.lab.runs.describe import crossing_text, describe, progress_text, recorded_bytes
from grokfast.lab.runs.directory import Run, find_run
from grokfast.lab.runs.metrics import Crossing


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help=RUN_NAME)
    add_runs_dir(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    run = find_run(args.name, args.runs_dir)
    if args.json:
        print(json.dumps({**describe(run), "config": run.settings, "summary": run.summary}, indent=1))
        return 0
    table = Table(title=run.name, show_header=False)
    for line in lines_of(run):
        table.add_row(*line)
    show(table)
    if run.status == "incomplete":
        print(f"incomplete, {progress_text(run)}: {resume_command(run, args.runs_dir)}")
    return 0


def lines_of(run: Run) -> Iterator[tuple[str, str, str]]:
    """Every setting that has a value, by the part of the configuration that it belongs to; then the results."""
    for part, values in run.settings.items():
        for name, value in values.items() if isinstance(values, dict) else [("", values)]:
            if value not in (None, []) and part != "version":
                yield part, name, str(value)
    if size := recorded_bytes(run):
        yield "recorded", "megabytes", f"{size / 2**20:,.1f}"
    for name, value in (run.summary or {}).items():
        if name == "crossings":
            yield from (("crossing", kind, crossing_text(Crossing(**found))) for kind, found in value.items())
        else:
            yield "result", name, f"{value:.6g}" if isinstance(value, float) else str(value)
