"""`grokfast report`: a page about runs and duels; with --figures, every figure of it in a file of its own."""

from __future__ import annotations

import argparse
from pathlib import Path

from grokfast.lab.commands.common import (
    add_chosen_runs,
    add_level,
    add_out,
    chosen_runs,
    complain,
    read_folder,
)


def add(parser: argparse.ArgumentParser) -> None:
    add_chosen_runs(parser)
    add_level(parser)
    add_out(parser, "report.html", "the page", endings=(".html",))
    help = "write each figure to a file in this directory, for papers, instead of the page"
    parser.add_argument("--figures", type=read_folder, metavar="DIR", help=help)
    parser.add_argument("--format", choices=("png", "svg", "pdf"), help="of the figures (default: png)")


def run(args: argparse.Namespace) -> int:
    from grokfast.lab.report import showable_runs, write_figures, write_report  # they need torch, a help text does not
    from grokfast.lab.search.outcome import FILE, load_outcome

    if args.format is not None and args.figures is None:
        raise ValueError(f"--format needs --figures, got {args.format} without it")
    names = list(dict.fromkeys(args.names))
    folders = [Path(name) for name in names if (Path(name) / FILE).is_file()]
    duels = [load_outcome(folder) for folder in folders]
    args.names = [name for name in names if Path(name) not in folders]  # a duel is shown as a whole
    if folders and (args.level is not None or args.figures is not None):
        flag = "--figures" if args.level is None else "--level"
        raise ValueError(f"{flag} is for runs, got the duel {folders[0]}: give its directories of runs instead")
    runs, lost = showable_runs(chosen_runs(args) if args.names or not duels else [])
    for line in lost:
        complain(line)
    if not runs and not duels:
        raise ValueError("none of these runs can be read")
    if args.figures is not None:
        for path in write_figures(runs, args.figures, args.format or "png", level=args.level):
            print(f"written: {path}")
    else:
        page = write_report(runs, args.out, unreadable=lost, level=args.level, duels=duels)
        print(f"written: {page}")
    return int(bool(lost))
