"""Sparse parity: the product of k of n signs, by an MLP. Which k they are must be found; the others are noise.

Random stream: seed; build the model; choose the k places; draw the points of both splits; one permutation per epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from grokfast.lab.tasks.base import (
    Evaluation,
    Size,
    Split,
    TaskConfig,
    TaskDefaults,
    check_at_least,
    check_one_of,
    setting,
)
from grokfast.lab.tasks.data import DataDir
from grokfast.lab.tasks.epochs import EpochTask, Examples
from grokfast.lab.tasks.losses import LOSSES


@dataclass(frozen=True)
class ParityConfig(TaskConfig):
    """The parity of k among n bits by an MLP."""

    step_seconds: ClassVar[float] = 0.0006

    n: int = setting(40, "bits of an example")
    k: int = setting(3, "bits that count, at most n")
    train_points: int = setting(1000, "examples to train on, drawn at random")
    val_points: int = setting(2000, "examples to judge by")
    label_noise: float = setting(0.0, "fraction of the training answers to turn round")
    width: int = setting(200, "size of the hidden layer", learning=True)
    batch_size: int = setting(32, "examples per step; the last batch of an epoch may be smaller", learning=True)
    loss: Literal["cross-entropy", "stablemax"] = setting("cross-entropy", "what is minimised", learning=True)

    def __post_init__(self) -> None:
        check_at_least(self, 1, "n", "k", "train_points", "val_points", "width", "batch_size")
        check_one_of("loss", self.loss, *LOSSES)
        if self.k > self.n:
            raise ValueError(f"k must be <= n = {self.n}, got {self.k}")
        if not 0 <= self.label_noise <= 1:
            raise ValueError(f"label_noise must be in [0, 1], got {self.label_noise}")

    def defaults(self) -> TaskDefaults:
        return TaskDefaults(optimizer="adamw", steps=20_000, eval_every=50, level=0.95)

    def size(self) -> Size:
        points = self.train_points + self.val_points
        return Size(self.width * (self.n + 3) + 2, 16 * points * self.n + 8 * points * self.width)

    def make(self, *, seed: int, device: str, data_dir: DataDir) -> ParityTask:
        return ParityTask(self, seed=seed, device=device)


class ParityTask(EpochTask[nn.Sequential]):
    """Points, their parities, and the MLP that learns them.

    Examples:
        >>> task = ParityTask(ParityConfig(n=5, k=2, train_points=8, val_points=8, width=4))
        >>> signs, answer = task.splits["val"].signs, task.splits["val"].answer
        >>> bool(((signs[:, task.places].prod(1) > 0).long() == answer).all())
        True
    """

    def __init__(self, config: ParityConfig, *, seed: int = 0, device: str = "cpu") -> None:
        self.config = config
        super().__init__(lambda: build(config), seed=seed, device=device, batch_size=config.batch_size)
        self.places = torch.randperm(config.n, generator=self.generator)[: config.k]
        sizes = {"train": config.train_points, "val": config.val_points}
        self.splits: dict[str, Examples] = {name: self._draw(size) for name, size in sizes.items()}
        wrong = torch.randperm(config.train_points, generator=self.generator)
        self.splits["train"].answer[wrong[: round(config.label_noise * len(wrong))]] ^= 1
        self.order = torch.arange(config.train_points)

    def _draw(self, size: int) -> Examples:
        signs = 2.0 * torch.randint(2, (size, self.config.n), generator=self.generator) - 1
        answer = (signs[:, self.places].prod(1) > 0).long()
        return Examples(signs=signs.to(self.device), answer=answer.to(self.device))

    def batch_of(self, index: Tensor) -> Examples:
        return self.splits["train"].take(index)

    def loss(self, batch: Examples) -> tuple[Tensor, Tensor]:
        logits = self.model(batch.signs)  # (batch, 2)
        return LOSSES[self.config.loss](logits, batch.answer), (logits.detach().argmax(1) == batch.answer).sum()

    @torch.no_grad()
    def evaluate(self, split: Split) -> Evaluation:
        loss, correct = self.loss(self.splits[split])
        return Evaluation(float(loss), float(correct) / len(self.splits[split]))


def build(config: ParityConfig) -> nn.Sequential:
    return nn.Sequential(nn.Linear(config.n, config.width), nn.ReLU(), nn.Linear(config.width, 2))
