"""Time the lab's MNIST, QM9 and IMDb against the obvious formulation of each: in turns, in one process.

    python benchmarks/tasks.py --data-dir DATA            all three (five minutes); default: $GROKFAST_DATA
    python benchmarks/tasks.py mnist --data-dir DATA      one

"Obvious" is a simple program with the same model and the same evaluations. MNIST: a data set that gives one image at a
time, shuffled loaders in batches of 50 for loss and accuracy of both splits. QM9: PyTorch Geometric
loading graphs, collated for every batch, and its NNConv. IMDb: the LSTM over all 500 positions. All use the
default AdamW and the filter in the out-of-place arithmetic of the paper's appendix C.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from timing import Table, alternate, show, write
from torch import Tensor, nn
from torch.nn.functional import mse_loss, one_hot
from torch.utils.data import DataLoader, Dataset

import grokfast
from grokfast.lab.settings import Settings, filter_of, optim_of, resolve
from grokfast.lab.tasks.base import Task
from grokfast.lab.tasks.mnist import CLASSES, MnistTask
from grokfast.lab.training.machine import keep_freed_memory
from grokfast.lab.training.optim import attach_filter, make_optimizers
from grokfast.lab.training.run import make_task


class Ours:
    """The lab's task, optimizer and filter, as `grokfast train TASK --filter ema` runs them."""

    def __init__(self, name: str, data_dir: str | None, **changes: Any) -> None:
        where = {} if data_dir is None else {"data_dir": data_dir}
        self.settings = resolve(name, filter="ema", **where, **changes)
        self.task = make_task(self.settings)
        (self.optimizer,) = make_optimizers(self.task.model, optim_of(self.settings))
        attach_filter([self.optimizer], filter_of(self.settings), None)

    def step(self) -> None:
        self.task.loss(self.task.next_batch())[0].backward()
        clip(self.task.model, self.settings)
        self.optimizer.step()
        self.optimizer.zero_grad()


class Obvious:
    """The same experiment with its parts given by functions written the obvious way."""

    def __init__(self, settings: Settings, model: nn.Module, losses: Iterator[Callable[[], Tensor]]) -> None:
        self.settings, self.model, self.losses = settings, model, losses
        (self.optimizer,) = make_optimizers(model, optim_of({**settings, "fused": False}))
        self.means: dict[str, Tensor] = {}

    def step(self) -> None:
        loss = next(self.losses)()
        self.optimizer.zero_grad()
        loss.backward()
        clip(self.model, self.settings)
        self.filter()
        self.optimizer.step()
        loss.item()

    def filter(self) -> None:
        filter = filter_of(self.settings)
        assert isinstance(filter, grokfast.EMA)
        alpha, lamb = filter.alpha, filter.lamb
        for name, p in self.model.named_parameters():
            assert p.grad is not None
            self.means[name] = self.means.get(name, p.grad) * alpha + p.grad * (1 - alpha)
            p.grad = p.grad + self.means[name] * lamb


def clip(model: nn.Module, settings: Settings) -> None:
    if settings["clip_norm"]:
        nn.utils.clip_grad_norm_(model.parameters(), settings["clip_norm"])


def forever(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


# MNIST ---------------------------------------------------------------------------------------------------------------


class Digits(Dataset[tuple[Tensor, int]]):
    """One image at a time."""

    def __init__(self, task: MnistTask, split: Any) -> None:
        batch = task.splits[split]
        self.images, self.labels = (batch.images * 255).round().to(torch.uint8), batch.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.images[index].float().div(255), int(self.labels[index])


def obvious_mnist(ours: Ours) -> tuple[Obvious, Callable[[], None]]:
    assert isinstance(ours.task, MnistTask)
    splits = [Digits(ours.task, split) for split in ("train", "val")]
    model = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))

    def losses() -> Iterator[Callable[[], Tensor]]:
        for images, labels in forever(DataLoader(splits[0], batch_size=200, shuffle=True)):
            yield lambda x=images, y=labels: mse_loss(model(x), one_hot(y, CLASSES).float())

    @torch.no_grad()
    def evaluate() -> None:
        for split in splits:
            loss = correct = 0.0
            for images, labels in DataLoader(split, batch_size=50, shuffle=True):
                loss += mse_loss(model(images), one_hot(labels, CLASSES).float(), reduction="sum").item()
            for images, labels in DataLoader(split, batch_size=50, shuffle=True):
                correct += (model(images).argmax(1) == labels).sum().item()

    return Obvious(ours.settings, model, losses()), evaluate


