"""Time the lab's fast path against the plain formulation of the same experiment: alternating, in one process.

    python benchmarks/modmul.py             steps, whole runs to 95%, the filter's share, peak memory (ten minutes)
    python benchmarks/modmul.py --quick     a few steps only

"Plain" is the obvious program: nn.MultiheadAttention over all positions, the whole validation half in batches
after each epoch, `loss.item()` per step, the default Adam, and the filter in the out-of-place arithmetic of the
paper's appendix C. "Ours" is `grokfast.lab` as `grokfast train modmul` runs it.
"""

from __future__ import annotations

import argparse
import collections
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from timing import alternate, show, write
from torch.nn.functional import cross_entropy

import grokfast
from grokfast.lab.settings import filter_of, optim_of, resolve
from grokfast.lab.training.machine import keep_freed_memory, peak_memory_bytes
from grokfast.lab.training.optim import make_optimizers
from grokfast.lab.training.run import make_task

LEVEL = 0.95


class Plain:
    """The obvious program: model, data, optimizer, filter."""

    def __init__(self, name: str | None) -> None:
        settings = resolve("modmul", fast=False, filter=name)
        self.task: Any = make_task(settings)
        (self.optimizer,) = make_optimizers(self.task.model, optim_of(settings))
        warm = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda k: min(1.0, k / 10))
        self.scheduler, self.name, self.memory = warm, name, {}

    def step(self) -> None:
        batch = self.task.next_batch()
        tokens = self.tokens(batch.left, batch.right)
        logits = self.task.model(tokens)[-1]
        loss = cross_entropy(logits, batch.answer)
        self.task.model.zero_grad()
        loss.backward()
        self.filter()
        self.optimizer.step()
        self.scheduler.step()
        loss.item()
        (logits.argmax(-1) == batch.answer).float().mean().item()

    def tokens(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.stack([left, torch.full_like(left, 98), right, torch.full_like(left, 97)])

    def filter(self) -> None:
        for n, p in self.task.model.named_parameters() if self.name else ():
            if self.name == "ema":
                mean = self.memory[n] = self.memory.get(n, p.grad) * 0.98 + p.grad * 0.02
                p.grad = p.grad + mean * 2.0
            else:
                queue = self.memory.setdefault(n, collections.deque(maxlen=100))
                queue.append(p.grad.clone())
                if len(queue) == 100:
                    p.grad = p.grad + sum(queue) / 100 * 5.0

    @torch.no_grad()
    def accuracy(self) -> float:
        correct = 0
        for left, right, answer in self.task.splits["val"].split(512, dim=1):
            logits = self.task.model(self.tokens(left, right))[-1]
            cross_entropy(logits, answer).item()
            correct += (logits.argmax(-1) == answer).sum().item()
        return correct / self.task.splits["val"].shape[1]


class Ours:
    """The lab's task, optimizer and filter."""

    def __init__(self, name: str | None, *, compile: bool = False) -> None:
        settings = resolve("modmul", compile=compile, filter=name)
        self.task: Any = make_task(settings)
        (self.optimizer,) = make_optimizers(self.task.model, optim_of(settings))
        self.steps, self.loss, self.filter_seconds = 0, torch.zeros(()), 0.0
        self.optimizer.register_step_pre_hook(self._begin)  # hooks run in this order
        filter = filter_of(settings)
        if filter:
            grokfast.attach(self.optimizer, filter)
        self.optimizer.register_step_pre_hook(self._end)

    def _begin(self, *_: object) -> None:
        self.began = time.perf_counter()

    def _end(self, *_: object) -> None:
        self.filter_seconds += time.perf_counter() - self.began

    def step(self) -> None:
        self.optimizer.param_groups[0]["lr"] = 1e-3 * min(1.0, self.steps / 10)
        self.steps += 1
        batch = self.task.next_batch()
        loss, _ = self.task.loss(batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss += loss.detach() * len(batch)

    def accuracy(self) -> float:
        return self.task.evaluate("val").accuracy or 0.0


def steps_table(repeats: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name in ("ema", "ma"):
        arms = {"plain": Plain(name).step, "eager": Ours(name).step, "compiled": Ours(name, compile=True).step}
        times = alternate(arms, repeats, warmup=110 if name == "ma" else 30)
        for arm, seconds in times.items():
            ratio = round(times["plain"] / seconds, 2)
            rows.append(
                {
                    "filter": name,
                    "path": arm,
                    "ms per step": round(seconds * 1e3, 2),
                    "steps/s": round(1 / seconds),
                    "over plain": ratio,
                }
            )
    return rows


def share_table(steps: int) -> list[dict[str, object]]:
    """Time inside the attachment (arithmetic, check, bookkeeping) as part of the whole step."""
    rows: list[dict[str, object]] = []
    for name in ("ema", "ma"):
        ours = Ours(name)
        for _ in range(110):
            ours.step()
        ours.filter_seconds = 0.0
        begin = time.perf_counter()
        for _ in range(steps):
            ours.step()
        whole = time.perf_counter() - begin
        share = f"{100 * ours.filter_seconds / whole:.2f}%"
        rows.append({"filter": name, "filter ms": round(ours.filter_seconds / steps * 1e3, 3), "share of step": share})
    return rows


def epochs(arm: Plain | Ours, limit: int) -> Iterator[tuple[int, float]]:
    """Steps done and validation accuracy after each epoch."""
    for epoch in range(limit):
        for _ in range(arm.task.epoch_steps):
            arm.step()
        yield (epoch + 1) * arm.task.epoch_steps, arm.accuracy()


def to_level(name: str, limit: int) -> list[dict[str, object]]:
    """Whole runs to 95%, an epoch of each in turn."""
    arms = {"plain": epochs(Plain(name), limit), "eager": epochs(Ours(name), limit)}
    seconds, crossing = dict.fromkeys(arms, 0.0), dict.fromkeys(arms, 0)
    while arms:
        for arm in list(arms):
            begin = time.perf_counter()
            steps, accuracy = next(arms[arm], (0, 1.0))
            seconds[arm] += time.perf_counter() - begin
            if accuracy >= LEVEL:
                crossing[arm] = steps
                del arms[arm]
    return [
        {
            "filter": name,
            "path": arm,
            "steps to 0.95": crossing[arm],
            "seconds": round(seconds[arm], 2),
            "over plain": round(seconds["plain"] / seconds[arm], 2),
        }
        for arm in seconds
    ]


def memory_table() -> list[dict[str, object]]:
    """Peak resident memory of 120 steps and an evaluation, each in a process of its own."""
    rows: list[dict[str, object]] = []
    for name in ("ema", "ma"):
        for kind in ("Plain", "Ours"):
            command = [sys.executable, __file__, "--memory", kind, name]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            rows.append({"filter": name, "path": kind.lower(), "peak MB": round(int(done.stdout) / 2**20)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few steps only")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/modmul.json"))
    parser.add_argument("--memory", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    torch.set_num_threads(2)
    if args.memory:
        arm = {"Plain": Plain, "Ours": Ours}[args.memory[0]](args.memory[1])
        for _ in range(120):
            arm.step()
        arm.accuracy()
        print(peak_memory_bytes())
        return
    keep_freed_memory()
    repeats, limit = (5, 2) if args.quick else (100, 200)
    result = {"steps": steps_table(repeats)}
    show("One training step: forward, backward, filter, optimizer", result["steps"])
    result["share"] = share_table(20 if args.quick else 300)
    show("The filter's share of a step", result["share"])
    result["to_level"] = [row for name in ("ema", "ma") for row in to_level(name, limit)]
    show("To a validation accuracy of 0.95, evaluations included", result["to_level"])
    result["memory"] = memory_table()
    show("Peak memory", result["memory"])
    write(result, args.out)


if __name__ == "__main__":
    main()
