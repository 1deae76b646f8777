"""MA low-pass filter (Algorithm 1) in O(1): total <- total - oldest + g;  g <- g + lamb total / window_size."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from grokfast.checks import check_bool, check_choice
from grokfast.optax.checks import Number, check_common, check_count, dtype_name
from grokfast.optax.trees import all_finite, increment, map_grads, mix, zeros_of


class MAState(NamedTuple):
    """State of `ma`. The trees are like the parameters, in float32 at least.

    Attributes:
        seen: number of gradients.
        window: (window_size, ...), a ring; the slot to write next holds no valid gradient.
        rest: sum of the window_size - 1 newest gradients.
        fresh: sum of the gradients written in this lap of the ring.

    Examples:
        >>> ma(window_size=3).init(jnp.zeros(2)).window.shape
        (3, 2)
    """

    seen: jax.Array
    window: Any
    rest: Any
    fresh: Any


class Ring(NamedTuple):
    """The state of one tensor after a step, and the sum of its window at that step."""

    window: Any
    rest: Any
    fresh: Any
    total: Any


def ma(
    *,
    window_size: int = 100,
    lamb: Number = 5.0,
    slow_only: bool = False,
    warmup: bool = True,
    reduction: Literal["mean", "sum"] = "mean",
    window_dtype: Any = None,
    start: int | jax.Array = 0,
) -> optax.GradientTransformation:
    """Amplify slow gradients by the mean of the last `window_size` gradients: the twin of `grokfast.MA`.

    total <- total - oldest + g,  g <- g + lamb total / window_size

    A step costs the same for every window size. A second sum starts from zero with each lap of the ring and replaces
    the first at its end, so that a rounding error lasts two windows at most.

    Args:
        window_size: number of gradients averaged, >= 1; takes the memory of `window_size + 2` gradients.
        lamb: gain of the mean, >= 0.
        slow_only: use lamb * mean instead of g + lamb * mean.
        warmup: leave gradients as they are until the window is full, like the released code; False averages the
            gradients seen so far, like Algorithm 1.
        reduction: `"mean"` or `"sum"` of the window.
        window_dtype: dtype of the stored window, None for the state's dtype. `"bfloat16"` halves the memory; each
            stored gradient is then rounded to 8 bits of mantissa.
        start: number of updates that leave gradients as they are and only fill the window.

    Returns:
        A transformation to chain before an optimizer.

    Examples:
        >>> import grokfast.optax, jax.numpy as jnp
        >>> ma = grokfast.optax.ma(window_size=2, lamb=1.0)
        >>> grads, state = ma.update(jnp.ones(1), ma.init(jnp.zeros(1)))   # fills the window
        >>> ma.update(jnp.ones(1), state)[0]
        Array([2.], dtype=float32)

    Reference: Lee et al., 2024, Algorithm 1.
    """
    check_count("window_size", window_size)
    check_common(lamb, slow_only, start)
    check_bool("warmup", warmup)
    check_choice("reduction", reduction, ("mean", "sum"))
    stored = dtype_name(window_dtype)
    check_choice("window_dtype", stored, (None, "float32", "bfloat16"))

    def init_fn(params: optax.Params) -> MAState:
        if stored is not None and any(jnp.iscomplexobj(p) for p in jax.tree.leaves(params)):
            raise TypeError(f"window_dtype must be None for complex gradients, got {stored!r}")
        window = zeros_of(params, window_size, dtype=stored)
        return MAState(jnp.zeros([], jnp.int32), window, zeros_of(params), zeros_of(params))

    def update_fn(updates: optax.Updates, state: Any, params: optax.Params | None = None) -> tuple[Any, MAState]:
        finite = all_finite(updates)
        step = partial(push, place=state.seen % window_size, finite=finite)
        rings = map_grads(step, updates, state.window, state.rest, state.fresh)
        window, rest, fresh, total = (pick(rings, name) for name in Ring._fields)
        seen = increment(state.seen, finite)
        active = finite & (state.seen >= start) & ((seen >= window_size) | (not warmup))
        divisor = jnp.clip(seen, 1, window_size) if reduction == "mean" else 1
        return mix(updates, total, lamb, slow_only, active, divisor), MAState(seen, window, rest, fresh)

    return optax.GradientTransformation(init_fn, update_fn)


def push(grad: Any, window: Any, rest: Any, fresh: Any, *, place: jax.Array, finite: jax.Array) -> Ring:
    """Write a gradient into its slot of the ring, or change nothing if not all are `finite`.

    The ring is written first and read later: a compiler that finds a read before the write may copy the window. Hence
    the oldest gradient is subtracted now, not when it is overwritten.
    """
    if grad is None:
        return Ring(window, rest, fresh, None)
    size = window.shape[0]
    newest = jnp.where(finite, grad.astype(window.dtype), 0)
    window = jax.lax.dynamic_update_index_in_dim(window, newest, place, 0)
    leaving = jax.lax.dynamic_index_in_dim(window, (place + 1) % size, keepdims=False).astype(rest.dtype)
    # Added as stored, not as it came: the value subtracted later must be the value added.
    total, gathered = rest + newest.astype(rest.dtype), fresh + newest.astype(rest.dtype)
    lap_ends = place == size - 1
    total, gathered = jnp.where(lap_ends, gathered, total), jnp.where(lap_ends, 0, gathered)
    return Ring(window, jnp.where(finite, total - leaving, rest), jnp.where(finite, gathered, fresh), total)


def pick(rings: Any, name: str) -> Any:
    """One field of a tree of rings, as a tree."""
    return jax.tree.map(attrgetter(name), rings, is_leaf=lambda x: isinstance(x, Ring))
