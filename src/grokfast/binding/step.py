"""One step of the filter: sort the gradients into bundles, ignore bad steps, run the filter on each bundle.

A slot remembers the layout of its parameter's gradient. If the same parameters have gradients of the same layout as in
the last step, its bundles are used again.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Mapping
from operator import is_
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.state import COUNT, PREFIX, STEP, Entry, Slot, States, local
from grokfast.checks import check_bool
from grokfast.filters.base import Filter, State, all_finite, nonfinite_flags
from grokfast.filters.kernel import has_same_layout, kernel_of

Schedule = Callable[[int], float]


class Kind(NamedTuple):
    """Properties that must be equal for gradients in one call of a filter."""

    dtype: torch.dtype
    device: torch.device
    type: type
    kernel: str
    uniform: bool  # whether gradient and state have the same layout


class Bundle:
    """Gradients that one call of a filter can take, with the slots, entries and states of their parameters.

    It is mixed if its parameters are in the same phase but have seen different numbers of gradients.
    """

    __slots__ = ("count", "entries", "filter", "grads", "kind", "mixed", "slots", "states")

    def __init__(self, filter: Filter, kind: Kind, count: int) -> None:
        self.filter, self.kind, self.count, self.mixed = filter, kind, count, False
        self.grads: list[Tensor] = []
        self.slots: list[Slot] = []
        self.entries: list[Any] = []
        self.states: list[State] = []

    def add(self, slot: Slot, grad: Tensor) -> None:
        self.grads.append(grad)
        self.slots.append(slot)
        self.entries.append(slot.entry)
        self.states.append(slot.tensors)

    def run(self, *, active: bool) -> None:
        grads = [local(grad) for grad in self.grads] if self.kind.type is not Tensor else self.grads
        self.filter.update(grads, self.states, self.count, active=active, uniform=self.kind.uniform)

    def advance(self, step: int) -> None:
        count = self.entries[0][COUNT] + 1
        for entry in self.entries:
            entry[COUNT] = entry[COUNT] + 1 if self.mixed else count
            entry[STEP] = step


# Called through `map`, which is fast: this happens in every step for every parameter.
NBYTES: Callable[[Any], int] = vars(torch._C.TensorBase)["nbytes"].__get__


class Plan(NamedTuple):
    """The bundles of the last step, and what must be unchanged to use them again."""

    bundles: list[Bundle]
    picture: object  # of the optimizer's state
    params: list[Tensor]  # bundle by bundle
    strides: list[Any]
    nbytes: list[int]  # together with the strides they determine shape and dtype
    absent: list[Tensor]  # parameters without a gradient

    def take_gradients(self) -> bool:
        """Put the current gradients into the bundles; False if the plan is out of date."""
        grads: list[Any] = [param.grad for param in self.params]
        try:
            same = [*map(Tensor.stride, grads)] == self.strides and [*map(NBYTES, grads)] == self.nbytes
        except (RuntimeError, TypeError):  # one is sparse or missing
            return False
        if not same or any(param.grad is not None for param in self.absent):
            return False
        start = 0
        for bundle in self.bundles:
            bundle.count = bundle.filter.phase(bundle.entries[0][COUNT])
            bundle.grads = grads[start : (start := start + len(bundle.slots))]
        return True


class Outcome:
    """The last run of the filter.

    Attributes:
        bundles: the bundles, without their gradients, to free their memory.
        edited: whether gradients were changed.
        bad: the name of a parameter whose gradient is not finite, so that no gradient was changed; None if all are.
        applied: whether `apply()` ran it before the optimizer's step.
        seen: parameters and their gradients: all of them if applied, otherwise the first.
    """

    def __init__(self, bundles: list[Bundle], *, edited: bool, bad: str | None, applied: bool) -> None:
        self.bundles, self.edited, self.bad, self.applied = bundles, edited, bad, applied
        self.seen: list[tuple[Any, weakref.ref[Tensor]]] = []
        for bundle in bundles if applied else bundles[:1]:
            pairs = zip(bundle.slots, bundle.grads, strict=True) if applied else [(bundle.slots[0], bundle.grads[0])]
            self.seen += [(slot.param, weakref.ref(grad)) for slot, grad in pairs]
        for bundle in bundles:
            bundle.grads = []

    @property
    def filters(self) -> dict[Tensor, Filter]:
        """The filter that ran on each parameter."""
        return {slot.param: bundle.filter for bundle in self.bundles for slot in bundle.slots}


class Group:
    """A param group as of the last step."""

    __slots__ = ("filter", "group", "keys", "overrides", "params", "slots")

    def __init__(self, group: Mapping[str, Any], slots: list[Slot]) -> None:
        self.group, self.params, self.slots = group, list[Tensor](group["params"]), slots
        self.keys: tuple[str, ...] = ()
        self.overrides: Entry = {}
        self.filter: Filter | None = None

    def holds(self, group: Mapping[str, Any]) -> bool:
        """Whether the group still has these parameters."""
        params = group["params"]
        return group is self.group and len(params) == len(self.params) and all(map(is_, params, self.params))

    def holds_values(self) -> bool:
        group = self.group
        return tuple(group) == self.keys and all(group[key] == value for key, value in self.overrides.items())


class Runner:
    """Filters all gradients of an optimizer."""

    def __init__(
        self,
        states: States,
        nonfinite: str,
        params: Iterable[Tensor] | None,
        schedules: Mapping[str, Schedule],
    ) -> None:
        self.optimizer, self.filter, self.states, self.nonfinite = states.optimizer, states.filter, states, nonfinite
        self.schedules = schedules
        self.chosen = None if params is None else {*params}  # by identity
        self.groups: list[Group] = []
        self.rest: list[Tensor] = []  # parameters that are not filtered
        self._kinds: dict[Kind, Kind] = {}
        self._current = states.filter  # with the scheduled values of this step
        self._plan: Plan | None = None
        self._fresh = [False]  # whether backward has added to a gradient since the last run
        self._mark = marker(self._fresh)
        self.read_groups()

    def is_current(self, outcome: Outcome) -> bool:
        """Whether the gradients are still those of that run: none is new, and nothing was added to one."""
        if self._fresh[0] or any(param.grad is not None and param.grad is not ref() for param, ref in outcome.seen):
            return False
        left = sum(param.grad is not None for param, _ in outcome.seen)  # some may have been removed
        return left == (self._gradient_count() if outcome.applied else 1)

    def has_gradients(self) -> bool:
        return self._gradient_count() > 0

    def _gradient_count(self) -> int:
        groups = [group for group in self.groups if group.filter is not None]
        return sum(slot.param.grad is not None for group in groups for slot in group.slots)

    def stop(self) -> None:
        """Remove all hooks from the parameters."""
        for slot in self.states.slots.values():
            if slot.hook is not None:
                slot.hook.remove()

    def run(self, is_active: Callable[[], bool], *, applied: bool, kwargs: Entry, named: bool) -> Outcome | None:
        """Run the filter on all gradients, unless the step is discarded; None without gradients."""
        tracking = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # like no_grad(), but faster than a context manager
        try:
            self.states.notice()
            self.read_groups()
            bundles = self._sort()
            if not bundles or (self.states.steps == 0 and is_probe(self.optimizer, kwargs)):
                return None
            self._fresh[0] = False
            if self._is_discarded(bundles, applied):
                self.states.skipped += 1
                named = named and getattr(self.optimizer, "found_inf", None) is None  # if set, a GradScaler knows
                bad = find_nonfinite(self.optimizer) if named else "a parameter"
                return Outcome(bundles, edited=False, bad=bad, applied=applied)
            active = is_active()
            for bundle in bundles:
                bundle.run(active=active)
            self.states.steps += 1
            for bundle in bundles:
                bundle.advance(self.states.steps)
            return Outcome(bundles, edited=active, bad=None, applied=applied)
        finally:
            torch._C._set_grad_enabled(tracking)

    def read_groups(self) -> None:
        """Find the filter of each param group from its keys and the schedules."""
        groups, changed = self.optimizer.param_groups, False
        if len(groups) != len(self.groups) or not all(map(Group.holds, self.groups, groups)):
            self.states.look()
            self.groups = [Group(group, self._slots(group["params"])) for group in groups]
            changed = True
        if self.schedules:
            values = {name: schedule(self.states.steps) for name, schedule in self.schedules.items()}
            if any(getattr(self._current, name) != value for name, value in values.items()):
                self._current, changed = dataclasses.replace(self.filter, **values), True  # type: ignore[type-var]
        retune = changed
        for index, group in enumerate(self.groups):
            if retune or not group.holds_values():
                group.keys, group.overrides = tuple(group.group), overrides_of(group.group)
                group.filter = tune(self._current, group.overrides, index)
                changed = True
        if changed:
            self._plan = None
            filtered = {slot.param for group in self.groups if group.filter is not None for slot in group.slots}
            self.rest = [param for group in self.groups for param in group.params if param not in filtered]

    def _slots(self, params: Iterable[Tensor]) -> list[Slot]:
        return [self.states.slot(param) for param in params if self.chosen is None or param in self.chosen]

    def _sort(self) -> list[Bundle]:
        """Sort the gradients into bundles. Copy a gradient first if it shares memory with another one."""
        if self._plan is not None and self._plan.picture is self.states.picture and self._plan.take_gradients():
            bundles = self._plan.bundles
        else:
            bundles = self._bundle_up()
        addresses: set[int] = set()
        rest = self._rest_gradients() if self.rest else []
        for bundle in bundles:
            addresses.update(map(Tensor.data_ptr if bundle.kind.type is Tensor else address_of, bundle.grads))
        addresses.update(map(address_of, rest))
        if len(addresses) < sum([len(bundle.grads) for bundle in bundles]) + len(rest):
            taken = set[int]()
            for param in [slot.param for bundle in bundles for slot in bundle.slots] + self.rest:
                if param.grad is not None and param.grad.layout is torch.strided:
                    own_gradient(param, taken)
            bundles = self._bundle_up()
        return bundles

    def _rest_gradients(self) -> list[Tensor]:
        """Gradients of the same step that are not filtered."""
        grads = [param.grad for param in self.rest]
        return [grad for grad in grads if grad is not None and grad.layout is torch.strided]

    def _make_plan(self, bundles: list[Bundle]) -> Plan | None:
        """None if the next step must sort again, because a gradient must be examined each time or is the first one."""
        slots = [slot for bundle in bundles for slot in bundle.slots]
        strides = [slot.strides for slot in slots]
        if None in strides or not all(bundle.count for bundle in bundles):
            return None
        others = [slot.param for group in self.groups if group.filter is not None for slot in group.slots]
        absent = [param for param in others if param.grad is None] if len(others) > len(slots) else []
        params, nbytes = [slot.param for slot in slots], [slot.nbytes for slot in slots]
        return Plan(bundles, self.states.picture, params, strides, nbytes, absent)

    def _refuse_sparse(self) -> None:
        for index, group in enumerate(self.groups):
            for slot in group.slots if group.filter is not None else ():
                if slot.param.grad is not None and slot.param.grad.layout is not torch.strided:
                    place = next(i for i, param in enumerate(group.params) if param is slot.param)
                    name = param_name(self.optimizer, index, place)
                    remedy = "make its layer with sparse=False or set grokfast=False in its param group"
                    raise TypeError(f"gradients must be dense, got a sparse one in {name}: {remedy}")

    def _bundle_up(self) -> list[Bundle]:
        self._plan = None
        try:
            bundles = self._find_bundles()
        except RuntimeError:  # sparse gradients have no strides
            self._refuse_sparse()
            raise
        self._plan = self._make_plan(bundles)
        return bundles

    def _find_bundles(self) -> list[Bundle]:
        bundles: dict[Any, Bundle] = {}
        for group in self.groups:
            filter = group.filter
            if filter is None:
                continue
            kind, count, bundle = None, -1, None
            for slot in group.slots:
                grad: Any = slot.param.grad
                if grad is None:
                    continue
                if grad.stride() != slot.strides or grad.nbytes != slot.nbytes:
                    grad = self._examine(slot, filter)
                entry: Any = slot.entry
                if bundle is None or slot.kind is not kind or entry[COUNT] != count:  # usually the previous one
                    kind, count = slot.kind, entry[COUNT]
                    phase = filter.phase(count)
                    key = (id(filter), id(kind), phase)
                    bundle = bundles[key] = bundles.get(key) or Bundle(filter, kind, phase)
                    bundle.mixed = bundle.mixed or (bool(bundle.entries) and bundle.entries[0][COUNT] != count)
                bundle.add(slot, grad)
        return list(bundles.values())

    def _examine(self, slot: Slot, filter: Filter) -> Tensor:
        """Store the layout of a gradient in its slot. Create the state if it is missing."""
        param: Any = slot.param
        lazy = is_lazy(param.grad)
        grad = own_gradient(param, set())
        if slot.entry is None:
            self.states.begin(slot, grad)
        own = local(grad)
        check_shapes(filter, own, slot.tensors)
        kind = Kind(grad.dtype, grad.device, type(grad), kernel_of(own), is_alike(own, slot.tensors))
        slot.kind = self._kinds.setdefault(kind, kind)
        if slot.hook is None and param.is_leaf and param.requires_grad:
            slot.hook = param.register_post_accumulate_grad_hook(self._mark)
        # Strides say nothing about a shard or about a conjugated view, so these are examined in each step.
        known = type(grad) is Tensor and not lazy and not param.is_complex() and slot.hook is not None
        slot.strides, slot.nbytes = grad.stride() if known else None, grad.nbytes
        return grad

    def _is_discarded(self, bundles: list[Bundle], applied: bool) -> bool:
        """Whether to ignore this step. Unscales the gradients if the optimizer would do so in its step."""
        optimizer: Any = self.optimizer
        scale, found = getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)
        if found is not None and bool(found != 0):  # a GradScaler discards the step of a fused optimizer
            return True
        # After apply() a GradScaler may still discard the step, and has no flag to read yet.
        check = self.nonfinite != "scaler" or (applied and found is None)
        if scale is None and not check:
            return False
        rest = dict[Any, list[Tensor]]()
        for grad in self._rest_gradients():
            rest.setdefault((grad.dtype, grad.device, type(grad)), []).append(grad)
        grads = [*(bundle.grads for bundle in bundles), *rest.values()]
        if scale is not None:
            optimizer.grad_scale = None
        if check:
            return not all_finite(grads, scale)
        nonfinite_flags(grads, scale)
        return False


def marker(fresh: list[bool]) -> Callable[[Tensor], None]:
    """A hook that marks gradients as fresh. It references only `fresh`, so that nothing else stays in memory."""

    def mark(param: Tensor) -> None:
        fresh[0] = True

    return mark


# The filter of a param group -----------------------------------------------------------------------------------------


def overrides_of(group: Mapping[str, Any]) -> Entry:
    return {key: value for key, value in group.items() if key.startswith("grokfast")}


def tune(filter: Filter, overrides: Mapping[str, Any], index: int) -> Filter | None:
    """Apply the `grokfast*` keys of param group `index` to a filter; None if the group switches it off."""
    if not overrides:
        return filter
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


# Gradients that need care --------------------------------------------------------------------------------------------


def own_gradient(param: Tensor, taken: set[int]) -> Tensor:
    """The gradient of a parameter, in writable memory that no other gradient uses. It is copied if necessary.

    `taken` holds the addresses of the gradients before it.
    """
    grad = param.grad
    assert grad is not None
    if is_lazy(grad):
        grad = param.grad = grad.resolve_conj().resolve_neg()
    address = address_of(grad)
    if (address in taken and grad.numel()) or is_expanded(grad):
        grad = param.grad = grad.clone(memory_format=torch.contiguous_format)
        address = address_of(grad)
    taken.add(address)
    return grad


def is_lazy(grad: Tensor) -> bool:
    """Whether this is a conjugated or negated view, as p.conj() in a loss gives: foreach kernels refuse it."""
    return grad.is_conj() or grad.is_neg()


def address_of(grad: Tensor) -> int:
    return local(grad).data_ptr()


def is_expanded(grad: Tensor) -> bool:
    """Whether several elements share memory, as after `expand`."""
    return any(stride == 0 and size > 1 for stride, size in zip(grad.stride(), grad.shape, strict=True))


def check_shapes(filter: Filter, grad: Tensor, state: State) -> None:
    """Refuse a state for another shape, because the kernel would read beyond its end."""
    if all(ends_like(tensor, grad) for tensor in state.values()):
        return
    wanted = filter.new_state(torch.empty_like(grad, device="meta"))
    for name, tensor in state.items():
        if tensor.shape != wanted[name].shape:
            shape, got = tuple(grad.shape), f"{name} {tuple(tensor.shape)}"
            remedy = "delete the optimizer's state of a parameter whose shape you change"
            raise ValueError(f"the filter's state must fit a gradient of shape {shape}, got {got}: {remedy}")


def ends_like(tensor: Tensor, grad: Tensor) -> bool:
    """Whether a tensor has the gradient's shape, or, like a window, one more dimension in front."""
    lead = tensor.dim() - grad.dim()
    return lead in (0, 1) and tensor.shape[lead:] == grad.shape


