"""What several commands share: flags, which runs are meant, and how a result is printed."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grokfast.lab.commands.terminal import INTERRUPTED, complain
from grokfast.lab.own_code import is_own_code
from grokfast.lab.runs.describe import cell, describe, progress_text, readable_runs
from grokfast.lab.runs.directory import Run, RunError, find_run, load_runs

if TYPE_CHECKING:
    from grokfast.lab.training.train import Outcome

WIDE = 240  # columns of a table that goes to a file or a pipe: names of runs are not folded there
RUN_NAME = "name of a run, or the beginning of its name"


# Flags --------------------------------------------------------------------------------------------------------------


def add_runs_dir(parser: argparse.ArgumentParser, default: str = "runs") -> None:
    help = f"directory of the runs (default: {default})"
    parser.add_argument("--runs-dir", type=Path, default=Path(default), metavar="DIR", help=help)


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of commands that train one run."""
    group = parser.add_argument_group("Output")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")
    group.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    group.add_argument("--tensorboard", action="store_true", help="also write TensorBoard events")


def add_level(parser: argparse.ArgumentParser) -> None:
    help = "judge all runs at this level (default: each run at its own)"
    parser.add_argument("--level", type=float, metavar="X", help=help)


def check_level(level: float | None, runs: Sequence[Run]) -> None:
    """Raise ValueError where no run can reach a level."""
    if level is None:
        return
    highest = 1.0 if all(run.measure == "accuracy" for run in readable_runs(runs)[0]) else float("inf")
    if not 0 < level <= highest:
        raise ValueError(f"level must be in (0, {highest:g}], got {level:g}")


# Runs ---------------------------------------------------------------------------------------------------------------


def chosen_runs(args: argparse.Namespace) -> list[Run]:
    """The runs that were named, by name, path or directory of runs; all of them where none was."""
    found: list[Run] = []
    for name in args.names or [str(args.runs_dir)]:
        is_folder = Path(name).is_dir() and not (Path(name) / "config.json").exists()
        found += load_runs(name) if is_folder else [find_run(name, args.runs_dir)]
    if not found:
        raise RunError(f"there are no runs in {', '.join(args.names) or args.runs_dir}")
    return found


def drop_unreadable(runs: Sequence[Run]) -> list[Run]:
    """The runs that can be shown; each other one is named on stderr."""
    kept, lost = readable_runs(runs)
    for line in lost:
        complain(line)
    return kept


def resume_flags(run: Run, runs_dir: Path) -> str:
    """What `grokfast resume NAME` needs besides the name: code of the user's own is named again."""
    words: list[str] = []
    for flag, name in (("--task", run.task), ("--filter", run.filter)):
        words += [flag, name] if name is not None and is_own_code(name) else []
    words += [] if runs_dir == Path("runs") else ["--runs-dir", str(runs_dir)]
    return "".join(f" {shlex.quote(word)}" for word in words)


# Printing -----------------------------------------------------------------------------------------------------------


def show(*parts: Any) -> None:
    """Print tables, and lines of any length."""
    from rich.console import Console

    console = Console(markup=False, highlight=False, width=None if sys.stdout.isatty() else WIDE)
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, str))


def finish(args: argparse.Namespace, outcome: Outcome) -> int:
    """Print the result of the one run that a command has trained; gives the exit code."""
    run = outcome.run
    if not outcome.complete:
        complain(f"stopped at {progress_text(run)}: grokfast resume {run.name}{resume_flags(run, args.runs_dir)}")
        return INTERRUPTED
    if args.json:
        print(json.dumps({**describe(run), "path": str(run.path), "summary": run.summary}))
    elif not args.quiet:
        print(result_line(run), flush=True)
    return 0


def result_line(run: Run) -> str:
    """The result of a complete run in one line."""
    found, summary = describe(run), run.summary or {}
    parts = ["diverged"] if summary["diverged"] else []
    if found["val_accuracy"] is None:
        parts.append(f"best validation loss {cell(found['best_val_loss'])}")
    else:
        parts.append(f"validation accuracy {found['val_accuracy']:.4f}")
    parts += [f"first at {summary['level']:g}: {found['first']}", f"for good: {found['stable']}"]
    return f"{run.name}: {', '.join(parts)}, {found['seconds']:.1f} s"
