"""`grokfast duel` from the words that are typed to the verdict, also when it is killed on the way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duels
import pytest
from tiny import TINY_FLAGS

from grokfast.lab import load_runs
from grokfast.lab.optimizers import OPTIMIZERS
from grokfast.lab.sweep import local

Call = Callable[..., tuple[int, str, str]]

# Guessing reaches this level, sooner or later.
TASK = ["modmul", *TINY_FLAGS, "--steps", "40", "--eval-every", "2", "--until", "0.2"]
SIZES = ["--trials", "5", "--seeds", "5", "--workers", "1"]
ARMS = ["adamw", "adamw+ema"]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "run_local", duels.run_here)


def words(*more: str, arms: list[str] = ARMS) -> list[str]:
    return ["duel", TASK[0], *arms, *TASK[1:], *SIZES, *more]


def without_clock(text: str) -> dict[str, Any]:
    """What a duel found, but for its seconds and where it is."""
    data = json.loads(text)
    arms = [{k: v for k, v in arm.items() if k != "seconds"} for arm in data["arms"]]
    return {"arms": arms, "verdicts": [v for v in data["verdicts"] if v["by"] == "steps"]}


def test_a_duel_says_its_budget_then_its_verdict_and_writes_both(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = call(*words("--seeds", "6"))
    assert code == 0
    assert "2 arms x 5 trials x 1 tuning seeds, then 2 arms x 6 fresh seeds: 22 runs of at most 40 steps" in out
    assert "this may take up to" in out
    assert "for all arms" in out
    assert "by steps: adamw+ema" in out
    assert "by seconds: adamw+ema" in out
    assert "luck of tuning" in out
    assert "train adamw+ema: grokfast train modmul --filter ema --optimizer adamw" in out
    (folder,) = Path("duels").iterdir()
    assert {"duel.json", "verdict.json", "verdict.md", "verdict.png"} <= {path.name for path in folder.iterdir()}
    again = call(*words("--seeds", "6"))  # everything is there
    assert again[0] == 0
    assert again[1].splitlines()[-8:-4] == out.splitlines()[-8:-4]


def test_tuning_and_verdict_have_no_seed_in_common_and_more_seeds_keep_the_runs(call: Call, tmp_path: Path) -> None:
    where = ["--duel-dir", str(tmp_path), "--json"]
    first = without_clock(call(*words(*where))[1])
    runs = {kind: load_runs(tmp_path / "adamw" / kind / "runs") for kind in ("tuning", "verdict")}
    tuning, fresh = ({run.loop["seed"] for run in found} for found in runs.values())
    assert (tuning, fresh) == ({0}, {1, 2, 3, 4, 5})
    before = {run.path: (run.path / "summary.json").stat().st_mtime_ns for run in runs["verdict"]}
    more = without_clock(call(*words(*where, "--seeds", "7"))[1])
    assert set(more["arms"][0]["steps"]) == {"1", "2", "3", "4", "5", "6", "7"}
    assert all((path / "summary.json").stat().st_mtime_ns == at for path, at in before.items())
    assert first["arms"][0]["setting"] == more["arms"][0]["setting"]


def test_another_arm_joins_a_duel_without_training_the_first_again(call: Call, tmp_path: Path) -> None:
    where = ["--duel-dir", str(tmp_path), "--json"]
    call(*words(*where))
    before = len(load_runs(tmp_path / "adamw" / "tuning" / "runs"))
    joined = without_clock(call(*words(*where, arms=["adamw", "lion+rowclip"]))[1])
    assert [arm["name"] for arm in joined["arms"]] == ["adamw", "lion+rowclip"]
    assert len(load_runs(tmp_path / "adamw" / "tuning" / "runs")) == before
    assert "row_norm" in joined["arms"][1]["setting"]
    assert call(*words(*where, "--trials", "6"))[0] == 1  # another duel


def test_a_duel_killed_with_9_and_resumed_gives_the_same_verdict(call: Call, tmp_path: Path) -> None:
    whole = call(*words("--duel-dir", str(tmp_path / "whole"), "--json"))[1]
    folder = tmp_path / "killed"
    command = [sys.executable, duels.__file__, *words("--duel-dir", str(folder), "--quiet")]
    for part in ("adamw+ema/tuning", "adamw/verdict"):
        process = subprocess.Popen(command)
        deadline = time.monotonic() + 120
        while not list((folder / part / "runs").glob("*/summary.json")) and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not (folder / "verdict.json").exists()
    assert without_clock(call(*words("--duel-dir", str(folder), "--json"))[1]) == without_clock(whole)


def test_a_regime_without_tuning_runs_the_usual_settings_in_workers(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    more = ["--regime", "paper", "--seeds", "2", "--duel-dir", str(tmp_path), "--json"]
    code, out, _ = call(*words(*more, arms=["adam", "adam+ema"]))
    assert code == 0
    assert not (tmp_path / "adam" / "tuning").exists()
    (run, *_) = load_runs(tmp_path / "adam+ema" / "verdict" / "runs")
    assert (run.weight_decay, run.settings["filter"]["alpha"]) == (0.005, 0.98)
    assert {v["word"] for v in json.loads(out)["verdicts"]} == {"not decided"}  # two seeds


def test_an_optimizer_and_a_filter_by_path_take_part(call: Call, tmp_path: Path) -> None:
    path = "pytorch_optimizer:Lion"
    more = ["--range", "lamb=0.5:2", "--duel-dir", str(tmp_path), "--json", "--trials", "2"]
    code, out, err = call(*words(*more, arms=[path, f"{path}+grokfast:EMA"]))
    assert (code, err) == (0, "")
    assert [sorted(arm["setting"]) for arm in json.loads(out)["arms"]] == [
        ["lr", "weight_decay"],
        ["lamb", "lr", "weight_decay"],
    ]
    assert path in OPTIMIZERS


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--filter", "ema"], "filter must not be fixed for all arms of this duel, got ema"),
        (["--optimizer", "sgd"], "optimizer must not be fixed"),
        (["--trials", "0"], "trials must be >= 1, got 0"),
        (["--seeds", "0"], "seeds must be >= 1, got 0"),
        (["--workers", "0"], "workers must be >= 1, got 0"),
        (["--lr", "-1"], "Invalid learning rate: -1"),
    ],
)
def test_a_duel_that_cannot_be_run_leaves_no_trace(more: list[str], message: str, call: Call, tmp_path: Path) -> None:
    code, _, err = call(*words("--duel-dir", str(tmp_path / "duel"), *more))
    assert (code, err.count("\n")) == (1, 1)
    assert message in err
    assert not (tmp_path / "duel").exists()


def test_one_arm_is_no_duel(call: Call) -> None:
    assert "at least two different arms, got adamw adamw" in call(*words(arms=["adamw", "adamw"]))[2]
