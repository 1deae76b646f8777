"""`grokfast duel` from the words that are typed to the verdict, also when it is killed on the way."""

from __future__ import annotations

import io
import json
import multiprocessing
import shutil
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import duels
import pytest
from tiny import TINY_FLAGS

from forks import FORKS, Fork
from grokfast.lab import load_runs
from grokfast.lab.commands import duel_run
from grokfast.lab.commands.cli import main
from grokfast.lab.config import OPTIMIZERS
from grokfast.lab.sweep import local
from grokfast.lab.training import train

Call = Callable[..., tuple[int, str, str]]

# Guessing reaches this level, sooner or later.
TASK = ["modmul", *TINY_FLAGS, "--steps", "40", "--eval-every", "2", "--until", "0.2"]
SIZES = ["--trials", "3", "--seeds", "5", "--workers", "1"]
ARMS = ["adamw", "adamw+ema"]


def words(*more: str, arms: list[str] = ARMS) -> list[str]:
    return ["duel", TASK[0], *arms, *TASK[1:], *SIZES, *more]


def without_clock(text: str) -> dict[str, Any]:
    """What a duel found, but for its seconds and where it is."""
    data = json.loads(text)
    arms = [{k: v for k, v in arm.items() if k != "seconds"} for arm in data["arms"]]
    return {"arms": arms, "verdicts": [v for v in data["verdicts"] if v["by"] == "steps"]}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train in this process and measure no memory, which takes longer than these runs."""
    monkeypatch.setattr(local, "run_local", duels.run_here)
    monkeypatch.setattr(train, "forget_peak_memory", lambda: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A duel that ran undisturbed."""
    folder = tmp_path_factory.mktemp("duel")
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr(local, "run_local", duels.run_here)
        patch.setattr(train, "forget_peak_memory", lambda: None)
        assert main(words("--duel-dir", str(folder))) == 0
    (folder / "out").write_text(out.getvalue())
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(whole, tmp_path / "duel")


def test_a_duel_says_its_budget_then_its_verdict_and_writes_both(whole: Path) -> None:
    out = (whole / "out").read_text()
    assert "2 arms x 3 trials x 1 tuning seeds, then 2 arms x 5 fresh seeds: 16 runs of at most 40 steps" in out
    assert "this may take up to" in out
    assert "adamw+ema: fresh seeds, about" in out
    assert "by steps: adamw+ema" in out
    assert "by seconds: adamw+ema" in out
    assert "luck of tuning" in out
    assert "train adamw+ema: grokfast train modmul --filter ema --optimizer adamw" in out
    assert {"duel.json", "verdict.json", "verdict.md", "verdict.png"} <= {path.name for path in whole.iterdir()}


def test_the_same_command_again_trains_nothing_and_says_the_same(call: Call, whole: Path, folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    code, out, _ = call(*words("--duel-dir", str(folder)))
    assert code == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")} == before
    assert [line for line in out.splitlines() if line.startswith("by ")] == [
        line for line in (whole / "out").read_text().splitlines() if line.startswith("by ")
    ]


def test_tuning_and_verdict_have_no_seed_in_common_and_more_seeds_keep_the_runs(call: Call, folder: Path) -> None:
    runs = {kind: load_runs(folder / "adamw" / kind / "runs") for kind in ("tuning", "verdict")}
    tuning, fresh = ({run.loop["seed"] for run in found} for found in runs.values())
    assert (tuning, fresh) == ({0}, {1, 2, 3, 4, 5})
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    first = without_clock((folder / "verdict.json").read_text())
    more = without_clock(call(*words("--duel-dir", str(folder), "--json", "--seeds", "6"))[1])
    assert set(more["arms"][0]["steps"]) == {"1", "2", "3", "4", "5", "6"}
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())
    assert first["arms"][0]["setting"] == more["arms"][0]["setting"]


def test_settings_of_an_earlier_duel_are_run_on_more_seeds_without_tuning(
    call: Call, whole: Path, tmp_path: Path
) -> None:
    first, kept = without_clock((whole / "verdict.json").read_text()), ["--settings", str(whole / "verdict.json")]
    code, out, _ = call(*words(*kept, "--duel-dir", str(tmp_path), "--seeds", "6"))
    assert code == 0
    assert f"adamw adamw+ema as in {whole}/verdict.json, no tuning, then 2 arms x 6 fresh seeds: 12 runs" in out
    assert not list(tmp_path.glob("*/tuning"))
    more = without_clock((tmp_path / "verdict.json").read_text())
    for before, now in zip(first["arms"], more["arms"], strict=False):
        assert {name: now["steps"][name] for name in before["steps"]} == before["steps"]
        assert [now[name] for name in ("setting", "tuning")] == [before[name] for name in ("setting", "tuning")]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--trials", "4"], "settings must be of a duel with the same task, regime, trials and flags, got"),
        (
            ["--range", "lr=0.1:1"],
            "settings were found in the usual ranges: no range must be given, got lr=0.1:1",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    call: Call, whole: Path, tmp_path: Path, more: list[str], message: str
) -> None:
    kept = ["--settings", str(whole / "verdict.json"), "--duel-dir", str(tmp_path / "new")]
    code, _, err = call(*words(*kept, *more))
    assert code != 0
    assert message in err
    assert not (tmp_path / "new").exists()
    code, _, err = call(*words(*kept, arms=["sgd", "adam"]))
    assert (code != 0, "verdict.json has none of the arms that are tuned" in err) == (True, True)


def test_a_range_that_no_arm_has_is_refused(call: Call, tmp_path: Path) -> None:
    code, _, err = call(*words("--range", "alpha=0.5:0.9", "--duel-dir", str(tmp_path / "new"), arms=["adamw", "adam"]))
    assert (code != 0, (tmp_path / "new").exists()) == (True, False)
    assert "alpha" in err


def test_an_arm_that_an_earlier_duel_lacks_is_tuned(call: Call, whole: Path, tmp_path: Path) -> None:
    kept = ["--settings", str(whole / "verdict.json"), "--duel-dir", str(tmp_path)]
    out = call(*words(*kept, arms=["adamw", "lion"]))[1]
    assert f"adamw as in {whole}/verdict.json, 1 arms x 3 trials x 1 tuning seeds, then 2 arms x 5 fresh seeds" in out
    assert [path.parent.name for path in tmp_path.glob("*/tuning")] == ["lion"]


def test_another_arm_joins_a_duel_without_training_the_first_again(call: Call, folder: Path) -> None:
    where = ["--duel-dir", str(folder), "--json"]
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    joined = without_clock(call(*words(*where, arms=["adamw", "lion+rowclip"]))[1])
    assert [arm["name"] for arm in joined["arms"]] == ["adamw", "lion+rowclip", "adamw+ema"]
    assert [verdict["arm"] for verdict in joined["verdicts"]] == ["lion+rowclip", "adamw+ema"]
    fewer = without_clock(call(*words(*where, "--seeds", "2"))[1])
    assert {arm["name"]: len(arm["steps"]) for arm in fewer["arms"]} == {
        "adamw": 5,
        "adamw+ema": 5,
        "lion+rowclip": 5,
    }
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())
    assert "row_norm" in joined["arms"][1]["setting"]
    code, _, err = call(*words(*where, "--trials", "6"))
    assert (code, "holds another duel" in err) == (1, True)


def test_a_duel_killed_with_9_and_resumed_gives_the_same_verdict(call: Call, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    for part in ("adamw+ema/tuning", "adamw/verdict"):
        fork = Fork(duels.main_here, words("--duel-dir", str(folder), "--quiet"))
        deadline = time.monotonic() + 120
        while not list((folder / part / "runs").glob("*/summary.json")) and fork.returncode is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        fork.kill()
    assert not (folder / "verdict.json").exists()
    resumed = call(*words("--duel-dir", str(folder), "--json"))[1]
    assert without_clock(resumed) == without_clock((whole / "verdict.json").read_text())


def test_a_regime_without_tuning_runs_the_usual_settings_in_workers(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: FORKS)
    more = ["--regime", "paper", "--seeds", "2", "--duel-dir", str(tmp_path), "--json"]
    code, out, _ = call(*words(*more, arms=["adam", "adam+ema"]))
    assert code == 0
    assert not (tmp_path / "adam" / "tuning").exists()
    (run, *_) = load_runs(tmp_path / "adam+ema" / "verdict" / "runs")
    assert (run.weight_decay, run.settings["filter"]["alpha"]) == (0.005, 0.98)
    assert [v["word"] for v in json.loads(out)["verdicts"] if v["by"] == "steps"] == ["not decided"]  # two seeds


def test_an_arm_that_helps_is_checked_by_a_control_at_its_settings(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # At this learning rate nothing is learnt, unless a filter makes gradients larger.
    found = {"sgd": {"weight_decay": 1e-5}, "sgd+ema": {"weight_decay": 1e-4, "alpha": 0.1, "lamb": 1e5}}
    monkeypatch.setattr(duel_run, "best_setting", lambda sweep: tuple(found[sweep.folder.parent.name].items()))
    fixed = ["--lr", "1e-5", "--momentum", "0", "--until", "0.18", "--steps", "200", "--eval-every", "10"]
    more = [*fixed, "--trials", "1", "--seeds", "6", "--duel-dir", str(tmp_path)]
    out = call(*words(*more, arms=["sgd", "sgd+ema"]))[1]
    assert "an arm that beats what it adds to is checked by 6 runs without what it adds" in out
    assert "by steps: sgd+ema helps" in out
    assert "faster than sgd at the settings of sgd+ema" in out
    control = json.loads((tmp_path / "verdict.json").read_text())["arms"][2]
    assert (control["name"], control["setting"]) == ("sgd at the settings of sgd+ema", {"weight_decay": 1e-4})
    assert list(control["steps"]) == ["1", "2", "3", "4", "5", "6"]


def test_an_optimizer_and_a_filter_by_path_take_part(call: Call, tmp_path: Path) -> None:
    path = "pytorch_optimizer:Lion"
    more = ["--range", "lamb=0.5:2", "--duel-dir", str(tmp_path), "--json", "--trials", "2"]
    code, out, err = call(*words(*more, arms=[path, f"{path}+grokfast:EMA"]))
    assert (code, err) == (0, "")
    assert [sorted(arm["setting"]) for arm in json.loads(out)["arms"]] == [
        ["betas", "lr", "weight_decay"],
        ["betas", "lamb", "lr", "weight_decay"],
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
        (["--regime", "paper"], "arms of modmul in regime paper must begin with adam, as published, got adamw"),
        (["--lr", "-1"], "lr must be in [0, inf), got -1.0"),
    ],
)
def test_a_duel_that_cannot_be_run_leaves_no_trace(more: list[str], message: str, call: Call, tmp_path: Path) -> None:
    code, _, err = call(*words("--duel-dir", str(tmp_path / "duel"), *more))
    assert (code, err.count("\n")) == (1, 1)
    assert message in err
    assert not (tmp_path / "duel").exists()


def test_a_regime_without_tuning_takes_no_range(call: Call, tmp_path: Path) -> None:
    more = ["--regime", "paper", "--range", "lr=0.1:1", "--duel-dir", str(tmp_path / "duel")]
    assert (
        "regime paper tunes nothing: no range must be given, got lr=0.1:1"
        in call(*words(*more, arms=["adam", "adam+ema"]))[2]
    )


def test_a_damaged_specification_is_named(call: Call, folder: Path) -> None:
    (folder / "duel.json").write_text("{")
    assert f"{folder / 'duel.json'}: not JSON" in call(*words("--duel-dir", str(folder)))[2]


def test_one_arm_is_no_duel(call: Call) -> None:
    assert "at least two different arms, got adamw adamw" in call(*words(arms=["adamw", "adamw"]))[2]
