"""A task of a user's own: on which side of a line does a point lie?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from grokfast.lab.tasks.base import Evaluation, Split, TaskConfig, TaskDefaults, draw, setting


@dataclass(frozen=True)
class Sides(TaskConfig):
    """Which side of a line a point lies on."""

    points: int = setting(40, "points in each split")
    width: int = setting(8, "size of the hidden layer", learning=True)

    def defaults(self) -> TaskDefaults:
        return TaskDefaults(lr=3e-2, steps=40, level=0.9)

    def make(self, *, seed: int, device: str, data_dir: str | Path | None) -> SidesTask:
        return SidesTask(self, seed, device)


class SidesTask:
    data = None  # made from the seed
    epoch_steps = 1

    def __init__(self, config: Sides, seed: int, device: str) -> None:
        layers = (nn.Linear(2, config.width), nn.ReLU(), nn.Linear(config.width, 2))
        self.model, self.generator = draw(seed, lambda: nn.Sequential(*layers).to(device))
        points = torch.randn(2, config.points, 2, generator=self.generator).to(device)
        self.splits = {name: (part, (part.sum(1) > 0).long()) for name, part in zip(("train", "val"), points, strict=True)}

    def next_batch(self) -> Tensor:
        return torch.randperm(len(self.splits["train"][0]), generator=self.generator)[:16]

    def loss(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        x, y = (part[batch] for part in self.splits["train"])
        logits = self.model(x)
        return cross_entropy(logits, y), (logits.argmax(1) == y).sum()

    @torch.no_grad()
    def evaluate(self, split: Split) -> Evaluation:
        x, y = self.splits[split]
        logits = self.model(x)
        return Evaluation(float(cross_entropy(logits, y)), float((logits.argmax(1) == y).float().mean()))

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])
