"""Grokking's first task: read x, o, y, = and answer z, where x o y = z; by default x * y mod 97.

Random stream of the released code: seed; build the model; one permutation splits the equations; one more per epoch
shuffles the training half on top of all earlier shuffles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from grokfast.lab.tasks.base import (
    Evaluation,
    PaperConfig,
    Size,
    Split,
    TaskDefaults,
    check_at_least,
    check_one_of,
    setting,
)
from grokfast.lab.tasks.data import DataDir
from grokfast.lab.tasks.epochs import EpochTask, Examples
from grokfast.lab.tasks.losses import LOSSES
from grokfast.lab.tasks.modular.circle import circle_of
from grokfast.lab.tasks.modular.fast import last_logits
from grokfast.lab.tasks.modular.measures import RECORDED, measure
from grokfast.lab.tasks.modular.operations import GROUP, ORDER, Equations, Operation, check_prime, make_equations
from grokfast.lab.tasks.modular.transformer import Decoder

NOISE = 0x6E6F697365  # keeps the labels' random stream apart from the rest, which label noise leaves as it is
CHUNK = 8192  # equations per forward of the fast evaluation: bounds the memory of a large p


@dataclass(frozen=True)
class ModularConfig(PaperConfig):
    """Modular arithmetic and S5 by a small transformer."""

    step_seconds: ClassVar[float] = 0.017
    recorded: ClassVar[Mapping[str, bool]] = RECORDED
    remark: ClassVar[str] = (
        "Weight decay differs between the paper's arms. Long runs are chaotic: rounding moves the baseline's crossing."
    )

    operation: Operation = setting("multiply", "what the symbol between x and y means")
    p: int = setting(97, "modulus, a prime; s5 does not use it")
    with_zero: bool | None = setting(
        None, "keep y = 0 in multiply (default: left out by the released code, kept by the paper's text)"
    )
    train_fraction: float = setting(0.5, "fraction of the equations to train on, drawn at random")
    label_noise: float = setting(0.0, "fraction of the training answers to replace by wrong ones")
    width: int = setting(128, "size of the hidden state, a multiple of heads", learning=True)
    depth: int = setting(2, "number of transformer blocks", learning=True)
    heads: int = setting(4, "attention heads per block", learning=True)
    batch_size: int = setting(512, "equations per step; the last batch of an epoch may be smaller", learning=True)
    loss: Literal["cross-entropy", "stablemax"] = setting("cross-entropy", "what is minimised", learning=True)
    fast: bool = setting(True, "the same function with shared prefixes; rounding differs from the plain model")
    measures: bool = setting(False, "record what is inside the network at each evaluation, which takes much longer")
    compile: bool = setting(False, "compile the fast path: for long runs, the first step takes half a minute")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "width", "depth", "heads", "batch_size")
        check_one_of("loss", self.loss, *LOSSES)
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads = {self.heads}, got {self.width}")
        if not 0 < self.train_fraction < 1:
            raise ValueError(f"train_fraction must be in (0, 1), got {self.train_fraction}")
        if not 0 <= self.label_noise <= 1:
            raise ValueError(f"label_noise must be in [0, 1], got {self.label_noise}")
        if self.operation not in GROUP:
            check_prime(self.p)
        if self.measures:
            circle_of(self.operation, self.p)  # refuses operations that have none
        if self.compile and not self.fast:
            raise ValueError("compile must be False where fast is, got True")

    def equations(self) -> Equations:
        keep = self.by_variant("with_zero", released=False, paper=True)
        return make_equations(self.operation, p=self.p, with_zero=keep)

    def defaults(self) -> TaskDefaults:
        return TaskDefaults(
            optimizer="adam",
            lr=1e-3,
            betas=(0.9, 0.98),
            warmup_steps=10,
            steps=50_000,
            weight_decay={None: 0.0, "ema": 0.005, "ma": 0.01},  # Figures 1 and 4
            level=0.95,
        )

    def size(self) -> Size:
        symbols = ORDER if self.operation in GROUP else self.p
        tables = 2 * (symbols + 2) + 7  # rows of tokens, positions and head, and the last norm
        weights = self.width * (tables + self.depth * (12 * self.width + 13))
        return Size(weights, 80 * symbols**2)  # ten numbers for an equation while the table is split

    def make(self, *, seed: int, device: str, data_dir: DataDir) -> ModularTask:
        return ModularTask(self, seed=seed, device=device)


class ModularTask(EpochTask[Decoder]):
    """The equations of one operation, split at random, and the transformer that learns them.

    Examples:
        >>> task = ModularTask(ModularConfig(p=7, width=16), seed=0)
        >>> loss, correct = task.loss(task.next_batch())
        >>> task.evaluate("val").accuracy
        0.0
    """

    def __init__(self, config: ModularConfig, *, seed: int = 0, device: str = "cpu") -> None:
        equations = config.equations()
        self.config, self.symbols = config, equations.symbols
        sizes = {"width": config.width, "depth": config.depth, "heads": config.heads, "vocabulary": self.symbols + 2}
        super().__init__(lambda: Decoder(**sizes), seed=seed, device=device, batch_size=config.batch_size)
        table = torch.stack(equations[:3])  # (3, equations): left, right, answer
        order = torch.randperm(table.shape[1], generator=self.generator)
        size = int(len(order) * config.train_fraction)
        if not 0 < size < len(order):
            raise ValueError(f"train_fraction must leave both splits an equation, got {config.train_fraction}")
        train, val = table[:, order[:size]], table[:, order[size:]]
        self.splits = {
            "train": add_noise(train, config, self.symbols, seed).to(self.device),
            "val": val.to(self.device),
        }
        self.circle = circle_of(config.operation, config.p) if config.measures else None
        self.order = torch.arange(size)  # all shuffles so far
        self._logits: Callable[[Tensor, Tensor], Tensor] = self._fast if config.fast else self._plain
        self._step = torch.compile(self._loss, dynamic=False) if config.compile else self._loss

    def shuffle(self) -> Tensor:
        return self.order[super().shuffle()]

    def batch_of(self, index: Tensor) -> Examples:
        left, right, answer = self.splits["train"][:, index]
        return Examples(left=left, right=right, answer=answer)

    def loss(self, batch: Examples) -> tuple[Tensor, Tensor]:
        # The smaller last batch would be a second compilation.
        run = self._step if len(batch) == self.config.batch_size else self._loss
        return run(batch.left, batch.right, batch.answer)

    @torch.no_grad()
    def evaluate(self, split: Split) -> Evaluation:
        chunk = CHUNK if self.config.fast else self.config.batch_size
        loss, correct = torch.zeros((), device=self.device), torch.zeros((), device=self.device)
        for left, right, answer in self.splits[split].split(chunk, dim=1):
            mean, right_answers = self._loss(left, right, answer)
            loss += mean * len(answer)
            correct += right_answers
        size = self.splits[split].shape[1]
        more = None if self.circle is None or split == "train" else measure(self, self.circle)
        return Evaluation(float(loss) / size, float(correct) / size, more)

    def _loss(self, left: Tensor, right: Tensor, answer: Tensor) -> tuple[Tensor, Tensor]:
        logits = self._logits(left, right)  # (batch, vocabulary)
        return LOSSES[self.config.loss](logits, answer), (logits.detach().argmax(-1) == answer).sum()

    def _plain(self, left: Tensor, right: Tensor) -> Tensor:
        equals, operator = torch.full_like(left, self.symbols), torch.full_like(left, self.symbols + 1)
        return self.model(torch.stack([left, operator, right, equals]))[-1]

    def _fast(self, left: Tensor, right: Tensor) -> Tensor:
        return last_logits(self.model, left, right)


def add_noise(train: Tensor, config: ModularConfig, symbols: int, seed: int) -> Tensor:
    """Replace a part of the answers by wrong ones, each equally likely."""
    generator = torch.Generator().manual_seed(seed ^ NOISE)
    count = round(config.label_noise * train.shape[1])
    chosen = torch.randperm(train.shape[1], generator=generator)[:count]
    shift = torch.randint(1, symbols, (count,), generator=generator)
    train[2, chosen] = (train[2, chosen] + shift) % symbols
    return train
