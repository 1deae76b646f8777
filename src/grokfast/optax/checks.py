"""The checks of the torch filters for values that may also be arrays; their messages name Optax' remedies."""

from __future__ import annotations

import math
import numbers
from typing import Any

import jax
import jax.numpy as jnp

from grokfast import checks

Number = float | jax.Array
"""A hyper-parameter: a number, or an array where `optax.inject_hyperparams` or a caller's `jit` supplies it."""


def check_common(lamb: object, slow_only: object, start: object) -> None:
    check_number("lamb", lamb)
    checks.check_bool("slow_only", slow_only)
    if not is_array(start):
        checks.check_count("start", start, low=0)


def check_number(name: str, value: object, *, high: float = math.inf) -> None:
    """Raise unless `value` is a number in [0, high), or an array, whose value may not be known yet."""
    if is_array(value):
        return
    if callable(value):
        remedy = f"to schedule it: optax.inject_hyperparams(...)({name}=schedule)"
        raise TypeError(f"{name} must be a number in [0, {high:g}), got {value!r}; {remedy}")
    checks.check_number(name, value, low=0.0, high=high)


def check_count(name: str, value: object) -> None:
    """Raise unless `value` is an integer >= 1; it sets a shape, so it must be known."""
    if is_array(value):
        remedy = f'with optax.inject_hyperparams name it in static_args="{name}"'
        raise TypeError(f"{name} must be an integer >= 1, got {value!r}; {remedy}")
    checks.check_count(name, value)


def dtype_name(dtype: Any) -> Any:
    """`"bfloat16"` for all spellings of it; None and anything that is no dtype as they are."""
    try:
        return None if dtype is None else jnp.dtype(dtype).name
    except TypeError:
        return dtype


def is_array(value: object) -> bool:
    return hasattr(value, "shape") and not isinstance(value, numbers.Number)
