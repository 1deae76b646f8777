"""`grokfast runs`, `show` and `compare`: runs as they are, complete, interrupted or damaged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from made import made_run
from tiny import tiny

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
    assert code == 0
    assert [(line.split()[0], line.split()[1]) for line in out.splitlines()[1:] if "modmul" in line] == [
        (done.name, "complete"),
        (stopped.name, "incomplete"),
    ]
    assert err.startswith(f"grokfast: {broken.name} cannot be shown: ")
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


def test_show_prints_settings_and_results(call: Call, tmp_path: Path) -> None:
    run = train(tiny(filter="ema", two_stage=5, snapshots=1), tmp_path)
    out = call("show", "modmul-p7-width16-ema", "--runs-dir", tmp_path)[1]
    rows = {tuple(line.split("\t")) for line in out.splitlines()}
    assert {("filter", "alpha", "0.98"), ("two_stage", "", "5"), ("optim", "weight_decay", "0.005")} <= rows
    assert {("crossing", "first", "> 30"), ("result", "steps", "30")} <= rows
    assert any(row[:2] == ("recorded", "megabytes") for row in rows)
    shown = json.loads(call("show", run.name, "--json", "--runs-dir", tmp_path)[1])
    assert shown["config"] == run.settings
    assert shown["summary"] == run.summary


def test_show_says_how_to_continue_an_interrupted_run(call: Call, tmp_path: Path) -> None:
    run = train(tiny(), tmp_path, Watcher(should_stop=lambda: True))
    out = call("show", run.name, "--runs-dir", tmp_path)[1]
    assert out.endswith(f"incomplete, step 3 of 30: grokfast resume {run.name} --runs-dir {tmp_path}\n")


def test_compare_shows_the_settings_that_differ_and_no_others(call: Call, tmp_path: Path) -> None:
    runs = [train(tiny(), tmp_path).run, train(tiny(filter="ema", seed=1), tmp_path)]
    out = call("compare", *(run.name for run in runs), "--runs-dir", tmp_path)[1]
    first = [line.split("\t")[0] for line in out.splitlines()]
    settings = {name for name in first if "." in name}
    assert settings == {"filter.name", "loop.seed", "optim.weight_decay"} | {
        f"filter.{name}" for name in ("alpha", "lamb", "slow_only", "init")
    }
    assert "val_accuracy" in first
    data = json.loads(call("compare", *(run.name for run in runs), "--json", "--runs-dir", tmp_path)[1])
    assert [one["config"]["loop"]["seed"] for one in data] == [0, 1]


def test_compare_finds_settings_that_only_a_run_in_the_middle_has(call: Call, runs_dir: Path) -> None:
    first, last = (made_run(runs_dir, "Baseline", seed, [0.5], task="mnist") for seed in (0, 1))
    middle = made_run(runs_dir, "Baseline", 0, [9.0])
    names = [run.name for run in (first, middle, last)]
    assert "task.molecules" in call("compare", *names, "--runs-dir", runs_dir)[1]
