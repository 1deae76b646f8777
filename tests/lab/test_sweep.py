"""Sweeps with real processes: killed, interrupted, joined; and the command around them."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import TINY, TINY_FLAGS, comparable

from grokfast.lab import load_runs
from grokfast.lab.commands.cli import main
from grokfast.lab.config import FilterConfig, LoopConfig, OptimConfig, RunConfig
from grokfast.lab.runs.directory import Run, run_path
from grokfast.lab.sweep import local
from grokfast.lab.sweep.progress import SweepProgress, fraction
from grokfast.lab.sweep.space import Choices
from grokfast.lab.sweep.spec import Spec, load_spec, save_spec, settle
from grokfast.lab.sweep.study import Sweep, Tally
from grokfast.lab.sweep.trial import carry_out

FLAGS = ["modmul", "--filter", "ema", *TINY_FLAGS, "--eval-every", "2"]
GRID = ["--grid", "alpha=0.9,0.98", "--grid", "lamb=1,2,5"]


def assert_whole_and_same(folder: Path, scratch: Path) -> None:
    """Every run of the grid is there once, complete, and as if it had been trained alone without interruption."""
    spec = load_spec(folder)
    expected = {run_path(spec.config(point), folder / "runs") for point in spec.points()}
    runs = load_runs(folder / "runs")
    assert {run.path for run in runs} == expected
    loop = dataclasses.replace(spec.base.loop, checkpoint_seconds=30.0)  # changes no result, and saves time
    spec = dataclasses.replace(spec, base=dataclasses.replace(spec.base, loop=loop))
    for point in spec.points():
        assert carry_out(spec, point, scratch).state == "complete"
        run, alone = (Run(run_path(spec.config(point), where)) for where in (folder / "runs", scratch))
        assert run.status == "complete"
        assert comparable(run.rows) == comparable(alone.rows)


def states(folder: Path) -> Counter[str]:
    with Sweep(folder) as sweep:
        return Counter(trial.state.name for trial in sweep.trials())


# Processes ------------------------------------------------------------------------------------------------------------


def test_killed_and_then_joined_by_two_equals_uninterrupted(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    grokfast = [sys.executable, "-m", "grokfast.lab.commands.cli", "sweep"]
    flags = [*FLAGS, *GRID, "--steps", "100", "--checkpoint-seconds", "0", "--sweep-dir", str(folder), "--quiet"]
    first = subprocess.Popen([*grokfast, *flags, "--workers", "1"], start_new_session=True)
    while True:
        assert first.poll() is None
        found = [run.status for run in load_runs(folder / "runs")]
        if "complete" in found and "incomplete" in found:
            break
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    complete = {run.name: run.rows for run in load_runs(folder / "runs") if run.status == "complete"}
    assert len(complete) < 6
    resume = [*grokfast, "--resume", str(folder), "--workers", "1", "--quiet"]
    joined = [subprocess.Popen(resume) for _ in range(2)]
    assert [process.wait() for process in joined] == [0, 0]
    assert_whole_and_same(folder, tmp_path / "alone")
    after = {run.name: run.rows for run in load_runs(folder / "runs")}
    assert all(after[name] == rows for name, rows in complete.items())  # to the second: not trained again
    found = states(folder)
    assert found["COMPLETE"] == 6
    assert set(found) <= {"COMPLETE", "FAIL"}
    assert found["FAIL"] <= 1  # what the worker had when it was killed


def test_a_dead_worker_is_replaced_and_ctrl_c_leaves_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "POLL", 0.1)
    loop = LoopConfig(steps=300, eval_every=5, checkpoint_seconds=0.0, threads=1)
    base = RunConfig(TINY, FilterConfig(filter="ema"), OptimConfig(), loop)
    save_spec(settle(Spec(base, (Choices("alpha", (0.9,)),))), tmp_path / "sweep")
    signals = [signal.SIGKILL, signal.SIGINT]

    with Sweep(tmp_path / "sweep") as sweep:

        def show(tally: Tally) -> None:
            """Kill the first worker in the middle of the run; interrupt this process when the second one has it."""
            attempt = len(sweep.trials())
            if signals and attempt == 3 - len(signals) and any(fraction(sweep.run(p)) > 0 for p in tally.running):
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
            claim = sweep.claim()
            assert claim is not None
            sweep.finish(claim, carry_out(sweep.spec, claim.point, sweep.runs))
    assert_whole_and_same(tmp_path / "sweep", tmp_path / "alone")


# The command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sweeps are carried out in this process, which imports nothing anew."""

    def run_here(sweep: Sweep, workers: int, show: Callable[[Tally], None], command: list[str]) -> bool:
        with sweep.joined():
            while claim := sweep.claim():
                show(sweep.tally())
                sweep.finish(claim, carry_out(sweep.spec, claim.point, sweep.runs, command=command))
        show(sweep.tally())
        return True

    monkeypatch.setattr(local, "run_local", run_here)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
