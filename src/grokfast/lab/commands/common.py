"""What several commands need: which runs are meant, and how to say something."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from grokfast.lab.compare.results import sort_out
from grokfast.lab.runs.directory import Run, RunError, find_run, load_runs
from grokfast.lab.commands.terminal import complain

INTERRUPTED = 130
console = Console()


def say(args: argparse.Namespace, message: str) -> None:
    if not args.quiet and not args.json:
        print(message, flush=True)


def where(args: argparse.Namespace) -> str:
    return "" if str(args.runs_dir) == "runs" else f" --runs-dir {args.runs_dir}"


def chosen_runs(args: argparse.Namespace) -> list[Run]:
    """The runs that were named, by name, path or folder of runs; all where none was."""
    found: list[Run] = []
    for name in args.names or [str(args.runs_dir)]:
        folder = Path(name).is_dir() and not (Path(name) / "config.json").exists()
        found += load_runs(name) if folder else [find_run(name, args.runs_dir)]
    if not found:
        raise RunError(f"there are no runs in {', '.join(args.names) or args.runs_dir}")
    return found


def readable(runs: list[Run]) -> list[Run]:
    """Those that can be shown; of each other one a line is said."""
    kept, lost = sort_out(runs)
    for line in lost:
        complain(line)
    return kept
