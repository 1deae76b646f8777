"""`grokfast sweep` from its words to its table, its files and its exit code; also killed on the way."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from searches import FLAGS, InThisProcess, assert_same_as_alone, train_here

from forks import Fork, run_alone, run_cli
from grokfast.lab import load_runs
from grokfast.lab.commands import sweep as command
from grokfast.lab.commands.cli import main
from grokfast.lab.search import sweep, workers
from grokfast.lab.search.search import Sweep
from grokfast.lab.search.space import Choices
from grokfast.lab.search.workers import Job

GRID = ["--grid", "alpha=0.9,0.98", "--grid", "lamb=1,2,5"]


def test_killed_and_started_again_it_equals_one_that_was_not(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    grid = ["--grid", "alpha=0.9,0.98", "--grid", "lamb=1,2"]
    flags = [*FLAGS, *grid, "--steps", "60", "--checkpoint-seconds", "0", "--sweep-dir", str(folder), "--quiet"]
    first = Fork(run_alone, ["sweep", *flags, "--workers", "1"])
    while True:
        assert first.returncode is None, first.err
        found = [run.done for run in load_runs(folder / "runs")]
        if any(found) and not all(found):
            break
        time.sleep(0.02)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    complete = {run.name: run.rows for run in load_runs(folder / "runs") if run.done}
    assert len(complete) < 4
    again = Fork(run_cli, ["sweep", *flags, "--workers", "2"])
    assert again.wait() == 0, again.err
    dimensions = (Choices("alpha", (0.9, 0.98)), Choices("lamb", (1.0, 2.0)))
    sweep = Sweep(json.loads((folder / "sweep.json").read_text())["given"], dimensions)
    wanted = [sweep.settings(corner, 0) for corner in sweep.corners()]
    assert_same_as_alone(folder / "runs", wanted, tmp_path / "alone")
    after = {run.name: run.rows for run in load_runs(folder / "runs")}
    assert all(after[name] == rows for name, rows in complete.items())  # to the second: not trained again


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Sweeps train in this process, which imports nothing anew."""
    train_here(monkeypatch)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("here")
