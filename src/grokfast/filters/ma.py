"""MA low-pass filter (Algorithm 1) in O(1): total <- total - oldest + g;  g <- g + lamb total / window_size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from grokfast.checks import check_bool, check_choice, check_count, check_number
from grokfast.filters.base import Filter, Slow, State, state_like, unchangeable
from grokfast.filters.kernel import fused_step, is_uniform
from grokfast.filters.response import Section, window_half_power_frequency


@unchangeable
@dataclass(frozen=True)
class MA(Filter):
    """Amplify slow gradients by the mean of the last `window_size` gradients.

    A ring buffer keeps the window and a running total its sum, so a step takes the same time for every window size.
    The running total collects rounding errors. So a second total starts from zero with each pass through the buffer
    and replaces the first at its end: an error lasts two windows at most.

    Args:
        window_size: number of gradients averaged, >= 1. The state is as large as `window_size + 2` gradients.
        lamb: how much of the mean is added, >= 0.
        slow_only: use lamb * mean instead of g + lamb * mean.
        warmup: leave gradients unchanged until the window is full, like the released code. False averages the
            gradients seen so far, like Algorithm 1.
        reduction: `"mean"` or `"sum"` of the window.
        window_dtype: dtype of the stored window, None for the state's dtype. `torch.bfloat16` takes half the
            memory and rounds each stored gradient to 8 bits of mantissa.

    Examples:
        >>> ma, grad = MA(window_size=2, lamb=1.0), torch.ones(1)
        >>> state = ma.new_state(grad)
        >>> ma.update([grad], [state], 0)   # fills the window
        >>> ma.update([grad], [state], 1)
        >>> grad
        tensor([2.])

    Reference: Lee et al., 2024, Algorithm 1.
    """

    window_size: int = 100
    lamb: float = 5.0
    slow_only: bool = field(default=False, kw_only=True)
    warmup: bool = field(default=True, kw_only=True)
    reduction: Literal["mean", "sum"] = field(default="mean", kw_only=True)
    window_dtype: torch.dtype | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("window_size", self.window_size)
        check_bool("warmup", self.warmup)
        check_choice("reduction", self.reduction, ("mean", "sum"))
        check_choice("window_dtype", self.window_dtype, (None, torch.float32, torch.bfloat16))

    def new_state(self, grad: Tensor) -> State:
        if grad.is_complex() and self.window_dtype is not None:
            raise TypeError(f"window_dtype must be None for complex gradients, got {self.window_dtype}")
        window = state_like(grad, self.window_size, dtype=self.window_dtype)
        return {"window": window, "total": state_like(grad), "fresh": state_like(grad)}

    def advance(self, grads: list[Tensor], states: list[State], count: int) -> Slow | None:
        place = count % self.window_size
        slots = [state["window"].select(0, place) for state in states]
        total = [state["total"] for state in states]
        fresh = [state["fresh"] for state in states]
        torch._foreach_sub_(total, slots)
        torch._foreach_copy_(slots, grads)
        # Add the stored value, because the same value is subtracted later.
        torch._foreach_add_(total, slots)
        torch._foreach_add_(fresh, slots)
        if place == self.window_size - 1:
            torch._foreach_copy_(total, fresh)
            torch._foreach_zero_(fresh)
        if self.warmup and count + 1 < self.window_size:
            return None
        return Slow(total, self._scale(count + 1))

    def update(
        self, grads: list[Tensor], states: list[State], count: int, *, active: bool = True, uniform: bool = False
    ) -> None:
        total = [state["total"] for state in states]
        if not (self._fusable(active, count) and (uniform or is_uniform(grads, total))):
            return super().update(grads, states, count, active=active)
        place = count % self.window_size
        slots = [state["window"].select(0, place) for state in states]
        torch._foreach_sub_(total, slots)
        torch._foreach_copy_(slots, grads)
        torch._foreach_add_([state["fresh"] for state in states], grads)
        fused_step(grads, total, keep=1.0, take=1.0, gain=self.lamb * self._scale(count + 1))

    def is_ready(self, count: int) -> bool:
        return count >= (self.window_size if self.warmup else 1)

    def _fusable(self, active: bool, count: int) -> bool:
        """Whether total <- total + g;  g <- g + gain total can be one pass: this step does not replace total."""
        full = count + 1 >= self.window_size if self.warmup else True
        renewed = count % self.window_size == self.window_size - 1
        return active and full and not renewed and not self.slow_only and self.window_dtype is None

    def phase(self, count: int) -> int:
        return count if count < self.window_size else self.window_size + count % self.window_size

    def slow(self, state: State, count: int) -> Tensor:
        return state["total"] * self._scale(count)

    def sections(self) -> Sequence[Section]:
        return [([self._scale(self.window_size)] * self.window_size, [1.0])]

    def _scale(self, count: int) -> float:
        return 1.0 if self.reduction == "sum" else 1 / max(1, min(count, self.window_size))

    @property
    def alpha(self) -> float:
        """The equivalent alpha of an EMA by the authors' rule alpha^w = 0.1."""
        return 0.1 ** (1 / self.window_size)

    @classmethod
    def from_alpha(cls, alpha: float, **options: Any) -> MA:
        """The window equivalent to an EMA: alpha^w = 0.1.

        >>> MA.from_alpha(0.98).window_size
        114
        """
        check_number("alpha", alpha, low=math.ulp(0.0), high=1.0)
        return cls(window_size=max(1, round(math.log(0.1) / math.log(alpha))), **options)

    @classmethod
    def from_speedup(cls, speedup: float, **options: Any) -> MA:
        """The authors' rule (in their README) for N times faster generalisation: w = N."""
        check_number("speedup", speedup, low=1.0)
        return cls(window_size=round(speedup), **options)

    @classmethod
    def from_cutoff(cls, cutoff: float, **options: Any) -> MA:
        """The window whose gain has fallen by 3 dB closest to `cutoff` cycles per step."""
        check_number("cutoff", cutoff, low=math.ulp(0.0), high=0.5)
        # |H| of a long window is |sinc(w f)|, which is 1/sqrt(2) at w f = 0.443; short ones need a search.
        guess = 0.4429 / cutoff
        near = range(max(2, math.floor(guess) - 1), math.ceil(guess) + 2)
        return cls(window_size=min(near, key=lambda w: abs(window_half_power_frequency(w) - cutoff)), **options)
