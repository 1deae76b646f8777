"""`grokfast runs`: a list, one run, or several beside each other; complete, interrupted or damaged."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from made import made_run
from tiny import tiny

from grokfast.lab.commands.runs import RESULTS
from grokfast.lab.runs.writer import open_for_writing
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.run import train

Call = Callable[..., tuple[int, str, str]]


def test_runs_lists_what_can_be_read_and_names_the_rest(call: Call, tmp_path: Path) -> None:
    done = train(tiny(), tmp_path)
    stopped = train(tiny(seed=1), tmp_path, Watcher(should_stop=lambda: True))
    broken = train(tiny(seed=2), tmp_path)
    (broken.path / "metrics.jsonl").write_text("{\n")
    code, out, err = call("runs", "--runs-dir", tmp_path)
    assert code == 1
    assert [(line.split()[0], line.split()[1]) for line in out.splitlines()[1:] if "modmul" in line] == [
        (done.name, "complete"),
        (stopped.name, "incomplete"),
    ]
    assert err.startswith(f"grokfast: {broken.name} is left out: ")
    assert err.count("\n") == 1
    listed = json.loads(call("runs", "--json", "--runs-dir", tmp_path)[1])
    assert [(run["status"], run["step"]) for run in listed] == [("complete", 30), ("incomplete", 3)]


def test_runs_can_be_filtered_and_sorted(call: Call, tmp_path: Path) -> None:
    plain = train(tiny(), tmp_path)
    short = train(tiny(filter="ema", steps=6), tmp_path)
    stopped = train(tiny(filter="ema", seed=1), tmp_path, Watcher(should_stop=lambda: True))
    wild = train(tiny(optimizer="sgd", lr=1e30, steps=60), tmp_path)

    def names(*words: str) -> list[str]:
        lines = call("runs", *words, "--runs-dir", tmp_path)[1].splitlines()
        return [line.split("\t")[0] for line in lines[1:]]

    assert names("--filter", "ema") == [short.name, stopped.name]
    assert names("--filter", "none") == [plain.name, wild.name]
    assert names("--status", "incomplete") == [stopped.name]
    assert names("--status", "diverged") == [wild.name]
    assert names("--filter", "ema", "--sort", "step") == [stopped.name, short.name]
    assert names("--sort", "run") == sorted(run.name for run in (plain, short, stopped, wild))
    assert names("--sort", "first")[-1] == stopped.name  # nothing is known of it yet


def test_a_run_that_is_being_trained_is_running(call: Call, tmp_path: Path) -> None:
    run = train(tiny(), tmp_path, Watcher(should_stop=lambda: True))
    with open_for_writing(run):
        assert "\trunning\t" in call("runs", "--runs-dir", tmp_path)[1]
    assert "\tincomplete\t" in call("runs", "--runs-dir", tmp_path)[1]


def test_a_table_that_goes_to_no_terminal_has_tabs_and_whole_names(call: Call, tmp_path: Path) -> None:
    run = train(tiny(filter="ema", steps=3), tmp_path)
    head, line = call("runs", "--runs-dir", tmp_path)[1].splitlines()
    assert head.split("\t") == ["run", "status", "step", "train", "val", "loss", "first", "sec"]
    assert line.split("\t")[:3] == [run.name, "complete", "3"]


def test_a_directory_without_runs_is_said_to_have_none(call: Call, tmp_path: Path) -> None:
    assert call("runs", "--runs-dir", tmp_path / "nowhere")[1] == f"no runs in {tmp_path / 'nowhere'}\n"
    assert call("runs", "--filter", "ema", "--runs-dir", tmp_path)[1] == f"no such runs in {tmp_path}\n"


def test_one_run_is_shown_with_settings_and_results(call: Call, tmp_path: Path) -> None:
    run = train(tiny(filter="ema", two_stage=5, snapshots=1), tmp_path)
    out = call("runs", run.name[-8:], "--runs-dir", tmp_path)[1]
    rows = {tuple(line.split("\t")) for line in out.splitlines()}
    assert {("run", run.name), ("alpha", "0.98"), ("two_stage", "5"), ("weight_decay", "0.005")} <= rows
    assert {("first", "> 30"), ("step", "30"), ("status", "complete")} <= rows


def test_a_run_that_was_interrupted_says_how_to_continue(call: Call, tmp_path: Path) -> None:
    run = train(tiny(), tmp_path, Watcher(should_stop=lambda: True))
    out = call("runs", run.name, "--runs-dir", tmp_path)[1]
    assert out.endswith(f"incomplete, step 3: grokfast train --resume {run.name} --runs-dir {tmp_path}\n")


def test_several_runs_are_compared_by_the_settings_that_differ_and_no_others(call: Call, tmp_path: Path) -> None:
    runs = [train(tiny(), tmp_path), train(tiny(filter="ema", seed=1), tmp_path)]
    out = call("runs", *(run.name for run in runs), "--runs-dir", tmp_path)[1]
    first = [line.split("\t")[0] for line in out.splitlines()[1:]]
    settings = {"filter", "seed", "weight_decay", "alpha", "lamb", "slow_only", "init"}
    assert set(first) == settings | {*RESULTS}


def test_settings_that_only_a_run_in_the_middle_has_are_compared(call: Call, runs_dir: Path) -> None:
    first, last = (made_run(runs_dir, "Baseline", seed, [0.5], task="mnist") for seed in (0, 1))
    middle = made_run(runs_dir, "Baseline", 0, [9.0])
    names = [run.name for run in (first, middle, last)]
    assert "molecules" in call("runs", *names, "--runs-dir", runs_dir)[1]


def test_json_and_csv_hold_numbers(call: Call, runs_dir: Path) -> None:
    made_run(runs_dir, "Grokfast", 3, [0.5, 0.1, 0.1], task="mnist")
    (row,) = json.loads(call("runs", "--json", "--runs-dir", runs_dir)[1])
    assert (row["first_after"], row["first"], row["stable"], row["held"]) == (10, 20, 20, None)
    assert (row["seed"], row["alpha"], row["status"], row["seconds"]) == (3, 0.8, "complete", 30.0)
    (line,) = csv.DictReader(io.StringIO(call("runs", "--csv", "--runs-dir", runs_dir)[1]))
    assert line.keys() == row.keys()
    assert (line["first"], line["held"], line["lr"]) == ("20", "", "0.001")


def test_a_narrow_terminal_shows_hashes_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call) -> None:
    run = train(tiny(filter="ema"), tmp_path)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    out = re.sub(r"\x1b\[\d*m", "", call("runs", "--runs-dir", tmp_path)[1])
    assert all(len(line.rstrip()) <= 80 for line in out.splitlines()), out
    assert out.splitlines()[1].split()[:5] == [run.name[-8:], "modmul", "adam+ema", "0.001", "0"]


def test_a_narrow_terminal_breaks_no_name_of_runs_that_are_shown_or_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    runs = [train(tiny(filter="ema", seed=seed), tmp_path) for seed in (0, 1)]
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    names = [run.name for run in runs]
    one, both = (
        re.sub(r"\x1b\[\d*m", "", call("runs", *some, "--runs-dir", tmp_path)[1]) for some in (names[:1], names)
    )
    assert one.splitlines()[0] == names[0]
    assert both.splitlines()[0].split() == [name[-8:] for name in names]
