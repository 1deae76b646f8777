"""What the filter does, in numbers: ratio = |lamb slow| / |g| and the cosine between g and slow."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.keeper import Keeper
from grokfast.binding.state import COUNT, local, tensors_of
from grokfast.binding.tuning import Tuning
from grokfast.filters.base import Filter


class Sums(NamedTuple):
    """|g|^2, |lamb slow|^2 and g . lamb slow, of one tensor or of many."""

    grad: float = 0.0
    slow: float = 0.0
    both: float = 0.0

    def plus(self, other: Sums) -> Sums:
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    def as_metrics(self, prefix: str) -> dict[str, float]:
        norms = math.sqrt(self.grad * self.slow)
        ratio = math.sqrt(self.slow / self.grad) if self.grad else math.nan
        return {f"{prefix}ratio": ratio, f"{prefix}cosine": self.both / norms if norms else math.nan}


def measure(
    optimizer: Optimizer, keeper: Keeper, tuning: Tuning, *, used: Mapping[Tensor, Filter], detail: bool
) -> dict[str, float]:
    """Ratio and cosine in total, per param group and, with `detail`, per parameter.

    Args:
        optimizer, keeper, tuning: of the attachment.
        used: the filters that have edited the current gradients, so that lamb slow must be taken out again; a param
            group may have another lamb by now.
        detail: also per parameter, by its name or its place.
    """
    total, parts = Sums(), dict[str, float]()
    for index, group in enumerate(optimizer.param_groups):
        shared, groupwise = tuning.filter_for(index, group), Sums()
        for name, param in named(index, group):
            filter = used.get(param, shared if tuning.includes(param) else None)
            if filter is None or (sums := sums_of(param, filter, keeper, param in used)) is None:
                continue
            groupwise = groupwise.plus(sums)
            parts |= sums.as_metrics(f"grokfast/{name}/") if detail else {}
        total = total.plus(groupwise)
        parts |= groupwise.as_metrics(f"grokfast/group{index}/")
    return {**total.as_metrics("grokfast/"), **parts}


def named(index: int, group: dict[str, list[Tensor]]) -> Iterator[tuple[str, Tensor]]:
    names = group.get("param_names") or [f"group{index}/{place}" for place in range(len(group["params"]))]
    yield from zip(map(str, names), group["params"], strict=True)


@torch.no_grad()
def sums_of(param: Tensor, filter: Filter, keeper: Keeper, edited: bool) -> Sums | None:
    """The sums of one parameter; None without gradient or state. Complex numbers count as pairs."""
    entry = keeper.entry(param)
    if param.grad is None or entry is None or entry[COUNT] == 0 or param.grad.layout is not torch.strided:
        return None
    slow = local(filter.slow(tensors_of(entry), entry[COUNT])).to(wide(param.grad)) * filter.lamb
    grad = local(param.grad).resolve_conj().to(slow.dtype)
    if edited and filter.is_ready(entry[COUNT]):
        if filter.slow_only:  # the gradient itself is gone
            return None
        grad = grad - slow
    g, s = (torch.view_as_real(t).flatten() if t.is_complex() else t.flatten() for t in (grad, slow))
    return Sums(*torch.stack([g.dot(g), s.dot(s), g.dot(s)]).tolist())


def wide(grad: Tensor) -> torch.dtype:
    return torch.complex128 if grad.is_complex() else torch.float64
