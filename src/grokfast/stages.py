"""When a filter starts: at a step, or once training has saturated (the paper's two-stage variant)."""

from __future__ import annotations

import math
from typing import Protocol


class Trigger(Protocol):
    """Anything that tells when the second stage begins and keeps its progress in one integer.

    Attributes:
        streak: the progress. Checkpoints save it, and loading one sets it.

    Examples:
        >>> class Plateau:
        ...     streak = 0  # evaluations without a better loss
        ...     best = float("inf")
        ...     def observe(self, loss):
        ...         self.streak, self.best = (0, loss) if loss < self.best else (self.streak + 1, self.best)
        ...     @property
        ...     def fired(self):
        ...         return self.streak >= 2
        >>> plateau: Trigger = Plateau()  # for grokfast.attach(..., start=plateau)
        >>> for loss in (1.0, 0.5, 0.5, 0.6):
        ...     plateau.observe(loss)
        >>> plateau.fired
        True
    """

    streak: int

    @property
    def fired(self) -> bool:
        """True once the second stage has begun, and from then on."""
        ...


class Saturation:
    """Fires when an observed training metric has stayed beyond a level for `patience` observations in a row.

    Give exactly one of `above` (for an accuracy) and `below` (for a loss), and call `observe` whenever the metric
    is known, for example once per epoch. Once fired it stays fired.

    Args:
        above: the level that an increasing metric must reach.
        below: the level that a decreasing metric must reach.
        patience: number of observations in a row that must lie beyond the level, >= 1.

    Attributes:
        streak: number of observations in a row that lie beyond the level.
        observations: number of observations so far.

    Examples:
        >>> saturated = Saturation(above=0.99, patience=2)
        >>> [saturated.observe(accuracy) for accuracy in (0.5, 0.995, 0.98, 0.99, 1.0, 0.3)]
        [False, False, False, False, True, True]
    """

    def __init__(self, *, above: float | None = None, below: float | None = None, patience: int = 1) -> None:
        if (above is None) == (below is None):
            raise ValueError(f"give exactly one of above and below, got above={above!r}, below={below!r}")
        level = above if below is None else below
        if isinstance(level, bool) or not isinstance(level, (int, float)) or not math.isfinite(level):
            raise ValueError(f"{'above' if below is None else 'below'} must be a finite number, got {level!r}")
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise ValueError(f"patience must be an integer >= 1, got {patience!r}")
        self.above, self.below, self.patience = above, below, patience
        self.streak = self.observations = 0

    def observe(self, value: float) -> bool:
        """Observe one value of the metric; return whether the trigger has fired, now or before."""
        self.observations += 1
        if not self.fired:
            beyond = value >= self.above if self.above is not None else value <= self.below  # type: ignore[operator]
            self.streak = self.streak + 1 if beyond else 0
        return self.fired

    @property
    def fired(self) -> bool:
        """Whether the level has been held long enough."""
        return self.streak >= self.patience

    def __repr__(self) -> str:
        level = f"above={self.above}" if self.above is not None else f"below={self.below}"
        return f"Saturation({level}, patience={self.patience}, streak={self.streak})"
