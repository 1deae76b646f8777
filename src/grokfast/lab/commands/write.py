"""Commands that write pages and pictures of runs: report, figures, results."""

from __future__ import annotations

import argparse
from pathlib import Path

from grokfast.lab.commands.common import chosen_runs, readable
from grokfast.lab.runs.directory import RunError, load_runs, write_atomically


def command_report(args: argparse.Namespace) -> int:
    from grokfast.lab.report import write_report

    page, picture = write_report(chosen_runs(args), Path(args.out))
    print(f"written: {page} and {picture}")
    return 0


def command_figures(args: argparse.Namespace) -> int:
    from grokfast.lab.report import write_figures

    for path in write_figures(chosen_runs(args), Path(args.out), args.format):
        print(f"written: {path}")
    return 0


def command_results(args: argparse.Namespace) -> int:
    from grokfast.lab.report.markdown import other_runs, put_between, results_page, summary_table, table_runs

    folders = args.folders or [args.runs_dir]
    for folder in folders:
        if not folder.is_dir():
            raise RunError(f"a folder of runs must exist, got {folder}")
    runs = readable([run for folder in folders for run in load_runs(folder)])
    kept = table_runs(runs)
    if not kept:
        raise RunError("there is no complete run of one of the paper's arms: grokfast train ...")
    if args.summary is not None:
        page = put_between(args.summary.read_text(encoding="utf-8"), summary_table(runs))
        write_atomically(args.summary, page.encode())
        print(f"written: {args.summary}")
    if args.out is None:
        print(results_page(runs))
        return 0
    from grokfast.lab.report import write_figures

    drawn = write_figures(kept, args.out.parent / "figures", "png", also=other_runs(runs))
    write_atomically(args.out, results_page(runs, [path.relative_to(args.out.parent) for path in drawn]).encode())
    print(f"written: {args.out}, pictures in {args.out.parent / 'figures'}")
    return 0
