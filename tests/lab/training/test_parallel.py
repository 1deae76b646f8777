"""Several processes train as one does: each takes its share of every batch, and rank 0 alone writes and prints."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from made import as_csv, make_rows, write_imdb, write_mnist, write_qm9
from tiny import TINY, TINY_FLAGS, tiny

from grokfast.lab import Run, load_runs
from grokfast.lab.config import RunConfig
from grokfast.lab.runs.metrics import Row
from grokfast.lab.runs.recording import load_gradients, load_snapshots
from grokfast.lab.runs.writer import run_path
from grokfast.lab.tasks.base import Task
from grokfast.lab.tasks.imdb.task import ImdbConfig
from grokfast.lab.tasks.mnist import MnistConfig
from grokfast.lab.tasks.qm9.task import Qm9Config
from grokfast.lab.training import parallel
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.train import train

TASKS = {
    "modmul": TINY,
    "modmul-plain": type(TINY)(p=7, width=16, depth=1, heads=2, batch_size=8, fast=False),
    "mnist": MnistConfig(train_points=20, width=8, batch_size=8),
    "qm9": Qm9Config(molecules=13, width=6, batch_size=4),
    "qm9-plain": Qm9Config(molecules=13, width=6, batch_size=4, fast=False, pooling="mean"),
    "imdb": ImdbConfig(rows=40, length=12, width=6, batch_size=7),
}


def gradient(task: Task, batch: Any) -> torch.Tensor:
    task.model.zero_grad()
    task.loss(batch)[0].backward()
    return torch.cat([p.grad.flatten() for p in task.model.parameters()])


@pytest.mark.parametrize("name", TASKS)
def test_weighted_parts_of_a_batch_have_the_loss_and_gradient_of_the_whole(name: str, tmp_path: Path) -> None:
    data = write_imdb(write_qm9(write_mnist(tmp_path)), as_csv(make_rows()))
    task: Any = TASKS[name].make(seed=0, device="cpu", data_dir=data)
    task.model.double()
    if name.startswith("qm9"):
        task.graphs = task.graphs._replace(atoms=task.graphs.atoms.double(), targets=task.graphs.targets.double())
        task.near = task.near.double()
    if name == "mnist":
        task.splits = {split: type(b)(b.images.double(), b.labels) for split, b in task.splits.items()}
    if name == "imdb":
        task.splits = {split: type(b)(b.tokens, b.lengths, b.labels.double()) for split, b in task.splits.items()}
    batch = task.next_batch()
    parts = [batch[:1], batch[1:3], batch[3:]]
    weights = [len(part) / len(batch) for part in parts]
    assert sum(map(len, parts)) == len(batch)
    assert len(batch[2:2]) == 0
    losses, corrects = zip(*(task.loss(part) for part in parts), strict=True)
    loss, correct = task.loss(batch)
    torch.testing.assert_close(sum(w * part for w, part in zip(weights, losses, strict=True)), loss)
    assert correct is None or sum(map(int, corrects)) == int(correct)
    together = sum(w * gradient(task, part) for w, part in zip(weights, parts, strict=True))
    torch.testing.assert_close(together, gradient(task, batch), rtol=1e-9, atol=1e-9)


def test_shares_are_contiguous_and_differ_by_one_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parallel, "_joined", True)
    for count in (1, 2, 3, 5):
        monkeypatch.setattr(dist, "get_world_size", lambda count=count: count)
        for size in (0, 1, 4, 7):
            shares: list[list[int]] = []
            for rank in range(count):
                monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
                shares.append(parallel.share(list(range(size))))
            assert list(itertools.chain(*shares)) == list(range(size))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_without_torchrun_nothing_is_shared() -> None:
    batch = [1, 2, 3]
    assert parallel.share(batch) is batch
    assert parallel.ranks() == 1


# Real processes -----------------------------------------------------------------------------------------------------

LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def start(*words: str) -> subprocess.Popen[str]:
    """Begin a command of the lab on two ranks."""
    command = [*LAUNCH, "-m", "grokfast.lab.commands.cli", *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def assert_close(rows: list[Row], expected: list[Row]) -> None:
    assert [row.step for row in rows] == [row.step for row in expected]
    for row, other in zip(rows, expected, strict=True):
        found, wanted = (r._replace(seconds=0.0)._asdict() for r in (row, other))
        assert found == {k: v if v is None else pytest.approx(v, rel=1e-5) for k, v in wanted.items()}


def test_two_ranks_equal_one_process(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"filter": "ema", "clip_norm": 1.0, "until": 0.09, "extra_steps": 10, "eval_every": 2}
    settings |= {"snapshots": 2, "gradients": 30}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    process = start("train", "modmul", *TINY_FLAGS, "--steps", "60", *flags, "--runs-dir", str(tmp_path / "two"))
    one, _ = train(tiny(steps=60, **settings), tmp_path / "one")
    said, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors
    (two,) = load_runs(tmp_path / "two")
    assert [path.name for path in (tmp_path / "two").iterdir()] == [one.name]  # nor does the name depend on the ranks
    assert said.count(f"{two.name}: ") == said.count("\n") == 1
    assert one.rows[-1].step < 60
    assert_close(two.rows, one.rows)
    assert two.summary is not None
    assert one.summary is not None
    assert two.summary["crossings"] == one.summary["crossings"]
    assert (one.environment["processes"], two.environment["processes"]) == (1, 2)
    for name, weight in two.weights().items():
        if name.endswith("in_proj_bias"):
            continue  # the keys' part has no gradient but rounding, which Adam takes for one
        torch.testing.assert_close(weight, one.weights()[name], rtol=1e-4, atol=1e-6)
    assert [step for step, _ in load_snapshots(two)] == [step for step, _ in load_snapshots(one)]
    for found, wanted in zip(load_gradients(two)[1:], load_gradients(one)[1:], strict=True):
        assert found == pytest.approx(wanted, rel=1e-3, abs=1e-6)


def test_one_process_begins_two_ranks_continue_and_one_continues_from_their_interrupt(tmp_path: Path) -> None:
    config = tiny(filter="ma", window_size=5, steps=20_000, eval_every=1)
    run = train_to(config, tmp_path / "run", 20)
    process = start("resume", run.name, "--runs-dir", str(tmp_path / "run"))
    while process.poll() is None and len(run.rows) < 40:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=180)
    stopped = run.rows[-1].step
    assert 40 <= stopped < 20_000
    assert errors.count(f"stopped at step {stopped:,}") == 1, errors
    train_to(config, tmp_path / "run", stopped + 20)
    uninterrupted = train_to(config, tmp_path / "whole", stopped + 20)
    assert_close(run.rows[:100], uninterrupted.rows[:100])
    assert [row.step for row in run.rows] == [row.step for row in uninterrupted.rows]
    assert run.rows[-1].train_loss == pytest.approx(uninterrupted.rows[-1].train_loss, rel=1e-2)


def train_to(config: RunConfig, folder: Path, step: int) -> Run:
    run = Run(run_path(config, folder))
    assert not train(config, folder, Watcher(should_stop=lambda: run.rows[-1].step >= step)).complete
    return run
