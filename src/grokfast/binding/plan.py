"""Which gradients go to a filter together: those that share its settings, their dtype and device, and their count."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.state import COUNT, PREFIX, Entry, local
from grokfast.checks import check_bool
from grokfast.filters.base import Filter, all_finite


@dataclasses.dataclass(slots=True)
class Bundle:
    """Gradients that one filter call can take; the filter is None if their param group switches it off."""

    filter: Filter | None
    count: int
    grads: list[Tensor] = dataclasses.field(default_factory=list[Tensor])
    params: list[Tensor] = dataclasses.field(default_factory=list[Tensor])
    places: list[tuple[int, int]] = dataclasses.field(default_factory=list[tuple[int, int]])  # (group, place in it)


class Tuning:
    """The filter of each param group: with values of its own, or switched off."""

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self._known: dict[int, tuple[Entry, Filter | None]] = {}

    def filter_for(self, index: int, group: Mapping[str, Any]) -> Filter | None:
        """The filter of param group `index`; None if the group switches it off."""
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


def make_plan(optimizer: Optimizer, tuning: Tuning, entry_of: Callable[[Tensor], Entry | None]) -> list[Bundle]:
    """Sort all gradients into bundles. Runs every step on every parameter, hence written for speed."""
    found: dict[Any, Bundle] = {}
    last, bundle = None, None
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
            if grad.dtype.is_complex and grad.is_conj():  # from p.conj() in the loss; foreach kernels refuse such views
                grad = param.grad = grad.resolve_conj()
            entry = entry_of(param)
            key = (id(filter), 0 if entry is None else entry[COUNT], grad.dtype, grad.device, type(grad))
            if bundle is None or key != last:
                last, bundle = key, found.setdefault(key, Bundle(filter, key[1]))
            bundle.grads.append(grad)
            bundle.params.append(param)
            bundle.places.append((index, place))
    return list(found.values())


def unscale_and_check(optimizer: Optimizer, bundles: list[Bundle]) -> bool:
    """Unscale gradients that a fused optimizer would unscale in its step; return whether all are finite."""
    scale = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        optimizer.grad_scale = None  # type: ignore[attr-defined]
    return all_finite([bundle.grads for bundle in bundles], scale)


def find_nonfinite(optimizer: Optimizer, bundles: list[Bundle]) -> str:
    """The name of a parameter whose gradient is not finite."""
    pairs = (pair for bundle in bundles for pair in zip(bundle.places, bundle.grads, strict=True))
    place = next((p for p, grad in pairs if not local(grad).isfinite().all()), None)
    return param_name(optimizer, *place) if place else "another rank's shard"


def param_name(optimizer: Optimizer, index: int, place: int) -> str:
    """A parameter's name for a message; its place if the optimizer knows no names."""
    names = optimizer.param_groups[index].get("param_names")
    return f"parameter {names[place]!r}" if names else f"parameter {place} of group {index}"


def is_probe(optimizer: Optimizer, bundles: list[Bundle]) -> bool:
    """Whether this is the dry step of torch.distributed.checkpoint: all learning rates and gradients are zero.

    It makes the state exist, so that a checkpoint can be loaded into it, and must not change it.
    """
    if any(float(group.get("lr", 1.0)) != 0 for group in optimizer.param_groups):
        return False
    return not any(bool(grad.any()) for bundle in bundles for grad in bundle.grads)
