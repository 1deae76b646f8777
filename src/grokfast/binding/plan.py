"""Which gradients go to a filter together. The plan changes rarely, so it is made once and checked at every step."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from operator import is_, itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.gradients import is_lazy, own_gradient, refuse_sparse
from grokfast.binding.state import COUNT, MISSED, PREFIX, STEP, Entry, is_sharded, local, tensors_of
from grokfast.binding.tuning import Tuning, overrides_of
from grokfast.filters.base import Filter, State
from grokfast.filters.kernel import has_same_layout, kernel_of

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
    sizes: list[int]  # bytes, which change with the dtype
    strides: list[tuple[int, ...]]  # with the bytes they tell the shape
    addresses: int  # how many different ones

    @classmethod
    def of(cls, grads: Sequence[Any]) -> Marks:
        types = {*map(type, grads)}
        own = [local(grad) for grad in grads] if types - {Tensor} else grads
        return cls(types, [*map(SIZE, own)], [*map(Tensor.stride, own)], len({*map(Tensor.data_ptr, own)}))


# Called through `map`, which runs at the speed of C: this happens at every step for every parameter.
SIZE: Callable[[Any], int] = vars(torch._C.TensorBase)["nbytes"].__get__


class Column(NamedTuple):
    """One of the filter's tensors in all entries, as it was when the plan was made."""

    get: Callable[[Entry], Tensor]
    tensors: list[Tensor]

    def holds(self, entries: list[Entry]) -> bool:
        try:
            return all(map(is_, map(self.get, entries), self.tensors))
        except KeyError:  # somebody has taken it out
            return False


class Plan(NamedTuple):
    """Bundles, and all that must stay as it is for them to be right."""

    bundles: list[Bundle]
    active: list[Bundle]  # those with a filter
    groups: list[Known]
    state: Any  # optimizer.state
    params: list[Tensor]  # with a dense gradient, bundle by bundle
    marks: Marks
    lazy: bool  # whether gradients may be conjugated or negated views, which kernels refuse
    filtered: list[Tensor]
    entries: list[Entry]  # of those filtered
    columns: list[Column]  # of these entries
    without: list[Tensor]  # parameters without a gradient
    sparse: list[Tensor]  # parameters with a sparse gradient, which is not filtered

    def take_gradients(self, optimizer: Optimizer) -> bool:
        """Put the current gradients into the bundles; False if the plan does not hold any more."""
        if not self._holds(optimizer):
            return False
        grads: list[Any] = [param.grad for param in self.params]
        if not self._fits(grads):
            return False
        if len(self.bundles) == 1:
            self.bundles[0].grads = grads
            return True
        start = 0
        for bundle in self.bundles:
            bundle.grads = grads[start : (start := start + len(bundle.params))]
        return True

    def _holds(self, optimizer: Optimizer) -> bool:
        """Whether param groups, entries and the tensors in the entries are the ones that the plan was made for."""
        state, groups = optimizer.state, optimizer.param_groups
        if state is not self.state or len(groups) != len(self.groups):
            return False
        if not all(map(Known.holds, self.groups, groups)):
            return False
        # Most often the entries are all there is in the state, in this order: that spares a look-up of each parameter.
        in_order = len(state) == len(self.entries) and all(map(is_, state.values(), self.entries))
        if not in_order and not all(map(is_, map(state.get, self.filtered), self.entries)):
            return False
        # Programs that move an optimizer's state between devices put new tensors into the same entries.
        return all(map(Column.holds, self.columns, repeat(self.entries)))

    def _fits(self, grads: list[Any]) -> bool:
        if self.without and any(param.grad is not None for param in self.without):
            return False
        if self.sparse and any(param.grad is None or param.grad.layout is torch.strided for param in self.sparse):
            return False
        try:
            if self.lazy and any(map(is_lazy, grads)):
                return False
            return Marks.of(grads) == self.marks
        except (AttributeError, RuntimeError, TypeError):  # a gradient that is missing or has no strides
            return False

    def gradients(self) -> list[list[Tensor]]:
        return [bundle.grads for bundle in self.bundles]

    @property
    def device(self) -> torch.device:
        """A device that some gradients are on."""
        return self.bundles[0].grads[0].device

    def drop_gradients(self) -> None:
        """Let go of the gradients, which would stay in memory otherwise."""
        for bundle in self.bundles:
            bundle.grads = []


def make_plan(optimizer: Optimizer, tuning: Tuning, entry_of: EntryOf) -> Plan:
    """Sort all gradients into bundles that share filter, count, dtype, device and layout."""
    groups = [Known(g, tuple(g["params"]), tuple(g), overrides_of(g)) for g in optimizer.param_groups]
    lazy = any(is_lazy(p.grad) or p.is_complex() for g in groups for p in g.params if p.grad is not None)
    dense, without, sparse = sort_gradients(optimizer, tuning)
    bundles = list(bundle_up(dense, entry_of).values())
    params = [param for bundle in bundles for param in bundle.params]
    grads = [grad for bundle in bundles for grad in bundle.grads]
    filtered = [param for bundle in bundles for param in bundle.params if bundle.filter is not None]
    entries = [entry for bundle in bundles for entry in bundle.entries]
    marks, columns = Marks.of(grads), columns_of(entries)
    active = [bundle for bundle in bundles if bundle.filter is not None]
    found = marks, lazy, filtered, entries, columns, without, sparse
    return Plan(bundles, active, groups, optimizer.state, params, *found)


def columns_of(entries: list[Entry]) -> list[Column]:
    keys = [PREFIX + name for name in tensors_of(entries[0])] if entries else []
    return [Column(itemgetter(key), [entry[key] for entry in entries]) for key in keys]


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
        kind = (grad.dtype, grad.device, type(grad), kernel_of(local(grad)))
        if filter is None:
            bundles.setdefault((None, kind), Bundle(None)).add(param, grad, None, {})
            continue
        entry = entry_of(param, grad)
        state = {name: local(tensor) for name, tensor in tensors_of(entry).items()}
        check_shapes(filter, local(grad), state)
        uniform, missed, count = is_alike(local(grad), state), entry.get(MISSED), entry[COUNT]
        key = (id(filter), count, id(missed), uniform, kind)
        if key not in bundles:
            bundles[key] = Bundle(filter, count, missed is None and count > 0, uniform, missed)
        bundles[key].add(param, grad, entry, state)
    for bundle in bundles.values():
        if bundle.missed is not None:
            bundle.count_missed_in(bundle.missed.clone())  # from now on of these parameters only
    return bundles


def check_shapes(filter: Filter, grad: Tensor, state: State) -> None:
    """Refuse a state that was made for another shape; it would be read beyond its end."""
    if all(ends_like(tensor, grad) for tensor in state.values()):
        return
    wanted = filter.new_state(torch.empty_like(grad, device="meta"))
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape:
            shape, got = tuple(grad.shape), f"{name} {tuple(tensor.shape)}"
            remedy = "delete the optimizer's state of a parameter whose shape you change"
            raise ValueError(f"the filter's state must fit a gradient of shape {shape}, got {got}: {remedy}")


def ends_like(tensor: Tensor, grad: Tensor) -> bool:
    """Whether a tensor has the gradient's shape, perhaps with one more dimension in front, as a window has."""
    lead = tensor.dim() - grad.dim()
    return lead in (0, 1) and tensor.shape[lead:] == grad.shape


def is_alike(grad: Tensor, state: State) -> bool:
    """Whether a gradient is laid out like its state; a window has one more dimension in front."""
    return kernel_of(grad) != "foreach" and all(
        has_same_layout(grad, t) for t in state.values() if t.dim() == grad.dim()
    )
