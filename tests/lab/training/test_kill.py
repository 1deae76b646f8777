"""A run killed with SIGKILL at random moments, many times, ends bit for bit as if nothing had happened."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from made import as_csv, make_rows, write_imdb, write_mnist, write_qm9
from tiny import TINY_FLAGS, comparable

from forks import Fork, run_code
from grokfast.lab import Run, load_runs
from grokfast.lab.commands.cli import main

KILLER = """
import os, random, signal, sys, time
from pathlib import Path
from grokfast.lab import load_runs
from grokfast.lab.commands.cli import main
from grokfast.lab.training.run import make_task, resume

folder = Path(sys.argv[1])
child = os.fork()
if child == 0:
    os._exit(main(sys.argv[2:]))
while not load_runs(folder):
    time.sleep(0.001)
os.kill(child, signal.SIGKILL)
os.waitpid(child, 0)
(run,), dice, kills = load_runs(folder), random.Random(0), 0
make_task(run.settings)  # imports all there is to import, once for all children
while run.status == "incomplete":
    child = os.fork()
    if child == 0:
        resume(run)
        os._exit(0)
    time.sleep(dice.uniform(0.0, 0.12))
    if kills < 25:
        os.kill(child, signal.SIGKILL)
        kills += 1
    _, code = os.waitpid(child, 0)
    assert code in (0, signal.SIGKILL), code
print(kills)
"""

FLAGS = {
    "modmul": TINY_FLAGS,
    "mnist": ["--train-points", "20", "--width", "8", "--batch-size", "8", "--threads", "1"],
    "qm9": ["--molecules", "13", "--width", "6", "--batch-size", "4", "--threads", "1"],
    "imdb": ["--rows", "40", "--length", "12", "--width", "6", "--batch-size", "7", "--threads", "1"],
}


@pytest.mark.parametrize("name", ["modmul ema", "mnist ema", "qm9 ma", "imdb ema"])
def test_killed_at_any_moment_resume_equals_uninterrupted(tmp_path: Path, name: str) -> None:
    task, filter = name.split()
    data = write_imdb(write_qm9(write_mnist(tmp_path / "data")), as_csv(make_rows()))
    flags = [task, "--filter", filter, *FLAGS[task], "--data-dir", str(data)]
    flags += ["--window-size", "10"] if filter == "ma" else []
    flags += ["--steps", "200", "--eval-every", "5", "--quiet"]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    killed = ["train", *flags, "--checkpoint-seconds", "0", "--runs-dir", str(parts)]
    killer = Fork(run_code, KILLER, str(parts), *killed)
    assert main(["train", *flags, "--runs-dir", str(whole)]) == 0
    assert killer.wait() == 0, killer.err
    assert int(killer.out) >= 10
    (run,), (expected,) = load_runs(parts), load_runs(whole)
    assert_same(run, expected)


def assert_same(run: Run, expected: Run) -> None:
    assert run.status == expected.status == "complete"
    assert comparable(run.rows) == comparable(expected.rows)
    pairs = zip(run.weights().values(), expected.weights().values(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)
