"""Keeps the filter's entries in `optimizer.state`: makes them, counts, saves and loads them, notices foreign loads."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding import loading
from grokfast.binding.ledger import Ledger, settle_entry
from grokfast.binding.state import (
    STEP,
    STREAK,
    Entry,
    drop_entries,
    entries_in,
    is_entry,
    is_ours,
    new_entry,
    tensors_of,
    validate_saved,
)
from grokfast.filters.base import Filter
from grokfast.stages import Trigger


class Keeper:
    """The entries of one filter in one optimizer.

    Attributes:
        steps: optimizer steps whose gradients the filter has seen, or that the device has discarded.
        skipped: steps that were discarded, as far as the host knows.
        resumed: whether the filter continues from saved state.
        ledger: steps of which only the device knows.
        edition: changes whenever counts in entries change between steps, so that plans made before are out of date.
    """

    def __init__(self, optimizer: Optimizer, filter: Filter, start: int | Trigger) -> None:
        self.optimizer, self.filter, self.start = optimizer, filter, start
        self.steps, self.skipped, self.resumed, self.edition = 0, 0, False, 0
        self.ledger = Ledger()
        self._pending: dict[Tensor, Entry] = {}  # entries that wait for the optimizer's own initialisation
        self._mine: dict[Tensor, Entry] = {}  # entries of the optimizer that we know
        self._state: Any = optimizer.state
        self._streak = 0 if isinstance(start, int) else start.streak  # the trigger's, as it stands in the entries
        self._before: tuple[Any, Any] | None = None  # state and param groups of the optimizer, while it loads
        self._asked = False

    # Entries ------------------------------------------------------------------------------------------------------

    def entries(self) -> Iterator[tuple[Tensor, Entry]]:
        yield from entries_in(self.optimizer)
        yield from self._pending.items()

    def entry(self, param: Tensor) -> Entry | None:
        entry = self.optimizer.state.get(param)
        return entry if is_entry(entry) else self._pending.get(param)

    def entry_or_new(self, param: Tensor, grad: Tensor) -> Entry:
        entry = self.entry(param)
        if entry is None:
            lost = self._mine.pop(param, None)  # the optimizer has begun a new entry of its own: ours continues
            ours = {key: value for key, value in (lost or {}).items() if is_ours(key)}
            if any(tensor.shape[-param.dim() :] != param.shape for tensor in tensors_of(ours).values() if param.dim()):
                ours = {}  # the parameter has another shape now
            entry = self._pending[param] = ours or {**new_entry(self.filter, grad), **self._stamp()}
        return entry

    def place_pending(self, stepped: Iterable[Tensor]) -> None:
        """Put new entries of the parameters that have stepped into the optimizer, now that it has initialised its own.

        Others wait: an optimizer that found an entry would not initialise its own.
        """
        if not self._pending:
            return
        for param in stepped:
            if (entry := self._pending.pop(param, None)) is not None:
                self._know(param, entry)
        if not self._asked:
            self._asked = True
            loading.warn_if_left_out(self.optimizer)

    def _know(self, param: Tensor, entry: Entry) -> None:
        own: Entry = self.optimizer.state.setdefault(param, {})
        own.update(entry)
        self._mine[param] = own

    def stamp(self) -> None:
        """Write the trigger's progress into the entries if it has changed, for whatever copies or saves them."""
        if not isinstance(self.start, int) and self.start.streak != self._streak:
            self._streak = self.start.streak
            for _, entry in self.entries():
                entry[STREAK] = self._streak

    def settle(self) -> None:
        """Take in what the device knows about discarded steps. Waits for it, if there were steps to ask about."""
        self.notice_load()
        self.stamp()
        if not self.ledger.open:
            return
        missed, taken = self.ledger.settle()
        self.edition += 1
        for _, entry in self.entries():
            settle_entry(entry, missed)
        self.steps -= missed
        self.skipped += missed
        if taken:
            warnings.warn(f"inf or NaN in the gradients of {taken} steps: the filter skipped them", stacklevel=3)

    def leave(self, *, keep_state: bool) -> None:
        self.settle()
        self._pending.clear()  # also if kept: an optimizer that found them would not set itself up
        if not keep_state:
            drop_entries(self.optimizer)

    def _stamp(self) -> Entry:
        """The trigger's progress, for a new entry."""
        return {} if isinstance(self.start, int) else {STREAK: self.start.streak}

    # Saving and loading -------------------------------------------------------------------------------------------

    def after_state_dict(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        self.settle()  # in the entries, which are those of the state dict
        return state_dict

    def before_load(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Box our entries, so that the optimizer does not cast them to the parameters' dtype."""
        self._before = optimizer.state, optimizer.param_groups
        if loading.has_entries(state_dict):
            return loading.box_entries(state_dict)
        if state_dict["state"] or self.steps:
            warnings.warn("the state dict holds no grokfast state: the filter starts anew", stacklevel=3)
        return loading.keep_group_keys(optimizer, state_dict)

    def after_load(self, optimizer: Optimizer) -> None:
        before, self._before = self._before, None  # or what it has replaced would stay in memory
        try:
            entries = validate_saved(self.filter, loading.unbox_entries(optimizer))
        except ValueError:
            if before is not None:  # all that the optimizer has replaced
                optimizer.state, optimizer.param_groups = before
            raise
        self._forget()
        self._adopt(entries)

    def adopt_found(self) -> None:
        """Continue from the state of an earlier attachment, if there is any in the optimizer."""
        self._adopt(validate_saved(self.filter, dict(entries_in(self.optimizer))))

    def notice_load(self) -> None:
        """Adopt entries that came into the optimizer by a `load_state_dict` that runs no hooks."""
        self._drop_strangers()
        replaced = self.optimizer.state is not self._state
        found = {param: entry for param, entry in entries_in(self.optimizer) if self._mine.get(param) is not entry}
        if not replaced and not found:
            return
        entries = validate_saved(self.filter, found)
        if replaced and not any(True for _ in entries_in(self.optimizer)):
            if self.steps:
                warnings.warn("the optimizer has lost the filter's state: the filter starts anew", stacklevel=4)
            self._forget()
            self.steps = 0
        elif entries:
            self._forget() if replaced else None
            self._adopt(entries)
        self._state = self.optimizer.state

    def _drop_strangers(self) -> None:
        """Let go of parameters that the optimizer has given up, as programs do that grow or prune a model."""
        owned = {param for group in self.optimizer.param_groups for param in group["params"]}
        for param in self._mine.keys() - owned - self.optimizer.state.keys():
            del self._mine[param]
        for param in self._pending.keys() - owned:
            del self._pending[param]

    def _forget(self) -> None:
        self.edition += 1
        self._pending.clear()
        self._mine.clear()
        self.ledger = Ledger()
        self._state = self.optimizer.state

    def _adopt(self, entries: dict[Tensor, Entry]) -> None:
        self.edition += 1
        newest = max(entries.values(), key=lambda entry: entry[STEP], default={})
        if not isinstance(self.start, int):
            self.start.streak = self._streak = newest.get(STREAK, self.start.streak)
        for param, entry in entries.items():
            entry.pop(STREAK, None)
            self._know(param, {**entry, **self._stamp()})
        # The newest of all entries, since a few may have come alone with a parameter that takes the place of another.
        self.steps = max((entry[STEP] for _, entry in entries_in(self.optimizer)), default=0)
        self.resumed = bool(entries)
