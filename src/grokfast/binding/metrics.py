"""Measures of a filter: ratio = |lamb slow| / |g| and the cosine between g and slow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from grokfast.binding.state import COUNT, Slot, local
from grokfast.binding.step import Runner
from grokfast.filters.base import Filter


class Sums(NamedTuple):
    """|g|^2, |lamb slow|^2 and g . lamb slow, summed over one or more tensors."""

    grad: float = 0.0
    slow: float = 0.0
    both: float = 0.0

    def plus(self, other: Sums) -> Sums:
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    def as_metrics(self, prefix: str) -> dict[str, float]:
        norms = math.sqrt(self.grad * self.slow)
        ratio = math.sqrt(self.slow / self.grad) if self.grad else math.nan
        return {f"{prefix}ratio": ratio, f"{prefix}cosine": self.both / norms if norms else math.nan}


def measure(runner: Runner, *, used: Mapping[Tensor, Filter], detail: bool) -> dict[str, float]:
    """Ratio and cosine in total, per param group and, with `detail`, per parameter.

    Args:
        runner: of the attachment.
        used: the filters that have edited the current gradients, from which lamb slow must be subtracted again. The
            lamb of a param group may have changed since.
        detail: also per parameter, by its name or index.
    """
    total, parts = Sums(), dict[str, float]()
    for index, group in enumerate(runner.groups):
        groupwise, slots = Sums(), {slot.param: slot for slot in group.slots}
        for name, param in named(index, group.group):
            filter, slot = used.get(param, group.filter), slots.get(param)
            if filter is None or slot is None or (sums := sums_of(slot, filter, param in used)) is None:
                continue
            groupwise = groupwise.plus(sums)
            parts |= sums.as_metrics(f"grokfast/{name}/") if detail else {}
        total = total.plus(groupwise)
        parts |= groupwise.as_metrics(f"grokfast/group{index}/")
    return {**total.as_metrics("grokfast/"), **parts}


def named(index: int, group: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    names = group.get("param_names") or [f"group{index}/{place}" for place in range(len(group["params"]))]
    yield from zip(map(str, names), group["params"], strict=True)


@torch.no_grad()
def sums_of(slot: Slot, filter: Filter, edited: bool) -> Sums | None:
    """The sums of one parameter, or None without gradient or state. A complex number is a pair of numbers."""
    param, entry = slot.param, slot.entry
    if param.grad is None or entry is None or entry[COUNT] == 0 or param.grad.layout is not torch.strided:
        return None
    slow = filter.slow(slot.tensors, entry[COUNT]).to(wide(param.grad)) * filter.lamb
    grad = local(param.grad).resolve_conj().to(slow.dtype)
    if edited and filter.is_ready(entry[COUNT]):
        if filter.slow_only:  # the original gradient is lost
            return None
        grad = grad - slow
    g, s = (torch.view_as_real(t).flatten() if t.is_complex() else t.flatten() for t in (grad, slow))
    return Sums(*torch.stack([g.dot(g), s.dot(s), g.dot(s)]).tolist())


def wide(grad: Tensor) -> torch.dtype:
    return torch.complex128 if grad.is_complex() else torch.float64
