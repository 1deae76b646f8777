"""A run at the terminal: progress, warnings, Ctrl-C, TensorBoard."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TimeRemainingColumn
from rich.table import Column
from rich.text import Text

from grokfast.lab.commands.common import complain
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Row
from grokfast.lab.settings import Settings
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.machine import plain_warnings, stop_on_interrupt
from grokfast.lab.training.run import train

LINE_SECONDS = 5.0  # between plain lines


def train_watched(
    begin: Callable[[Watcher], Run], label: str, budget: int, *, quiet: bool, events: Path | None = None
) -> Run:
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


def train_next(settings: Settings, folder: Path, label: str, args: argparse.Namespace) -> Run:
    """Train one of several runs to its end; if it is stopped, say how to continue and raise KeyboardInterrupt."""
    begin = partial(train, settings, folder, command=["grokfast", *args.words])
    with suppress(KeyboardInterrupt):
        run = train_watched(begin, label, settings["steps"], quiet=args.quiet)
        if run.done:
            return run
    complain("stopped: the same command continues from here")
    raise KeyboardInterrupt


@contextmanager
def show_progress(label: str, *, quiet: bool) -> Generator[Callable[[float, int, str, str], None]]:
    """A function that shows progress on stderr: as a bar, or as plain lines if that is not a terminal.

    Its arguments: the amount done, the total, the text of the bar, the plain line.
    """
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
    return [bar, MofNCompleteColumn(), TimeRemainingColumn(compact=True, elapsed_when_finished=True), _Now()]


class _Now(ProgressColumn):
    """The caller's text, cut at the end of the line."""

    def __init__(self) -> None:
        super().__init__(Column(no_wrap=True, overflow="ellipsis", ratio=1))

    def render(self, task: Task) -> Text:
        return Text(task.fields["now"])


def row_text(row: Row, last: Row | None) -> str:
    """Accuracies or losses, and the time per step since the last evaluation.

    The first evaluation of a process gives the mean time over all steps of the run.
    """
    if row.val_accuracy is None or row.train_accuracy is None:
        values = f"train loss {row.train_loss:.4g}, val loss {row.val_loss:.4g}"
    else:
        values = f"train {row.train_accuracy:.3f}, val {row.val_accuracy:.3f}"
    steps, seconds = (row.step, row.seconds) if last is None else (row.step - last.step, row.seconds - last.seconds)
    return f"{values}, {1e3 * seconds / steps:.3g} ms per step"


# TensorBoard ----------------------------------------------------------------------------------------------------------


def scalars(row: Row) -> dict[str, float | None]:
    """The numbers of an evaluation, by name."""
    return {name: value for name, value in row._asdict().items() if name not in ("step", "more")} | dict(row.more or {})


@contextmanager
def event_writer(folder: Path | None) -> Generator[Callable[[int, Mapping[str, float | None]], None] | None]:
    """A function that writes values, or None without folder; ValueError with a remedy if TensorBoard is missing."""
    if folder is None:
        yield None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError('--tensorboard needs a package: pip install "grokfast[tensorboard]"') from error
    writer: Any = None

    def write(step: int, values: Mapping[str, float | None]) -> None:
        nonlocal writer
        # A resumed run repeats the steps after its checkpoint: their earlier events are purged.
        writer = writer or SummaryWriter(str(folder), purge_step=step)
        for name, value in values.items():
            if value is not None:
                writer.add_scalar(name, value, step)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
