"""Curves over evaluated steps, and the step at which one crosses a level.

A crossing is an interval (after, step]: the curve is known only at evaluated steps. A curve that never crosses is
censored: it takes longer than `after` steps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from grokfast.lab.tasks.base import Measure

Kind = Literal["first", "held", "stable", "train"]
HOLD = 3  # further evaluations in a row at which a level must be reached to count as held
COUNTS = ("step", "samples")
LONGEST = 2**53  # a count beyond this is damage


class Row(NamedTuple):
    """One evaluation. Training values are means since the last row; norms and learning rate those of the last step."""

    step: int
    train_loss: float
    train_accuracy: float | None
    val_loss: float
    val_accuracy: float | None
    weight_norm: float
    grad_norm: float
    slow_norm: float | None
    lr: float
    samples: int
    seconds: float
    more: Mapping[str, float] | None = None  # whatever else the task measures


class Crossing(NamedTuple):
    """Where a curve crosses a level: in (after, step], or nowhere up to `after` if `step` is None."""

    after: int
    step: int | None

    @property
    def censored(self) -> bool:
        return self.step is None

    def __str__(self) -> str:
        return f"> {self.after:,}" if self.step is None else f"{self.step:,}"


def first_crossing(steps: Sequence[int], reached: Sequence[bool]) -> Crossing:
    """The first evaluated step where the level is reached.

    >>> first_crossing([10, 20, 30, 40], [False, True, False, True])
    Crossing(after=10, step=20)
    """
    return _crossing_at(steps, next((i for i, yes in enumerate(reached) if yes), None))


def held_crossing(steps: Sequence[int], reached: Sequence[bool], hold: int = HOLD) -> Crossing:
    """The first evaluated step where the level is reached and held at `hold` further evaluations in a row.

    >>> held_crossing([10, 20, 30, 40], [True, False, True, True], 1)
    Crossing(after=20, step=30)
    """
    held = (i for i in range(len(steps) - hold) if all(reached[i : i + hold + 1]))
    return _crossing_at(steps, next(held, None))


def stable_crossing(steps: Sequence[int], reached: Sequence[bool]) -> Crossing:
    """The first evaluated step after which every evaluation reaches the level, to the end of the run.

    >>> stable_crossing([10, 20, 30, 40], [False, True, False, True])
    Crossing(after=30, step=40)
    """
    failures = [i for i, yes in enumerate(reached) if not yes]
    index = failures[-1] + 1 if failures else 0
    return _crossing_at(steps, index if index < len(steps) else None)


def _crossing_at(steps: Sequence[int], index: int | None) -> Crossing:
    if index is None:
        return Crossing(steps[-1] if steps else 0, None)
    return Crossing(steps[index - 1] if index else 0, steps[index])


class Best(NamedTuple):
    """The best value of a curve, and the first evaluated step that has it."""

    step: int
    value: float


def validation(rows: Sequence[Row], measure: Measure) -> list[float | None]:
    """The validation curve that a task is judged by."""
    return [row.val_accuracy if measure == "accuracy" else row.val_loss for row in rows]


def reaches(rows: Sequence[Row], level: float, measure: Measure = "accuracy") -> list[bool]:
    """Whether each validation accuracy is at least `level`, or each validation loss at most."""
    values = validation(rows, measure)
    return [v is not None and (v >= level if measure == "accuracy" else v <= level) for v in values]


def best(rows: Sequence[Row], measure: Measure) -> Best | None:
    """The highest validation accuracy or the lowest validation loss; None where there is none."""
    pairs = zip(rows, validation(rows, measure), strict=True)
    found = [Best(row.step, v) for row, v in pairs if v is not None and math.isfinite(v)]
    sign = 1 if measure == "loss" else -1
    return min(found, key=lambda best: (sign * best.value, best.step), default=None)


def crossings(rows: Sequence[Row], level: float, measure: Measure, hold: int = HOLD) -> dict[Kind, Crossing]:
    """Crossings of a level by the validation curve, and the first one by the training curve."""
    steps, reached = [row.step for row in rows], reaches(rows, level, measure)
    if measure == "loss":
        learnt = [row.train_loss <= level for row in rows]
    else:
        learnt = [row.train_accuracy is not None and row.train_accuracy >= level for row in rows]
    return {
        "first": first_crossing(steps, reached),
        "held": held_crossing(steps, reached, hold),
        "stable": stable_crossing(steps, reached),
        "train": first_crossing(steps, learnt),
    }


def row_to_json(row: Row) -> bytes:
    """One line. JSON has no NaN and no infinities: null stands for them."""
    plain = {key: finite(value) for key, value in row._asdict().items()}
    return (json.dumps(plain, allow_nan=False) + "\n").encode()


def finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: finite(part) for key, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def row_from_plain(values: dict[str, Any]) -> Row:
    row = Row(**values)
    for name in COUNTS:
        if type(getattr(row, name)) is not int or not 0 <= getattr(row, name) < LONGEST:
            raise ValueError(f"{name} must be a count, got {getattr(row, name)!r:.40}")
    if not all(isinstance(value, float | int | None) for value in row[1:-1]):
        raise ValueError(f"the values of step {row.step} must be numbers")
    numbers = ("train_loss", "val_loss", "weight_norm", "grad_norm")
    return row._replace(**{name: math.nan for name in numbers if getattr(row, name) is None})


def shorten(value: Any, digits: int) -> Any:
    """A float, or the floats of a mapping, rounded to a number of significant digits.

    >>> shorten(0.123456789, 5), shorten({"mean": 2 / 3}, 2), shorten(7, 1)
    (0.12346, {'mean': 0.67}, 7)
    """
    if isinstance(value, dict):
        return {key: shorten(part, digits) for key, part in value.items()}
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
