"""Which gradients go to a filter together. The plan changes rarely, so it is made once and checked at every step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.gradients import own_gradient, refuse_sparse
from grokfast.binding.state import COUNT, MISSED, STEP, Entry, is_sharded, local, tensors_of
from grokfast.binding.tuning import Tuning, overrides_of
from grokfast.filters.base import Filter, State, has_same_layout, is_fusable

EntryOf = Callable[[Tensor, Tensor], Entry]


@dataclasses.dataclass(slots=True)
class Bundle:
    """Parameters whose gradients one filter call can take; the filter is None where it is switched off."""

    filter: Filter | None
    count: int = 0  # gradients seen, or discarded by the device
    seeded: bool = False  # whether the host knows that one has been seen
    uniform: bool = False  # whether gradients and states are laid out alike
    missed: Tensor | None = None  # gradients that the device discarded, counted there
    params: list[Tensor] = dataclasses.field(default_factory=list[Tensor])
    grads: list[Tensor] = dataclasses.field(default_factory=list[Tensor])  # during a step, else empty
    entries: list[Entry] = dataclasses.field(default_factory=list[Entry])
    states: list[State] = dataclasses.field(default_factory=list[State])

    def add(self, param: Tensor, grad: Tensor, entry: Entry | None, state: State) -> None:
        self.params.append(param)
        self.grads.append(grad)
        if entry is not None:
            self.entries.append(entry)
            self.states.append(state)

    def local_grads(self) -> list[Tensor]:
        """The gradients, or this rank's shards of them."""
        return [local(grad) for grad in self.grads] if is_sharded(self.grads[0]) else self.grads

    def count_missed_in(self, missed: Tensor) -> None:
        self.missed = missed
        for entry in self.entries:
            entry[MISSED] = missed

    def advance(self, step: int) -> None:
        """Count one more gradient."""
        self.count = count = self.count + 1
        for entry in self.entries:
            entry[COUNT] = count
            entry[STEP] = step


class Known(NamedTuple):
    """A param group as it was when the plan was made."""

    group: Mapping[str, Any]
    params: tuple[Tensor, ...]
    keys: tuple[str, ...]
    overrides: Entry

    def holds(self, group: Mapping[str, Any]) -> bool:
        params = group["params"]
        if group is not self.group or len(params) != len(self.params) or not all(map(is_, params, self.params)):
            return False
        return tuple(group) == self.keys and all(group[key] == value for key, value in self.overrides.items())


class Marks(NamedTuple):
    """What gradients are like, as far as the plan depends on it."""

    types: set[type]
    dtypes: list[torch.dtype]
    devices: list[torch.device]
    strides: list[tuple[int, ...]]
    addresses: int  # how many different ones

    @classmethod
    def of(cls, grads: Sequence[Any]) -> Marks:
        types = {*map(type, grads)}
        own = [local(grad) for grad in grads] if types - {Tensor} else grads
        devices = [*map(DEVICE, grads)]
        return cls(types, [*map(DTYPE, grads)], devices, [*map(STRIDE, own)], len({*map(ADDRESS, own)}))


# Called through `map`, which runs at the speed of C: this happens at every step for every parameter.
DTYPE, DEVICE = (getattr(Tensor, name).__get__ for name in ("dtype", "device"))
STRIDE, ADDRESS = Tensor.stride, Tensor.data_ptr


