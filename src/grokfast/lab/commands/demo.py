"""`grokfast demo`: the paper's first figure, in about two minutes."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grokfast.lab.commands.common import add_runs_dir, result_line, show
from grokfast.lab.commands.terminal import INTERRUPTED, complain, train_watched

if TYPE_CHECKING:
    from rich.table import Table

    from grokfast.lab.runs.directory import Run

HELP = "see grokking, with and without the filter, in about two minutes"


def add(parser: argparse.ArgumentParser) -> None:
    add_runs_dir(parser, "demo/runs")
    help = "the page; a picture is put beside it (default: demo/index.html)"
    parser.add_argument("-o", "--out", type=Path, default=Path("demo/index.html"), metavar="FILE", help=help)
    parser.add_argument("--quick", action="store_true", help="train a few steps only, to see that it works")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(args: argparse.Namespace) -> int:
    from grokfast.lab.paper.experiments import demo_configs
    from grokfast.lab.runs.writer import run_path
    from grokfast.lab.training.train import train

    runs: list[Run] = []
    for config in demo_configs(quick=args.quick):
        begin = partial(train, config, args.runs_dir, command=["grokfast", *args.words])
        name = run_path(config, args.runs_dir).name
        outcome = train_watched(begin, name, config.loop.steps, quiet=args.quiet)
        if not outcome.complete:
            complain("stopped: the same command continues from here")
            return INTERRUPTED
        if not args.quiet:
            print(result_line(outcome.run), flush=True)
        runs.append(outcome.run)
    from grokfast.lab.compare.headline import headline
    from grokfast.lab.report import write_report

    page, picture = write_report(runs, args.out)
    show(steps_table(runs), headline(runs), f"Open {page} (curves also in {picture}).")
    return 0


def steps_table(runs: list[Run]) -> Table:
    from rich.table import Table

    from grokfast.lab.compare.results import result

    shown = ("run", "steps to level", "lies in", "stays there from", "paper")
    table = Table(*shown, title="steps until the validation accuracy is 0.95")
    for run in runs:
        found = result(run)
        table.add_row(*(found[name] for name in shown))
    return table
