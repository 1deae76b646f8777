"""`grokfast demo`: the paper's first figure, in about two minutes."""

from __future__ import annotations

import argparse

from grokfast.lab.commands.common import add_out, add_runs_dir, check_out, show
from grokfast.lab.commands.reproduce import results_table
from grokfast.lab.commands.terminal import result_line, train_next
from grokfast.lab.compare.headline import headline
from grokfast.lab.paper.experiments import demo_configs
from grokfast.lab.report import write_demo
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.writer import run_path


def add(parser: argparse.ArgumentParser) -> None:
    add_runs_dir(parser, "demo/runs")
    add_out(parser, "demo/index.html", "the page; a picture is put beside it")
    parser.add_argument("--quick", action="store_true", help="train a few steps only, to see that it works")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(args: argparse.Namespace) -> int:
    check_out(args.out)
    runs: list[Run] = []
    for config in demo_configs(quick=args.quick):
        runs.append(train_next(config, args.runs_dir, run_path(config, args.runs_dir).name, args))
        if not args.quiet:
            print(result_line(runs[-1]), flush=True)
    page, picture = write_demo(runs, args.out)
    table = results_table(runs, "steps to level", "lies in", "stays there from", "paper")
    table.title = "steps until the validation accuracy is 0.95"
    show(table, headline(runs), f"Open {page} (curves also in {picture}).")
    return 0