def test_the_table_ranks_settings_and_the_same_command_trains_nothing_again(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", *FLAGS, "--grid", "lamb=1,5", "--seeds", "2", "--steps", "6", "--objective", "best_loss"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    (folder,) = Path("sweeps").iterdir()
    assert folder.name.startswith("modmul-lamb-")
    assert f"{folder}: 2 settings x 2 seeds" in printed
    assert "the best settings by best validation loss:" in printed
    assert "train the best setting: grokfast train modmul --filter ema" in printed
    assert f"grokfast report {folder}/runs" in printed
    before = {run.name: run.rows for run in load_runs(folder / "runs")}
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["settings"]
    assert {run.name: run.rows for run in load_runs(folder / "runs")} == before
    assert [row["runs"] for row in found] == [2, 2]
    assert found[0]["median"] == pytest.approx(sum(found[0]["values"]) / 2)
    assert found[0]["median"] <= found[1]["median"]


@pytest.mark.usefixtures("here")
def test_a_sweep_until_a_level_says_that_level_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", *FLAGS, "--grid", "lamb=1,5", "--seed", "5", "--steps", "200", "--until", "0.05", "--hold", "1"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "the best settings by steps until validation accuracy 0.05 is reached and held:" in printed
    (command,) = [line for line in printed.splitlines() if line.startswith("train the best setting: ")]
    assert "--until 0.05" in command
    assert "--seed 5" in command
    assert main([*words, "--json"]) == 0
    (folder,) = Path("sweeps").iterdir()
    medians = sorted(row["median"] for row in json.loads(capsys.readouterr().out)["settings"])
    assert medians == sorted(float(run.crossing("held").step or 0) for run in load_runs(folder / "runs"))


@pytest.mark.usefixtures("here")
def test_a_search_by_tpe_tries_as_many_settings(capsys: pytest.CaptureFixture[str]) -> None:
    words = [*FLAGS, "--search", "tpe", "--trials", "6", "--range", "lamb=0.1:10:log", "--range", "clip_norm=0.5:2:off"]
    assert main(["sweep", *words, "--steps", "6", "--objective", "loss", "--prune", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["settings"]
    assert len(found) == 6
    assert all(0.1 <= row["setting"]["lamb"] <= 10 for row in found)


@pytest.mark.usefixtures("here")
def test_no_setting_is_recommended_if_none_got_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *FLAGS, "--grid", "lamb=1,2", "--steps", "6"]) == 0
    printed = capsys.readouterr().out
    assert "> 6" in printed
    assert "train the best setting" not in printed
    assert "no setting reached 0.95; the closest had validation accuracy 0" in printed


@pytest.mark.usefixtures("here")
def test_the_filter_may_be_varied(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [word for word in FLAGS if word not in ("--filter", "ema")]
    assert main(["sweep", *flags, "--grid", "filter=none,ema", "--steps", "4", "--objective", "loss", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["settings"]
    assert sorted(str(row["setting"]["filter"]) for row in found) == ["None", "ema"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("preset", command.PRESETS)
def test_presets_are_the_papers_grids(preset: str) -> None:
    about, dimensions = command.preset_of(preset)
    assert about in (None, "ema", "ma")
    assert all(isinstance(each, Choices) and len(each.values) >= 4 for each in dimensions)
    other = "ma" if about == "ema" else "ema"
    if about is not None:
        assert main(["sweep", "modmul", "--filter", other, "--preset", preset]) == 1


@pytest.mark.usefixtures("here")
def test_a_failed_run_is_named_and_the_exit_code_is_not_zero(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **more: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(workers, "train", fail)
    assert main(["sweep", *FLAGS, "--preset", "paper-decay", "--grid", "weight_decay=0.5", "--quiet"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("grokfast: failed: modmul-p7-width16-adam-ema-a0.98-l2-lr0.001-wd0.5-s0-")
    assert shown.err.endswith(": no\n")


@pytest.mark.usefixtures("here")
def test_an_interrupted_sweep_says_how_to_continue(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(InThisProcess):
        def wait(self, seconds: float) -> list[tuple[Job, str | None]]:
            os.kill(os.getpid(), signal.SIGINT)
            return super().wait(seconds)

    monkeypatch.setattr(sweep, "open_pool", Interrupted)
    assert main(["sweep", *FLAGS, *GRID, "--steps", "4", "--sweep-dir", "a b"]) == 130
    assert capsys.readouterr().err.endswith("stopped: the same command continues from here\n")
    assert len(load_runs("a b/runs")) == 1


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--filter", "ema", "modmul", *GRID], "TASK must come before the flags, got --filter"),
        ([*FLAGS], "needs --grid, --range or --preset, got none"),
        ([*FLAGS, "--grid", "filter=ma"], "filter must be either fixed or varied"),
        ([*FLAGS, "--grid", "lamb=1", "--grid", "lamb=2"], "lamb must be varied once"),
        ([*FLAGS, *GRID, "--seeds", "0"], "seeds must be >= 1, got 0"),
        ([*FLAGS, *GRID, "--workers", "0"], "workers must be >= 1, got 0"),
        ([*FLAGS, *GRID, "--address", "h:1"], "address needs --engine ray"),
        ([*FLAGS, "--grid", "optimizer=sgd,muon", "--nesterov"], "nesterov"),
        ([*FLAGS, *GRID, "--sweep-dir", "foreign"], "foreign must be empty or hold sweep.json"),
    ],
)
def test_a_mistake_gives_one_line_and_leaves_no_trace(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("foreign").mkdir()
    Path("foreign/song.txt").write_text("la")
    assert main(["sweep", *words]) == 1
    error = capsys.readouterr().err
    assert message.lower() in error.lower()
    assert error.count("\n") == 1
    assert not Path("sweeps").exists()
    assert [path.name for path in Path("foreign").iterdir()] == ["song.txt"]


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["logits_gini"], "objective logits_gini needs --measures"),
        (["beauty", "--measures"], "effective_rank, got beauty"),
    ],
)
def test_an_objective_that_is_not_recorded_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["sweep", *FLAGS, "--grid", "lr=0.001,0.01", "--objective", *words]) == 1
    assert message in capsys.readouterr().err
    assert not Path("sweeps").exists()


@pytest.mark.usefixtures("here")
def test_a_sweep_ranks_by_a_measure_of_which_more_is_better(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--grid", "lr=0.001,0.03", "--steps", "20", "--measures", "--objective", "logits_gini", "--json"]
    assert main(["sweep", *FLAGS, *words]) == 0
    found = json.loads(capsys.readouterr().out)["settings"]
    assert found[0]["median"] > found[1]["median"] > 0
    assert found[0]["low"] <= found[0]["high"]
    ends = {
        run.settings["lr"]: (run.rows[-1].more or {})["logits_gini"]
        for run in load_runs(next(Path("sweeps").glob("*/runs")))
    }
    assert found[0]["median"] == max(ends.values())


@pytest.mark.usefixtures("here")
def test_an_optimizer_by_path_can_be_varied(capsys: pytest.CaptureFixture[str]) -> None:
    grid = ["--grid", "optimizer=adam,pytorch_optimizer:Lion", "--steps", "4", "--objective", "loss", "--json"]
    assert main(["sweep", *FLAGS, *grid]) == 0
    names = [row["setting"]["optimizer"] for row in json.loads(capsys.readouterr().out)["settings"]]
    assert sorted(names) == ["adam", "pytorch_optimizer:Lion"]


def test_a_missing_package_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["sweep", *FLAGS, *GRID]) == 1
    assert capsys.readouterr().err == 'grokfast: error: this needs optuna: pip install "grokfast[sweep]"\n'
