"""`grokfast sweep` from its words to its table, its files and its exit code."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import SimpleNamespace

import pytest
from sweeps import BASE, FLAGS, assert_complete_and_same, states

from forks import Fork, run_alone, run_cli
from grokfast.lab import Run, load_runs
from grokfast.lab.commands import sweep_run, terminal
from grokfast.lab.commands.cli import main
from grokfast.lab.commands.sweep_run import used_budget, watch_tallies
from grokfast.lab.filters import FILTERS
from grokfast.lab.runs.writer import run_path
from grokfast.lab.sweep import local
from grokfast.lab.sweep.space import Choices
from grokfast.lab.sweep.spec import Spec, save_spec, settle
from grokfast.lab.sweep.study import Sweep, Tally
from grokfast.lab.sweep.trial import carry_out
from grokfast.lab.tasks import TASKS
from grokfast.lab.training.messages import Tell

GRID = ["--grid", "alpha=0.9,0.98", "--grid", "lamb=1,2,5"]


def test_killed_and_then_joined_by_two_equals_uninterrupted(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    grid = ["--grid", "alpha=0.9,0.98", "--grid", "lamb=1,2"]
    flags = [*FLAGS, *grid, "--steps", "60", "--checkpoint-seconds", "0", "--sweep-dir", str(folder), "--quiet"]
    first = Fork(run_alone, ["sweep", *flags, "--workers", "1"])
    while True:
        assert first.returncode is None, first.err
        found = [run.status for run in load_runs(folder / "runs")]
        if "complete" in found and "incomplete" in found:
            break
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    complete = {run.name: run.rows for run in load_runs(folder / "runs") if run.status == "complete"}
    assert len(complete) < 4
    joined = [Fork(run_cli, ["sweep", "--resume", str(folder), "--workers", "1", "--quiet"]) for _ in range(2)]
    assert [fork.wait() for fork in joined] == [0, 0]
    assert_complete_and_same(folder, tmp_path / "alone")
    after = {run.name: run.rows for run in load_runs(folder / "runs")}
    assert all(after[name] == rows for name, rows in complete.items())  # to the second: not trained again
    found = states(folder)
    assert found["COMPLETE"] == 4
    assert set(found) <= {"COMPLETE", "FAIL"}
    assert found["FAIL"] <= 1  # what the worker had when it was killed


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[None]:
    """Sweeps are carried out in this process, which imports nothing anew; code of the user's own is forgotten after."""

    def run_here(
        sweep: Sweep, workers: int, show: Callable[[Tally], None], tell: Tell, command: list[str] | None
    ) -> bool:
        with sweep.joined():
            while claim := sweep.claim():
                show(sweep.tally())
                sweep.finish(claim, carry_out(sweep.spec, claim.point, sweep.runs, tell=tell, command=command))
        show(sweep.tally())
        return True

    monkeypatch.setattr(local, "run_local", run_here)
    monkeypatch.chdir(tmp_path)
    yield
    for known in (TASKS, FILTERS):
        for name in [name for name in known if ":" in name]:
            del known[name]


@pytest.mark.usefixtures("here")
def test_the_table_ranks_settings_and_the_same_command_trains_nothing_again(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", *FLAGS, "--grid", "lamb=1,5", "--seeds", "2", "--steps", "6", "--objective", "loss"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    (folder,) = Path("sweeps").iterdir()
    assert folder.name.startswith("modmul-lamb-")
    assert f"{folder}: 4 runs, 0 done" in printed
    assert "the best settings by best validation loss:" in printed
    assert "train the best setting: grokfast train modmul --filter ema --lamb " in printed
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


@pytest.mark.usefixtures("here")
def test_a_sweep_until_a_level_says_that_level_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", *FLAGS, "--grid", "lamb=1,5", "--seed", "5", "--steps", "200", "--until", "0.05"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "the best settings by steps to validation accuracy 0.05:" in printed
    (command,) = [line for line in printed.splitlines() if line.startswith("train the best setting: ")]
    assert "--until 0.05" in command
    assert "--seed 5" in command
    assert main([*words, "--json"]) == 0
    (folder,) = Path("sweeps").iterdir()
    medians = sorted(s["median"] for s in json.loads(capsys.readouterr().out)["settings"])
    assert medians == sorted(float(run.crossing().step or 0) for run in load_runs(folder / "runs"))


@pytest.mark.usefixtures("here")
def test_no_setting_is_recommended_where_none_got_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *FLAGS, "--grid", "lamb=1,2", "--steps", "6"]) == 0
    printed = capsys.readouterr().out
    assert "> 6" in printed
    assert "train the best setting" not in printed
    assert "no setting got to 0.95; the nearest had validation accuracy 0" in printed


