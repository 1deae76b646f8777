"""Fine-tuning of a small GPT on other text with low-rank adapters (LoRA): ordinary training of few parameters."""

import pydoc_data.topics
from dataclasses import dataclass
from pathlib import Path

import torch
from gpt_task import Gpt, GptTask
from torch import nn

from grokfast.lab.tasks.base import TaskDefaults, setting


@dataclass(frozen=True)
class Lora(Gpt):
    """The next character of Python's help texts, by adapters on a GPT that was trained on film reviews."""

    base: str = setting("", "the weights of a run of gpt_task.py:Gpt, its model.pt")
    rank: int = setting(4, "rank of the adapters", learning=True)

    def defaults(self) -> TaskDefaults:
        return TaskDefaults(lr=1e-2, steps=300, eval_every=30, warmup_steps=15, weight_decay={None: 0.1}, level=2.0)

    def make(self, *, seed, device, data_dir):
        if not Path(self.base).is_file():
            raise ValueError(f"base must be the model.pt of a run of gpt_task.py:Gpt, got {self.base!r}")
        return LoraTask(self, seed, device)


class LoraTask(GptTask):
    """Help texts, and the adapted network. Only the adapters are trained."""

    def __init__(self, config: Lora, seed: int, device: str) -> None:
        topics = pydoc_data.topics.topics
        super().__init__(config, "\n".join(topics[name] for name in sorted(topics)), seed, device)
        self.model.load_state_dict(torch.load(config.base, weights_only=True, map_location=device))
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            adapt(self.model, config.rank)


def adapt(model: nn.Module, rank: int) -> None:
    """Freeze a network and put an adapter on each linear layer of its blocks."""
    model.requires_grad_(False)
    for block in model.blocks:
        for parent, name in ((block, "qkv"), (block, "out"), (block.mlp, "0"), (block.mlp, "2")):
            setattr(parent, name, Adapter(getattr(parent, name), rank))


class Adapter(nn.Module):
    """y = W x + B A x, with W frozen and B zero at first."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer
        self.a = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + x @ self.a.T @ self.b.T
