"""What a person at a terminal sees of a run and can do to it: progress, warnings, Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from grokfast.lab.runs.metrics import Row
from grokfast.lab.runs.directory import Run
from grokfast.lab.tasks import Task
from grokfast.lab.training.loop import Watcher, train

LINE_SECONDS = 5.0  # between plain lines


class Progress:
    """Shows each evaluation of a run; a context manager."""

    def __init__(self, name: str, budget: int, *, quiet: bool) -> None:
        self._name, self._budget, self._quiet = name, budget, quiet
        self._last = time.monotonic()
        self._bar: RichProgress | None = None
        console = Console(stderr=True)
        if not quiet and console.is_terminal:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[now]}"),
            )
            self._bar = RichProgress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console)
            self._task = self._bar.add_task(name, total=budget, now="")

    def update(self, row: Row) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=row.step, now=text(row))
        elif not self._quiet and time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            print(f"{self._name}: step {row.step:,} of {self._budget:,}, {text(row)}", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def train_watched(
    run: Run,
    label: str,
    *,
    quiet: bool,
    task: Task | None = None,
    data_dir: str | None = None,
    also: Callable[[Row], None] = lambda row: None,
) -> bool:
    """Train a run from where it stands with progress; False after Ctrl-C, which leaves a checkpoint.

    `also` gets each evaluation as well.
    """
    bar = Progress(label, run.config.loop.steps or 0, quiet=quiet)

    def on_row(row: Row) -> None:
        bar.update(row)
        also(row)

    with stop_on_interrupt() as interrupted, plain_warnings(), bar:
        watcher = Watcher(on_row=on_row, on_warning=complain, should_stop=interrupted)
        return train(run, watcher, task=task, data_dir=data_dir)


def text(row: Row) -> str:
    """The values a person watches."""
    if row.val_accuracy is None or row.train_accuracy is None:
        values = f"train loss {row.train_loss:.4g}, val loss {row.val_loss:.4g}"
    else:
        values = f"train {row.train_accuracy:.3f}, val {row.val_accuracy:.3f}"
    return f"{values}, {row.step / max(row.seconds, 1e-9):.0f} steps/s"


def complain(message: str) -> None:
    print(f"grokfast: {message}", file=sys.stderr)


def one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror.lower()}: {error.filename}" if error.filename else error.strerror.lower()
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def stop_on_interrupt() -> Generator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a question the loop can ask; a second one interrupts at once."""
    asked = False

    def ask(signum: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def plain_warnings() -> Generator[None]:
    """Show warnings as one line each."""
    original = warnings.showwarning
    warnings.showwarning = lambda message, *rest, **more: complain(f"warning: {message}")  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.showwarning = original
