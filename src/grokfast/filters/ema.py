"""EMA low-pass filter (Algorithm 2): m <- alpha m + (1 - alpha) g;  g <- g + lamb m."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor

from grokfast.checks import check_choice, check_number
from grokfast.filters.base import Filter, Init, Slow, State, mix, state_like, unchangeable
from grokfast.filters.kernel import fused_step, is_uniform
from grokfast.filters.response import Section


@unchangeable
@dataclass(frozen=True)
class EMA(Filter):
    """Amplify slow gradients by an exponential moving average. The state is as large as one gradient.

    m_1 = g_1,  m_t = alpha m_{t-1} + (1 - alpha) g_t,  g_t <- g_t + lamb m_t

    Args:
        alpha: decay of the average, in [0, 1). The average covers about 1 / (1 - alpha) steps. The paper recommends 0.8
            to 0.99.
        lamb: how much of the average is added, >= 0. The paper recommends 0.1 to 5.
        slow_only: use lamb m instead of g + lamb m.
        init: `"first"` seeds the average with the first gradient, `"zero"` with zeros.
        state_dtype: dtype of the average, None for the gradient's (fp32 for bf16 and fp16 gradients).
            `torch.bfloat16` takes half the memory. The average is rounded up or down at random, so that small changes
            count on average. The random numbers depend on the number of gradients seen, so a resumed run repeats them.

    Examples:
        >>> grad = torch.ones(3)
        >>> ema = EMA(alpha=0.98, lamb=2.0)
        >>> ema.update([grad], [ema.new_state(grad)], 0)
        >>> grad
        tensor([3., 3., 3.])

    Reference: Lee et al., 2024, Algorithm 2.
    """

    alpha: float = 0.98
    lamb: float = 2.0
    slow_only: bool = field(default=False, kw_only=True)
    init: Init = field(default="first", kw_only=True)
    state_dtype: torch.dtype | None = field(default=None, kw_only=True)

    tunable: ClassVar[tuple[str, ...]] = ("alpha", "lamb")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("alpha", self.alpha, low=0.0, high=1.0)
        check_choice("init", self.init, ("first", "zero"))
        check_choice("state_dtype", self.state_dtype, (None, torch.bfloat16))

    def new_state(self, grad: Tensor) -> State:
        if grad.is_complex() and self.state_dtype is not None:
            raise TypeError(f"state_dtype must be None for complex gradients, got {self.state_dtype}")
        return {"slow": state_like(grad, dtype=self.state_dtype)}

    def advance(self, grads: list[Tensor], states: list[State], count: int) -> Slow:
        slow = [state["slow"] for state in states]
        if count == 0 and self.init == "first":
            # The first gradient seeds the average; zeros would damp the first 1/(1-alpha) steps.
            torch._foreach_copy_(slow, grads)
        elif slow[0].dtype == grads[0].dtype:
            torch._foreach_lerp_(slow, grads, 1 - self.alpha)
        else:
            torch._foreach_mul_(slow, self.alpha)
            torch._foreach_add_(slow, grads, alpha=1 - self.alpha)
        return Slow(slow, 1.0)

    def _update_rounded(self, grads: list[Tensor], slow: list[Tensor], count: int, active: bool) -> None:
        """One step, one tensor after another, with the average in fp32 during the step."""
        generator = torch.Generator(grads[0].device).manual_seed(count)
        for grad, average in zip(grads, slow, strict=True):
            wide = average.float()
            wide.lerp_(grad.float(), 1.0 if count == 0 and self.init == "first" else 1 - self.alpha)
            round_at_random(wide, average, generator)
            if active:
                mix([grad], [wide], self.lamb, self.slow_only)

    def update(
        self, grads: list[Tensor], states: list[State], count: int, *, active: bool = True, uniform: bool = False
    ) -> None:
        slow = [state["slow"] for state in states]
        if self.state_dtype is not None:
            self._update_rounded(grads, slow, count, active)
        # For alpha = 0 torch's kernel, which calls it momentum, ignores the buffer.
        elif active and self.alpha > 0 and not self.slow_only and (uniform or is_uniform(grads, slow)):
            first = count == 0 and self.init == "first"
            fused_step(grads, slow, keep=self.alpha, take=1 - self.alpha, gain=self.lamb, first=first)
        else:
            super().update(grads, states, count, active=active)

    def phase(self, count: int) -> int:
        return min(count, 1) if self.state_dtype is None else count  # the random numbers need the count

    def slow(self, state: State, count: int) -> Tensor:
        return state["slow"]

    def sections(self) -> Sequence[Section]:
        return [([1 - self.alpha], [1.0, -self.alpha])]

    @property
    def window_size(self) -> float:
        """The equivalent window by the authors' rule alpha^w = 0.1."""
        return math.log(0.1) / math.log(self.alpha) if self.alpha > 0 else 1.0

    @classmethod
    def from_window(cls, window_size: float, **options: Any) -> EMA:
        """The EMA that has forgotten 90% of a gradient after `window_size` steps: alpha^w = 0.1.

        >>> round(EMA.from_window(100).alpha, 3)
        0.977
        """
        check_number("window_size", window_size, low=1.0)
        return cls(alpha=0.1 ** (1 / window_size), **options)

    @classmethod
    def from_speedup(cls, speedup: float, **options: Any) -> EMA:
        """The authors' rule (in their README) for N times faster generalisation: alpha^N = 0.1."""
        check_number("speedup", speedup, low=1.0)
        return cls.from_window(speedup, **options)

    @classmethod
    def from_cutoff(cls, cutoff: float, **options: Any) -> EMA:
        """The EMA whose gain has fallen by 3 dB at `cutoff` cycles per step: |H|^2 = 1/2 solved for alpha."""
        check_number("cutoff", cutoff, low=math.ulp(0.0), high=0.5)
        c = 2 * math.sin(math.pi * cutoff) ** 2  # 1 - cos without cancellation
        return cls(alpha=1 + c - math.sqrt(c * (c + 2)), **options)


def round_at_random(values: Tensor, out: Tensor, generator: torch.Generator) -> None:
    """Write fp32 values as bf16, rounded up or down with probabilities that keep the mean.

    bf16 is the upper half of fp32: add a random lower half, then cut it off.
    """
    bits = values.view(torch.int32)
    words = torch.empty(-(-bits.numel() // 4), dtype=torch.int64, device=bits.device)
    words.random_(-(1 << 63), None, generator=generator)
    noise = words.view(torch.int16)[: bits.numel()].view(bits.shape)  # four per word, in [-2^15, 2^15)
    out.copy_(torch.add(bits, noise).add_(1 << 15).bitwise_and_(-(1 << 16)).view(torch.float32))
