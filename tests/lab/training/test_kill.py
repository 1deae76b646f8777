"""A run killed with SIGKILL at random moments, many times, ends bit for bit as if nothing had happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from made import as_csv, make_rows, write_imdb, write_mnist, write_qm9
from tiny import TINY_FLAGS, comparable

from grokfast.lab import Run, load_runs

KILLER = """
import os, random, signal, sys, time
from grokfast.lab.runs.directory import find_run
from grokfast.lab.training.train import make_task, resume
run, dice, kills = find_run(sys.argv[1]), random.Random(int(sys.argv[2])), 0
make_task(run.config)  # imports all there is to import, once for all children
while run.status == "incomplete":
    child = os.fork()
    if child == 0:
        resume(run)
        os._exit(0)
    time.sleep(dice.uniform(0.0, 0.12))
    if kills < 40:
        os.kill(child, signal.SIGKILL)
        kills += 1
    _, code = os.waitpid(child, 0)
    assert code in (0, signal.SIGKILL), code
print(kills)
"""


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "grokfast.lab.commands.cli", *words]


FLAGS = {
    "modmul": TINY_FLAGS,
    "mnist": ["--train-points", "20", "--width", "8", "--batch-size", "8", "--threads", "1"],
    "qm9": ["--molecules", "13", "--width", "6", "--batch-size", "4", "--threads", "1"],
    "imdb": ["--rows", "40", "--length", "12", "--width", "6", "--batch-size", "7", "--threads", "1"],
}


@pytest.mark.parametrize("name", ["modmul ema", "modmul ma", "mnist ema", "qm9 ma", "imdb ema"])
def test_killed_at_any_moment_resume_equals_uninterrupted(tmp_path: Path, name: str) -> None:
    task, filter = name.split()
    data = write_imdb(write_qm9(write_mnist(tmp_path / "data")), as_csv(make_rows()))
    flags = [task, "--filter", filter, *FLAGS[task], "--data-dir", str(data)]
    flags += ["--window-size", "10"] if filter == "ma" else []
    flags += ["--steps", "300", "--eval-every", "5", "--quiet"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    subprocess.run(command("train", *flags, "--runs-dir", str(whole)), check=True)
    options = [*flags, "--checkpoint-seconds", "0", "--runs-dir", str(parts)]
    process = subprocess.Popen(command("train", *options))
    while not load_runs(parts):
        assert process.poll() is None
    process.kill()
    process.wait()
    (run,) = load_runs(parts)
    done = subprocess.run([sys.executable, "-c", KILLER, str(run.path), "0"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10
    (expected,) = load_runs(whole)
    assert_same(run, expected)


def assert_same(run: Run, expected: Run) -> None:
    assert run.status == expected.status == "complete"
    assert comparable(run.rows) == comparable(expected.rows)
    pairs = zip(run.weights().values(), expected.weights().values(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)
