"""One run of a sweep: stopped, continued, failed."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path

import filelock
import pytest
from sweeps import BASE
from tiny import comparable

from grokfast.lab import Run
from grokfast.lab.runs.writer import run_path
from grokfast.lab.sweep import trial
from grokfast.lab.sweep.space import Choices
from grokfast.lab.sweep.spec import Spec
from grokfast.lab.sweep.trial import carry_out

GRID = Spec(BASE, (Choices("alpha", (0.9,)),))
(POINT,) = GRID.points()


@pytest.fixture(autouse=True)
def ask_at_evaluations_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is."""
    monkeypatch.setattr(trial, "LOOK", math.inf)


def test_a_stopped_run_continues_from_its_checkpoint_and_ends_the_same(tmp_path: Path) -> None:
    stopped = run_path(GRID.config(POINT), tmp_path / "a")
    ending = carry_out(GRID, POINT, tmp_path / "a", should_stop=lambda: len(Run(stopped).rows) == 2)
    assert ending.state == "stopped"
    assert Run(stopped).rows[-1].step == 4
    assert list((stopped / "checkpoints").glob("*.pt"))
    assert carry_out(GRID, POINT, tmp_path / "a") == carry_out(GRID, POINT, tmp_path / "b")
    (whole,) = (tmp_path / "b").iterdir()
    assert comparable(Run(stopped).rows) == comparable(Run(whole).rows)


def test_a_run_that_another_process_completes_meanwhile_is_not_trained_again(tmp_path: Path) -> None:
    run = Run(run_path(GRID.config(POINT), tmp_path))
    carry_out(GRID, POINT, tmp_path, should_stop=lambda: bool(run.rows))
    before = run.rows
    lock = filelock.FileLock(run.path / "lock", thread_local=False)
    lock.acquire()

    def finish() -> None:
        time.sleep(0.3)
        (run.path / "summary.json").write_text("{}")
        lock.release()

    thread = threading.Thread(target=finish)
    thread.start()
    assert carry_out(GRID, POINT, tmp_path).state == "complete"
    thread.join()
    assert run.rows == before


def test_an_error_of_a_run_is_returned_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **more: object) -> None:
        raise OSError(28, "No space left\non device", str(tmp_path / "x"))

    monkeypatch.setattr("grokfast.lab.sweep.trial.train", fail)
    ending = carry_out(GRID, POINT, tmp_path)
    assert ending.state == "failed"
    assert ending.error == f"no space left on device: {tmp_path / 'x'}"
