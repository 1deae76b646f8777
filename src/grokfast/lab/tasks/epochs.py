"""Base class for tasks that pass over their training data epoch by epoch; optional for a task of your own."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn

from grokfast.lab.tasks.base import draw
from grokfast.lab.tasks.data import check_same_data

M = TypeVar("M", bound=nn.Module)


class Examples:
    """Some examples: tensors by name, each with one row per example.

    Examples:
        >>> some = Examples(x=torch.eye(3), y=torch.arange(3))
        >>> len(some), some.take(torch.tensor([2, 0])).y.tolist()
        (3, [2, 0])
    """

    def __init__(self, **parts: Tensor) -> None:
        vars(self).update(parts)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Tensor: ...

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def take(self, index: Tensor) -> Examples:
        """The examples at these places."""
        return Examples(**{name: rows[index.to(rows.device)] for name, rows in vars(self).items()})


class EpochTask(abc.ABC, Generic[M]):
    """A model, and training data that is shuffled once per epoch. A subclass sets `order` to as many places as it has.

    Args:
        build: makes the model, from the global random stream, which `generator` continues.
        seed: of everything random.
        device: where to train.
        batch_size: examples per step; the last batch of an epoch may be smaller.
        scale: factor on all initial parameters.
    """

    data: str | None = None
    order: Tensor  # of the training data in this epoch
    saved: ClassVar[tuple[str, ...]] = ("generator", "order", "place")  # the position in the random stream

    def __init__(self, build: Callable[[], M], *, seed: int, device: str, batch_size: int, scale: float = 1.0) -> None:
        self.device, self.batch_size, self.step = torch.device(device), batch_size, 0
        self._moved: Tensor | None = None  # the order on the device: moving it batch by batch would synchronise
        self.model, self.generator = draw(seed, build)
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(scale)
        self.model.to(self.device)

    @property
    def epoch_steps(self) -> int:
        return math.ceil(len(self.order) / self.batch_size)

    @property
    def place(self) -> int:
        """Batches taken from this epoch."""
        return (self.step - 1) % self.epoch_steps + 1

    @place.setter
    def place(self, place: int) -> None:
        self.step = place

    @abc.abstractmethod
    def batch_of(self, index: Tensor) -> Any:
        """These examples of the training data."""

    def shuffle(self) -> Tensor:
        """The order of the next epoch."""
        return torch.randperm(len(self.order), generator=self.generator)

    def next_batch(self) -> Any:
        start = self.step % self.epoch_steps * self.batch_size
        if start == 0:
            self.order, self._moved = self.shuffle(), None
        if self._moved is None:
            self._moved = self.order.to(self.device)
        batch = self.batch_of(self._moved[start : start + self.batch_size])
        self.step += 1
        return batch

    def state_dict(self) -> dict[str, Any]:
        values = {name: getattr(self, name) for name in self.saved}
        state = {k: v.get_state() if isinstance(v, torch.Generator) else v for k, v in values.items()}
        return state if self.data is None else {**state, "data": self.data}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.data is not None:
            check_same_data(state["data"], self.data)
        self._moved = None
        for name in self.saved:
            if isinstance(generator := getattr(self, name), torch.Generator):
                generator.set_state(state[name])
            else:
                setattr(self, name, state[name])
