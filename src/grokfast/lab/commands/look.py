"""Commands that look at runs and filters: runs, show, compare, response."""

from __future__ import annotations

import argparse
import json

from rich.table import Table

from grokfast.lab.commands.common import console, readable, where
from grokfast.lab.config import FilterConfig, RunConfig, make_filter, resolve, to_json
from grokfast.lab.commands.flags import pick
from grokfast.lab.runs.metrics import Crossing
from grokfast.lab.runs.recording import recorded_bytes
from grokfast.lab.compare.results import cell, crossing_text, describe, flatten, progress_text, response_table
from grokfast.lab.runs.directory import Run, find_run, load_runs
from grokfast.lab.tasks import TASKS


def command_runs(args: argparse.Namespace) -> int:
    runs = readable(load_runs(args.runs_dir))
    if args.json:
        print(json.dumps([describe(run) for run in runs], indent=1))
    elif not runs:
        print(f"no runs in {args.runs_dir}")
    else:
        console.print(runs_table(runs))
    return 0


def command_show(args: argparse.Namespace) -> int:
    run = find_run(args.name, args.runs_dir)
    if args.json:
        print(json.dumps({**describe(run), "config": to_json(run.config), "summary": run.summary}, indent=1))
        return 0
    table = Table(title=run.name, show_header=False)
    for section, values in to_json(run.config).items():
        for name, value in values.items() if isinstance(values, dict) else []:
            if value not in (None, (), []):
                table.add_row(section, name, str(value))
    if recorded_bytes(run):
        table.add_row("recorded", "megabytes", f"{recorded_bytes(run) / 2**20:,.1f}")
    for name, value in (run.summary or {}).items():
        if name == "crossings":
            for kind, crossing in value.items():
                table.add_row("crossing", kind, crossing_text(Crossing(**crossing)))
        else:
            table.add_row("result", name, f"{value:.6g}" if isinstance(value, float) else str(value))
    console.print(table)
    if run.status == "incomplete":
        print(f"incomplete, {progress_text(run)}: grokfast resume {run.name}{where(args)}")
    return 0


def command_compare(args: argparse.Namespace) -> int:
    runs = [find_run(name, args.runs_dir) for name in args.names]
    if args.json:
        print(json.dumps([{**describe(run), "config": to_json(run.config), "summary": run.summary} for run in runs]))
        return 0
    flat = [flatten(to_json(run.config)) for run in runs]
    keys = dict.fromkeys(key for f in flat for key in f)
    differing = [key for key in keys if len({repr(f.get(key)) for f in flat}) > 1]
    table = Table(title="what differs, and what came of it")
    table.add_column("")
    for run in runs:
        table.add_column(run.name, overflow="fold")
    for key in differing:
        table.add_row(key, *(str(f.get(key)) for f in flat))
    table.add_section()
    described = [describe(run) for run in runs]
    for key in ("status", "step", "first", "stable", "val_accuracy", "best_val_loss", "seconds"):
        table.add_row(key, *(cell(d[key]) for d in described))
    console.print(table)
    return 0


def command_response(args: argparse.Namespace) -> int:
    config = resolve(RunConfig(TASKS["modmul"](), pick(FilterConfig, vars(args)))).filter
    filter = make_filter(config)
    assert filter is not None
    console.print(response_table(filter))
    if args.out is not None:
        from grokfast.lab.report.draw_matplotlib import draw
        from grokfast.lab.report.plots import response_plot

        print(f"written: {draw([response_plot([filter])], args.out)}")
    return 0


def runs_table(runs: list[Run]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("run", overflow="fold", min_width=12)
    for column in ("status", "step", "train", "val", "loss", "first", "sec"):
        table.add_column(column, no_wrap=True, justify="left" if column == "status" else "right")
    for run in runs:
        d = describe(run)
        values = (d["train_accuracy"], d["val_accuracy"], d["best_val_loss"], steps(d["first"]))
        table.add_row(d["name"], d["status"], f"{d['step']:,}", *(cell(v) for v in values), f"{d['seconds']:.0f}")
    return table


def steps(crossing: str | None) -> str | None:
    """A crossing without its interval, where space is short."""
    return crossing and crossing.split(" (")[0]
