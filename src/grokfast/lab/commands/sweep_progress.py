"""The progress of a whole sweep: how many runs are done, how far the others are, how long it may take."""

from __future__ import annotations

import contextlib
import json
import time
from types import TracebackType
from typing import TYPE_CHECKING

from grokfast.lab.commands.terminal import LINE_SECONDS
from grokfast.lab.runs.directory import Run
from grokfast.lab.training.plan import duration

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from grokfast.lab.sweep.study import Sweep, Tally

TAIL = 4096  # bytes: the last evaluation of a run is shorter


class SweepProgress:
    """Shows tallies on stderr, as a bar or as plain lines; a context manager."""

    def __init__(self, sweep: Sweep, *, quiet: bool) -> None:
        from rich.console import Console

        self._sweep, self._quiet = sweep, quiet
        self._console = Console(stderr=True)
        self._began = self._last = time.monotonic()
        self._done_before: float | None = None
        self._bar: RichProgress | None = None
        if not quiet and self._console.is_terminal:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
            clocks = (TimeElapsedColumn(), TimeRemainingColumn(elapsed_when_finished=True))
            self._bar = RichProgress(*columns, *clocks, console=self._console, speed_estimate_period=600)
            self._task = self._bar.add_task("sweep", total=None)

    def show(self, tally: Tally) -> None:
        if self._quiet:
            return
        done = tally.total - tally.left + sum(used_budget(self._sweep.run(point)) for point in tally.running)
        if self._bar is not None:
            self._bar.update(self._task, total=tally.total, completed=done, description=tally_text(tally))
        elif time.monotonic() - self._last >= LINE_SECONDS:
            self._last = time.monotonic()
            line = f"{tally.total - tally.left} of {tally.total} runs, {tally_text(tally)}"
            self._console.print(line + self._time_left(tally, done), soft_wrap=True, highlight=False)
        if self._done_before is None:
            self._done_before = done

    def _time_left(self, tally: Tally, done: float) -> str:
        gained = done - (done if self._done_before is None else self._done_before)
        if gained <= 0:
            return ""
        return f", about {duration((time.monotonic() - self._began) * (tally.total - done) / gained)} left"

    def __enter__(self) -> SweepProgress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()


def tally_text(tally: Tally) -> str:
    counts = {"running": len(tally.running), "pruned": len(tally.pruned), "failed": len(tally.failed)}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "running")


def used_budget(run: Run) -> float:
    """The part of its budget that a run has used, from the end of its file: the whole file may be long."""
    with (
        contextlib.suppress(OSError, ValueError, IndexError, KeyError),
        (run.path / "metrics.jsonl").open("rb") as file,
    ):
        file.seek(max(0, file.seek(0, 2) - TAIL))
        step = json.loads(file.read().split(b"\n")[-2])["step"]
        return min(step / run.loop["steps"], 1.0)
    return 0.0
