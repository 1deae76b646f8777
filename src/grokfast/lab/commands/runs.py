"""`grokfast runs`: list the runs of a directory; `grokfast runs RUN` shows one, `grokfast runs RUN RUN` compares."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator
from typing import Any, get_args

from grokfast.lab.commands.common import (
    add_json,
    add_runs_dir,
    cell,
    drop_unreadable,
    make_table,
    resume_command,
    show,
)
from grokfast.lab.runs.directory import Run, Status, find_run, load_runs
from grokfast.lab.runs.metrics import Kind
from grokfast.lab.tables import row_of

COLUMNS = {  # of the list, and the keys of a row that they show
    "run": "name",
    "status": "status",
    "step": "step",
    "train": "final_train_accuracy",
    "val": "final_val_accuracy",
    "loss": "best_val_loss",
    "first": "first",
    "sec": "seconds",
}
NARROW = {"run": "hash", "task": "task", "method": "method", "lr": "lr", "seed": "seed"}  # instead of names
KINDS: tuple[Kind, ...] = ("first", "held", "stable")
RESULTS = ("status", "step", *KINDS, "final_val_accuracy", "best_val_loss", "seconds")


def add(parser: argparse.ArgumentParser) -> None:
    help = "name or hash of a run, or the beginning of one, to show; several to compare"
    parser.add_argument("names", nargs="*", metavar="RUN", help=help)
    add_runs_dir(parser)
    parser.add_argument("--filter", metavar="NAME|none", help="only runs with this filter, or without one")
    parser.add_argument("--status", choices=get_args(Status), help="only runs of this status")
    parser.add_argument("--sort", choices=tuple(COLUMNS), help="sort by this column (default: the oldest first)")
    add_json(parser)
    parser.add_argument("--csv", action="store_true", help="print comma-separated values: settings and results")


def run(args: argparse.Namespace) -> int:
    named = [find_run(name, args.runs_dir) for name in args.names]
    runs, code = drop_unreadable(named or load_runs(args.runs_dir), large=bool(named))
    runs = [run for run in runs if args.filter in (None, run.settings["filter"] or "none")]
    runs = [run for run in runs if args.status in (None, run.status)]
    rows = [row_of(run) for run in runs]
    if args.sort:
        order = sorted(range(len(rows)), key=lambda i: sort_key(rows[i], COLUMNS[args.sort]))
        runs, rows = [runs[i] for i in order], [rows[i] for i in order]
    if args.json:
        print(json.dumps(rows, indent=1))
    elif args.csv:
        names = list(dict.fromkeys(name for row in rows for name in row))
        writer = csv.DictWriter(sys.stdout, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    elif not rows:
        if code == 0:  # else it was said why there are none
            print(f"no {'such ' if args.filter or args.status else ''}runs in {args.runs_dir}")
    elif len(args.names) == 1:
        show_one(runs[0], args)
    elif named:
        show(comparison_table(runs))
    else:
        show_list(rows)
    return code


# In words ------------------------------------------------------------------------------------------------------------


def sort_key(row: dict[str, Any], name: str) -> tuple[int, Any]:
    """Numbers by size and words by letters, then levels that were not reached, then missing values."""
    if row[name] is not None:
        return 0, row[name]
    return (1, row.get(f"{name}_after", 0)) if row["status"] in ("complete", "diverged") else (2, 0)


def crossing_text(row: dict[str, Any], kind: str) -> str:
    """A crossing with its interval, or the last step without one.

    >>> rows = {"first": 910, "first_after": 900}, {"first": None, "first_after": 50}
    >>> [crossing_text(row, "first") for row in rows]
    ['910 (after 900)', '> 50']
    """
    step, after = row[kind], row[f"{kind}_after"]
    return f"> {after:,}" if step is None else f"{step:,} (after {after:,})"


def result_line(run: Run) -> str:
    """The result of a run that is done, in one line."""
    row = row_of(run)
    parts = ["diverged"] if run.status == "diverged" else []
    if row["final_val_accuracy"] is None:
        parts.append(f"best validation loss {cell(row['best_val_loss'])}")
    else:
        parts.append(f"validation accuracy {row['final_val_accuracy']:.4f}")
    parts += [f"first at {row['level']:g}: {crossing_text(row, 'first')}", f"stable: {crossing_text(row, 'stable')}"]
    return f"{run.name}: {', '.join(parts)}, {row['seconds']:.1f} s"


# Tables ---------------------------------------------------------------------------------------------------------------


def show_list(rows: list[dict[str, Any]]) -> None:
    """One line per run. In a terminal that is too narrow for the names, the hash stands for a run."""
    table = list_table(rows, COLUMNS)
    if is_too_wide(table):
        shared = {name: key for name, key in COLUMNS.items() if name not in ("run", "train", "loss", "sec")}
        table = list_table(rows, {**NARROW, **shared})
    show(table)


def is_too_wide(table: Any) -> bool:
    """Whether the terminal would break the words of a table."""
    from rich.console import Console

    return sys.stdout.isatty() and Console(width=10_000).measure(table).maximum > Console().width


def list_table(rows: list[dict[str, Any]], columns: dict[str, str]) -> Any:
    lines: list[list[str]] = []
    for row in rows:
        first = f"> {row['first_after']:,}" if row["first"] is None else f"{row['first']:,}"
        method = row["optimizer"] + (f"+{row['filter']}" if row["filter"] else "")
        shown = {**row, "hash": row["name"].rpartition("-")[2], "method": method, "seconds": round(row["seconds"])}
        shown["first"] = first if row["step"] else None
        lines.append([cell(shown[key]) for key in columns.values()])
    words = {"run", "status", "task", "method"}
    return make_table(columns, lines, right=columns.keys() - words, whole=columns.keys())


def show_one(run: Run, args: argparse.Namespace) -> None:
    table = make_table(["setting", "value"], lines_of(run))
    if is_too_wide(table):  # the name, mostly: in a line of its own the terminal wraps it
        show(run.name)
        table = make_table(["setting", "value"], [line for line in lines_of(run) if line[0] != "run"])
    show(table)
    if not run.done:
        print(f"{run.status}, step {row_of(run)['step']:,}: {resume_command(run, args.runs_dir)}")


def lines_of(run: Run) -> Iterator[tuple[str, str]]:
    """Every setting that has a value, then the results."""
    yield "run", run.name
    for name, value in run.settings.items():
        if value not in (None, []):
            yield name, str(value)
    yield "experiment", run.experiment
    row = row_of(run)
    for name in RESULTS:
        yield name, crossing_text(row, name) if name in KINDS else cell(row[name])
    for name, value in (run.summary or {}).items():
        if name not in row and name != "crossings":
            yield name, f"{value:.6g}" if isinstance(value, float) else str(value)


def comparison_table(runs: list[Run]) -> Any:
    """A column per run: first the settings that differ, then the results. Hashes stand for names that are too long."""
    rows = [row_of(run) for run in runs]
    lines: list[list[str]] = []
    for name in dict.fromkeys(name for run in runs for name in run.settings):
        values = [run.settings.get(name) for run in runs]
        if any(value != values[0] for value in values):
            lines.append([name, *map(cell, values)])
    for name in RESULTS:
        lines.append([name, *(crossing_text(row, name) if name in KINDS else cell(row[name]) for row in rows)])
    table = make_table(["", *(run.name for run in runs)], lines)
    short = [run.name.rpartition("-")[2] for run in runs]
    return make_table(["", *short], lines) if is_too_wide(table) else table
