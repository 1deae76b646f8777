"""A filter of a user's own: the mean of the last two gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import grokfast


@dataclass(frozen=True, kw_only=True)
class Pair(grokfast.Filter):
    """Amplify the mean of this gradient and the last one.

    Args:
        lamb: gain of the mean, >= 0.
        share: weight of the last gradient.
    """

    lamb: float = 1.0
    slow_only: bool = False
    share: float = 0.5

    def new_state(self, grad: Tensor) -> dict[str, Tensor]:
        return {"last": torch.zeros_like(grad), "mean": torch.zeros_like(grad)}

    def advance(self, grads: list[Tensor], states: list[dict[str, Tensor]], count: int) -> grokfast.Slow:
        for grad, state in zip(grads, states, strict=True):
            state["mean"].copy_(self.share * state["last"] + (1 - self.share) * grad)
            state["last"].copy_(grad)
        return grokfast.Slow([state["mean"] for state in states], 1.0)

    def slow(self, state: dict[str, Tensor], count: int) -> Tensor:
        return state["mean"]

    def sections(self) -> Sequence[tuple[Sequence[float], Sequence[float]]]:
        return [([1 - self.share, self.share], [1.0])]
