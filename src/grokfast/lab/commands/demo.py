"""`grokfast demo`: the paper's first figure, in about two minutes."""

from __future__ import annotations

import argparse

from grokfast.lab.commands.common import add_out, add_runs_dir, make_table, show
from grokfast.lab.commands.terminal import train_next
from grokfast.lab.paper import demo_settings, find_arm
from grokfast.lab.report import write_demo
from grokfast.lab.runs.directory import Run
from grokfast.lab.settings import name_of
from grokfast.lab.tables import steps_of
from grokfast.playground import write_page

HEADINGS = ("run", "steps to 95%", "between evaluations", "paper")


def add(parser: argparse.ArgumentParser) -> None:
    add_runs_dir(parser, "demo/runs")
    add_out(
        parser, "demo/index.html", "the page; its folder also gets a picture and the playground", endings=(".html",)
    )
    parser.add_argument("--quick", action="store_true", help="train a few steps only, to see that it works")
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(args: argparse.Namespace) -> int:
    runs = [
        train_next(settings, args.runs_dir, name_of(settings), args) for settings in demo_settings(quick=args.quick)
    ]
    playground = args.out.with_name("playground.html")
    page, picture = write_demo(runs, args.out, playground=playground.name)
    write_page(playground)
    table = make_table(HEADINGS, map(line_of, runs), right=HEADINGS[1:])
    show(table, f"Open {page} (its picture is also in {picture}).")
    return 0


def line_of(run: Run) -> list[str]:
    first, arm = run.crossing(), find_arm(run.experiment)
    between = "" if first.step is None else f"{first.after:,} and {first.step:,}"
    return [run.name, str(steps_of(run)), between, "" if arm is None else arm.steps_text]
