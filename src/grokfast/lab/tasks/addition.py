"""Modular addition by the smallest network that groks:  logits = (A[x] + B[y])^2 W.

Two tables A and B of p x width, one output matrix W of width x p and no biases: 8,832 parameters for p = 23 and width
128. A run takes one or two seconds, so maps and repeated searches are affordable. It responds to weight decay and to
filters as the transformer of `modmul` does.

Random stream: seed; A, B, W; one permutation splits the pairs; each batch is drawn with replacement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from grokfast.lab.tasks.base import (
    Evaluation,
    Size,
    Split,
    TaskConfig,
    TaskDefaults,
    check_at_least,
    check_one_of,
    draw,
    setting,
)
from grokfast.lab.tasks.data import DataDir
from grokfast.lab.tasks.epochs import Examples

NOISE = 0x6164646E6F697365  # seeds the wrong answers apart from the rest, which label noise leaves as it is


@dataclass(frozen=True)
class AdditionConfig(TaskConfig):
    """Modular addition by a network of 8,832 parameters; a run takes seconds."""

    step_seconds: ClassVar[float] = 0.0005
    remark: ClassVar[str] = "Small enough for many seeds. The default decay is too small on purpose: it shows grokking."

    p: int = setting(23, "modulus")
    width: int = setting(128, "size of the hidden layer", learning=True)
    train_fraction: float = setting(0.5, "fraction of the pairs to train on, drawn at random")
    label_noise: float = setting(0.0, "fraction of the training answers to replace by wrong ones")
    batch_size: int = setting(64, "pairs per step, drawn at random with replacement; 0: all of them", learning=True)
    loss: Literal["mse", "cross-entropy"] = setting(
        "mse", "squared error to the one-hot answer, or cross-entropy", learning=True
    )
    fast: bool = setting(True, "gradients by formula instead of autograd; rounding differs")

    def __post_init__(self) -> None:
        check_at_least(self, 2, "p")
        check_at_least(self, 1, "width")
        check_at_least(self, 0, "batch_size")
        check_one_of("loss", self.loss, "mse", "cross-entropy")
        if not 0 < self.train_fraction < 1:
            raise ValueError(f"train_fraction must be in (0, 1), got {self.train_fraction}")
        if not 0 <= self.label_noise <= 1:
            raise ValueError(f"label_noise must be in [0, 1], got {self.label_noise}")
        if not 0 < self.train_points < self.p**2:
            raise ValueError(f"train_fraction must leave both splits a pair, got {self.train_fraction}")

    @property
    def train_points(self) -> int:
        return int(self.p**2 * self.train_fraction)

    def defaults(self) -> TaskDefaults:
        return TaskDefaults(
            optimizer="adamw",
            lr=0.01,
            betas=(0.9, 0.98),
            steps=4_000,
            eval_every=20,
            weight_decay={None: 0.1},
            level=0.95,
        )

    def size(self) -> Size:
        return Size(3 * self.p * self.width, 8 * self.p**2 * (self.width + self.p + 10))

    def make(self, *, seed: int, device: str, data_dir: DataDir) -> AdditionTask:
        return AdditionTask(self, seed=seed, device=device)


class _AdditionNet(nn.Module):
    """Add the rows of two numbers, square, map to the answers. Initial values: normal / sqrt(fan-in)."""

    def __init__(self, p: int, width: int) -> None:
        super().__init__()
        self.left = nn.Parameter(torch.randn(p, width) / math.sqrt(p))
        self.right = nn.Parameter(torch.randn(p, width) / math.sqrt(p))
        self.out = nn.Parameter(torch.randn(width, p) / math.sqrt(width))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return (self.left[left] + self.right[right]).square() @ self.out  # (batch, p)


class AdditionTask:
    """The pairs of numbers below p, split at random, and the network that learns their sums.

    Examples:
        >>> task = AdditionTask(AdditionConfig(p=5, width=8, batch_size=0))
        >>> batch = task.next_batch()
        >>> len(batch), bool(((batch.left + batch.right) % 5 == batch.answer).all())
        (12, True)
    """

    data: str | None = None

    def __init__(self, config: AdditionConfig, *, seed: int = 0, device: str = "cpu") -> None:
        self.config, self.device = config, torch.device(device)
        self.model, self.generator = draw(seed, lambda: _AdditionNet(config.p, config.width))
        self.model.to(self.device)
        pairs = torch.randperm(config.p**2, generator=self.generator)
        left, right = pairs // config.p, pairs % config.p
        answer = (left + right) % config.p
        size = config.train_points
        wrong = torch.Generator().manual_seed(seed ^ NOISE)
        chosen = torch.randperm(size, generator=wrong)[: round(config.label_noise * size)]
        answer[chosen] = (answer[chosen] + torch.randint(1, config.p, chosen.shape, generator=wrong)) % config.p
        every = Examples(left=left.to(self.device), right=right.to(self.device), answer=answer.to(self.device))
        train, val = torch.arange(size), torch.arange(size, len(pairs))
        self.splits = {"train": every.take(train), "val": every.take(val)}

    @property
    def epoch_steps(self) -> int:
        """Steps in which as many pairs are drawn as there are to train on."""
        return math.ceil(self.config.train_points / (self.config.batch_size or self.config.train_points))

    def next_batch(self) -> Examples:
        train = self.splits["train"]
        if not self.config.batch_size:
            return train
        return train.take(torch.randint(len(train), (self.config.batch_size,), generator=self.generator))

    def loss(self, batch: Examples) -> tuple[Tensor, Tensor]:
        net, pairs = self.model, (batch.left, batch.right, batch.answer)
        if self.config.fast and torch.is_grad_enabled():
            loss, correct = _LossByFormula.apply(net.left, net.right, net.out, *pairs, self.config.loss)  # type: ignore[misc]
            return loss, correct
        logits = net(batch.left, batch.right)  # (batch, p)
        return loss_of(logits, batch.answer, self.config.loss), (logits.detach().argmax(1) == batch.answer).sum()

    @torch.no_grad()
    def evaluate(self, split: Split) -> Evaluation:
        loss, correct = self.loss(self.splits[split])
        return Evaluation(float(loss), float(correct) / len(self.splits[split]))

    def state_dict(self) -> dict[str, Any]:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.generator.set_state(state["generator"])


def loss_of(logits: Tensor, answer: Tensor, loss: str) -> Tensor:
    """The mean over the batch; the squared error is summed over the outputs."""
    if loss == "cross-entropy":
        return cross_entropy(logits, answer)
    return (logits - one_hot(answer, logits.shape[1])).square().sum(1).mean()


class _LossByFormula(torch.autograd.Function):
    """Loss and gradients in one pass: autograd's bookkeeping costs more than this network's arithmetic."""

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        left_table: Tensor,
        right_table: Tensor,
        out: Tensor,
        left: Tensor,
        right: Tensor,
        answer: Tensor,
        loss: str,
    ) -> tuple[Tensor, Tensor]:
        size = len(answer)
        hidden = left_table[left].add_(right_table[right])  # (batch, width)
        squared = hidden.square()
        logits = squared @ out  # (batch, p)
        correct = (logits.argmax(1) == answer).sum()
        rows = torch.arange(size, device=answer.device)
        if loss == "mse":
            error = logits
            error[rows, answer] -= 1  # (batch, p): output - target
            value = error.square().sum() / size
            slope = error.mul_(2 / size)
        else:
            log_p = logits.log_softmax(1)
            value = -log_p[rows, answer].mean()
            slope = log_p.exp_()
            slope[rows, answer] -= 1
            slope.div_(size)
        by_hidden = (slope @ out.T).mul_(hidden).mul_(2)  # (batch, width): d z^2 = 2 z dz
        grads = [
            torch.zeros_like(table).index_add_(0, index, by_hidden)
            for table, index in ((left_table, left), (right_table, right))
        ]
        ctx.save_for_backward(*grads, squared.T @ slope)
        ctx.mark_non_differentiable(correct)
        return value, correct

    @staticmethod
    def backward(ctx: Any, *by_loss: Tensor) -> Any:
        return *(grad * by_loss[0] for grad in ctx.saved_tensors), None, None, None, None
