"""`grokfast train`: what it leaves behind, how it continues, what it refuses, and what it prints."""

from __future__ import annotations

import io
import json
import math
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from made import as_csv, make_rows, write_imdb
from rich.console import Console
from rich.progress import Progress
from tiny import TINY_FLAGS, comparable, tiny

from forks import Fork, run_cli
from grokfast.lab import load_runs
from grokfast.lab.commands.terminal import columns, row_text
from grokfast.lab.runs.metrics import Row
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.run import train

Call = Callable[..., tuple[int, str, str]]
TRAIN = ["train", "modmul", *TINY_FLAGS, "--steps", "12"]


def test_training_prints_the_result_in_one_line(call: Call, runs_dir: Path) -> None:
    code, out, err = call(*TRAIN, "--filter", "ema", "--runs-dir", runs_dir)
    (run,) = load_runs(runs_dir)
    assert (code, err) == (0, "")
    assert out.startswith(f"{run.name}: validation accuracy 0.")
    assert "first at 0.95: > 12, stable: > 12" in out
    assert out.count("\n") == 1
    assert run.environment["command"][:3] == ["grokfast", "train", "modmul"]


def test_json_prints_one_object_and_nothing_else(call: Call, runs_dir: Path) -> None:
    code, out, err = call(*TRAIN, "--json", "--runs-dir", runs_dir)
    assert (code, err) == (0, "")
    assert json.loads(out)["step"] == 12


def test_quiet_prints_nothing(call: Call, runs_dir: Path) -> None:
    assert call(*TRAIN, "--quiet", "--runs-dir", runs_dir) == (0, "", "")


def test_plain_lines_when_the_output_is_no_terminal(
    call: Call, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grokfast.lab.commands.terminal.LINE_SECONDS", 0.0)
    lines = call(*TRAIN, "--runs-dir", runs_dir)[2].splitlines()
    assert len(lines) == 4
    assert "step 12 of 12, train" in lines[-1]
    assert lines[-1].endswith("ms per step")
    assert "\x1b" not in lines[-1]


def test_the_time_of_a_step_is_that_since_the_last_evaluation() -> None:
    first = Row(10, 1.0, 0.5, 1.0, 0.5, 1.0, 1.0, None, 0.1, 80, 40.0)  # 40 s: it was compiled
    assert row_text(first, None) == "train 0.500, val 0.500, 4e+03 ms per step"
    assert row_text(first._replace(step=20, seconds=40.25), first) == "train 0.500, val 0.500, 25 ms per step"


def test_a_run_that_diverged_has_an_exit_code_of_its_own(call: Call, runs_dir: Path) -> None:
    code, out, _ = call(*TRAIN, "--optimizer", "sgd", "--lr", "1e30", "--runs-dir", runs_dir)
    assert code == 3
    assert ": diverged, " in out


@pytest.mark.parametrize(
    "text", ["train 0.999, val 0.123, 27.3 ms per step", "train loss 1.234, val loss 1.234, 27 ms"]
)
def test_bar_step_and_time_left_fit_in_80_columns(text: str) -> None:
    screen = io.StringIO()
    console = Console(file=screen, width=80, force_terminal=True, color_system=None)
    with Progress(*columns(80), console=console, auto_refresh=False) as bar:
        task = bar.add_task("", total=50_000, now=text)
        bar.update(task, completed=12_345)
    line = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", screen.getvalue()).strip().splitlines()[-1]
    assert "12345/50000" in line
    assert "━" in line
    assert "--:--" in line  # the time left is not known yet
    assert text in line
    assert len(line) <= 80


# What was trained before --------------------------------------------------------------------------------------------


def test_a_complete_configuration_is_not_trained_again(call: Call, runs_dir: Path) -> None:
    call(*TRAIN, "--runs-dir", runs_dir)
    (run,) = load_runs(runs_dir)
    stamp = (run.path / "summary.json").stat().st_mtime_ns
    code, out, _ = call(*TRAIN, "--runs-dir", runs_dir)
    assert code == 0
    shown = f"grokfast runs {run.name} --runs-dir {runs_dir}"
    assert f"this run is complete already: {shown}\n" in out
    assert shown in call("train", "--resume", run.name, "--runs-dir", runs_dir)[1]
    assert call(*shown.split()[1:])[0] == 0
    assert (run.path / "summary.json").stat().st_mtime_ns == stamp


@pytest.mark.parametrize("again", ["the same command", "by name", "by hash"])
def test_an_unfinished_run_is_continued(call: Call, tmp_path: Path, again: str) -> None:
    settings = tiny(steps=12)
    run = train(settings, tmp_path, Watcher(should_stop=lambda: True))
    words = {"the same command": TRAIN, "by name": ["train", "--resume", run.name]}
    words["by hash"] = ["train", "--resume", run.name[-8:]]
    assert call(*words[again], "--runs-dir", tmp_path)[0] == 0
    assert comparable(run.rows) == comparable(train(settings, tmp_path / "whole").rows)


def test_the_same_settings_with_other_data_do_not_count_as_done(tmp_path: Path, call: Call) -> None:
    one = write_imdb(tmp_path / "one", as_csv(make_rows(40)))
    other = write_imdb(tmp_path / "other", as_csv(make_rows(41)[1:]))
    small = ["--rows", "40", "--length", "12", "--width", "6", "--batch-size", "7", "--steps", "3", "--threads", "1"]
    flags = ["train", "imdb", *small, "--runs-dir", str(tmp_path / "runs"), "--data-dir"]
    assert call(*flags, one)[0] == 0
    assert "complete already" in call(*flags, one)[1]
    code, _, err = call(*flags, other)
    assert code == 1
    assert "this run was begun with other data" in err


# Ctrl-C -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupt_leaves_a_checkpoint_and_says_how_to_continue(tmp_path: Path, sent: signal.Signals) -> None:
    """No evaluation is near: signals are heard at every step."""
    words = ["train", "modmul", *TINY_FLAGS, "--steps", "1000000", "--eval-every", "1000000", "--checkpoint-seconds"]
    words += ["0.1", "--runs-dir", str(tmp_path)]
    fork = Fork(run_cli, words)
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("*/checkpoints/*.json")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        fork.send_signal(sent)
        assert fork.wait(60) == 130
    finally:
        fork.kill()
    (run,), err = load_runs(tmp_path), fork.err
    assert f"grokfast train --resume {run.name} --runs-dir {tmp_path}\n" in err
    assert run.rows == []
    last = max(int(path.stem) for path in (run.path / "checkpoints").glob("*.json"))
    assert f"stopped at step {last:,} of 1,000,000: " in err


# What is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--filter", "ema", "--alpha", "2"], "alpha must be in [0, 1), got 2.0"),
        (["--filter", "fir"], "the filter fir needs taps, got none"),
        (["--alpha", "0.9"], "alpha needs a filter that has it, got none"),
        (["--until", "3"], "until must be in (0, 1], got 3.0"),
        (["--p", "8"], "p must be"),
        (["--device", "abacus"], "device must be one of auto, cpu"),
        (["--lr", "-1"], "lr must be in [0, inf), got -1.0"),
        (["--betas", "2", "2"], "beta"),
        (["--optimizer", "sgd", "--nesterov"], "Nesterov"),
        (["--momentum", "0.9"], "momentum has no effect on adam"),
    ],
)
def test_bad_values_give_one_line_and_leave_no_run(call: Call, tmp_path: Path, words: list[str], message: str) -> None:
    code, out, err = call(*TRAIN, *words, "--runs-dir", tmp_path / "runs")
    assert (code, out) == (1, "")
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_trigger_on_accuracy_is_refused_where_there_is_none(call: Call) -> None:
    code, _, err = call("train", "qm9", "--filter", "ema", "--two-stage", "auto")
    message = "two_stage auto needs a task with an accuracy, got one without: give a step"
    assert (code, err) == (1, f"grokfast: error: {message}\n")


