"""A small convolutional network on all of MNIST, with ordinary initial weights: ordinary training."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from grokfast.lab.tasks.base import Evaluation, TaskConfig, TaskDefaults, setting
from grokfast.lab.tasks.epochs import EpochTask, Examples
from grokfast.lab.tasks.mnist import read_mnist


@dataclass(frozen=True)
class Cnn(TaskConfig):
    """All 60,000 digits of MNIST by a small convolutional network."""

    measure = "loss"
    step_seconds = 0.01

    width: int = setting(8, "channels of the first layer", learning=True)
    batch_size: int = setting(128, "images per step", learning=True)

    def defaults(self) -> TaskDefaults:
        return TaskDefaults(lr=3e-3, steps=469, eval_every=67, warmup_steps=20, weight_decay={None: 0.1}, level=0.1)

    def make(self, *, seed, device, data_dir):
        return CnnTask(self, seed, device, data_dir)


@dataclass(frozen=True)
class Images(Examples):
    """Some digits."""

    pixels: torch.Tensor  # (batch, 1, 28, 28)
    labels: torch.Tensor  # (batch,)


class CnnTask(EpochTask):
    """The digits, and the network that reads them."""

    def __init__(self, config: Cnn, seed: int, device: str, data_dir) -> None:
        super().__init__(lambda: build(config.width), seed=seed, device=device, batch_size=config.batch_size)
        train, val, self.data = read_mnist(data_dir)
        parts = {"train": train, "val": val}
        self.splits = {
            name: Images(pixels.view(-1, 1, 28, 28).float().div(255).to(device), labels.long().to(device))
            for name, (pixels, labels) in parts.items()
        }
        self.order = torch.arange(len(self.splits["train"]))

    def batch_of(self, index: torch.Tensor) -> Images:
        return self.splits["train"].take(index)

    def loss(self, batch: Images):
        logits = self.model(batch.pixels)
        return cross_entropy(logits, batch.labels), (logits.argmax(1) == batch.labels).sum()

    @torch.no_grad()
    def evaluate(self, split: str) -> Evaluation:
        images = self.splits[split]
        total, right, count = 0.0, 0, min(10_000 if split == "val" else 2_000, len(images))
        for part in torch.arange(count).split(1000):  # all at once takes a second of page faults
            loss, correct = self.loss(images.take(part))
            total, right = total + float(loss) * len(part), right + int(correct)
        return Evaluation(total / count, right / count)


def build(width: int) -> nn.Sequential:
    """Two convolutions with pooling, then a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * width * 49, 10),
    )