def is_alike(grad: Tensor, state: State) -> bool:
    """Whether a gradient has the layout of its state. A window, with its dimension in front, is not compared."""
    return kernel_of(grad) != "foreach" and all(
        has_same_layout(grad, t) for t in state.values() if t.dim() == grad.dim()
    )


def find_nonfinite(optimizer: Optimizer) -> str:
    """The name of the first parameter whose gradient is not finite."""
    for index, group in enumerate(optimizer.param_groups):
        for place, param in enumerate(group["params"]):
            grad = param.grad
            if grad is not None and grad.layout is torch.strided and not local(grad).isfinite().all():
                return param_name(optimizer, index, place)
    return "another rank's shard"


def param_name(optimizer: Optimizer, index: int, place: int) -> str:
    """A parameter's name for a message; its index if the optimizer has no names."""
    names = optimizer.param_groups[index].get("param_names")
    return f"parameter {names[place]!r}" if names else f"parameter {place} of group {index}"


def is_probe(optimizer: Optimizer, kwargs: dict[str, Any]) -> bool:
    """Whether this is the dry step of torch.distributed.checkpoint: all learning rates and gradients are zero.

    That step creates the state, so that a checkpoint can be loaded into it, and must not change it. It is called as
    `step(closure=None)`. Test this first, because it does not read tensors.
    """
    if "closure" not in kwargs or kwargs["closure"] is not None:
        return False
    if any(float(group.get("lr", 1.0)) != 0 for group in optimizer.param_groups):
        return False
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    return not any(bool(grad.any()) for grad in grads if grad.layout is torch.strided)
