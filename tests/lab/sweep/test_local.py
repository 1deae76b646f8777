"""Worker processes: killed, interrupted, and with code of the user's own."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from sweeps import BASE, assert_complete_and_same, claimed

from forks import FORKS
from grokfast.lab import load_runs
from grokfast.lab.filters import FILTERS
from grokfast.lab.request import Request
from grokfast.lab.sweep import local
from grokfast.lab.sweep.space import Choices
from grokfast.lab.sweep.spec import OwnCode, Spec, save_spec, settle
from grokfast.lab.sweep.study import Sweep, Tally
from grokfast.lab.sweep.trial import carry_out
from grokfast.lab.tasks import TASKS


def test_a_dead_worker_is_replaced_and_ctrl_c_leaves_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "POLL", 0.1)
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: FORKS)
    base = BASE.having(steps=300, eval_every=5, checkpoint_seconds=0.0)
    save_spec(settle(Spec(base, (Choices("alpha", (0.9,)),))), tmp_path / "sweep")
    signals = [signal.SIGKILL, signal.SIGINT]

    with Sweep(tmp_path / "sweep") as sweep:

        def show(tally: Tally) -> None:
            """Kill the first worker in the middle of the run; interrupt this process when the second one has it."""
            attempt = len(sweep.trials())
            if signals and attempt == 3 - len(signals) and any(sweep.run(p).rows for p in tally.running):
                (worker,) = multiprocessing.active_children()
                sent = signals.pop(0)
                os.kill(worker.pid or 0 if sent == signal.SIGKILL else os.getpid(), sent)

        assert not local.run_local(sweep, 2, show)
        assert not signals
        assert not multiprocessing.active_children()
        (run,) = load_runs(sweep.runs)
        assert run.status == "incomplete"
        assert run.rows
        assert list((run.path / "checkpoints").glob("*.pt"))
        assert [t.state.name for t in sweep.trials()] == ["FAIL", "FAIL"]
        assert "stopped" in sweep.trials()[1].user_attrs
        with sweep.joined():
            claim = claimed(sweep)
            sweep.finish(claim, carry_out(sweep.spec, claim.point, sweep.runs))
    assert_complete_and_same(tmp_path / "sweep", tmp_path / "alone")


OWN = """
from dataclasses import dataclass
import grokfast
from grokfast.lab.tasks.modular.task import ModularConfig

@dataclass(frozen=True)
class MyTask(ModularConfig):
    pass

class Toy(grokfast.EMA):
    pass
"""


def test_workers_load_the_users_own_task_and_filter_by_relative_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(local, "POLL", 0.1)
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: FORKS)
    Path("mine.py").write_text(OWN)
    code = OwnCode(("mine.py:MyTask",), ("mine.py:Toy",))
    code.load()
    try:
        base = Request("mine.py:MyTask", tuple(pair for pair in BASE.values if pair[0] != "filter"))
        spec = save_spec(settle(Spec(base, (Choices("filter", (None, "mine.py:Toy")),))), tmp_path / "sweep")
        assert spec.own_code == code
        with Sweep(tmp_path / "sweep") as sweep:
            assert local.run_local(sweep, 1, lambda tally: None)
            assert sweep.tally().complete == 2
            assert sorted(run.filter or "none" for run in load_runs(sweep.runs)) == ["mine.py:Toy", "none"]
    finally:
        del TASKS["mine.py:MyTask"], FILTERS["mine.py:Toy"]
