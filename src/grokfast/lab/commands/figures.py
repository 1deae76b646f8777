"""`grokfast figures`: every figure of the page in a file of its own, for papers."""

from __future__ import annotations

import argparse

from grokfast.lab.commands.common import add_chosen_runs, add_level, add_out, chosen_runs
from grokfast.lab.report import write_figures


def add(parser: argparse.ArgumentParser) -> None:
    add_chosen_runs(parser)
    add_level(parser)
    add_out(parser, "figures", "directory of the files", metavar="DIR")
    parser.add_argument("--format", choices=("png", "svg", "pdf"), default="png", help="default: png")


def run(args: argparse.Namespace) -> int:
    for path in write_figures(chosen_runs(args), args.out, args.format, level=args.level):
        print(f"written: {path}")
    return 0
