"""The filter's state of each parameter: keys `grokfast_*` in `optimizer.state[p]`, next to the optimizer's own keys.

So the filter's state is saved, loaded, copied and sharded with the optimizer's. Two rules:

1. Add our keys to `optimizer.state[p]` only after the optimizer has added its own, because most optimizers initialise
   a parameter only if its entry is empty. Until then our entry waits outside. An optimizer without state is an
   exception.
2. If the optimizer's state of a parameter is reset between two steps, reset the filter's too. If all of it is reset,
   count steps from 0 again. Changes by the optimizer inside `step()` are not resets.

Entries of `optimizer.state` whose key is not a tensor or whose value is not a dict belong to the optimizer.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from operator import is_, itemgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.filters.base import Filter, State
from grokfast.stages import Trigger

PREFIX = "grokfast_"
COUNT = "grokfast_count"  # gradients of this parameter that the filter has seen
STEP = "grokfast_step"  # number of optimizer steps at the last of them
SIGNATURE = "grokfast_signature"  # of the filter that made the state
STREAK = "grokfast_streak"  # progress of the trigger that starts the filter, as of the last step or save
NUMBERS = (COUNT, STEP, SIGNATURE, STREAK)  # tensors in some checkpoints
SAVED = "grokfast_saved"  # holds our part of an entry while the optimizer loads it
Entry = dict[str, Any]


class Slot:
    """One parameter and the filter's state of it.

    Attributes:
        param: the parameter.
        entry: the dict with our keys: the optimizer's entry, or a dict of ours while it waits; None without state.
        tensors: the filter's tensors in the entry, by the filter's names. Of DTensors, this rank's shards.
        placed: whether the entry is the optimizer's.
        kind, strides, nbytes: properties of the gradient for `step.py`. Strides are None if it must be examined again.
        hook: handle of the hook that marks new gradients.
    """

    __slots__ = ("entry", "hook", "kind", "nbytes", "param", "placed", "strides", "tensors")

    def __init__(self, param: Tensor) -> None:
        self.param: Tensor = param
        self.hook: Any = None
        self.kind: Any = None
        self.nbytes = 0
        self.hold(None)

    def hold(self, entry: Entry | None, *, placed: bool = False) -> None:
        """Set the entry, or None."""
        self.entry, self.placed = entry, placed
        self.tensors: State = {} if entry is None else {name: local(t) for name, t in tensors_of(entry).items()}
        self.strides: tuple[int, ...] | None = None

    def __del__(self) -> None:
        if self.hook is not None:
            self.hook.remove()


class States:
    """The filter's state of all parameters of one optimizer, and its count of steps.

    Attributes:
        slots: one for each parameter that the filter may see.
        steps: optimizer steps whose gradients the filter has seen.
        skipped: steps that the filter ignored.
        resumed: whether the filter continues from saved state.
        picture: a snapshot of the optimizer's state when it was last compared; None if it must be compared again.
    """

    def __init__(self, optimizer: Optimizer, filter: Filter, start: int | Trigger) -> None:
        self.optimizer, self.filter, self.start = optimizer, filter, start
        self.slots: dict[Tensor, Slot] = {}
        self.steps, self.skipped, self.resumed = 0, 0, False
        self.picture: Picture | None = None
        self._state: Any = optimizer.state
        self._streak = 0 if isinstance(start, int) else start.streak  # of the trigger, as written in the entries
        self._before: tuple[Any, Any] | None = None  # the optimizer's state and groups, while it loads
        self._left = False  # whether the filter was detached
        self._asked = False  # whether state_dict() leaves our state out

    def slot(self, param: Tensor) -> Slot:
        """The slot of a parameter. A missing one is created."""
        if (slot := self.slots.get(param)) is None:
            slot = self.slots[param] = Slot(param)
        return slot

    def entries(self) -> Iterator[tuple[Tensor, Entry]]:
        """All parameters with state."""
        return ((param, slot.entry) for param, slot in self.slots.items() if slot.entry is not None)

    def begin(self, slot: Slot, grad: Tensor) -> None:
        """Create the state of a parameter whose first gradient is `grad`."""
        state = self.filter.new_state(local(grad))
        tensors = {PREFIX + name: shard_like(tensor, grad) for name, tensor in state.items()}
        numbers = {COUNT: 0, STEP: 0, SIGNATURE: self.filter.signature()}
        slot.hold({**tensors, **numbers, **self._streak_entry()})

    # Rule 1: after the optimizer's own keys -----------------------------------------------------------------------

    def waiting(self) -> list[Slot]:
        """Slots with a gradient whose entry waits until the optimizer has added its own keys."""
        if self.picture is not None and len(self.picture.slots) == len(self.slots):
            return []
        slots = self.slots.values()
        return [slot for slot in slots if slot.entry and not slot.placed and slot.param.grad is not None]

    def after_step(self, stepped: Iterable[Slot]) -> None:
        """Place the entries of parameters that have stepped, now that the optimizer has initialised them."""
        picture = self.picture
        if picture is not None and not picture.has_all_dicts(self.optimizer.state):
            for slot in picture.slots:  # the optimizer has replaced its entries: add our keys again
                if slot.entry is not None and self.optimizer.state.get(slot.param) is not slot.entry:
                    slot.hold({key: value for key, value in slot.entry.items() if is_ours(key)})
                    self._place(slot, ours_alone=False)
            self._state, self.picture = self.optimizer.state, None
        if stepped:
            alone = is_stateless(self.optimizer)
            placed = [self._place(slot, ours_alone=alone) for slot in stepped]
            self.picture = None if any(placed) else self.picture
            if any(placed) and not self._asked:
                self._asked = True
                warn_if_left_out(self.optimizer)

    def _place(self, slot: Slot, *, ours_alone: bool) -> bool:
        """Move an entry into the optimizer's entry of the parameter, or into a new one; False if it must wait."""
        own = self.optimizer.state.get(slot.param)
        assert slot.entry is not None
        if (isinstance(own, dict) and own) or ours_alone:
            own = self.optimizer.state.setdefault(slot.param, {})
            own.update(slot.entry)
            slot.hold(own, placed=True)
        return slot.placed

    # Rule 2: changes between steps --------------------------------------------------------------------------------

    def notice(self) -> None:
        """React to changes of the optimizer's state between steps: resets, loads without hooks, moved entries."""
        if not self._left and (self.picture is None or not self.picture.holds(self.optimizer.state)):
            self.look()

    def look(self) -> None:
        """Compare each slot with the optimizer's state. Adopt entries of a filter that were loaded or left there."""
        optimizer, replaced = self.optimizer, self.optimizer.state is not self._state
        owned = {param for group in optimizer.param_groups for param in group["params"]}
        found = {
            p: entry for p, entry in entries_in(optimizer) if p not in self.slots or entry is not self.slots[p].entry
        }
        found = validate_saved(self.filter, found)
        lost = {slot for slot in self.slots.values() if slot.placed and self._is_lost(slot)}
        kept = any(slot.placed for slot in self.slots.values() if slot not in lost)
        for slot in lost:
            slot.hold(None)
        if (replaced or any(slot.param in owned for slot in lost)) and not found and not kept:
            self._reset(warn=replaced and bool(optimizer.state))
        for param in self.slots.keys() - owned - found.keys():  # left by programs that grow or prune a model
            del self.slots[param]
        if found:
            self._adopt(found, steps=0 if replaced else self.steps)
        for slot in self.slots.values():  # programs that move an optimizer put new tensors into the same entries
            entry = slot.entry
            if entry is not None and any(entry[PREFIX + name] is not tensor for name, tensor in slot.tensors.items()):
                slot.hold(entry, placed=slot.placed)
        self._state = optimizer.state
        self.picture = Picture.of(optimizer.state, [slot for slot in self.slots.values() if slot.placed])

    def _is_lost(self, slot: Slot) -> bool:
        assert slot.entry is not None
        return self.optimizer.state.get(slot.param) is not slot.entry or not (
            slot.tensors.keys() <= tensors_of(slot.entry).keys()
        )

    def _reset(self, *, warn: bool) -> None:
        if warn and self.steps:
            warnings.warn("the optimizer has lost the filter's state: the filter starts anew", stacklevel=5)
        for slot in self.slots.values():
            slot.hold(None)
        self.steps, self.resumed = 0, False

    def _adopt(self, entries: dict[Tensor, Entry], *, steps: int) -> None:
        """Continue from validated entries, which replace the old ones."""
        newest = max(entries.values(), key=itemgetter(STEP), default={})
        if not isinstance(self.start, int):
            self.start.streak = self._streak = newest.get(STREAK, self.start.streak)
        alone = is_stateless(self.optimizer)
        for param, entry in entries.items():
            entry.pop(STREAK, None)
            drop_keys(self.optimizer, param)
            slot = self.slot(param)
            slot.hold({**entry, **self._streak_entry()})
            self._place(slot, ours_alone=alone)
        self.steps = max(newest.get(STEP, 0), steps)
        self.resumed, self.picture = bool(entries), None

    # Saving and loading -------------------------------------------------------------------------------------------

    def after_state_dict(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        self.stamp()  # the state dict has the same entries
        return state_dict

    def before_load(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Box our keys, so that the optimizer does not cast their tensors to the parameters' dtype."""
        self._before = optimizer.state, optimizer.param_groups
        if any(is_entry(entry) for entry in state_dict["state"].values()):
            return box_entries(state_dict)
        if state_dict["state"] or self.steps:
            warnings.warn("the state dict holds no grokfast state: the filter starts anew", stacklevel=3)
        return keep_group_keys(optimizer, state_dict)

    def after_load(self, optimizer: Optimizer) -> None:
        before, self._before = self._before, None  # do not keep the replaced state in memory
        try:
            entries = validate_saved(self.filter, unbox_entries(optimizer))
        except ValueError:
            if before is not None:  # undo the load
                optimizer.state, optimizer.param_groups = before
            raise
        self._reset(warn=False)
        self._adopt(entries, steps=0)
        self._state, self.picture = optimizer.state, None

    def stamp(self) -> None:
        """Write the trigger's progress into the entries if it has changed, before they are copied or saved."""
        if not isinstance(self.start, int) and self.start.streak != self._streak:
            self._streak = self.start.streak
            for _, entry in self.entries():
                entry[STREAK] = self._streak

    def _streak_entry(self) -> Entry:
        return {} if isinstance(self.start, int) else {STREAK: self.start.streak}

    def leave(self, *, keep_state: bool) -> None:
        """Remove the filter's state from the optimizer, or leave it there if `keep_state`."""
        self.stamp()
        self._left = True  # from now on another handle may use the optimizer's state
        if not keep_state:
            for param, _ in list(entries_in(self.optimizer)):
                drop_keys(self.optimizer, param)
        self.slots = {param: slot for param, slot in self.slots.items() if keep_state and slot.placed}


class Picture(NamedTuple):
    """A snapshot of the optimizer's state, to see whether it still contains the same objects."""

    state: Any
    slots: list[Slot]  # placed
    dicts: list[Entry]
    columns: list[tuple[Callable[[Entry], Tensor], list[Tensor]]]  # each of the filter's tensors in all dicts

    @classmethod
    def of(cls, state: Any, slots: list[Slot]) -> Picture:
        dicts = [slot.entry for slot in slots if slot.entry is not None]
        names = [PREFIX + name for name in slots[0].tensors] if slots else []
        return cls(state, slots, dicts, [(itemgetter(name), [entry[name] for entry in dicts]) for name in names])

    def has_all_dicts(self, state: Any) -> bool:
        if state is not self.state:
            return False
        # Usually the state has just these entries, in this order, and no parameter need be looked up.
        if len(state) == len(self.dicts) and all(map(is_, state.values(), self.dicts)):
            return True
        return all(state.get(slot.param) is entry for slot, entry in zip(self.slots, self.dicts, strict=True))

    def holds(self, state: Any) -> bool:
        try:
            same = all(all(map(is_, map(get, self.dicts), tensors)) for get, tensors in self.columns)
        except KeyError:  # one was removed
            return False
        return same and self.has_all_dicts(state)


# Entries in an optimizer ----------------------------------------------------------------------------------------------


def is_ours(key: object) -> bool:
    return isinstance(key, str) and key.startswith(PREFIX)


def is_entry(value: object) -> bool:
    """Whether a value of `optimizer.state` holds state of a filter."""
    return isinstance(value, dict) and COUNT in value


def entries_in(optimizer: Optimizer) -> Iterator[tuple[Tensor, Entry]]:
    """All parameters with state of a filter in the optimizer."""
    return ((p, entry) for p, entry in optimizer.state.items() if isinstance(p, Tensor) and is_entry(entry))


def is_stateless(optimizer: Optimizer) -> bool:
    """Whether the optimizer has no state of its own for any parameter."""
    entries = (entry for p, entry in optimizer.state.items() if isinstance(p, Tensor))
    return all(isinstance(entry, dict) and all(map(is_ours, entry)) for entry in entries)


def drop_keys(optimizer: Optimizer, param: Tensor) -> None:
    """Remove our keys from a parameter's entry, and the entry if it is empty then."""
    entry = optimizer.state.get(param)
    if isinstance(entry, dict):
        for key in [key for key in entry if is_ours(key)]:
            del entry[key]
        if not entry:
            del optimizer.state[param]


def tensors_of(entry: Entry) -> State:
    """The filter's tensors in an entry, by the filter's names."""
    ours = ((key, value) for key, value in entry.items() if isinstance(value, Tensor) and is_ours(key))
    return {key[len(PREFIX) :]: value for key, value in ours if key not in NUMBERS}


def validate_saved(filter: Filter, entries: dict[Tensor, Entry]) -> dict[Tensor, Entry]:
    """Copies of saved entries with the right dtypes and devices. ValueError if another filter made them."""
    valid = {param: validate_entry(filter, param, entry) for param, entry in entries.items()}
    for param, entry in valid.items():
        for name, tensor in tensors_of(entry).items():
            found = entries[param][PREFIX + name].dtype
            if found != tensor.dtype and torch.promote_types(found, tensor.dtype) == tensor.dtype:
                remedy = "an optimizer that loads without the filter rounds it: attach first, then load"
                warnings.warn(
                    f"the filter's state was found in {found}, narrower than {tensor.dtype}; {remedy}", stacklevel=6
                )
                return valid
    return valid


def validate_entry(filter: Filter, param: Tensor, entry: Entry) -> Entry:
    wanted = filter.new_state(torch.empty(param.shape, dtype=param.dtype, device="meta"))
    found = tensors_of(entry)
    if {k: t.shape for k, t in found.items()} != {k: t.shape for k, t in wanted.items()}:
        shape = tuple(param.shape)
        expected, got = describe(wanted), describe(found)
        raise ValueError(f"saved filter state must fit {filter} on shape {shape}: expected {expected}, got {got}")
    counts = {key: read_count(key, entry[key]) for key in (COUNT, STEP, STREAK) if key in entry}
    if int(entry.get(SIGNATURE, 0)) != filter.signature():
        raise ValueError(f"saved filter state must come from {filter}, got one made with other coefficients")
    tensors = {PREFIX + k: t.to(param.device, wanted[k].dtype, copy=True) for k, t in found.items()}
    return {**tensors, STEP: counts[COUNT], **counts, SIGNATURE: filter.signature()}


def read_count(name: str, value: object) -> int:
    """A count from a checkpoint, which may have turned it into a tensor or a float."""
    number: Any = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number % 1 != 0 or number < 0:
        raise ValueError(f"saved {name} must be an integer >= 0, got {value!r}")
    return int(number)


def describe(state: State) -> str:
    return ", ".join(f"{name} {tuple(t.shape)}" for name, t in sorted(state.items())) or "nothing"


# State dicts ----------------------------------------------------------------------------------------------------------


class Saved:
    """A box around our part of a saved entry: optimizers cast tensors to the parameters' dtype, but not this object.

    It stays with its parameter if other load hooks move the entry.
    """

    def __init__(self, entry: Entry) -> None:
        self.entry = entry


def box_entries(state_dict: dict[str, Any]) -> dict[str, Any]:
    """A state dict with our part of each entry in a box. The original is not changed."""
    state = {key: box(entry) if is_entry(entry) else entry for key, entry in state_dict["state"].items()}
    return {**state_dict, "state": state}


def box(entry: Entry) -> Entry:
    ours = {key: value for key, value in entry.items() if is_ours(key)}
    return {**{key: value for key, value in entry.items() if key not in ours}, SAVED: Saved(ours)}


def unbox_entries(optimizer: Optimizer) -> dict[Tensor, Entry]:
    """Remove the boxes from an optimizer that has loaded them, and return their entries."""
    found: dict[Tensor, Entry] = {}
    for param, entry in list(optimizer.state.items()):
        if isinstance(entry, dict) and SAVED in entry:
            found[param] = entry[SAVED].entry
            drop_keys(optimizer, param)
    return found


def keep_group_keys(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """A state dict without filter, with the current `grokfast*` keys of the param groups."""
    saved, groups = state_dict["param_groups"], optimizer.param_groups
    if len(saved) != len(groups):  # the optimizer complains
        return state_dict
    kept = [{key: value for key, value in group.items() if key.startswith("grokfast")} for group in groups]
    return {**state_dict, "param_groups": [{**now, **old} for now, old in zip(kept, saved, strict=True)]}


def warn_if_left_out(optimizer: Optimizer) -> None:
    """Warn if the optimizer overrides `state_dict()` and leaves out the filter's state."""
    if type(optimizer).state_dict is Optimizer.state_dict:
        return
    try:
        saved = optimizer.state_dict()
    except Exception:  # ZeroRedundancyOptimizer's needs preparation
        return
    if not holds_entry(saved):
        kind = type(optimizer).__name__
        warnings.warn(f"{kind}.state_dict() leaves out the filter's state: a resumed run starts anew", stacklevel=2)


def holds_entry(value: Any) -> bool:
    """Whether nested dicts and lists contain an entry of ours."""
    if isinstance(value, dict):
        return COUNT in value or any(map(holds_entry, value.values()))
    return isinstance(value, (list, tuple)) and any(map(holds_entry, value))


# DTensors, as parameters and gradients are under FSDP2 ----------------------------------------------------------------


def is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local")


def local(tensor: Any) -> Tensor:
    """This rank's shard of a DTensor, sharing its memory; any other tensor unchanged."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def dtensor_types() -> tuple[Any, Any]:
    """DTensor and Shard, which are in a private module of older versions of torch."""
    try:
        from torch.distributed.tensor import DTensor, Shard
    except ImportError:
        from torch.distributed._tensor import DTensor, Shard
    return DTensor, Shard


def shard_like(tensor: Tensor, grad: Any) -> Tensor:
    """A state that was created for a local shard, as a DTensor with the placements of the gradient."""
    if not is_sharded(grad):
        return tensor
    kind, shard = dtensor_types()
    lead = tensor.dim() - grad.dim()
    placements = [shard(p.dim + lead) if p.is_shard() else p for p in grad.placements]
    whole = torch.empty(*tensor.shape[:lead], *grad.shape, device="meta")
    return kind.from_local(
        tensor, grad.device_mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )
