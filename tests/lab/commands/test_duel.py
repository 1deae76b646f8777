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

import pytest
from searches import main_here, train_here
from tiny import TINY_FLAGS

from forks import FORKS, Fork
from grokfast.lab import load_runs
from grokfast.lab.commands.cli import main
from grokfast.lab.search.outcome import load_outcome
from grokfast.lab.settings import OPTIMIZERS
from grokfast.lab.training import run as training

Call = Callable[..., tuple[int, str, str]]

# Guessing reaches this level, sooner or later.
TASK = ["modmul", *TINY_FLAGS, "--steps", "40", "--eval-every", "2", "--until", "0.2", "--hold", "1"]
SIZES = ["--tunings", "2", "--trials", "3", "--seeds", "2", "--workers", "1"]
ARMS = ["adamw", "adamw+ema"]


def words(*more: str, arms: list[str] = ARMS) -> list[str]:
    return ["duel", TASK[0], *arms, *TASK[1:], *SIZES, *more]


def without_clock(folder: Path) -> list[Any]:
    """What a duel found, but for its seconds."""
    outcome = load_outcome(folder / "verdicts.json")
    runs = [{k: v for k, v in row.items() if k != "seconds"} for row in outcome.runs]
    return [outcome.trials, runs, outcome.settings, [row for row in outcome.verdicts if row["by"] != "seconds"]]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train in this process and measure no memory, which takes longer than these runs."""
    train_here(monkeypatch)
    monkeypatch.setattr(training, "forget_peak_memory", lambda: None)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A duel that ran undisturbed."""
    folder = tmp_path_factory.mktemp("duel") / "whole"
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        train_here(patch)
        patch.setattr(training, "forget_peak_memory", lambda: None)
        assert main(words("--duel-dir", str(folder))) == 0
    (folder / "out").write_text(out.getvalue())
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(whole, tmp_path / "duel")


def test_a_duel_says_its_budget_then_its_verdicts_and_writes_both(whole: Path) -> None:
    out = (whole / "out").read_text()
    assert "2 arms x 2 tunings x 3 trials x 1 seeds, then 4 sides (of them 2 controls) x 2 tunings x 2 fresh" in out
    assert "28 runs of at most 40 steps" in out
    assert "this may take up to" in out
    assert "Undecided, because 2 tunings are too few" in out
    assert "those of adamw+ema" in out  # the table of verdicts has both controls
    assert "adamw at the settings of adamw+ema" in out
    written = {"duel.json", "trials.jsonl", "trials.csv", "fresh.csv", "arms.csv", "SHA256SUMS", "verdicts.json"}
    assert written <= {path.name for path in whole.iterdir()}
    assert "grokfast train modmul" in load_outcome(whole / "verdicts.json").settings[0]["command"]


def test_what_would_decide_is_printed_as_a_command_that_adds_it(whole: Path, call: Call, tmp_path: Path) -> None:
    (line,) = [line for line in (whole / "out").read_text().splitlines() if "would probably decide" in line]
    assert "about 6 more tunings would probably decide" in line
    command = line[line.index("grokfast duel") :].split()
    assert command[-2:] == ["--tunings", "8"]
    assert command.count("--tunings") == 1
    assert main([*command[1:-1], "2", "--quiet"]) == 0  # it is a command that works


def test_the_same_command_again_trains_nothing_and_says_the_same(call: Call, whole: Path, folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    code, out, _ = call(*words("--duel-dir", str(folder)))
    assert code == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")} == before
    verdicts = [
        [line for line in text.splitlines() if line.startswith("By ")] for text in (out, (whole / "out").read_text())
    ]
    assert verdicts[0] == verdicts[1]
    assert without_clock(folder) == without_clock(whole)


def test_more_seeds_and_tunings_keep_the_runs_and_the_look_is_noted(call: Call, folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    first = load_outcome(folder / "verdicts.json")
    assert call(*words("--duel-dir", str(folder), "--quiet", "--seeds", "3", "--tunings", "3"))[0] == 0
    more = load_outcome(folder / "verdicts.json")
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())
    assert [row for row in more.settings if row["tuning"] < 2] == first.settings
    assert more.looks == [[2, 2], [3, 3]]
    assert "added after 1 verdict." in more.budget


def test_another_arm_joins_a_duel_without_training_the_first_again(call: Call, folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("summary.json")}
    where = ["--duel-dir", str(folder)]
    out = json.loads(call(*words(*where, "--json", arms=[*ARMS, "lion+rowclip"]))[1])
    assert {row["arm"] for row in out["arms"]} == {*ARMS, "lion+rowclip"}
    assert all(path.stat().st_mtime_ns == at for path, at in before.items())
    code, _, err = call(*words(*where, "--trials", "6"))
    assert (code, "holds another duel: trials is 3, got 6" in err) == (1, True)


def test_a_duel_killed_with_9_and_resumed_gives_the_same_verdict(call: Call, whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    for part, count in (("tuning", 2), ("tuning", 7), ("runs", 5)):
        fork = Fork(main_here, words("--duel-dir", str(folder), "--quiet"))
        deadline = time.monotonic() + 120
        while len(list((folder / part).glob("*/summary.json"))) < count and fork.returncode is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        fork.kill()
    assert not (folder / "verdicts.json").exists()
    assert call(*words("--duel-dir", str(folder), "--quiet"))[0] == 0
    assert without_clock(folder) == without_clock(whole)


def test_a_regime_without_tuning_runs_the_usual_settings_in_workers(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: FORKS)
    more = ["--regime", "paper", "--duel-dir", str(tmp_path / "duel"), "--json"]
    code, out, _ = call(*words(*more, arms=["adam", "adam+ema"]))
    assert code == 0
    assert not (tmp_path / "duel" / "tuning").exists()
    found = {(run.settings["filter"], run.settings["weight_decay"]) for run in load_runs(tmp_path / "duel" / "runs")}
    assert found == {(None, 0.0), ("ema", 0.005), (None, 0.005), ("ema", 0.0)}  # with both controls
    assert {row["word"] for row in json.loads(out)["verdicts"]} == {"undecided"}  # two seeds


def test_an_optimizer_and_a_filter_by_path_take_part(call: Call, tmp_path: Path) -> None:
    path = "pytorch_optimizer:Lion"
    more = ["--range", "lamb=0.5:2", "--duel-dir", str(tmp_path / "duel"), "--json", "--trials", "2"]
    code, out, err = call(*words(*more, arms=[path, f"{path}+grokfast:EMA"]))
    assert (code, err) == (0, "")
    tuned = {row["arm"]: sorted(row["setting"]) for row in json.loads(out)["arms"] if row["settings_of"] is None}
    assert tuned == {
        path: ["betas", "clip_norm", "lr", "weight_decay"],
        f"{path}+grokfast:EMA": ["betas", "clip_norm", "lamb", "lr", "weight_decay"],
    }
    assert path in OPTIMIZERS


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--filter", "ema"], "filter must not be fixed for all arms of this duel, got ema"),
        (["--trials", "0"], "trials must be >= 1, got 0"),
        (["--workers", "0"], "workers must be >= 1, got 0"),
        (["--regime", "paper"], "arms of modmul in regime paper must begin with adam, as published, got adamw"),
        (["--lr", "-1"], "lr must be in [0, inf), got -1.0"),
        (["--range", "window_size=2:9"], "window_size must be a setting of one of the arms"),
        (["--hold", "0"], "objective held needs hold >= 1, got 0"),
    ],
)
def test_a_duel_that_cannot_be_run_leaves_no_trace(more: list[str], message: str, call: Call, tmp_path: Path) -> None:
    code, _, err = call(*words("--duel-dir", str(tmp_path / "duel"), *more))
    assert (code, err.count("\n")) == (1, 1)
    assert message in err
    assert not (tmp_path / "duel").exists()


def test_a_damaged_or_foreign_folder_is_refused(call: Call, folder: Path, tmp_path: Path) -> None:
    (folder / "duel.json").write_text("{")
    assert f"{folder / 'duel.json'}: not JSON" in call(*words("--duel-dir", str(folder)))[2]
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "song.txt").write_text("la")
    assert "must be empty or hold duel.json" in call(*words("--duel-dir", str(foreign)))[2]


def test_one_arm_makes_no_duel(call: Call) -> None:
    assert "at least two different arms, got adamw adamw" in call(*words(arms=["adamw", "adamw"]))[2]