def mnist_table(data_dir: str | None, turns: int) -> Table:
    """Whole runs: steps and an evaluation on the default grid of 100 steps."""
    ours = Ours("mnist", data_dir)
    plain, evaluate = obvious_mnist(ours)

    def run(step: Callable[[], None], look: Callable[[], object]) -> Callable[[], None]:
        def block() -> None:
            for _ in range(100):
                step()
            look()

        return block

    blocks = {"obvious": run(plain.step, evaluate), "ours": run(ours.step, lambda: ours.task.evaluate("val"))}
    times = alternate(blocks, turns)
    single = alternate({"obvious": plain.step, "ours": ours.step}, turns * 5, steps_per_turn=5)
    whole = ratios(times, "s per 100 steps and evaluation", 1.0)
    return [{**row, "ms per step": round(single[str(row["path"])] * 1e3, 2)} for row in whole]


# QM9 -----------------------------------------------------------------------------------------------------------------


def qm9_table(data_dir: str | None, turns: int) -> Table:
    ours = Ours("qm9", data_dir)
    plain = obvious_qm9(ours.settings)
    return ratios(alternate({"obvious": plain.step, "ours": ours.step}, turns * 5, steps_per_turn=5), "ms per step")


def obvious_qm9(settings: Settings) -> Obvious:
    from torch_geometric.data import Data
    from torch_geometric.loader import DataLoader as GraphLoader
    from torch_geometric.nn import NNConv, global_add_pool

    task: Any = make_task(settings)
    graphs = []
    for molecule in task.train:
        one = task.gather(molecule[None])
        kinds = one_hot(one.bonds, 4).float()
        graphs.append(Data(x=one.atoms, edge_index=one.edges, edge_attr=kinds, y=one.targets))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = NNConv(11, 32, nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 11 * 32)))
            self.second = NNConv(32, 16, nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32 * 16)))
            self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))

        def forward(self, data: Any) -> Tensor:
            hidden = self.first(data.x, data.edge_index, data.edge_attr).relu()
            hidden = self.second(hidden, data.edge_index, data.edge_attr).relu()
            return self.head(global_add_pool(hidden, data.batch)).squeeze(1)

    model = Net()

    def losses() -> Iterator[Callable[[], Tensor]]:
        for data in forever(GraphLoader(graphs, batch_size=32, shuffle=True)):
            yield lambda data=data: mse_loss(model(data), data.y)

    return Obvious(settings, model, losses())


# IMDb ----------------------------------------------------------------------------------------------------------------


def imdb_table(data_dir: str | None, turns: int) -> Table:
    """The same batches to both; the losses and gradients of the two paths are compared before they are timed."""
    ours, same = Ours("imdb", data_dir), Ours("imdb", data_dir, fast=False)
    difference = compare_gradients(ours.task, same.task)
    task = same.task

    def losses() -> Iterator[Callable[[], Tensor]]:
        while True:
            yield lambda: task.loss(task.next_batch())[0]

    plain = Obvious(same.settings, task.model, losses())
    table = ratios(alternate({"obvious": plain.step, "ours": ours.step}, turns), "ms per step")
    table[-1]["gradient's relative difference"] = f"{difference:.1e}"
    return table


def compare_gradients(fast: Task, plain: Task) -> float:
    """Largest over the parameters of |fast - plain| / |plain| for the gradient of one batch at the initial weights."""
    for task in (fast, plain):
        task.loss(task.next_batch())[0].backward()
    pairs = zip(fast.model.parameters(), plain.model.parameters(), strict=True)
    found = [
        float((p.grad - q.grad).norm() / q.grad.norm()) for p, q in pairs if p.grad is not None and q.grad is not None
    ]
    for task in (fast, plain):
        task.model.zero_grad()
    return max(found)


def ratios(times: dict[str, float], unit: str, factor: float = 1e3) -> Table:
    return [
        {"path": name, unit: round(seconds * factor, 3), "over obvious": round(times["obvious"] / seconds, 2)}
        for name, seconds in times.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tables = {"mnist": mnist_table, "qm9": qm9_table, "imdb": imdb_table}
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"{', '.join(tables)} (default: all)")
    parser.add_argument("--data-dir", help="default: $GROKFAST_DATA")
    parser.add_argument("--quick", action="store_true", help="a few steps only")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/tasks.json"))
    args = parser.parse_args()
    torch.set_num_threads(2)
    keep_freed_memory()
    result: dict[str, Table] = {}
    unknown = set(args.tasks) - set(tables)
    if unknown:
        parser.error(f"a task must be one of {', '.join(tables)}, got {min(unknown)}")
    for name in args.tasks or tables:
        begin = time.perf_counter()
        result[name] = tables[name](args.data_dir, 2 if args.quick else 20)
        show(f"{name} ({time.perf_counter() - begin:.0f} s)", result[name])
    if not args.quick:
        write(result, args.out)


if __name__ == "__main__":
    main()
