"""A run in a few values, as plain data and as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import filelock

from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.metrics import Crossing, best

State = Literal["complete", "diverged", "running", "incomplete"]


def state_of(run: Run) -> State:
    """The status of a run for a person: also whether a process trains it now, and whether its loss is not finite."""
    if run.status == "complete":
        return "diverged" if run.diverged else "complete"
    return "running" if is_locked(run.path / "lock") else "incomplete"


def is_locked(path: Path) -> bool:
    """Whether a process has a run open for writing."""
    if not path.exists():
        return False
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return True
    except OSError:  # an archive that cannot be written
        return False
    lock.release()
    return False


def describe(run: Run) -> dict[str, Any]:
    """A run in a few values; only a complete run has crossings, at the level it was judged at."""
    rows, summary = run.rows, run.summary
    found = (summary or {}).get("crossings", {})
    last, lowest = rows[-1] if rows else None, best(rows, "loss")
    return {
        "name": run.name,
        "status": state_of(run),
        "step": last.step if last else 0,
        "first": crossing_text(Crossing(**found["first"])) if found else None,
        "stable": crossing_text(Crossing(**found["stable"])) if found else None,
        "train_accuracy": last.train_accuracy if last else None,
        "val_accuracy": last.val_accuracy if last else None,
        "best_val_loss": lowest and lowest.value,
        "seconds": last.seconds if last else 0.0,
    }


def readable_runs(runs: Sequence[Run], *looks: Callable[[Run], object]) -> tuple[list[Run], list[str]]:
    """The runs that can be shown and looked at, and a line on each other one: of another version, or damaged."""
    kept: list[Run] = []
    lost: list[str] = []
    for run in runs:
        try:
            _ = run.settings, describe(run)
            if run.status == "complete" and not run.rows:
                raise RunError("its metrics.jsonl is missing")
            for look in looks:
                look(run)
            kept.append(run)
        except (RunError, ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            lost.append(f"{run.name} cannot be shown: {error or type(error).__name__}")
    return kept, lost


def crossing_text(crossing: Crossing) -> str:
    return str(crossing) if crossing.censored else f"{crossing.step:,} (after {crossing.after:,})"


def cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def progress_text(run: Run) -> str:
    last = [row.step for row in run.rows[-1:]] + [int(path.stem) for path in run.path.glob("checkpoints/*.json")]
    return f"step {max(last, default=0):,} of {run.loop['steps']:,}"


def recorded_bytes(run: Run) -> int:
    """How much disk the snapshots and gradients of a run take."""
    files = [*(run.path / "snapshots").glob("*.pt"), run.path / "gradients.f32"]
    return sum(path.stat().st_size for path in files if path.exists())
