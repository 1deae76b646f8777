"""Any causal linear low-pass filter: slow = (b, a) applied to the gradients;  g <- g + lamb slow."""

from __future__ import annotations

import abc
import functools
import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from grokfast.checks import check_choice, check_count, check_number
from grokfast.filters.base import Filter, Init, Slow, State, state_like, unchangeable
from grokfast.filters.response import Section

STEEPEST = 200  # highest order of a Butterworth filter: the design of higher ones overflows


@unchangeable
@dataclass(frozen=True)
class FIR(Filter):
    """Amplify slow gradients by a weighted sum of the last `len(taps)` gradients.

    slow_t = taps[0] g_t + taps[1] g_{t-1} + ...,  g_t <- g_t + lamb slow_t

    Args:
        taps: the impulse response, newest gradient first.
        lamb: how much of the slow part is added, >= 0.
        slow_only: use lamb * slow instead of g + lamb * slow.
        init: `"first"` starts as if all gradients before had equalled the first one, `"zero"` as if they had been zero.

    Examples:
        >>> fir, grad = FIR([0.5, 0.5], lamb=1.0), torch.ones(1)
        >>> fir.update([grad], [fir.new_state(grad)], 0)
        >>> grad
        tensor([2.])
    """

    taps: Sequence[float]
    lamb: float = 1.0
    slow_only: bool = field(default=False, kw_only=True)
    init: Init = field(default="first", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "taps", coefficient_tuple("taps", self.taps))
        check_choice("init", self.init, ("first", "zero"))

    def new_state(self, grad: Tensor) -> State:
        # The matrix product needs contiguous tensors, whatever the layout of the gradient.
        return {"history": state_like(grad, len(self.taps)), "slow": state_like(grad, 1).squeeze(0)}

    def advance(self, grads: list[Tensor], states: list[State], count: int) -> Slow:
        length = len(self.taps)
        place = count % length
        if count == 0 and self.init == "first":
            for grad, state in zip(grads, states, strict=True):
                state["history"].copy_(grad.expand_as(state["history"]))
        torch._foreach_copy_([state["history"].select(0, place) for state in states], grads)
        slow = [state["slow"] for state in states]
        # Slot i holds the gradient of (place - i) mod length steps ago.
        taps = [self.taps[(place - i) % length] for i in range(length)]
        weights = torch.tensor(taps, dtype=slow[0].dtype, device=slow[0].device)
        for out, state in zip(slow, states, strict=True):
            torch.mv(state["history"].view(length, -1).t(), weights, out=out.view(-1))
        return Slow(slow, 1.0)

    def phase(self, count: int) -> int:
        return count if count == 0 else len(self.taps) + count % len(self.taps)

    def slow(self, state: State, count: int) -> Tensor:
        return state["slow"]

    def sections(self) -> Sequence[Section]:
        return [(self.taps, [1.0])]


class Recursive(Filter, abc.ABC):
    """A cascade of sections with equally long b and a, in transposed direct form II:

    y = b0 x + z0;  zi <- b(i+1) x - a(i+1) y + z(i+1)
    """

    init: Init
    delays: ClassVar[str]
    """Name of the delays z in the state, different for each filter so that states cannot be confused."""

    def new_state(self, grad: Tensor) -> State:
        length = sum(len(b) - 1 for b, _ in self.sections())
        # Double precision, because poles close to the unit circle amplify rounding by orders of magnitude.
        dtype = torch.complex128 if grad.is_complex() else torch.float64
        return {self.delays: state_like(grad, length, dtype=dtype), "slow": state_like(grad, dtype=dtype)}

    def advance(self, grads: list[Tensor], states: list[State], count: int) -> Slow:
        slow = [state["slow"] for state in states]
        torch._foreach_copy_(slow, grads)
        start = 0
        for b, a in self.sections():
            delays = [[state[self.delays].select(0, start + i) for state in states] for i in range(len(b) - 1)]
            if count == 0 and self.init == "first":
                settle(b, a, slow, delays)
            filter_section(b, a, slow, delays)
            start += len(b) - 1
        return Slow(slow, 1.0)

    def phase(self, count: int) -> int:
        return min(count, 1)

    def slow(self, state: State, count: int) -> Tensor:
        return state["slow"]

    def signature(self) -> int:
        # Delays fit only the coefficients that computed them.
        return zlib.crc32(repr([(list(b), list(a)) for b, a in self.sections()]).encode())


@unchangeable
@dataclass(frozen=True)
class IIR(Recursive):
    """Amplify slow gradients by any stable recursive filter.

    slow_t = (sum_i b[i] g_{t-i} - sum_{i>0} a[i] slow_{t-i}) / a[0],  g_t <- g_t + lamb slow_t

    Args:
        b: numerator coefficients, newest gradient first.
        a: denominator coefficients, a[0] not 0; all poles inside the unit circle.
        lamb: how much of the slow part is added, >= 0.
        slow_only: use lamb * slow instead of g + lamb * slow.
        init: `"first"` starts as if all gradients before had equalled the first one, `"zero"` as if they had been zero.

    Examples:
        >>> ema, grad = IIR([0.02], [1.0, -0.98], lamb=2.0), torch.ones(1)
        >>> ema.update([grad], [ema.new_state(grad)], 0)
        >>> grad
        tensor([3.])
    """

    b: Sequence[float]
    a: Sequence[float]
    lamb: float = 1.0
    slow_only: bool = field(default=False, kw_only=True)
    init: Init = field(default="first", kw_only=True)

    delays: ClassVar[str] = "iir"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("init", self.init, ("first", "zero"))
        b, a = coefficient_tuple("b", self.b), coefficient_tuple("a", self.a)
        if a[0] == 0:
            raise ValueError(f"a[0] must not be 0, got a = {list(a)}")
        b, a = tuple(x / a[0] for x in b), tuple(x / a[0] for x in a)
        if (radius := pole_radius(a)) >= 1:
            raise ValueError(
                f"(b, a) must be stable: poles inside the unit circle, got a pole of magnitude {radius:.6g}"
            )
        object.__setattr__(self, "b", b)
        object.__setattr__(self, "a", a)

    def sections(self) -> Sequence[Section]:
        order = max(len(self.b), len(self.a))
        pad = [0.0] * order
        return [((*self.b, *pad)[:order], (*self.a, *pad)[:order])]


