"""`grokfast leaderboard [RUNS ...]`: add runs to the archive, and write the leaderboard from it."""

from __future__ import annotations

import argparse
from pathlib import Path

from grokfast.lab.commands.common import add_out, drop_unreadable
from grokfast.lab.config import find_optimizer
from grokfast.lab.report.leaderboard import counts, leaderboard_page
from grokfast.lab.runs.archive import archive_run
from grokfast.lab.runs.directory import RunError, load_runs
from grokfast.lab.runs.files import write_atomically


def add(parser: argparse.ArgumentParser) -> None:
    help = "directories of runs to add: complete runs of the leaderboard's setup are archived, except the tuning seed"
    parser.add_argument("folders", nargs="*", type=Path, metavar="RUNS", help=help)
    help = "directory of the archive (default: results)"
    parser.add_argument("--results", type=Path, default=Path("results"), metavar="DIR", help=help)
    help = "an optimizer by path that entries use: code is loaded only if you name it; repeatable"
    parser.add_argument("--optimizer", action="append", default=[], metavar="PACKAGE:CLASS", help=help)
    add_out(parser, "docs/leaderboard.md", "the page")


def run(args: argparse.Namespace) -> int:
    for name in args.optimizer:
        find_optimizer(name)
    for folder in args.folders:
        if not folder.is_dir():
            raise RunError(f"a directory of runs must exist, got {folder}")
        added = [archive_run(run, args.results) for run in drop_unreadable(load_runs(folder)) if counts(run)]
        print(f"archived: {len(added)} runs of {folder}")
    page = leaderboard_page(drop_unreadable(load_runs(args.results)))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(args.out, page.encode())
    print(f"written: {args.out}")
    return 0
