"""The contract of every filter: g <- g + (h * g), where h is a causal low-pass filter with factor lamb.

A filter is arithmetic on lists of tensors. It does not know optimizers, parameters or schedules. `grokfast.attach`
decides when it runs.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from dataclasses import FrozenInstanceError
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor

from grokfast.checks import check_bool, check_choice, check_number
from grokfast.filters.kernel import FUSED_DTYPES
from grokfast.filters.response import Section, half_power_frequency, transfer

State = dict[str, Tensor]
FilterType = TypeVar("FilterType", bound="Filter")
Init = Literal["first", "zero"]


class Slow(NamedTuple):
    """The slow part of many gradients, not multiplied yet: `scale * tensors[i]` belongs to gradient i.

    Attributes:
        tensors: one for each gradient.
        scale: a factor for all of them.

    Examples:
        >>> slow = Slow([torch.tensor([6.0])], scale=1 / 3)  # the sum of three gradients, whose mean is the slow part
        >>> slow.tensors[0] * slow.scale
        tensor([2.])
    """

    tensors: list[Tensor]
    scale: float


class Filter(abc.ABC):
    """A causal linear filter of gradients over training steps.

    All tensors of one call are finite and share dtype, device and `phase(count)`. `count` is the number of gradients
    seen before.

    Attributes:
        lamb: how much of the slow part is added.
        slow_only: replace the gradient by the slow part instead of adding to it (the paper's Q1 ablation).

    Examples:
        A filter of your own that adds lamb times the previous gradient:

        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Previous(Filter):
        ...     lamb: float = 1.0
        ...     slow_only: bool = False
        ...     def new_state(self, grad):
        ...         return {"now": torch.zeros_like(grad), "before": torch.zeros_like(grad)}
        ...     def advance(self, grads, states, count):
        ...         for grad, state in zip(grads, states):
        ...             state["before"].copy_(state["now"])
        ...             state["now"].copy_(grad)
        ...         return Slow([state["before"] for state in states], scale=1.0)
        ...     def slow(self, state, count):
        ...         return state["before"]
        ...     def sections(self):
        ...         return [([0.0, 1.0], [1.0])]
        >>> previous = Previous(lamb=10.0)
        >>> state = previous.new_state(torch.zeros(1))
        >>> for count, grad in enumerate([torch.tensor([1.0]), torch.tensor([2.0])]):
        ...     previous.update([grad], [state], count)
        >>> grad
        tensor([12.])
    """

    lamb: float
    slow_only: bool

    tunable: ClassVar[tuple[str, ...]] = ("lamb",)
    """Hyper-parameters that may change during training, because the state does not depend on them."""

    def __post_init__(self) -> None:
        check_number("lamb", self.lamb, low=0.0)
        check_bool("slow_only", self.slow_only)

    @abc.abstractmethod
    def new_state(self, grad: Tensor) -> State:
        """The initial state of one tensor: zeros that do not share memory with `grad`."""

    @abc.abstractmethod
    def advance(self, grads: list[Tensor], states: list[State], count: int) -> Slow | None:
        """Advance the states by one step and return the slow part, or None if it does not exist yet."""

    @abc.abstractmethod
    def slow(self, state: State, count: int) -> Tensor:
        """The slow part of one tensor after `count` gradients, without lamb."""

    @abc.abstractmethod
    def sections(self) -> Sequence[Section]:
        """(b, a) of each factor B(z) / A(z) of the slow part's transfer function, without lamb; a[0] = 1.

        The product is not expanded, because rounding would move the roots of a polynomial of high order.
        """

    def update(
        self, grads: list[Tensor], states: list[State], count: int, *, active: bool = True, uniform: bool = False
    ) -> None:
        """Take one step: advance the states and, if `active`, edit the gradients in place.

        `uniform` promises that gradients and states have the same memory layout, so that it need not be checked.
        """
        slow = self.advance(grads, states, count)
        if active and slow is not None:
            mix(grads, slow.tensors, slow.scale * self.lamb, self.slow_only)

    def phase(self, count: int) -> int:
        """A count with the same effect in `update` as `count`. Tensors with equal phases may share a call."""
        return count

    def is_ready(self, count: int) -> bool:
        """Whether there is a slow part to add after `count` gradients."""
        return count > 0

    def signature(self) -> int:
        """A number that must equal the one saved with a state; 0 if every state of the same shapes fits."""
        return 0

    def frequency_response(self, w: Any, *, of: Literal["h", "1+h"] = "h") -> Tensor:
        """The transfer function at angular frequencies `w` (radians per step), as complex128.

        Args:
            w: number, sequence, array or tensor of frequencies; pi is the fastest oscillation.
            of: `"h"` for the slow part times lamb, H(w); `"1+h"` for the gradient that the optimizer receives,
                1 + H(w), or H(w) alone for a slow-only filter.

        Examples:
            >>> from grokfast import EMA
            >>> abs(EMA(alpha=0.98, lamb=2.0).frequency_response(0.0, of="1+h")).item()
            3.0
        """
        check_choice("of", of, ("h", "1+h"))
        z = torch.exp(-1j * torch.as_tensor(w, dtype=torch.float64))
        response = self.lamb * transfer(self.sections(), z)
        return response + 1.0 if of == "1+h" and not self.slow_only else response

    def cutoff_frequency(self) -> float | None:
        """Lowest frequency (cycles per step) at which |H| is 3 dB below its value at 0; None if there is none."""
        return half_power_frequency(self.sections())


def unchangeable(kind: type[FilterType]) -> type[FilterType]:
    """Make an assignment to a frozen filter raise an error that says what to do instead."""

    def refuse(self: Filter, name: str, value: object) -> None:
        if name in self.tunable:
            remedy = f"give attach a schedule, or set optimizer.param_groups[0]['grokfast_{name}'] = {value!r}"
        else:
            remedy = "attach another one"
        raise FrozenInstanceError(f"{name} of a filter cannot be changed: {remedy}")

    kind.__setattr__ = refuse
    return kind


def mix(grads: list[Tensor], slow: list[Tensor], gain: float, slow_only: bool) -> None:
    """g <- g + gain * slow, or g <- gain * slow."""
    if grads[0].dtype is torch.float16:
        return mix_saturated(grads, slow, gain, slow_only)
    if slow_only:
        torch._foreach_zero_(grads)
    torch._foreach_add_(grads, slow, alpha=gain)


def mix_saturated(grads: list[Tensor], slow: list[Tensor], gain: float, slow_only: bool) -> None:
    """`mix` in fp16. A sum that would overflow becomes the largest finite number; an inf or NaN stays."""
    largest = torch.finfo(torch.float16).max
    for grad, average in zip(grads, slow, strict=True):
        mixed = average * gain if slow_only else average * gain + grad
        grad.copy_(torch.where(grad.isfinite(), mixed.clamp_(-largest, largest), grad))


def state_like(grad: Tensor, *leading: int, dtype: torch.dtype | None = None) -> Tensor:
    """Zeros in the shape of `grad`, with `leading` dimensions in front, in a dtype precise enough for an average."""
    if leading:
        return torch.zeros(*leading, *grad.shape, dtype=dtype or state_dtype(grad), device=grad.device)
    return torch.zeros_like(grad, dtype=dtype or state_dtype(grad))


def state_dtype(grad: Tensor) -> torch.dtype:
    # In bf16 the average of a constant 1 at alpha 0.98 stalls at 0.879, because small increments are rounded away.
    return torch.float32 if grad.dtype in (torch.bfloat16, torch.float16) else grad.dtype


MANY = 1 << 20  # elements that do not fit into a cache: reading them once is faster than reading and writing them


def all_finite(lists: Sequence[list[Tensor]], scale: Tensor | None = None) -> bool:
    """Whether all gradients are finite. Divides them by `scale` if given. Synchronises each device."""
    if scale is None:
        lists = [grads for grads in lists if not has_finite_sum(grads)]
    return not any(flag.item() for flag in nonfinite_flags(lists, scale).values())


def has_finite_sum(grads: list[Tensor]) -> bool:
    """A fast test of many numbers on a CPU: if the sum is finite, so are they. A sum that is not proves nothing."""
    if grads[0].device.type != "cpu" or grads[0].dtype not in FUSED_DTYPES or sum(map(Tensor.numel, grads)) < MANY:
        return False
    return bool(torch.stack([grad.sum() for grad in grads]).sum().isfinite())


def nonfinite_flags(lists: Sequence[list[Tensor]], scale: Tensor | None = None) -> dict[torch.device, Tensor]:
    """One flag per device, by GradScaler's kernel: 1.0 if a gradient on it is not finite. The host does not read it."""
    found: dict[torch.device, Tensor] = {}
    for grads in lists:
        device = grads[0].device
        flag = found.setdefault(device, torch.zeros((), device=device))
        tensors = [torch.view_as_real(grad) for grad in grads] if grads[0].is_complex() else grads
        inverse = torch.ones((), device=device) if scale is None else scale.to(device).double().reciprocal().float()
        torch._amp_foreach_non_finite_check_and_unscale_(tensors, flag, inverse)
    return found