@unchangeable
@dataclass(frozen=True)
class Butterworth(Recursive):
    """Amplify slow gradients by a Butterworth low-pass filter, which is flat below its cutoff and steep above it.

    Args:
        order: steepness, >= 1. Above the cutoff the gain falls by 6 dB per octave and order.
        cutoff: frequency in (0, 0.5), in cycles per step, at which the gain has fallen by 3 dB. 0.01 keeps
            oscillations slower than one in a hundred steps.
        lamb: how much of the slow part is added, >= 0.
        slow_only: use lamb * slow instead of g + lamb * slow.
        init: `"first"` starts as if all gradients before had equalled the first one, `"zero"` as if they had been zero.

    Needs scipy (`pip install "grokfast[design]"`).

    Examples:
        >>> round(Butterworth(2, 0.05).cutoff_frequency(), 6)
        0.05
    """

    order: int
    cutoff: float
    lamb: float = 1.0
    slow_only: bool = field(default=False, kw_only=True)
    init: Init = field(default="first", kw_only=True)
    _sections: Sequence[Section] = field(init=False, repr=False, compare=False)

    delays: ClassVar[str] = "butterworth"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("order", self.order)
        if self.order > STEEPEST:
            raise ValueError(f"order must be an integer in [1, {STEEPEST}], got {self.order}")
        check_number("cutoff", self.cutoff, low=0.0, high=0.5, above=True)
        check_choice("init", self.init, ("first", "zero"))
        sections = design_butterworth(self.order, self.cutoff)
        if any(pole_radius(a) >= 1 or sum(a) <= 0 for _, a in sections):
            raise ValueError(f"cutoff must be large enough for poles inside the unit circle, got {self.cutoff!r}")
        object.__setattr__(self, "_sections", sections)

    def sections(self) -> Sequence[Section]:
        return self._sections


@functools.cache
def design_butterworth(order: int, cutoff: float) -> list[Section]:
    """Second-order sections by scipy. Rounding would move the poles of one polynomial of high order."""
    try:
        from scipy import signal
    except ImportError as error:
        raise ImportError('Butterworth needs scipy: pip install "grokfast[design]"') from error
    rows = signal.butter(order, cutoff, fs=1.0, output="sos").tolist()  # type: ignore[union-attr]
    return [(tuple(row[:3]), tuple(row[3:])) for row in rows]


def filter_section(b: Sequence[float], a: Sequence[float], signal: list[Tensor], delays: list[list[Tensor]]) -> None:
    """Filter one step of many signals in place: `signal` is x before and y after."""
    inputs = [x.clone() for x in signal] if delays else []
    torch._foreach_mul_(signal, b[0])
    if delays:
        torch._foreach_add_(signal, delays[0])
    for i, target in enumerate(delays):
        if i + 1 < len(delays):
            torch._foreach_copy_(target, delays[i + 1])
        else:
            torch._foreach_zero_(target)
        torch._foreach_add_(target, inputs, alpha=b[i + 1])
        torch._foreach_add_(target, signal, alpha=-a[i + 1])


def settle(b: Sequence[float], a: Sequence[float], signal: list[Tensor], delays: list[list[Tensor]]) -> None:
    """Set the delays to their steady state for a constant input, the value in `signal`."""
    gain = sum(b) / sum(a)
    level = 0.0
    for i in reversed(range(len(delays))):
        level += b[i + 1] - a[i + 1] * gain
        torch._foreach_copy_(delays[i], signal)
        torch._foreach_mul_(delays[i], level)


@functools.lru_cache(256)  # a schedule creates a filter in each step
def pole_radius(a: tuple[float, ...]) -> float:
    """Largest magnitude among the roots of a[0] z^n + a[1] z^(n-1) + ... (companion matrix)."""
    if len(a) == 1:
        return 0.0
    companion = torch.diag(torch.ones(len(a) - 2, dtype=torch.float64), -1)
    companion[0] = -torch.tensor(a[1:], dtype=torch.float64) / a[0]
    return float(torch.linalg.eigvals(companion).abs().max())


def coefficient_tuple(name: str, values: object) -> tuple[float, ...]:
    """A non-empty sequence of finite numbers as a tuple of floats."""
    try:
        if isinstance(values, (str, bytes)):
            raise TypeError  # else "12" would be the taps 1 and 2
        numbers = tuple(float(x) for x in values)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a sequence of finite numbers, got {values!r}") from None
    if not numbers or not all(math.isfinite(x) for x in numbers):
        raise ValueError(f"{name} must be a non-empty sequence of finite numbers, got {values!r}")
    return numbers
