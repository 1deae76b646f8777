"""`grokfast results`: the runs beside the paper's numbers, as Markdown."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from grokfast.lab.commands.common import add_level, add_runs_dir, complain, drop_unreadable
from grokfast.lab.compare.evidence import missing, missing_costs
from grokfast.lab.compare.results import comparable_runs
from grokfast.lab.compare.seeds import check_level
from grokfast.lab.duel.outcome import load_outcomes
from grokfast.lab.paper.published import find_arm
from grokfast.lab.report import evidence
from grokfast.lab.report.draw_matplotlib import draw
from grokfast.lab.report.markdown import put_between
from grokfast.lab.report.pictures import Picture
from grokfast.lab.report.results import results_page, summary_block
from grokfast.lab.report.results_pictures import results_plots
from grokfast.lab.report.when import Outcomes
from grokfast.lab.request import request_line
from grokfast.lab.runs.directory import Run, RunError, load_runs
from grokfast.lab.runs.files import write_atomically

FIGURES = "figures"  # beside the page
COSTS = "costs"  # below a directory of runs: those made to measure time and memory
VERDICTS = "verdicts"  # below it: outcomes of duels


def add(parser: argparse.ArgumentParser) -> None:
    help = f"directories of runs (default: --runs-dir); runs that measure costs are in DIR/{COSTS}"
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", help=help)
    add_runs_dir(parser)
    add_level(parser)
    help = "write the page to this Markdown file, and figures beside it (default: print the page)"
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help=help)
    help = "write the short answer and a table between the two marks of this Markdown file"
    parser.add_argument("--summary", type=Path, metavar="FILE", help=help)
    help = f"write the numbers that `demo` and `suggest` use, from runs and duels in DIR/{VERDICTS}, to this JSON file"
    parser.add_argument("--evidence", type=Path, metavar="FILE", help=help)
    help = "only print the commands of the planned runs that are missing, the most important first"
    parser.add_argument("--missing", action="store_true", help=help)


def run(args: argparse.Namespace) -> int:
    folders = args.folders or [args.runs_dir]
    runs, costs = load_judged(folders, args.level), load_costs(folders)
    if args.missing:
        for request in (*missing(runs), *missing_costs(costs)):
            print(request_line(request))
        return 0
    if not any(find_arm(run.settings) for run in runs):
        raise RunError("there is no complete run of the paper's experiments: grokfast reproduce --list")
    if args.summary is not None:
        page = put_between(args.summary.read_text(encoding="utf-8"), summary_block(runs, load_kept(folders)))
        write_atomically(args.summary, page.encode())
        print(f"written: {args.summary}")
    if args.evidence is not None:
        write_evidence(runs, folders, args.evidence)
    if args.out is not None:
        write_page(runs, costs, args.out)
    elif args.summary is None and args.evidence is None:
        print(results_page(runs, costs=costs))
    return 0


def write_evidence(runs: list[Run], folders: list[Path], out: Path) -> None:
    found = evidence.gather(runs, load_kept(folders).values())
    if found is None:
        raise RunError("there is no run of the paper's baseline that has reached its level: grokfast reproduce fig1")
    write_atomically(out, evidence.to_text(found).encode())
    print(f"written: {out}")


def write_page(runs: list[Run], costs: list[Run], out: Path) -> None:
    plots, folder = results_plots(runs), out.parent / FIGURES
    folder.mkdir(parents=True, exist_ok=True)
    for plot in plots:
        draw([plot], folder / f"{plot.name}.png")
    write_atomically(out, page_with(plots, runs, costs, out.parent).encode())
    print(f"written: {out}, figures in {folder}")
    page = out.read_text(encoding="utf-8")
    for path in sorted(folder.glob("*.png")):
        if not path.name.startswith("duel-") and path.name not in page:
            complain(f"{path} is on the page no longer: remove it, unless it is yours")


def page_with(plots: Sequence[Picture], runs: list[Run], costs: list[Run], place: Path) -> str:
    """The page for the directory `place`, with the pictures below it."""
    return results_page(runs, [Path(FIGURES) / f"{plot.name}.png" for plot in plots], costs=costs, place=place)


def load_judged(folders: list[Path], level: float | None) -> list[Run]:
    """All readable runs, each judged at the level that was asked for."""
    for folder in folders:
        if not folder.is_dir():
            raise RunError(f"a directory of runs must exist, got {folder}")
    runs = drop_unreadable([run for folder in folders for run in by_name(folder)], comparable_runs)
    if level is None:
        return runs
    check_level(level, [run.measure for run in runs])
    return [run.judged_at(level) for run in runs]


def load_costs(folders: list[Path]) -> list[Run]:
    return drop_unreadable([run for folder in folders for run in by_name(folder / COSTS)], comparable_runs)


def load_kept(folders: list[Path]) -> Outcomes:
    """The outcomes of duels that are kept below these directories."""
    return {name: found for folder in folders for name, found in load_outcomes(folder / VERDICTS).items()}


def by_name(folder: Path) -> list[Run]:
    """The runs of a directory: the dates of files differ from one checkout to another."""
    return sorted(load_runs(folder), key=lambda run: run.name)
