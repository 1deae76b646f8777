"""Arithmetic on trees of gradients, in which a leaf may be None."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax


def mix(grads: Any, slow: Any, lamb: Any, slow_only: bool, active: jax.Array, divisor: Any = 1) -> Any:
    """g + lamb slow / divisor, or lamb slow / divisor, in the precision of the state; g where not `active`."""

    def mixed(g: Any, m: Any) -> Any:
        if g is None:
            return None
        amplified = as_real(lamb, m) / as_real(divisor, m) * m
        changed = amplified if slow_only else g.astype(m.dtype) + amplified
        return jnp.where(active, changed.astype(g.dtype), g)

    return map_grads(mixed, grads, slow)


def map_grads(function: Callable[..., Any], grads: Any, *trees: Any) -> Any:
    """Map over `grads` and trees of the same shape; None is a leaf: a parameter without a gradient."""
    return jax.tree.map(function, grads, *trees, is_leaf=lambda x: x is None)


def zeros_of(params: Any, *leading: int, dtype: Any = None) -> Any:
    """Zeros like the parameters, with `leading` dimensions in front, in a dtype that can hold an average."""

    def zeros(p: Any) -> jax.Array:
        # A bf16 average of a constant 1 at alpha 0.98 stalls at 0.879: the increments round away.
        own = jnp.result_type(p)
        wide = own if jnp.issubdtype(own, jnp.inexact) and own.itemsize >= 4 else jnp.float32
        like = jnp.zeros_like(p, dtype=wide if dtype is None else dtype)
        return jnp.broadcast_to(like, (*leading, *like.shape))  # keeps the sharding

    return jax.tree.map(zeros, params)


def as_real(value: Any, like: jax.Array) -> jax.Array:
    """A hyper-parameter in the precision of the state, whatever its own dtype."""
    return jnp.asarray(value, jnp.finfo(like.dtype).dtype)


def all_finite(grads: Any) -> jax.Array:
    return jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(grads)], bool).all()


def increment(count: jax.Array, finite: jax.Array) -> jax.Array:
    return jnp.where(finite, optax.safe_increment(count), count)
