"""`grokfast report`: a page about runs and duels, and their curves as a picture."""

from __future__ import annotations

import argparse
from pathlib import Path

from grokfast.lab.commands.common import add_chosen_runs, add_level, add_out, check_out, chosen_runs
from grokfast.lab.duel.outcome import FILE, load_outcome
from grokfast.lab.report import write_report


def add(parser: argparse.ArgumentParser) -> None:
    add_chosen_runs(parser)
    add_level(parser)
    add_out(parser, "report.html", "the page; the picture is put beside it")


def run(args: argparse.Namespace) -> int:
    check_out(args.out)
    duels = [load_outcome(path) for name in args.names if (path := Path(name) / FILE).is_file()]
    page, picture = write_report(chosen_runs(args), args.out, level=args.level, duels=duels)
    print(f"written: {page} and {picture}")
    return 0
