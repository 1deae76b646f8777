"""Which gradients go to a filter together: those of one param group, dtype, device and age."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.state import COUNT, PREFIX, Entry
from grokfast.checks import check_bool
from grokfast.filters.base import Filter


@dataclasses.dataclass(slots=True)
class Batch:
    """Gradients that one filter call can take; filter None for those of a group that switches it off."""

    filter: Filter | None
    count: int
    grads: list[Tensor] = dataclasses.field(default_factory=list[Tensor])
    params: list[Tensor] = dataclasses.field(default_factory=list[Tensor])
    places: list[tuple[int, int]] = dataclasses.field(default_factory=list[tuple[int, int]])  # (group, place in it)


class Tuning:
    """A filter as each param group wants it: with other values, or not at all."""

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self._known: dict[int, tuple[Entry, Filter | None]] = {}

    def filter_for(self, index: int, group: Mapping[str, Any]) -> Filter | None:
        """The filter of param group `index`; None where the group switches it off."""
        overrides = {key: value for key, value in group.items() if key.startswith("grokfast")}
        if not overrides:
            return self.filter
        known = self._known.get(index)
        if known is None or known[0] != overrides:
            known = self._known[index] = (overrides, tune(self.filter, overrides, index))
        return known[1]


def tune(filter: Filter, overrides: Mapping[str, Any], index: int) -> Filter | None:
    """Apply the `grokfast*` keys of param group `index` to a filter."""
    allowed = ["grokfast", *(PREFIX + name for name in filter.tunable)]
    unknown = sorted(set(overrides) - set(allowed))
    if unknown:
        kind = type(filter).__name__
        raise ValueError(f"param group {index} may set {', '.join(allowed)} for {kind}, got {unknown[0]!r}")
    values = {key.removeprefix(PREFIX): value for key, value in overrides.items() if key != "grokfast"}
    enabled = overrides.get("grokfast", True)
    check_bool("grokfast", enabled)
    if not enabled:
        return None
    return dataclasses.replace(filter, **values) if values else filter  # type: ignore[type-var]


def collect(optimizer: Optimizer, tuning: Tuning, entry_of: Callable[[Tensor], Entry | None]) -> list[Batch]:
    """Sort all gradients into batches. Runs every step on every parameter, hence written for speed."""
    found: dict[Any, Batch] = {}
    last, batch = None, None
    for index, group in enumerate(optimizer.param_groups):
        filter = tuning.filter_for(index, group)
        for place, param in enumerate(group["params"]):
            grad = param.grad
            if grad is None:
                continue
            if grad.layout is not torch.strided:
                if filter is None:
                    continue
                name = param_name(optimizer, index, place)
                remedy = "make its layer with sparse=False or set grokfast=False in its param group"
                raise TypeError(f"gradients must be dense, got a sparse one in {name}: {remedy}")
            if (
                grad.dtype.is_complex and grad.is_conj()
            ):  # as of a parameter used by p.conj(); foreach kernels refuse such views
                grad = param.grad = grad.resolve_conj()
            entry = entry_of(param)
            key = (id(filter), 0 if entry is None else entry[COUNT], grad.dtype, grad.device, type(grad))
            if batch is None or key != last:
                last, batch = key, found.setdefault(key, Batch(filter, key[1]))
            batch.grads.append(grad)
            batch.params.append(param)
            batch.places.append((index, place))
    return list(found.values())


def param_name(optimizer: Optimizer, index: int, place: int) -> str:
    """What to call a parameter in a message: its name where the optimizer knows it."""
    names = optimizer.param_groups[index].get("param_names")
    return f"parameter {names[place]!r}" if names else f"parameter {place} of group {index}"


def is_probe(optimizer: Optimizer, batches: list[Batch]) -> bool:
    """Whether this is the dry step of torch.distributed.checkpoint: learning rates and gradients all zero.

    It wants the state to exist, so that a checkpoint can be loaded into it, and must leave no trace in it.
    """
    if any(float(group.get("lr", 1.0)) != 0 for group in optimizer.param_groups):
        return False
    return not any(bool(grad.any()) for batch in batches for grad in batch.grads)
