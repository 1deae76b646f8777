"""What a person at a terminal sees of a run and can do to it: progress, warnings, Ctrl-C."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from grokfast.lab.runs.metrics import Row
from grokfast.lab.training.interrupt import stop_on_interrupt
from grokfast.lab.training.messages import plain_warnings

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from grokfast.lab.training.loop import Watcher
    from grokfast.lab.training.train import Outcome

INTERRUPTED = 130  # exit code
LINE_SECONDS = 5.0  # between plain lines


def train_watched(
    train: Callable[[Watcher], Outcome], label: str, budget: int, *, quiet: bool, events: Path | None = None
) -> Outcome:
    """Train a run from where it stands, with progress; the first Ctrl-C leaves a checkpoint and stops it.

    Args:
        train: trains it, given a watcher: `partial(train, config, folder)` or `partial(resume, run)`.
        label: what to call the run.
        budget: its number of steps.
        quiet: show no progress.
        events: where to write TensorBoard events, if anywhere.
    """
    from grokfast.lab.training.loop import Watcher

    with (
        open_events(events) as write,
        stop_on_interrupt() as interrupted,
        plain_warnings(complain),
        Progress(label, budget, quiet=quiet) as progress,
    ):

        def on_row(row: Row) -> None:
            progress.update(row)
            write(row)

        return train(Watcher(on_row=on_row, on_warning=complain, should_stop=interrupted))


def open_events(folder: Path | None) -> AbstractContextManager[Callable[[Row], None]]:
    """A function that writes an evaluation to TensorBoard, if asked for; ValueError where its package is missing."""
    if folder is None:
        return nullcontext(lambda row: None)
    from grokfast.lab.training.tensorboard import event_writer

    return event_writer(folder)


class Progress:
    """Shows each evaluation of a run, as a bar or as plain lines; a context manager."""

    def __init__(self, label: str, budget: int, *, quiet: bool) -> None:
        self._label, self._budget, self._quiet = label, budget, quiet
        self._last = time.monotonic()
        self._bar = None if quiet else make_bar()
        if self._bar is not None:
            self._task = self._bar.add_task(label, total=budget, now="")

    def update(self, row: Row) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=row.step, now=row_text(row))
        elif not self._quiet and time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            line = f"{self._label}: step {row.step:,} of {self._budget:,}, {row_text(row)}"
            print(line, file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def make_bar() -> RichProgress | None:
    """A progress bar on stderr; None where that is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    console = Console(stderr=True)
    if not console.is_terminal:
        return None
    counts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[now]}"))
    return RichProgress(*counts, TimeElapsedColumn(), TimeRemainingColumn(), console=console)


def row_text(row: Row) -> str:
    """The values a person watches."""
    if row.val_accuracy is None or row.train_accuracy is None:
        values = f"train loss {row.train_loss:.4g}, val loss {row.val_loss:.4g}"
    else:
        values = f"train {row.train_accuracy:.3f}, val {row.val_accuracy:.3f}"
    return f"{values}, {row.step / max(row.seconds, 1e-9):.0f} steps/s"


def complain(message: str) -> None:
    print(f"grokfast: {message}", file=sys.stderr)
