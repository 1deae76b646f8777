"""`grokfast runs`: list the runs of a directory."""

from __future__ import annotations

import argparse
import json
from typing import Any, get_args

from rich.table import Table

from grokfast.lab.commands.common import add_json, add_runs_dir, drop_unreadable, make_table, show
from grokfast.lab.runs.describe import State, cell, describe
from grokfast.lab.runs.directory import load_runs

COLUMNS = {  # of the table, and what they hold of a description
    "run": "name",
    "status": "status",
    "step": "step",
    "train": "train_accuracy",
    "val": "val_accuracy",
    "loss": "best_val_loss",
    "first": "first",
    "sec": "seconds",
}


def add(parser: argparse.ArgumentParser) -> None:
    add_runs_dir(parser)
    parser.add_argument("--filter", metavar="NAME|none", help="only runs with this filter, or without one")
    parser.add_argument("--status", choices=get_args(State), help="only runs of this status")
    parser.add_argument("--sort", choices=tuple(COLUMNS), help="sort by this column (default: the oldest first)")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    wanted = [run for run in drop_unreadable(load_runs(args.runs_dir)) if args.filter in (None, run.filter or "none")]
    found = [each for each in map(describe, wanted) if args.status in (None, each["status"])]
    if args.sort:
        found.sort(key=lambda each: sort_key(each[COLUMNS[args.sort]]))
    if args.json:
        print(json.dumps(found, indent=1))
    elif not found:
        print(f"no {'such ' if args.filter or args.status else ''}runs in {args.runs_dir}")
    else:
        show(runs_table(found))
    return 0


def sort_key(value: Any) -> tuple[int, Any]:
    """Numbers by size and words by letters; a level that was never reached comes after, and what is not known last.

    >>> sorted([None, "> 30", "1,200 (after 1,100)", "400 (after 300)"], key=sort_key)
    ['400 (after 300)', '1,200 (after 1,100)', '> 30', None]
    """
    if value is None:
        return 2, 0
    digits = str(value).split(" (")[0].removeprefix("> ").replace(",", "")
    if isinstance(value, str) and digits.isdigit():
        return int(value.startswith(">")), int(digits)
    return 0, value


def runs_table(found: list[dict[str, Any]]) -> Table:
    """One line per run: progress, last accuracies, best loss, first crossing without its interval, seconds."""
    rows: list[list[str]] = []
    for d in found:
        first = d["first"] and d["first"].split(" (")[0]
        values = map(cell, (d["train_accuracy"], d["val_accuracy"], d["best_val_loss"], first))
        rows.append([d["name"], d["status"], f"{d['step']:,}", *values, f"{d['seconds']:.0f}"])
    table = make_table(COLUMNS, rows, right=COLUMNS.keys() - {"run", "status"}, whole=COLUMNS.keys() - {"run"})
    table.columns[0].min_width = 12
    return table
