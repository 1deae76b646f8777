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
    """State of `ma`; the trees are like the parameters, in float32 at least."""

    seen: jax.Array  # number of gradients
    window: Any  # (window_size, ...), a ring; the place to write next holds nothing of use
    rest: Any  # sum of the window_size - 1 newest gradients
    fresh: Any  # sum of what this lap of the ring has written


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

    A step costs the same for every window size. A sum gathered afresh during each lap of the ring takes over at its
    end, so that a rounding error lives for two windows at most.

    Args:
        window_size: number of gradients averaged, >= 1; the memory is that of `window_size + 2` gradients.
        lamb: gain of the mean, >= 0.
        slow_only: use lamb * mean alone.
        warmup: leave gradients as they are until the window is full, as the released code does; False averages
            what is there, as Algorithm 1 reads.
        reduction: `"mean"`, or `"sum"` for the undivided window.
        window_dtype: dtype of the stored window, None for the state's dtype. `"bfloat16"` halves the memory; each
            stored gradient is then rounded to 8 bits of mantissa.
        start: number of updates that leave gradients as they are while the window is filled.

    Returns:
        A transformation to chain before an optimizer.

    Example:
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
    """Put a gradient in its place of the ring, or leave all as it is if not all are `finite`.

    The ring is written first and read after: a compiler that finds a read before the write may copy the window. Hence
    the next gradient to leave it is subtracted now, and not when it is overwritten.
    """
    if grad is None:
        return Ring(window, rest, fresh, None)
    size = window.shape[0]
    newest = jnp.where(finite, grad.astype(window.dtype), 0)
    window = jax.lax.dynamic_update_index_in_dim(window, newest, place, 0)
    leaving = jax.lax.dynamic_index_in_dim(window, (place + 1) % size, keepdims=False).astype(rest.dtype)
    # Added as stored, not as it came: what is subtracted later must be what was added.
    total, gathered = rest + newest.astype(rest.dtype), fresh + newest.astype(rest.dtype)
    lap_ends = place == size - 1
    total, gathered = jnp.where(lap_ends, gathered, total), jnp.where(lap_ends, 0, gathered)
    return Ring(window, jnp.where(finite, total - leaving, rest), jnp.where(finite, gathered, fresh), total)


def pick(rings: Any, name: str) -> Any:
    """One field of a tree of rings, as a tree."""
    return jax.tree.map(attrgetter(name), rings, is_leaf=lambda x: isinstance(x, Ring))
