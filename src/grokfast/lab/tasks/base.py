"""The shape of every task: data, model and loss, drawn from one seed; know one, know all."""

from __future__ import annotations

import dataclasses
from typing import Any, Literal, NamedTuple, Protocol

from torch import Tensor, nn

Split = Literal["train", "val"]


def setting(default: Any, help: str) -> Any:
    """A field of a configuration, with its line of help for the command line."""
    return dataclasses.field(default=default, metadata={"help": help})


class Evaluation(NamedTuple):
    """What one look at a whole split gives."""

    loss: float
    accuracy: float | None  # None where answers are numbers, not classes


class Batch(Protocol):
    """Some examples; the loop asks only how many."""

    def __len__(self) -> int: ...


class Task(Protocol):
    """Data, model and loss. Everything random comes from the seed; no global state is read or changed."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def epoch_steps(self) -> int:
        """Number of batches in one pass over the training data."""
        ...

    def next_batch(self) -> Any:
        """The next examples to train on; each epoch begins with a shuffle."""
        ...

    def loss(self, batch: Any) -> tuple[Tensor, Tensor | None]:
        """The differentiable mean loss, and the number of correct answers (None where there is no such thing)."""
        ...

    def evaluate(self, split: Split) -> Evaluation:
        """Mean loss and accuracy over the whole split, without gradients."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Where the task stands in its random stream: tensors and numbers only. The model is not part of it."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        ...
