"""The filter's state of each parameter: `grokfast_*` keys of `optimizer.state[p]`, beside the optimizer's own.

So whatever saves, loads, copies or shards the optimizer takes it along. Two rules:

1. Our keys are in `optimizer.state[p]` only beside the optimizer's own, unless the optimizer keeps no state: most
   optimizers set up a parameter only if they find nothing. Until then our entry waits outside.
2. Whoever resets the optimizer's state of a parameter between two steps resets the filter's too. If all of it is reset,
   steps count from 0 again. What an optimizer does inside `step()` is no reset.

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
STEP = "grokfast_step"  # number of optimizer steps when it saw the last one
SIGNATURE = "grokfast_signature"  # of the filter that made the state
STREAK = "grokfast_streak"  # progress of the trigger that starts the second stage, as of the last step or save
NUMBERS = (COUNT, STEP, SIGNATURE, STREAK)  # some checkpoints make them tensors
SAVED = "grokfast_saved"  # our part of an entry while the optimizer loads it
Entry = dict[str, Any]


class Slot:
    """One parameter and the filter's state of it.

    Attributes:
        param: the parameter.
        entry: the dict that holds our keys: the optimizer's own one, or ours while it waits; None without state.
        tensors: the filter's tensors in the entry, by the filter's names; this rank's shards of DTensors.
        placed: whether the entry is the optimizer's.
        kind, strides, nbytes: what `step.py` knows of the gradient; strides are None if it must look again.
        hook: removes the hook that notices new gradients.
    """

    __slots__ = ("entry", "hook", "kind", "nbytes", "param", "placed", "strides", "tensors")

    def __init__(self, param: Tensor) -> None:
        self.param: Tensor = param
        self.hook: Any = None
        self.kind: Any = None
        self.nbytes = 0
        self.hold(None)

    def hold(self, entry: Entry | None, *, placed: bool = False) -> None:
        """Take an entry, or none."""
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
        skipped: steps whose gradients it did not take.
        resumed: whether the filter continues from saved state.
        picture: the optimizer's state as it was after the last look at it; None if it must be looked at again.
    """

    def __init__(self, optimizer: Optimizer, filter: Filter, start: int | Trigger) -> None:
        self.optimizer, self.filter, self.start = optimizer, filter, start
        self.slots: dict[Tensor, Slot] = {}
        self.steps, self.skipped, self.resumed = 0, 0, False
        self.picture: Picture | None = None
        self._state: Any = optimizer.state
        self._streak = 0 if isinstance(start, int) else start.streak  # the trigger's, as it is in the entries
        self._before: tuple[Any, Any] | None = None  # state and param groups of the optimizer, while it loads
        self._left = False  # whether the filter was detached
        self._asked = False  # whether state_dict() leaves our state out

    def slot(self, param: Tensor) -> Slot:
        """The slot of a parameter, made if need be."""
        if (slot := self.slots.get(param)) is None:
            slot = self.slots[param] = Slot(param)
        return slot

    def entries(self) -> Iterator[tuple[Tensor, Entry]]:
        """All parameters with state."""
        return ((param, slot.entry) for param, slot in self.slots.items() if slot.entry is not None)

    def begin(self, slot: Slot, grad: Tensor) -> None:
        """Make the state of a parameter whose first gradient is `grad`."""
        state = self.filter.new_state(local(grad))
        tensors = {PREFIX + name: shard_like(tensor, grad) for name, tensor in state.items()}
        numbers = {COUNT: 0, STEP: 0, SIGNATURE: self.filter.signature()}
        slot.hold({**tensors, **numbers, **self._streak_entry()})

    # Rule 1: beside the optimizer's own ---------------------------------------------------------------------------

    def waiting(self) -> list[Slot]:
        """Slots whose entry waits for the optimizer's own and whose parameter has a gradient."""
        if self.picture is not None and len(self.picture.slots) == len(self.slots):
            return []
        slots = self.slots.values()
        return [slot for slot in slots if slot.entry and not slot.placed and slot.param.grad is not None]

    def after_step(self, stepped: Iterable[Slot]) -> None:
        """Place the entries of parameters that have stepped, now that the optimizer has set them up."""
        picture = self.picture
        if picture is not None and not picture.has_all_dicts(self.optimizer.state):
            for slot in picture.slots:  # the optimizer has made entries of its own anew: ours go back
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
        """Put an entry into the optimizer, beside its own entry or alone; False if it must wait."""
        own = self.optimizer.state.get(slot.param)
        assert slot.entry is not None
        if (isinstance(own, dict) and own) or ours_alone:
            own = self.optimizer.state.setdefault(slot.param, {})
            own.update(slot.entry)
            slot.hold(own, placed=True)
        return slot.placed

    # Rule 2: what others do between steps -------------------------------------------------------------------------

    def notice(self) -> None:
        """Notice what others have done to the optimizer's state: resets, loads without hooks, moved entries."""
        if not self._left and (self.picture is None or not self.picture.holds(self.optimizer.state)):
            self.look()

    def look(self) -> None:
        """Compare each slot with the optimizer's state. Continue from state that is there before the first step."""
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
        for param in self.slots.keys() - owned - found.keys():  # programs that grow or prune a model give them up
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
        """Continue from validated entries, which have taken the place of what was there."""
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
        self.stamp()  # in the entries, which are those of the state dict
        return state_dict

    def before_load(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Box our entries, so that the optimizer does not cast them to the parameters' dtype."""
        self._before = optimizer.state, optimizer.param_groups
        if any(is_entry(entry) for entry in state_dict["state"].values()):
            return box_entries(state_dict)
        if state_dict["state"] or self.steps:
            warnings.warn("the state dict holds no grokfast state: the filter starts anew", stacklevel=3)
        return keep_group_keys(optimizer, state_dict)

    def after_load(self, optimizer: Optimizer) -> None:
        before, self._before = self._before, None  # or what it has replaced would stay in memory
        try:
            entries = validate_saved(self.filter, unbox_entries(optimizer))
        except ValueError:
            if before is not None:  # all that the optimizer has replaced
                optimizer.state, optimizer.param_groups = before
            raise
        self._reset(warn=False)
        self._adopt(entries, steps=0)
        self._state, self.picture = optimizer.state, None

    def stamp(self) -> None:
        """Write the trigger's progress into the entries if it has changed, for whatever copies or saves them."""
        if not isinstance(self.start, int) and self.start.streak != self._streak:
            self._streak = self.start.streak
            for _, entry in self.entries():
                entry[STREAK] = self._streak

    def _streak_entry(self) -> Entry:
        return {} if isinstance(self.start, int) else {STREAK: self.start.streak}

    def leave(self, *, keep_state: bool) -> None:
        """Leave nothing in the optimizer, or what is placed there."""
        self.stamp()
        self._left = True  # what happens to the optimizer's state is another handle's business now
        if not keep_state:
            for param, _ in list(entries_in(self.optimizer)):
                drop_keys(self.optimizer, param)
        self.slots = {param: slot for param, slot in self.slots.items() if keep_state and slot.placed}


class Picture(NamedTuple):
    """The optimizer's state as it was: the same objects are in it as long as nobody else has changed it."""

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
        # Most often the entries are all there is in the state, in this order: that spares a look-up of each parameter.
        if len(state) == len(self.dicts) and all(map(is_, state.values(), self.dicts)):
            return True
        return all(state.get(slot.param) is entry for slot, entry in zip(self.slots, self.dicts, strict=True))

    def holds(self, state: Any) -> bool:
        try:
            same = all(all(map(is_, map(get, self.dicts), tensors)) for get, tensors in self.columns)
        except KeyError:  # somebody has taken one out
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
    """Take our keys out of a parameter's entry, and the entry out if nothing is left."""
    entry = optimizer.state.get(param)
    if isinstance(entry, dict):
        for key in [key for key in entry if is_ours(key)]:
            del entry[key]
        if not entry:
            del optimizer.state[param]


def tensors_of(entry: Entry) -> State:
    """The filter's tensors in an entry, by the names that the filter gives them."""
    ours = ((key, value) for key, value in entry.items() if isinstance(value, Tensor) and is_ours(key))
    return {key[len(PREFIX) :]: value for key, value in ours if key not in NUMBERS}


def validate_saved(filter: Filter, entries: dict[Tensor, Entry]) -> dict[Tensor, Entry]:
    """Copies of saved entries in the right dtypes and on the right devices; ValueError if another filter made them."""
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
    """A count from a checkpoint, where it may have become a tensor or a float."""
    number: Any = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number % 1 != 0 or number < 0:
        raise ValueError(f"saved {name} must be an integer >= 0, got {value!r}")
    return int(number)


def describe(state: State) -> str:
    return ", ".join(f"{name} {tuple(t.shape)}" for name, t in sorted(state.items())) or "nothing"


# State dicts ----------------------------------------------------------------------------------------------------------


class Saved:
    """Our part of a saved entry, in a box: optimizers cast tensors to the dtype of the parameters, but not boxes.

    In its box it follows its parameter wherever other load hooks move the entry.
    """

    def __init__(self, entry: Entry) -> None:
        self.entry = entry


def box_entries(state_dict: dict[str, Any]) -> dict[str, Any]:
    """A state dict with our part of each entry in a box. The original stays unchanged."""
    state = {key: box(entry) if is_entry(entry) else entry for key, entry in state_dict["state"].items()}
    return {**state_dict, "state": state}


def box(entry: Entry) -> Entry:
    ours = {key: value for key, value in entry.items() if is_ours(key)}
    return {**{key: value for key, value in entry.items() if key not in ours}, SAVED: Saved(ours)}


def unbox_entries(optimizer: Optimizer) -> dict[Tensor, Entry]:
    """Take the boxes out of an optimizer that has loaded them."""
    found: dict[Tensor, Entry] = {}
    for param, entry in list(optimizer.state.items()):
        if isinstance(entry, dict) and SAVED in entry:
            found[param] = entry[SAVED].entry
            drop_keys(optimizer, param)
    return found


def keep_group_keys(optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """A state dict from before the filter leaves the groups the keys that they have for it now."""
    saved, groups = state_dict["param_groups"], optimizer.param_groups
    if len(saved) != len(groups):  # the optimizer complains
        return state_dict
    kept = [{key: value for key, value in group.items() if key.startswith("grokfast")} for group in groups]
    return {**state_dict, "param_groups": [{**now, **old} for now, old in zip(kept, saved, strict=True)]}


def warn_if_left_out(optimizer: Optimizer) -> None:
    """Warn if a `state_dict()` of the optimizer's own leaves out the filter's state."""
    if type(optimizer).state_dict is Optimizer.state_dict:
        return
    try:
        saved = optimizer.state_dict()
    except Exception:  # it may need preparation, as that of ZeroRedundancyOptimizer
        return
    if not holds_entry(saved):
        kind = type(optimizer).__name__
        warnings.warn(f"{kind}.state_dict() leaves out the filter's state: a resumed run starts anew", stacklevel=2)


def holds_entry(value: Any) -> bool:
    """Whether there is an entry of ours anywhere in nested dicts and lists."""
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
    """DTensor and Shard, which older versions of torch have in a private module."""
    try:
        from torch.distributed.tensor import DTensor, Shard
    except ImportError:
        from torch.distributed._tensor import DTensor, Shard
    return DTensor, Shard


def shard_like(tensor: Tensor, grad: Any) -> Tensor:
    """A state that was made for a local shard, as a DTensor laid out like the gradient."""
    if not is_sharded(grad):
        return tensor
    kind, shard = dtensor_types()
    lead = tensor.dim() - grad.dim()
    placements = [shard(p.dim + lead) if p.is_shard() else p for p in grad.placements]
    whole = torch.empty(*tensor.shape[:lead], *grad.shape, device="meta")
    return kind.from_local(
        tensor, grad.device_mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )
