"""`grokfast results`: the runs beside the paper's numbers, as Markdown."""

from __future__ import annotations

import argparse
from pathlib import Path

from grokfast.lab.commands.common import add_level, add_runs_dir, drop_unreadable
from grokfast.lab.compare.seeds import check_level
from grokfast.lab.report import write_figures
from grokfast.lab.report.markdown import other_runs, put_between, results_page, summary_table, table_runs
from grokfast.lab.runs.directory import Run, RunError, load_runs
from grokfast.lab.runs.files import write_atomically


def add(parser: argparse.ArgumentParser) -> None:
    help = "directories of runs (default: --runs-dir)"
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", help=help)
    add_runs_dir(parser)
    add_level(parser)
    help = "write the tables to this Markdown file, and figures beside it (default: print the tables)"
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help=help)
    help = "put a short table between the two marks of this Markdown file"
    parser.add_argument("--summary", type=Path, metavar="FILE", help=help)


def run(args: argparse.Namespace) -> int:
    runs = load_judged(args.folders or [args.runs_dir], args.level)
    if not table_runs(runs):
        raise RunError("there is no complete run of the paper's experiments: grokfast reproduce --list")
    if args.summary is not None:
        page = put_between(args.summary.read_text(encoding="utf-8"), summary_table(runs))
        write_atomically(args.summary, page.encode())
        print(f"written: {args.summary}")
    if args.out is not None:
        folder = args.out.parent / "figures"
        drawn = write_figures(table_runs(runs), folder, "png", also=other_runs(runs), level=args.level)
        page = results_page(runs, [path.relative_to(args.out.parent) for path in drawn])
        write_atomically(args.out, page.encode())
        print(f"written: {args.out}, figures in {folder}")
    elif args.summary is None:
        print(results_page(runs))
    return 0


def load_judged(folders: list[Path], level: float | None) -> list[Run]:
    """All readable runs, each judged at the level that was asked for."""
    for folder in folders:
        if not folder.is_dir():
            raise RunError(f"a directory of runs must exist, got {folder}")
    runs = drop_unreadable([run for folder in folders for run in load_runs(folder)])
    if level is None:
        return runs
    check_level(level, [run.measure for run in runs])
    return [run.judged_at(level) for run in runs]
