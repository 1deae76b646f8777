"""Runs as rows of text: one run beside the paper's number, and how rows make a table."""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab.compare.names import label
from grokfast.lab.compare.seeds import steps_of
from grokfast.lab.config import experiment_key
from grokfast.lab.paper.published import published_of
from grokfast.lab.runs.describe import readable_runs
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import best


def table_of(rows: Sequence[dict[str, str]]) -> list[list[str]]:
    """Rows by heading as lines of text, the headings first; [] without any."""
    return [list(rows[0]), *(list(row.values()) for row in rows)] if rows else []


def result(run: Run) -> dict[str, str]:
    """The row of one run by heading; an incomplete one says so and shows what there is."""
    rows, first = run.rows, run.crossing()
    last, lowest = rows[-1] if rows else None, best(rows, "loss")
    stopped_there = last is not None and run.stopped_at_level and first.step == last.step
    return {
        "run": label(run),
        "status": "diverged" if run.diverged else run.status,
        "steps to level": str(steps_of(run)) if rows else "",
        "lies in": "" if first.censored else f"({first.after:,}, {first.step:,}]",
        "stays there from": "stopped there" if stopped_there else str(steps_of(run, "stable")) if rows else "",
        "paper": published_of(run.settings).steps_text,
        "validation accuracy": "" if last is None or last.val_accuracy is None else f"{last.val_accuracy:.4f}",
        "best validation loss": "" if lowest is None else f"{lowest.value:.4g}",
        "seconds": "" if last is None else f"{last.seconds:.1f}",
        "steps/s": f"{last.step / last.seconds:.0f}" if last is not None and last.seconds else "",
    }


def comparable_runs(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """The runs that can be compared, and a line on each other one: of another version, or damaged."""
    return readable_runs(runs, result, lambda run: experiment_key(run.settings))
