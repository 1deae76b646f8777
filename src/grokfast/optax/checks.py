"""Errors that name the argument, the range and the value, worded as those of the torch filters."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

Number = float | jax.Array
"""A hyper-parameter: a number, or an array where `optax.inject_hyperparams` or a caller's `jit` supplies it."""


def check_common(lamb: object, slow_only: object, start: object) -> None:
    check_number("lamb", lamb)
    check_bool("slow_only", slow_only)
    if not is_array(start):
        check_count("start", start, low=0)


def check_number(name: str, value: object, *, high: float = math.inf) -> None:
    """Raise unless `value` is a number in [0, high), or an array, whose value may not be known yet."""
    if is_array(value):
        return
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        remedy = f"; to schedule it: optax.inject_hyperparams(...)({name}=schedule)" if callable(value) else ""
        raise TypeError(f"{name} must be a number in [0, {high:g}), got {value!r}{remedy}")
    if not 0 <= float(value) < high:
        raise ValueError(f"{name} must be in [0, {high:g}), got {value!r}")


def check_count(name: str, value: object, *, low: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        remedy = f'; with optax.inject_hyperparams name it in static_args="{name}"' if is_array(value) else ""
        raise TypeError(f"{name} must be an integer >= {low}, got {value!r}{remedy}")
    if value < low:
        raise ValueError(f"{name} must be an integer >= {low}, got {value!r}")


def check_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")


def check_choice(name: str, value: object, choices: Sequence[str | None]) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(repr(c) for c in choices)}, got {value!r}")


def dtype_name(dtype: Any) -> Any:
    """`"bfloat16"` for all spellings of it; None and what is no dtype as they are."""
    try:
        return None if dtype is None else jnp.dtype(dtype).name
    except TypeError:
        return dtype


def is_array(value: object) -> bool:
    return hasattr(value, "shape") and not isinstance(value, numbers.Number)
