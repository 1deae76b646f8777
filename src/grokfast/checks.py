"""Argument checks whose errors name the argument, the range and the value."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence


def check_number(name: str, value: object, *, low: float, high: float = math.inf, above: bool = False) -> None:
    """Raise unless `value` is a number in [low, high), or in (low, high) if it must be above `low`."""
    span = f"{'(' if above else '['}{low:g}, {high:g})"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number in {span}, got {value!r}")
    if not low <= float(value) < high or (above and value == low):
        raise ValueError(f"{name} must be in {span}, got {value!r}")


def check_count(name: str, value: object, *, low: int = 1) -> None:
    """Raise unless `value` is an integer >= low."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise TypeError(f"{name} must be an integer >= {low}, got {value!r}")
    if value < low:
        raise ValueError(f"{name} must be an integer >= {low}, got {value!r}")


def check_bool(name: str, value: object) -> None:
    """Raise unless `value` is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def check_choice(name: str, value: object, choices: Sequence[object]) -> None:
    """Raise unless `value` is one of `choices`."""
    if not any(value is c or (type(value) is type(c) and value == c) for c in choices):
        raise ValueError(f"{name} must be one of {', '.join(repr(c) for c in choices)}, got {value!r}")
