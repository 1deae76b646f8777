"""Saving and loading: the filter's state passes through the optimizer's own functions unchanged."""

from __future__ import annotations

import warnings
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.state import COUNT, Entry, is_entry, is_ours

SAVED = "grokfast_saved"


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
            found[param] = entry.pop(SAVED).entry
            if not entry:
                del optimizer.state[param]
    return found


def has_entries(state_dict: dict[str, Any]) -> bool:
    return any(is_entry(entry) for entry in state_dict["state"].values())


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
