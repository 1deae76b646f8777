"""`grokfast runs`: list all runs of a directory."""

from __future__ import annotations

import argparse
import json

from rich.table import Table

from grokfast.lab.commands.common import add_json, add_runs_dir, drop_unreadable, show
from grokfast.lab.runs.describe import cell, describe
from grokfast.lab.runs.directory import Run, load_runs


def add(parser: argparse.ArgumentParser) -> None:
    add_runs_dir(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    runs = drop_unreadable(load_runs(args.runs_dir))
    if args.json:
        print(json.dumps([describe(run) for run in runs], indent=1))
    elif not runs:
        print(f"no runs in {args.runs_dir}")
    else:
        show(runs_table(runs))
    return 0


def runs_table(runs: list[Run]) -> Table:
    """One line per run: progress, last accuracies, best loss, first crossing without its interval, seconds."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("run", overflow="fold", min_width=12)
    for column in ("status", "step", "train", "val", "loss", "first", "sec"):
        table.add_column(column, no_wrap=True, justify="left" if column == "status" else "right")
    for run in runs:
        d = describe(run)
        first = d["first"] and d["first"].split(" (")[0]
        values = (d["train_accuracy"], d["val_accuracy"], d["best_val_loss"], first)
        table.add_row(d["name"], d["status"], f"{d['step']:,}", *map(cell, values), f"{d['seconds']:.0f}")
    return table
