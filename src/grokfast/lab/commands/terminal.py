"""A run at the terminal: progress, warnings, Ctrl-C, the result."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from grokfast.lab.commands.common import DIVERGED, INTERRUPTED, complain, resume_command
from grokfast.lab.config import RunConfig
from grokfast.lab.runs.describe import cell, describe, progress_text, state_of
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Row
from grokfast.lab.training.interrupt import stop_on_interrupt
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.messages import plain_warnings
from grokfast.lab.training.tensorboard import event_writer, scalars
from grokfast.lab.training.train import Outcome, train

LINE_SECONDS = 5.0  # between plain lines
Show = Callable[[float, int, str, str], None]  # how much is done, of how much, what the bar says, the plain line


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    """The flags of commands that train one run."""
    group = parser.add_argument_group("Output")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")
    group.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    group.add_argument("--tensorboard", action="store_true", help="also write TensorBoard events")


def train_watched(
    begin: Callable[[Watcher], Outcome], label: str, budget: int, *, quiet: bool, events: Path | None = None
) -> Outcome:
    """Train a run from its last checkpoint, with progress. Ctrl-C, SIGTERM and SIGHUP save a checkpoint and stop it."""
    with (
        event_writer(events) as write,
        stop_on_interrupt() as interrupted,
        plain_warnings(complain),
        show_progress(label, quiet=quiet) as show,
    ):
        last: Row | None = None

        def on_row(row: Row) -> None:
            nonlocal last
            now, last = row_text(row, last), row
            show(row.step, budget, now, f"{label}: step {row.step:,} of {budget:,}, {now}")
            if write is not None:
                write(row.step, scalars(row))

        return begin(Watcher(on_row=on_row, on_metrics=write, on_warning=complain, interrupted=interrupted))


def train_next(config: RunConfig, folder: Path, label: str, args: argparse.Namespace) -> Run:
    """Train one of several runs to its end; if it is stopped, say how to continue and raise KeyboardInterrupt."""
    begin = partial(train, config, folder, command=["grokfast", *args.words])
    with suppress(KeyboardInterrupt):
        run, complete = train_watched(begin, label, config.loop.steps, quiet=args.quiet)
        if complete:
            return run
    complain("stopped: the same command continues from here")
    raise KeyboardInterrupt


def train_one(run: Run, begin: Callable[[Watcher], Outcome], steps: int, args: argparse.Namespace, if_done: str) -> int:
    """Train the one run of a command and print its result, after `if_done` if it was complete; gives the exit code."""
    lines = [if_done] if run.status == "complete" else []
    events = run.path / "tensorboard" if args.tensorboard else None
    if not train_watched(begin, run.name, steps, quiet=args.quiet or args.json, events=events).complete:
        complain(f"stopped at {progress_text(run)}: {resume_command(run, args.runs_dir)}")
        return INTERRUPTED
    if args.json:
        print(json.dumps({**describe(run), "path": str(run.path), "summary": run.summary}))
    elif not args.quiet:
        print(*lines, result_line(run), sep="\n", flush=True)
    return DIVERGED if state_of(run) == "diverged" else 0


def result_line(run: Run) -> str:
    """The result of a complete run in one line."""
    found, summary = describe(run), run.summary or {}
    parts = ["diverged"] if run.diverged else []
    if found["val_accuracy"] is None:
        parts.append(f"best validation loss {cell(found['best_val_loss'])}")
    else:
        parts.append(f"validation accuracy {found['val_accuracy']:.4f}")
    parts += [f"first at {summary['level']:g}: {found['first']}", f"for good: {found['stable']}"]
    return f"{run.name}: {', '.join(parts)}, {found['seconds']:.1f} s"


@contextmanager
def show_progress(label: str, *, quiet: bool) -> Generator[Show]:
    """A function that shows progress on stderr: as a bar, or as plain lines where that is no terminal."""
    console, last = Console(stderr=True), time.monotonic()

    def show_line(done: float, total: int, now: str, line: str) -> None:
        nonlocal last
        if not quiet and time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            print(line, file=sys.stderr, flush=True)

    if quiet or not console.is_terminal:
        yield show_line
        return
    console.print(label, highlight=False, markup=False, soft_wrap=True)  # beside the bar it would push it out of sight
    with Progress(*columns(console.width), console=console, speed_estimate_period=600) as bar:
        task = bar.add_task("", total=None, now="")
        yield lambda done, total, now, line: bar.update(task, completed=done, total=total, now=now)


def columns(width: int) -> list[ProgressColumn]:
    """Bar, step, time left and values: all of them fit in 80 columns."""
    bar = BarColumn(bar_width=max(10, min(40, width - 70)))
    return [bar, MofNCompleteColumn(), TimeRemainingColumn(compact=True, elapsed_when_finished=True), Now()]


class Now(ProgressColumn):
    """What the caller says, cut where the line ends."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True, overflow="ellipsis", ratio=1))

    def render(self, task: Task) -> Text:
        return Text(task.fields["now"])


def row_text(row: Row, last: Row | None) -> str:
    """The values a person watches, and the time of a step since the last evaluation, which leaves a compilation out.

    What came before the first evaluation of a process is not known: its time is that of all steps of the run.
    """
    if row.val_accuracy is None or row.train_accuracy is None:
        values = f"train loss {row.train_loss:.4g}, val loss {row.val_loss:.4g}"
    else:
        values = f"train {row.train_accuracy:.3f}, val {row.val_accuracy:.3f}"
    steps, seconds = (row.step, row.seconds) if last is None else (row.step - last.step, row.seconds - last.seconds)
    return f"{values}, {1e3 * seconds / steps:.3g} ms per step"
