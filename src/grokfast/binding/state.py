"""How a filter's state lies in an optimizer: as `grokfast_*` keys of `optimizer.state[p]`, beside the optimizer's own.

So it goes wherever the optimizer's state goes: into `state_dict()`, deep copies and distributed checkpoints. Other
things in `optimizer.state`, under keys that are no tensors or with values that are no dicts, are the optimizer's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.filters.base import Filter, State

PREFIX = "grokfast_"
COUNT = "grokfast_count"  # gradients of this parameter that the filter has seen, or that the device discarded
MISSED = "grokfast_missed"  # how many of those the device discarded: a tensor there, while the host does not know
STEP = "grokfast_step"  # number of optimizer steps when it saw the last one
SIGNATURE = "grokfast_signature"  # of the filter that made the state
STREAK = "grokfast_streak"  # progress of the trigger that starts the second stage, as of the last step or save
Entry = dict[str, Any]


def new_entry(filter: Filter, grad: Tensor) -> Entry:
    """The entry of a parameter whose first gradient is `grad`, before the filter has seen it."""
    state = filter.new_state(local(grad))
    tensors = {PREFIX + name: shard_like(tensor, grad) for name, tensor in state.items()}
    return {**tensors, COUNT: 0, STEP: 0, SIGNATURE: filter.signature()}


def is_sharded(tensor: Tensor) -> bool:
    """Whether this is a DTensor, as parameters and gradients are under FSDP2."""
    return hasattr(tensor, "to_local")


def local(tensor: Any) -> Tensor:
    """This rank's shard of a DTensor, sharing its memory; any other tensor unchanged."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def shard_like(tensor: Tensor, grad: Any) -> Tensor:
    """A state that was made for a local shard, as a DTensor laid out like the gradient."""
    if not is_sharded(grad):
        return tensor
    try:
        from torch.distributed.tensor import DTensor, Shard
    except ImportError:  # torch 2.4
        from torch.distributed._tensor import DTensor, Shard

    lead = tensor.dim() - grad.dim()
    placements = [Shard(p.dim + lead) if p.is_shard() else p for p in grad.placements]
    whole = torch.empty(*tensor.shape[:lead], *grad.shape, device="meta")
    return DTensor.from_local(
        tensor, grad.device_mesh, placements, run_check=False, shape=whole.shape, stride=whole.stride()
    )


def tensors_of(entry: Entry) -> State:
    """The filter's tensors in an entry, by the names that the filter gives them."""
    ours = ((key, value) for key, value in entry.items() if is_ours(key) and key != MISSED)
    return {key[len(PREFIX) :]: value for key, value in ours if isinstance(value, Tensor) and key not in NUMBERS}


NUMBERS = (COUNT, STEP, SIGNATURE, STREAK)  # some checkpoints make them tensors


def is_ours(key: object) -> bool:
    return isinstance(key, str) and key.startswith(PREFIX)


def is_entry(value: object) -> bool:
    """Whether a value of `optimizer.state` holds state of a filter."""
    return isinstance(value, dict) and COUNT in value


def entries_in(optimizer: Optimizer) -> Iterator[tuple[Tensor, Entry]]:
    """All parameters with state of a filter in the optimizer."""
    return ((p, entry) for p, entry in optimizer.state.items() if isinstance(p, Tensor) and is_entry(entry))


def drop_entries(optimizer: Optimizer) -> None:
    """Delete all our entries."""
    for param, entry in list(entries_in(optimizer)):
        for key in [key for key in entry if is_ours(key)]:
            del entry[key]
        if not entry:
            del optimizer.state[param]


def validate_saved(filter: Filter, entries: Mapping[Tensor, Entry]) -> dict[Tensor, Entry]:
    """Copies of saved entries in the right dtypes and on the right devices; ValueError if another filter made them."""
    return {param: validate_entry(filter, param, entry) for param, entry in entries.items()}


def validate_entry(filter: Filter, param: Tensor, entry: Entry) -> Entry:
    wanted = filter.new_state(torch.empty(param.shape, dtype=param.dtype, device="meta"))
    found = tensors_of(entry)
    if {k: t.shape for k, t in found.items()} != {k: t.shape for k, t in wanted.items()}:
        shape = tuple(param.shape)
        expected, got = describe(wanted), describe(found)
        raise ValueError(f"saved filter state must fit {filter} on shape {shape}: expected {expected}, got {got}")
    counts = {key: read_count(key, entry[key]) for key in (COUNT, STEP, STREAK) if key in entry}
    missed = int(entry.get(MISSED, 0))
    counts |= {COUNT: counts[COUNT] - missed, STEP: counts.get(STEP, counts[COUNT]) - missed}
    if int(entry.get(SIGNATURE, 0)) != filter.signature():
        raise ValueError(f"saved filter state must come from {filter}, got one made with other coefficients")
    tensors = {PREFIX + k: t.to(param.device, wanted[k].dtype, copy=True) for k, t in found.items()}
    return {**tensors, **counts, SIGNATURE: filter.signature()}


def read_count(name: str, value: object) -> int:
    """A count from a checkpoint, where it may have become a tensor or a float."""
    number: Any = value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
    if isinstance(number, bool) or not isinstance(number, (int, float)) or number % 1 != 0 or number < 0:
        raise ValueError(f"saved {name} must be an integer >= 0, got {value!r}")
    return int(number)


def describe(state: State) -> str:
    return ", ".join(f"{name} {tuple(t.shape)}" for name, t in sorted(state.items())) or "nothing"