def test_the_table_ranks_settings_and_the_same_command_trains_nothing_again(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", *FLAGS, "--grid", "lamb=1,2", "--seeds", "2", "--steps", "6", "--objective", "loss"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    (folder,) = Path("sweeps").iterdir()
    assert folder.name.startswith("modmul-lamb-")
    assert f"{folder}: 4 runs, 0 done" in printed
    assert "the best settings by best loss" in printed
    assert f"grokfast report {folder}/runs" in printed
    before = {run.name: run.rows for run in load_runs(folder / "runs")}
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["settings"]
    assert {run.name: run.rows for run in load_runs(folder / "runs")} == before
    assert [s["complete"] for s in found] == [2, 2]
    assert found[0]["median"] == pytest.approx(sum(found[0]["values"]) / 2)
    assert found[0]["median"] <= found[1]["median"]
    assert main(["sweep", "--resume", str(folder)]) == 0
    assert f"{folder}: 4 runs, 4 done" in capsys.readouterr().out
    assert main(["runs", "--runs-dir", str(folder / "runs"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4


@pytest.mark.usefixtures("here")
def test_a_failed_run_is_named_and_the_exit_code_is_not_zero(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **more: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr("grokfast.lab.sweep.trial.create_run", fail)
    assert main(["sweep", *FLAGS, "--preset", "paper-decay", "--grid", "weight_decay=0.5", "--quiet"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("grokfast: failed: modmul-ema-a0.98-l2-wd0.5-s0-")
    assert shown.err.endswith(": no\n")


@pytest.mark.usefixtures("here")
def test_an_interrupted_sweep_says_how_to_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "run_local", lambda *args: False)
    assert main(["sweep", *FLAGS, *GRID, "--sweep-dir", "a b"]) == 130
    assert "grokfast sweep --resume 'a b' goes on" in capsys.readouterr().err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs a task or --resume DIR, got neither"),
        (["--resume", "x", *FLAGS], "got both"),
        (["--resume", "nowhere"], "there is no sweep in nowhere"),
        ([*FLAGS, "--grid", "filter=ma"], "filter must be either fixed or varied"),
        ([*FLAGS, "--grid", "lamb=1", "--grid", "lamb=2"], "lamb must be varied once"),
        ([*FLAGS, *GRID, "--seeds", "0"], "seeds must be >= 1, got 0"),
        ([*FLAGS, *GRID, "--workers", "0"], "workers must be >= 1, got 0"),
        ([*FLAGS, *GRID, "--address", "h:1"], "address needs --engine ray"),
        ([*FLAGS, "--grid", "optimizer=sgd,muon", "--nesterov"], "nesterov"),
    ],
)
def test_a_mistake_gives_one_line_and_leaves_no_trace(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *words]) == 1
    error = capsys.readouterr().err
    assert message.lower() in error.lower()
    assert error.count("\n") == 1
    assert not Path("sweeps").exists()


def test_a_missing_package_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["sweep", *FLAGS, *GRID]) == 1
    assert capsys.readouterr().err == 'grokfast: error: this sweep needs optuna: pip install "grokfast[sweep]"\n'


def test_progress_counts_parts_of_runs_and_tells_the_time_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grokfast.lab.sweep.progress.LINE_SECONDS", 0.0)
    monkeypatch.setattr("grokfast.lab.sweep.progress.fraction", lambda run: 0.5)
    base = RunConfig(TINY, FilterConfig(filter="ema"), OptimConfig(), LoopConfig(steps=6, threads=1))
    spec = settle(Spec(base, (Choices("alpha", (0.9, 0.98)),)))
    save_spec(spec, tmp_path)
    with Sweep(tmp_path) as sweep, SweepProgress(sweep, quiet=False) as progress:
        progress.show(Tally(4, 0, [], {}, []))
        progress._began -= 100.0
        progress.show(Tally(4, 1, [], {}, spec.points()))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "0 of 4 runs, 0 running"
    assert second.startswith("1 of 4 runs, 2 running, about ")
    assert second.endswith("min left")  # 2 of 4 in 100 seconds


def test_the_progress_of_a_run_is_that_of_its_last_whole_line(tmp_path: Path) -> None:
    spec = settle(
        Spec(
            RunConfig(TINY, FilterConfig(filter="ema"), OptimConfig(), LoopConfig(steps=8, eval_every=2, threads=1)),
            (Choices("alpha", (0.9,)),),
        )
    )
    (point,) = spec.points()
    run = Run(run_path(spec.config(point), tmp_path))
    assert fraction(run) == 0.0
    looks = iter([False, True])
    carry_out(spec, point, tmp_path, should_stop=lambda: next(looks))
    assert fraction(run) == 0.5
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "tr')
    assert fraction(run) == 0.5
