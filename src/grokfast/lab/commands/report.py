"""`grokfast report`: a page about runs, and their curves as a picture."""

from __future__ import annotations

import argparse
from pathlib import Path

from grokfast.lab.commands.common import add_level, add_runs_dir, check_level, chosen_runs

HELP = "write a page about runs, and their curves as a picture"


def add(parser: argparse.ArgumentParser) -> None:
    help = "names of runs, or directories of runs (default: all runs)"
    parser.add_argument("names", nargs="*", metavar="RUN", help=help)
    add_runs_dir(parser)
    add_level(parser)
    help = "the page; the picture is put beside it (default: report.html)"
    parser.add_argument("-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help=help)


def run(args: argparse.Namespace) -> int:
    runs = chosen_runs(args)
    check_level(args.level, runs)
    from grokfast.lab.report import write_report

    page, picture = write_report(runs, args.out, level=args.level)
    print(f"written: {page} and {picture}")
    return 0
