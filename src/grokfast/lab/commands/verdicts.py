"""`grokfast verdicts [DUEL ...]`: keep the outcomes of duels, and write a page about all that are kept."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from grokfast.lab.commands.common import add_out
from grokfast.lab.duel.outcome import FILE, load_outcome, load_outcomes
from grokfast.lab.report.draw_matplotlib import draw
from grokfast.lab.report.duels import OVERVIEW, duel_plot, overview_plot, verdicts_page
from grokfast.lab.runs.directory import RunError
from grokfast.lab.runs.files import write_atomically


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("duels", nargs="*", type=Path, metavar="DUEL", help="directories of duels to add")
    help = "directory of the outcomes that are kept (default: results/verdicts)"
    parser.add_argument("--results", type=Path, default=Path("results/verdicts"), metavar="DIR", help=help)
    add_out(parser, "docs/verdicts.md", "the page; pictures are put in figures/ beside it")


def run(args: argparse.Namespace) -> int:
    for folder in args.duels:
        keep(folder, args.results)
    found = load_outcomes(args.results)
    figures = args.out.parent / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    plots = {name: duel_plot(*outcome) for name, outcome in found.items()}
    plots |= {OVERVIEW: overview_plot(found)} if found else {}
    pictures = {name: draw([plot], figures / f"duel-{name}.png") for name, plot in plots.items()}
    relative = {name: path.relative_to(args.out.parent) for name, path in pictures.items()}
    write_atomically(args.out, verdicts_page(found, relative).encode())
    print(f"written: {args.out}, {len(found)} duels")
    return 0


def keep(folder: Path, results: Path) -> None:
    """Copy the outcome of a duel to those that are kept, under the name of its directory."""
    if not (folder / FILE).exists():
        raise RunError(f"{folder} must be the directory of a duel that has a verdict: {folder / FILE} is missing")
    load_outcome(folder / FILE)  # a file that cannot be read must not be kept: it would spoil every later page
    results.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(folder / FILE, results / f"{folder.resolve().name}.json")
