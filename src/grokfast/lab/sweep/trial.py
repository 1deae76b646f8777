"""One run of a sweep, trained to its end in any process."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from grokfast.lab.sweep.objective import Judge, value_of
from grokfast.lab.sweep.space import Point
from grokfast.lab.sweep.spec import Spec
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.messages import Tell, one_line
from grokfast.lab.training.train import train

LOOK = 1.0  # seconds between questions that take a file to answer
PATIENCE = 30.0  # seconds for a process that was killed to be gone


def at_intervals(ask: Callable[[], bool]) -> Callable[[], bool]:
    """The same question, asked at most every `LOOK` seconds; in between the answer is no."""
    last = time.monotonic()

    def asked() -> bool:
        nonlocal last
        if time.monotonic() - last < LOOK:
            return False
        last = time.monotonic()
        return ask()

    return asked


class Ending(NamedTuple):
    """How a run ended: its value and its last step. A pruned or a stopped run has left a checkpoint."""

    state: Literal["complete", "pruned", "stopped", "failed"]
    value: float = math.inf
    step: int = 0
    error: str = ""


def carry_out(
    spec: Spec,
    point: Point,
    folder: Path,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    tell: Tell = lambda line: None,
    command: list[str] | None = None,
) -> Ending:
    """Train a run, or continue it; an error is returned, not raised, so that it does not end the other runs."""
    try:
        config = spec.config(point)
        judge = Judge(config, folder) if spec.prune else None
        rarely, stopped = at_intervals(should_stop), False

        def is_stopped(ask: Callable[[], bool]) -> bool:
            nonlocal stopped
            stopped = stopped or ask()
            return stopped

        watcher = Watcher(
            on_row=judge.see if judge else lambda row: None,
            on_warning=tell,
            should_stop=lambda: is_stopped(should_stop) or (judge is not None and judge.is_hopeless()),
            interrupted=lambda: is_stopped(rarely),
        )
        run, complete = train(config, folder, watcher, command=command, patience=PATIENCE)
        state = "complete" if complete else "stopped" if stopped else "pruned"
        if state == "stopped":
            return Ending(state)
        return Ending(state, value_of(run, spec.objective), run.rows[-1].step)
    except Exception as error:  # whatever it is: the runs after it may take all night and do not depend on it
        return Ending("failed", error=one_line(error))
