"""What the tests of sweeps share: a run of a fraction of a second, and what a sweep must have left in the end."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tiny import SIZES, TINY_FLAGS, comparable

from grokfast.lab import Run, load_runs
from grokfast.lab.request import ask, resolve
from grokfast.lab.runs.metrics import Row
from grokfast.lab.runs.writer import create_run, open_for_writing, run_path
from grokfast.lab.sweep.spec import Spec, load_spec
from grokfast.lab.sweep.study import Claim, Sweep
from grokfast.lab.sweep.trial import carry_out

BASE = ask("modmul", filter="ema", **SIZES, threads=1, device="cpu", steps=8, eval_every=2)
FLAGS = ["modmul", "--filter", "ema", *TINY_FLAGS, "--eval-every", "2"]


def claimed(sweep: Sweep) -> Claim:
    claim = sweep.claim()
    assert claim is not None
    return claim


def states(folder: Path) -> Counter[str]:
    with Sweep(folder) as sweep:
        return Counter(trial.state.name for trial in sweep.trials())


def assert_complete_and_same(folder: Path, scratch: Path) -> None:
    """Every run of the grid is there once, complete, and as if it had been trained alone without interruption."""
    spec = load_spec(folder)
    expected = {run_path(spec.config(point), folder / "runs") for point in spec.points()}
    assert {run.path for run in load_runs(folder / "runs")} == expected
    alone = Spec(spec.base.having(checkpoint_seconds=30.0), spec.dimensions, spec.seeds)  # the same results, faster
    for point in spec.points():
        assert carry_out(alone, point, scratch).state == "complete"
        here, there = (Run(run_path(spec.config(point), where)) for where in (folder / "runs", scratch))
        assert here.status == "complete"
        assert comparable(here.rows) == comparable(there.rows)


def rows_of(*accuracies: float, losses: tuple[float, ...] = (), train_loss: float = 1.0) -> list[Row]:
    """Evaluations every 10 steps and 2 seconds."""
    pairs = zip(accuracies, losses or [1.0] * len(accuracies), strict=True)
    return [
        Row(10 * i, train_loss, 1.0, loss, accuracy, 1.0, 1.0, None, 0.1, i, 2.0 * i)
        for i, (accuracy, loss) in enumerate(pairs, start=1)
    ]


def made_run(folder: Path, rows: list[Row], **values: object) -> Run:
    """A run of the tiny task with these evaluations."""
    run = create_run(resolve(BASE.having(steps=40, **values)), folder, {})
    with open_for_writing(run) as writer:
        for row in rows:
            writer.append(row)
    return run
