"""Rows of a run, the values it is judged by, and their crossings of its level."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from grokfast.lab.stats import HOLD, Crossing, first_crossing, held_crossing, stable_crossing

if TYPE_CHECKING:
    from grokfast.lab.tasks.base import Measure

Kind = Literal["first", "held", "stable", "train"]
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


class _Best(NamedTuple):
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


def best(rows: Sequence[Row], measure: Measure) -> _Best | None:
    """The highest validation accuracy or the lowest validation loss; None if there is none."""
    pairs = zip(rows, validation(rows, measure), strict=True)
    found = [_Best(row.step, v) for row, v in pairs if v is not None and math.isfinite(v)]
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
