"""One run as a row of text, beside the paper's number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from grokfast.lab.compare.names import label as label
from grokfast.lab.compare.seeds import has_diverged, steps_of
from grokfast.lab.paper.published import find_arm
from grokfast.lab.runs.describe import readable_runs
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.metrics import best


class Result(NamedTuple):
    """One run in a table."""

    label: str
    status: str
    first: str
    interval: str
    stable: str
    published: str
    accuracy: str
    loss: str
    seconds: str
    steps_per_second: str


HEADINGS = Result(
    "run",
    "status",
    "steps to level",
    "lies in",
    "stays there from",
    "paper",
    "validation accuracy",
    "best validation loss",
    "seconds",
    "steps/s",
)


def result(run: Run) -> Result:
    """The row of one run; an incomplete one says so and shows what there is."""
    rows, arm, first = run.rows, find_arm(run.settings), run.crossing()
    last, lowest = rows[-1] if rows else None, best(rows, "loss")
    stopped_there = last is not None and run.stopped_at_level and first.step == last.step
    return Result(
        label(run),
        "diverged" if has_diverged(run) else run.status,
        str(steps_of(run)) if rows else "",
        "" if first.censored else f"({first.after:,}, {first.step:,}]",
        "stopped there" if stopped_there else str(steps_of(run, "stable")) if rows else "",
        "" if arm is None else arm.steps_text,
        "" if last is None or last.val_accuracy is None else f"{last.val_accuracy:.4f}",
        "" if lowest is None else f"{lowest.value:.4g}",
        "" if last is None else f"{last.seconds:.1f}",
        f"{last.step / last.seconds:.0f}" if last is not None and last.seconds else "",
    )


def comparable_runs(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The runs that can be compared, and a line on each other one: of another version, or damaged."""
    readable, lost = readable_runs(runs)
    kept: list[Run] = []
    for run in readable:
        try:
            result(run)
            kept.append(run)
        except (RunError, ValueError, TypeError, KeyError) as error:
            lost.append(f"{run.name} cannot be shown: {error or type(error).__name__}")
    return kept, lost
