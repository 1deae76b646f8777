"""Shared by several commands: flags, selection of runs, printing. It does not import torch."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grokfast.lab.own_code import is_own_code
from grokfast.lab.runs.directory import SETTINGS, Run, RunError, find_run, load_runs, readable_runs

if TYPE_CHECKING:
    from rich.table import Table

INTERRUPTED, DIVERGED = 130, 3  # exit codes
RUNS = Path("runs")  # where runs are unless the user says otherwise


# Flags ----------------------------------------------------------------------------------------------------------------


def add_runs_dir(parser: argparse.ArgumentParser, default: Path | str = RUNS) -> None:
    help = f"directory of the runs (default: {default})"
    parser.add_argument("--runs-dir", type=read_folder, default=Path(default), metavar="DIR", help=help)


def read_folder(text: str) -> Path:
    """A directory that exists or can be made."""
    if not text or (Path(text).exists() and not Path(text).is_dir()):
        raise argparse.ArgumentTypeError(f"must be a directory, got {'the file ' + text if text else repr(text)}")
    return Path(text)


def add_out(
    parser: argparse.ArgumentParser, default: str, help: str, metavar: str = "FILE", endings: Sequence[str] = ()
) -> None:
    """Add -o. A path that cannot be written, or has another ending, is refused while the command line is read."""

    def read(text: str) -> Path:
        if metavar == "DIR":
            return read_folder(text)
        try:
            return check_out(text, *endings)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    parser.add_argument(
        "-o", "--out", type=read, default=Path(default), metavar=metavar, help=f"{help} (default: {default})"
    )


def check_out(text: str | Path, *endings: str) -> Path:
    """A path of a file that can be written; ValueError otherwise. Only its directory is tested."""
    path = Path(text)
    if not str(text) or (path.exists() and not path.is_file()):
        kind = "the directory " if path.is_dir() else "the special file "
        raise ValueError(f"must be a file, got {kind + str(path) if str(text) else repr(text)}")
    if endings and path.suffix not in endings:
        raise ValueError(f"must end with {' or '.join(endings)}, got {path}")
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ValueError(f"must be a file that can be written, got {path}: {error.strerror}") from error
    return path


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_level(parser: argparse.ArgumentParser) -> None:
    help = "target accuracy (qm9: loss) by which all runs are judged (default: each run's own)"
    parser.add_argument("--level", type=float, metavar="X", help=help)


# Which runs -----------------------------------------------------------------------------------------------------------


def add_chosen_runs(parser: argparse.ArgumentParser) -> None:
    help = "names or hashes of runs, or directories of runs or duels (default: all runs)"
    parser.add_argument("names", nargs="*", metavar="RUN", help=help)
    add_runs_dir(parser)


def chosen_runs(args: argparse.Namespace) -> list[Run]:
    """The runs that were named, by name, hash, path or directory; all runs if none was named."""
    found: list[Run] = []
    for name in args.names or [str(args.runs_dir)]:
        is_folder = bool(name) and Path(name).is_dir() and not (Path(name) / SETTINGS).exists()
        found += load_runs(Path(name)) if is_folder else [find_run(name, args.runs_dir)]
    if not found:
        raise RunError(f"there are no runs in {', '.join(args.names) or args.runs_dir}")
    return found


def drop_unreadable(runs: Sequence[Run], *, large: bool = False) -> tuple[list[Run], int]:
    """The runs that can be read, and the exit code: each other run is named on stderr and makes it 1."""
    kept, lost = readable_runs(runs, large=large)
    for line in lost:
        complain(line)
    return kept, int(bool(lost))


def at(runs_dir: Path) -> list[str]:
    """The flag for the directory of the runs, if it is not the default."""
    return [] if runs_dir == RUNS else ["--runs-dir", str(runs_dir)]


def show_command(run: Run, runs_dir: Path) -> str:
    """The command that shows a run."""
    return shlex.join(["grokfast", "runs", run.name, *at(runs_dir)])


def resume_command(run: Run, runs_dir: Path) -> str:
    """The command that continues a run; the user's own code is named again."""
    words = ["grokfast", "train", "--resume", run.name]
    for part in ("task", "filter", "optimizer"):
        name = run.settings[part]
        words += [f"--{part}", name] if name is not None and is_own_code(name) else []
    return shlex.join([*words, *at(runs_dir)])


# Printing -------------------------------------------------------------------------------------------------------------


def complain(message: str) -> None:
    print(f"grokfast: {message}", file=sys.stderr)


def cell(value: Any) -> str:
    """A value in a table."""
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def show(*parts: Any) -> None:
    """Print tables, and lines of any length. If stdout is not a terminal, tabs separate the values of a table."""
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