def test_a_directory_that_cannot_be_made_gives_one_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, _, err = call(*TRAIN, "--runs-dir", tmp_path / "file" / "runs")
    assert code == 1
    assert err.count("\n") == 1
    assert "file" in err


# TensorBoard --------------------------------------------------------------------------------------------------------


def test_without_tensorboard_there_is_one_line_and_no_run(
    call: Call, runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    code, _, err = call(*TRAIN, "--tensorboard", "--quiet", "--runs-dir", runs_dir)
    assert code == 1
    assert err.count("\n") == 1
    assert load_runs(runs_dir) == []


def test_tensorboard_events_hold_the_rows(call: Call, runs_dir: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert call(*TRAIN, "--tensorboard", "--quiet", "--runs-dir", runs_dir)[0] == 0
    (run,) = load_runs(runs_dir)
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("val_accuracy")] == [row.step for row in run.rows]


@pytest.mark.parametrize("flags", [(), ("--filter", "ema"), ("--filter", "ema", "--optimizer", "muon")])
def test_tensorboard_events_hold_what_the_filter_does(call: Call, runs_dir: Path, flags: tuple[str, ...]) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert call(*TRAIN, *flags, "--tensorboard", "--quiet", "--runs-dir", runs_dir)[0] == 0
    (run,) = load_runs(runs_dir)
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    ours = [tag for tag in events.Tags()["scalars"] if tag.startswith("grokfast/")]
    assert bool(ours) == bool(flags)
    each = ("optimizer0/", "optimizer1/") if "muon" in flags else ("",)
    for prefix in each if flags else ():
        for name in ("ratio", "cosine", "steps"):
            values = events.Scalars(f"grokfast/{prefix}{name}")
            assert [value.step for value in values] == [row.step for row in run.rows]
            assert all(math.isfinite(value.value) for value in values)
