"""EMA low-pass filter (Algorithm 2): m <- alpha m + (1 - alpha) g;  g <- g + lamb m."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from grokfast.checks import check_bool, check_choice, check_number
from grokfast.filters.base import Filter, Init, Slow, State, state_like
from grokfast.filters.response import Section


@dataclass(frozen=True, kw_only=True)
class EMA(Filter):
    """Amplify slow gradients by an exponential moving average, with the memory of one more gradient.

    m_1 = g_1,  m_t = alpha m_{t-1} + (1 - alpha) g_t,  g_t <- g_t + lamb m_t

    Args:
        alpha: memory of the average, in [0, 1). The paper recommends 0.8 to 0.99.
        lamb: gain of the average, >= 0. The paper recommends 0.1 to 5.
        slow_only: use lamb m instead of g + lamb m.
        init: `"first"` seeds the average with the first gradient, `"zero"` with zeros.
        compile: fuse the step into one kernel by `torch.compile`. It pays for large models, and the first step
            takes up to a minute. If compilation fails, the plain kernel runs instead, with one warning.

    Example:
        >>> grad = torch.ones(3)
        >>> ema = EMA(alpha=0.98, lamb=2.0)
        >>> ema.update([grad], [ema.new_state(grad)], 0)
        >>> grad
        tensor([3., 3., 3.])

    Reference: Lee et al., 2024, Algorithm 2.
    """

    alpha: float = 0.98
    lamb: float = 2.0
    slow_only: bool = False
    init: Init = "first"
    compile: bool = False

    tunable: ClassVar[tuple[str, ...]] = ("alpha", "lamb")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("alpha", self.alpha, low=0.0, high=1.0)
        check_choice("init", self.init, ("first", "zero"))
        check_bool("compile", self.compile)

    def new_state(self, grad: Tensor) -> State:
        return {"slow": state_like(grad)}

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

    def update(self, grads: list[Tensor], states: list[State], count: int, *, active: bool = True) -> None:
        if not (self.compile and active and count > 0):
            return super().update(grads, states, count, active=active)
        # Scalars are passed as tensors, so that a scheduled lamb does not trigger a new compilation.
        weight, gain = (torch.tensor(x, dtype=torch.float64) for x in (1 - self.alpha, self.lamb))
        _fused()(grads, [state["slow"] for state in states], weight, gain, self.slow_only)

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
        """The EMA whose gain falls by 3 dB at `cutoff` cycles per step, from |H|^2 = 1/2 solved for alpha."""
        check_number("cutoff", cutoff, low=math.ulp(0.0), high=0.5)
        c = 2 * math.sin(math.pi * cutoff) ** 2  # 1 - cos without cancellation
        return cls(alpha=1 + c - math.sqrt(c * (c + 2)), **options)


def _kernel(grads: list[Tensor], slow: list[Tensor], weight: Tensor, gain: Tensor, slow_only: bool) -> None:
    for g, m in zip(grads, slow, strict=True):
        m.lerp_(g.to(m.dtype), weight.to(m.dtype))
        amplified = m * gain.to(m.dtype)
        g.copy_(amplified if slow_only else g + amplified)


@functools.cache
def _fused() -> Callable[..., None]:
    """`_kernel` through torch.compile, or uncompiled after compilation has failed once."""
    from torch._dynamo.exc import TorchDynamoException

    def give_up(error: Exception) -> None:
        nonlocal fast
        fast = _kernel
        reason = " ".join(str(error).strip().splitlines()[:2]).strip()
        warnings.warn(f"torch.compile failed, using the plain EMA kernel: {reason}", stacklevel=4)

    def run(*args: Any) -> None:
        try:
            fast(*args)
        except TorchDynamoException as error:
            give_up(error)
            _kernel(*args)

    fast: Callable[..., None] = _kernel
    try:
        fast = torch.compile(_kernel)
    except RuntimeError as error:
        give_up(error)
    return run
