"""When a filter starts (the paper's two-stage variant), and how its values change during training."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from typing import Protocol

from grokfast.checks import check_count


class Trigger(Protocol):
    """An object that says when the filter starts, and keeps its progress in one integer.

    Attributes:
        streak: the progress. Checkpoints save and restore it.

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
        """True from the moment that the filter starts."""
        ...


class Saturation:
    """A trigger that fires when a training metric has reached a threshold `patience` times in a row.

    Give either `above` (for an accuracy) or `below` (for a loss), and call `observe` with the metric regularly, for
    example once per epoch. A trigger that has fired stays fired.

    Args:
        above: threshold for an increasing metric.
        below: threshold for a decreasing metric.
        patience: number of observations in a row that must reach the threshold, >= 1.

    Attributes:
        streak: number of observations in a row that have reached the threshold.
        observations: number of observations so far.

    Examples:
        >>> saturated = Saturation(above=0.99, patience=2)
        >>> [saturated.observe(accuracy) for accuracy in (0.5, 0.995, 0.98, 0.99, 1.0, 0.3)]
        [False, False, False, False, True, True]
    """

    def __init__(self, *, above: float | None = None, below: float | None = None, patience: int = 1) -> None:
        if (above is None) == (below is None):
            raise ValueError(f"give exactly one of above and below, got above={above!r}, below={below!r}")
        threshold = above if below is None else below
        if isinstance(threshold, bool) or not isinstance(threshold, (int, float)) or not math.isfinite(threshold):
            raise ValueError(f"{'above' if below is None else 'below'} must be a finite number, got {threshold!r}")
        if isinstance(patience, bool) or not isinstance(patience, int) or patience < 1:
            raise ValueError(f"patience must be an integer >= 1, got {patience!r}")
        self.above, self.below, self.patience = above, below, patience
        self.streak = self.observations = 0

    def observe(self, value: float) -> bool:
        """Observe one value of the metric. Return whether the trigger has fired, now or before."""
        self.observations += 1
        if not self.fired:
            reached = value >= self.above if self.above is not None else value <= self.below  # type: ignore[operator]
            self.streak = self.streak + 1 if reached else 0
        return self.fired

    @property
    def fired(self) -> bool:
        """Whether the threshold has been reached `patience` times in a row."""
        return self.streak >= self.patience

    def __repr__(self) -> str:
        threshold = f"above={self.above}" if self.above is not None else f"below={self.below}"
        return f"Saturation({threshold}, patience={self.patience}, streak={self.streak})"


class Ramp:
    """A schedule of lamb or alpha: linear between the given points, constant before the first and after the last.

    Args:
        points: values by `handle.step`, e.g. `{0: 0.0, 1000: 2.0, 9000: 2.0, 10_000: 0.0}` to grow, stay constant and
            fall again.

    Examples:
        >>> warmup = Ramp({0: 0.0, 1000: 2.0})  # for grokfast.attach(..., lamb=warmup)
        >>> warmup(0), warmup(500), warmup(5000)
        (0.0, 1.0, 2.0)
    """

    def __init__(self, points: Mapping[int, float]) -> None:
        if not isinstance(points, Mapping) or not points:
            raise TypeError(f"points must be a dict of values by step, got {points!r}")
        for step, value in points.items():
            check_count("a step of points", step, low=0)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
                raise ValueError(f"points must have finite numbers as values, got {value!r} at step {step}")
        self._steps = sorted(points)
        self._values = [float(points[step]) for step in self._steps]

    def __call__(self, step: int) -> float:
        """The value at a step."""
        after = bisect_right(self._steps, step)
        if after in (0, len(self._steps)):
            return self._values[max(after - 1, 0)]
        first, last = self._steps[after - 1], self._steps[after]
        begin, end = self._values[after - 1], self._values[after]
        return begin + (end - begin) * (step - first) / (last - first)

    def __repr__(self) -> str:
        return f"Ramp({dict(zip(self._steps, self._values, strict=True))})"
