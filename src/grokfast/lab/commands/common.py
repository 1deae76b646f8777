"""Shared by several commands: flags, which runs are meant, and how to print. It imports no torch."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grokfast.lab.own_code import is_own_code
from grokfast.lab.runs.describe import readable_runs
from grokfast.lab.runs.directory import Run, RunError, find_run, load_runs

if TYPE_CHECKING:
    from rich.table import Table

INTERRUPTED, DIVERGED = 130, 3  # exit codes
RUN_NAME = "name of a run, or the beginning of its name"
Sorter = Callable[[Sequence[Run]], tuple[list[Run], list[str]]]  # runs that are kept, and lines on the others


def under_torchrun() -> bool:
    """Whether torchrun has started this process and other ones."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def add_runs_dir(parser: argparse.ArgumentParser, default: str = "runs") -> None:
    help = f"directory of the runs (default: {default})"
    parser.add_argument("--runs-dir", type=read_folder, default=Path(default), metavar="DIR", help=help)


def read_folder(text: str) -> Path:
    """A directory that is there or can be made."""
    if not text or Path(text).is_file():
        raise argparse.ArgumentTypeError(f"must be a directory, got {'the file ' + text if text else repr(text)}")
    return Path(text)


def check_out(path: Path, *endings: str) -> None:
    """Raise ValueError before any work is done for a file that cannot be written; makes the directory it will be in."""
    if path.is_dir():
        raise ValueError(f"--out must be a file, got the directory {path}")
    if endings and path.suffix not in endings:
        raise ValueError(f"--out must end with {' or '.join(endings)}, got {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise ValueError(f"--out must be a file that can be written, got {path}: {error.strerror}") from error


def add_out(parser: argparse.ArgumentParser, default: str, help: str, metavar: str = "FILE") -> None:
    help = f"{help} (default: {default})"
    parser.add_argument("-o", "--out", type=Path, default=Path(default), metavar=metavar, help=help)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_level(parser: argparse.ArgumentParser) -> None:
    help = "judge all runs at this level (default: each run at its own)"
    parser.add_argument("--level", type=float, metavar="X", help=help)


def add_chosen_runs(parser: argparse.ArgumentParser) -> None:
    help = "names of runs, or directories of runs or duels (default: all runs)"
    parser.add_argument("names", nargs="*", metavar="RUN", help=help)
    add_runs_dir(parser)


def chosen_runs(args: argparse.Namespace) -> list[Run]:
    """The runs that were named, by name, path or directory; all runs where none was named."""
    found: list[Run] = []
    for name in args.names or [str(args.runs_dir)]:
        is_folder = bool(name) and Path(name).is_dir() and not (Path(name) / "config.json").exists()
        found += load_folder(Path(name)) if is_folder else [find_run(name, args.runs_dir)]
    if not found:
        raise RunError(f"there are no runs in {', '.join(args.names) or args.runs_dir}")
    return found


def load_folder(folder: Path) -> list[Run]:
    """The runs of a directory; of a duel's directory, the runs on fresh seeds."""
    return load_runs(folder) or [run for each in sorted(folder.glob("*/verdict/runs")) for run in load_runs(each)]


def drop_unreadable(runs: Sequence[Run], sorter: Sorter = readable_runs) -> list[Run]:
    """The runs that can be shown; each other one is named on stderr."""
    kept, lost = sorter(runs)
    for line in lost:
        complain(line)
    return kept


def resume_command(run: Run, runs_dir: Path) -> str:
    """The command that continues a run; the user's own code is named again."""
    words = ["grokfast", "resume", run.name]
    for flag, name in (("--task", run.task), ("--filter", run.filter), ("--optimizer", run.optimizer)):
        words += [flag, name] if name is not None and is_own_code(name) else []
    return shlex.join([*words, *([] if runs_dir == Path("runs") else ["--runs-dir", str(runs_dir)])])


def complain(message: str) -> None:
    print(f"grokfast: {message}", file=sys.stderr)


def show(*parts: Any) -> None:
    """Print tables, and lines of any length. Where stdout is no terminal, tabs separate the values of a table."""
    from rich.console import Console  # not needed for a help text
    from rich.table import Table

    console = Console(markup=False, highlight=False)
    for part in parts:
        if isinstance(part, Table) and not sys.stdout.isatty():
            print("\n".join(plain_lines(part)))  # rich would replace tabs by spaces
        else:
            console.print(part, soft_wrap=isinstance(part, str))


def make_table(
    headings: Iterable[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Container[str] = (),
    whole: Container[str] = (),
) -> Table:
    """A table without lines. Columns in `right` are justified to the right; words of columns in `whole` stay whole."""
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in headings:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=name in whole, overflow="fold")
    for row in rows:
        table.add_row(*row)
    return table


def plain_lines(table: Table) -> Iterator[str]:
    """A table as text: its title, its head and its rows, tabs between the values, and its caption."""
    if table.title:
        yield str(table.title)
    if table.show_header:
        yield "\t".join(str(column.header) for column in table.columns)
    yield from ("\t".join(map(str, row)) for row in zip(*(column.cells for column in table.columns), strict=True))
    if table.caption:
        yield str(table.caption)