class Plan(NamedTuple):
    """Bundles, and all that must stay as it is for them to be right."""

    bundles: list[Bundle]
    groups: list[Known]
    state: Any  # optimizer.state
    params: list[Tensor]  # with a dense gradient, bundle by bundle
    marks: Marks
    complex: bool
    filtered: list[Tensor]
    entries: list[Entry]  # of those filtered
    without: list[Tensor]  # parameters without a gradient
    sparse: list[Tensor]  # parameters with a sparse gradient, which is not filtered

    def take_gradients(self, optimizer: Optimizer) -> bool:
        """Put the current gradients into the bundles; False if the plan does not hold any more."""
        state, groups = optimizer.state, optimizer.param_groups
        if state is not self.state or len(groups) != len(self.groups):
            return False
        if not all(known.holds(group) for known, group in zip(self.groups, groups, strict=True)):
            return False
        if not all(map(is_, map(state.get, self.filtered), self.entries)):
            return False
        grads: list[Any] = [param.grad for param in self.params]
        if not self._fits(grads):
            return False
        start = 0
        for bundle in self.bundles:
            bundle.grads = grads[start : (start := start + len(bundle.params))]
        return True

    def _fits(self, grads: list[Any]) -> bool:
        if any(param.grad is not None for param in self.without):
            return False
        if any(param.grad is None or param.grad.layout is torch.strided for param in self.sparse):
            return False
        if self.complex and any(grad is not None and grad.is_conj() for grad in grads):
            return False
        try:
            return Marks.of(grads) == self.marks
        except (AttributeError, RuntimeError, TypeError):  # a gradient that is missing or has no strides
            return False

    def drop_gradients(self) -> None:
        """Let go of the gradients, which would stay in memory otherwise."""
        for bundle in self.bundles:
            bundle.grads = []


def make_plan(optimizer: Optimizer, tuning: Tuning, entry_of: EntryOf) -> Plan:
    """Sort all gradients into bundles that share filter, count, dtype, device and layout."""
    groups = [Known(g, tuple(g["params"]), tuple(g), overrides_of(g)) for g in optimizer.param_groups]
    dense, without, sparse = sort_gradients(optimizer, tuning)
    bundles = list(bundle_up(dense, entry_of).values())
    params = [param for bundle in bundles for param in bundle.params]
    grads = [grad for bundle in bundles for grad in bundle.grads]
    filtered = [param for bundle in bundles for param in bundle.params if bundle.filter is not None]
    entries = [entry for bundle in bundles for entry in bundle.entries]
    is_complex = any(grad.is_complex() for grad in grads)
    marks = Marks.of(grads)
    return Plan(bundles, groups, optimizer.state, params, marks, is_complex, filtered, entries, without, sparse)


Filtered = tuple[Tensor, Tensor, Filter | None]  # parameter, gradient, filter


def sort_gradients(optimizer: Optimizer, tuning: Tuning) -> tuple[list[Filtered], list[Tensor], list[Tensor]]:
    """Parameters with a dense gradient, without one, and with a sparse one; a sparse one to filter is refused."""
    dense: list[Filtered] = []
    without: list[Tensor] = []
    sparse: list[Tensor] = []
    taken: set[int] = set()
    for index, group in enumerate(optimizer.param_groups):
        shared = tuning.filter_for(index, group)
        for place, param in enumerate(group["params"]):
            filter = shared if tuning.includes(param) else None
            if param.grad is None:
                without.append(param)
            elif param.grad.layout is torch.strided:
                dense.append((param, own_gradient(param, taken), filter))
            elif filter is None:
                sparse.append(param)
            else:
                refuse_sparse(optimizer, index, place)
    return dense, without, sparse


def bundle_up(dense: list[Filtered], entry_of: EntryOf) -> dict[Any, Bundle]:
    bundles: dict[Any, Bundle] = {}
    for param, grad, filter in dense:
        kind = (grad.dtype, grad.device, type(grad))
        if filter is None:
            bundles.setdefault((None, kind), Bundle(None)).add(param, grad, None, {})
            continue
        entry = entry_of(param, grad)
        state = {name: local(tensor) for name, tensor in tensors_of(entry).items()}
        uniform, missed, count = is_alike(local(grad), state), entry.get(MISSED), entry[COUNT]
        key = (id(filter), count, id(missed), uniform, kind)
        if key not in bundles:
            bundles[key] = Bundle(filter, count, missed is None and count > 0, uniform, missed)
        bundles[key].add(param, grad, entry, state)
    for bundle in bundles.values():
        if bundle.missed is not None:
            bundle.count_missed_in(bundle.missed.clone())  # from now on of these parameters only
    return bundles


def is_alike(grad: Tensor, state: State) -> bool:
    """Whether a gradient is laid out like all tensors of its shape in the state."""
    return is_fusable(grad) and all(has_same_layout(grad, t) for t in state.values() if t.shape == grad.shape)
