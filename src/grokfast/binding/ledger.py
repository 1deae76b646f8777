"""Steps that the device discards, counted there until the host waits for it anyway."""

from __future__ import annotations

import torch
from torch import Tensor

from grokfast.binding.state import COUNT, MISSED, STEP, Entry


class Ledger:
    """Counts steps of which only the device knows whether they were discarded.

    Attributes:
        open: number of such steps since the host has last asked.
    """

    def __init__(self) -> None:
        self.open = 0
        self._missed: Tensor | None = None
        self._taken: Tensor | None = None

    def add(self, discard: Tensor) -> None:
        """Count a step; `discard` is a 0-dimensional bool."""
        self.open += 1
        self._missed = plus(self._missed, discard)

    def add_taken(self, discard: Tensor) -> None:
        """Count a step that the optimizer takes though the filter has discarded its gradients."""
        self._taken = plus(self._taken, discard)

    def reached(self, steps: int, start: int) -> bool | Tensor:
        """Whether `steps` minus those discarded is at least `start`; a tensor where only the device knows."""
        if self._missed is None or steps < start or steps - self.open >= start:
            return steps >= start
        return steps - self._missed >= start

    def settle(self) -> tuple[int, int]:
        """How many steps were discarded since the last call, and how many of those were taken. Waits for the device."""
        missed, taken = (0 if count is None else int(count) for count in (self._missed, self._taken))
        self.open, self._missed, self._taken = 0, None, None
        return missed, taken


def plus(count: Tensor | None, discard: Tensor) -> Tensor:
    return discard.to(torch.int64) if count is None else count.add_(discard.to(count.device))


def settle_entry(entry: Entry, missed_steps: int) -> None:
    """Write into an entry what the device knew."""
    missed = entry.pop(MISSED, None)
    if missed is not None:
        entry[COUNT] -= int(missed)
        entry[STEP] = max(entry[STEP] - missed_steps, entry[COUNT])