@pytest.mark.usefixtures("here")
def test_the_filter_may_be_varied(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [word for word in FLAGS if word not in ("--filter", "ema")]
    assert main(["sweep", *flags, "--grid", "filter=none,ema", "--steps", "4", "--objective", "loss", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["settings"]
    assert sorted(str(s["setting"]["filter"]) for s in found) == ["None", "ema"]


@pytest.mark.usefixtures("here")
def test_a_failed_run_is_named_and_the_exit_code_is_not_zero(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **more: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr("grokfast.lab.sweep.trial.train", fail)
    assert main(["sweep", *FLAGS, "--preset", "paper-decay", "--grid", "weight_decay=0.5", "--quiet"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("grokfast: failed: modmul-p7-width16-ema-a0.98-l2-wd0.5-s0-")
    assert shown.err.endswith(": no\n")


@pytest.mark.usefixtures("here")
def test_an_interrupted_sweep_says_how_to_continue(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "run_local", lambda *args: False)
    assert main(["sweep", *FLAGS, *GRID, "--sweep-dir", "a b"]) == 130
    assert "grokfast sweep --resume 'a b' continues" in capsys.readouterr().err


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


@pytest.mark.usefixtures("here")
def test_code_of_the_users_own_is_named_again_to_resume(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine.py").write_text(OWN)
    names = ["--task", "mine.py:MyTask", "--filter", "mine.py:Toy"]
    flags = ["mine.py:MyTask", *names[2:], *FLAGS[3:], "--grid", "lamb=1,2", "--steps", "4", "--sweep-dir", "s"]
    with monkeypatch.context() as patch:
        patch.setattr(local, "run_local", lambda *args: False)
        assert main(["sweep", *flags]) == 130
    assert f"grokfast sweep --resume s {' '.join(names)} continues" in capsys.readouterr().err
    del TASKS["mine.py:MyTask"], FILTERS["mine.py:Toy"]  # as in another process
    assert main(["sweep", "--resume", "s"]) == 1
    error = capsys.readouterr().err
    assert f"must be named again: give {' '.join(names)}\n" in error
    assert error.count("\n") == 1
    assert main(["sweep", "--resume", "s", *names, "--quiet"]) == 0
    assert [run.status for run in load_runs("s/runs")] == ["complete"] * 2


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs a task or --resume DIR, got neither"),
        (["--resume", "x", "modmul"], "got both"),
        (["--filter", "ema", "modmul", *GRID], "TASK must come before the flags, got --filter"),
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


# Progress -------------------------------------------------------------------------------------------------------------


def test_progress_counts_parts_of_runs_and_estimates_the_time_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 100.0])
    monkeypatch.setattr(terminal, "LINE_SECONDS", 0.0)
    monkeypatch.setattr(sweep_run, "used_budget", lambda run: 0.5)
    monkeypatch.setattr(sweep_run, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    spec = settle(Spec(BASE, (Choices("alpha", (0.9, 0.98)),)))
    save_spec(spec, tmp_path)
    with Sweep(tmp_path) as sweep, terminal.show_progress("sweep", quiet=False) as progress:
        watch = watch_tallies(sweep, progress)
        watch(Tally(4, 0, [], {}, []))
        watch(Tally(4, 1, [], {}, spec.points()))
    first, second = capsys.readouterr().err.splitlines()
    assert first == "0 of 4 runs, 0 running"
    assert second == "1 of 4 runs, 2 running, about 2 min left"  # 2 of 4 in 100 seconds


def test_the_progress_of_a_run_is_read_from_its_last_complete_line(tmp_path: Path) -> None:
    spec = Spec(BASE, (Choices("alpha", (0.9,)),))
    (point,) = spec.points()
    run = Run(run_path(spec.config(point), tmp_path))
    assert used_budget(run) == 0.0
    carry_out(spec, point, tmp_path, should_stop=lambda: len(run.rows) == 2)
    assert used_budget(run) == 0.5
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 8, "tr')
    assert used_budget(run) == 0.5
