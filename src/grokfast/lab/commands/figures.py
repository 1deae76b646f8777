"""`grokfast figures`: every figure of the page in a file of its own, for papers."""

from __future__ import annotations

import argparse
from pathlib import Path

from grokfast.lab.commands.common import add_level, add_runs_dir, check_level, chosen_runs

HELP = "write every figure of the page to a file of its own, for papers"


def add(parser: argparse.ArgumentParser) -> None:
    help = "names of runs, or directories of runs (default: all runs)"
    parser.add_argument("names", nargs="*", metavar="RUN", help=help)
    add_runs_dir(parser)
    add_level(parser)
    help = "directory of the files (default: figures)"
    parser.add_argument("-o", "--out", type=Path, default=Path("figures"), metavar="DIR", help=help)
    parser.add_argument("--format", choices=("png", "svg", "pdf"), default="png", help="default: png")


def run(args: argparse.Namespace) -> int:
    runs = chosen_runs(args)
    check_level(args.level, runs)
    from grokfast.lab.report import write_figures

    for path in write_figures(runs, args.out, args.format, level=args.level):
        print(f"written: {path}")
    return 0
