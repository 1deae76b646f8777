"""The results of runs beside the paper's numbers, as rows of text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.table import Table

import grokfast
from grokfast.lab.config import make_filter
from grokfast.lab.runs.metrics import Crossing, best, crossings
from grokfast.lab.paper.published import Arm, find_arm
from grokfast.lab.runs.directory import Run, RunError

PERIODS = (1000, 300, 100, 30, 10, 2)  # steps of an oscillation, in the table of a filter's response


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


def label(run: Run) -> str:
    """What to call a run: its name in the paper, or its own."""
    arm = find_arm(run.config)
    if arm is None:
        return run.name
    plain = ", plain path" if run.config.plain else ""
    return f"{arm.name}, seed {run.config.loop.seed}{plain}"


def result(run: Run) -> Result:
    """The row of one run; an incomplete one says so and shows what there is."""
    rows, summary = run.rows, run.summary
    accuracy = f"{rows[-1].val_accuracy:.4f}" if rows and rows[-1].val_accuracy is not None else ""
    lowest = best(rows, "loss")
    loss = f"{lowest.value:.4g}" if lowest is not None else ""
    published, seconds = published_steps(find_arm(run.config)), f"{rows[-1].seconds:.1f}" if rows else ""
    speed = f"{rows[-1].step / rows[-1].seconds:.0f}" if rows and rows[-1].seconds else ""
    first = crossing(run)
    interval = "" if first.censored else f"({first.after:,}, {first.step:,}]"
    stable = "stopped there" if stopped_there(run) else str(crossing(run, "stable"))
    status = "incomplete" if summary is None else "diverged" if summary["diverged"] else "complete"
    return Result(label(run), status, str(first), interval, stable, published, accuracy, loss, seconds, speed)


def published_steps(arm: Arm | None) -> str:
    """What the paper says of the steps to the level."""
    if arm is None or arm.published is None:
        return ""
    if not arm.published.converged:
        return "not converged"
    return f"{arm.published.steps:,}" if arm.published.steps else ""


def crossing(run: Run, kind: str = "first") -> Crossing:
    """Where a run crosses the level of its task, so far as it has come: runs are compared at one level."""
    defaults = run.config.task.defaults()
    return crossings(run.rows, defaults.level, defaults.measure)[kind]


def stopped_there(run: Run) -> bool:
    """Whether a run was ended by its first crossing, so that nothing is known of what would have come."""
    rows = run.rows
    return run.config.loop.until is not None and bool(rows) and crossing(run).step == rows[-1].step


def filter_name(filter: grokfast.Filter) -> str:
    """A filter in a few words: its kind and its numbers.

    >>> filter_name(grokfast.EMA(alpha=0.98, lamb=2.0))
    'EMA, alpha 0.98, lamb 2'
    """
    values = {f.name: getattr(filter, f.name) for f in dataclasses.fields(filter)}  # type: ignore[arg-type]
    numbers = [f"{name.replace('_', ' ')} {value:g}" for name, value in values.items() if type(value) in (int, float)]
    return ", ".join([type(filter).__name__, *numbers, *(["slow only"] if filter.slow_only else [])])


def response_table(filter: grokfast.Filter) -> Table:
    """How much of an oscillation of the gradient reaches the optimizer, by its period in steps."""
    w = [0.0, *(2 * math.pi / period for period in PERIODS)]
    total, slow = (filter.frequency_response(w, of=of).abs().tolist() for of in ("1+h", "h"))
    cutoff = filter.cutoff_frequency()
    caption = "h is flat" if cutoff is None else f"h has fallen by 3 dB at a period of {1 / cutoff:,.0f} steps"
    table = Table("period", "gain of 1 + h", "of h", title=filter_name(filter), caption=caption, box=None)
    for period, *gains in zip(("constant", *map(str, PERIODS)), total, slow, strict=True):
        table.add_row(period, *(f"{gain:.3f}" for gain in gains))
    return table


def sort_out(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Runs that can be shown, and a line on each that cannot: of another version, or damaged."""
    readable: list[Run] = []
    unreadable: list[str] = []
    for run in runs:
        try:
            _ = describe(run), result(run), make_filter(run.config.filter)
            if run.status == "complete" and not run.rows:
                raise RunError("its metrics.jsonl is missing")
            readable.append(run)
        except (RunError, ValueError, TypeError, KeyError, AssertionError, OSError) as error:
            unreadable.append(f"{run.name} cannot be shown: {error or type(error).__name__}")
    return readable, unreadable


def by_task(runs: list[Run]) -> dict[str, list[Run]]:
    """Runs of one task belong together: their losses and levels are of one kind."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.config.task_name, []).append(run)
    return found


def describe(run: Run) -> dict[str, Any]:
    """A run in a few values, as plain data."""
    rows, summary = run.rows, run.summary
    found = (summary or {}).get("crossings", {})
    last, lowest = rows[-1] if rows else None, best(rows, "loss")
    return {
        "name": run.name,
        "status": run.status,
        "step": last.step if last else 0,
        "first": crossing_text(Crossing(**found["first"])) if found else None,
        "stable": crossing_text(Crossing(**found["stable"])) if found else None,
        "train_accuracy": last.train_accuracy if last else None,
        "val_accuracy": last.val_accuracy if last else None,
        "best_val_loss": lowest and lowest.value,
        "seconds": last.seconds if last else 0.0,
    }


def crossing_text(crossing: Crossing) -> str:
    return str(crossing) if crossing.censored else f"{crossing.step:,} (after {crossing.after:,})"


def cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def progress_text(run: Run) -> str:
    return f"step {describe(run)['step']:,} of {run.config.loop.steps:,}"


def flatten(config: dict[str, Any]) -> dict[str, Any]:
    nested = {
        f"{part}.{k}": v for part, values in config.items() if isinstance(values, dict) for k, v in values.items()
    }
    return {"task": config["task_name"], **nested}
