"""The filters as Optax transformations: g <- g + lamb lowpass(g).

They work anywhere in a chain and inside `jit`. If any gradient is inf or NaN, the step leaves the state and all
gradients unchanged, like `grokfast.attach` with `nonfinite="ignore"`. torch is not imported.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from grokfast import checks

try:
    import jax
    import jax.numpy as jnp
    import optax
except ImportError as error:
    raise ImportError('grokfast.optax needs jax and optax: pip install "grokfast[optax]"') from error
if not hasattr(optax, "safe_increment"):
    raise ImportError(
        f'grokfast.optax needs optax 0.2.4 or newer, got {optax.__version__}: pip install -U "grokfast[optax]"'
    )

__all__ = ["EMAState", "MAState", "ema", "ma"]

Number = float | jax.Array
"""A hyper-parameter: a number, or an array if it comes from `optax.inject_hyperparams` or a caller's `jit`."""


# EMA (Algorithm 2): m <- alpha m + (1 - alpha) g;  g <- g + lamb m ----------------------------------------------------


class EMAState(NamedTuple):
    """State of `ema`.

    Attributes:
        seen: number of gradients.
        slow: the averages, a tree like the parameters, in float32 or wider.

    Examples:
        >>> ema(alpha=0.98).init(jnp.zeros(2))
        EMAState(seen=Array(0, dtype=int32), slow=Array([0., 0.], dtype=float32))
    """

    seen: jax.Array
    slow: Any


def ema(
    *,
    alpha: Number = 0.98,
    lamb: Number = 2.0,
    slow_only: bool = False,
    init: Literal["first", "zero"] = "first",
    start: int | jax.Array = 0,
) -> optax.GradientTransformation:
    """Amplify slow gradients by an exponential moving average: as `grokfast.EMA` does.

    m_1 = g_1,  m_t = alpha m_{t-1} + (1 - alpha) g_t,  g_t <- g_t + lamb m_t

    Args:
        alpha: decay of the average, in [0, 1). The paper recommends 0.8 to 0.99.
        lamb: how much of the average is added, >= 0. The paper recommends 0.1 to 5.
        slow_only: use lamb m instead of g + lamb m.
        init: `"first"` seeds the average with the first gradient, `"zero"` with zeros.
        start: number of updates that leave gradients unchanged and only update the average.

    Returns:
        A transformation to chain before an optimizer.

    Examples:
        >>> import grokfast.optax, jax.numpy as jnp, optax
        >>> optimizer = optax.chain(grokfast.optax.ema(alpha=0.98, lamb=2.0), optax.sgd(1.0))
        >>> params = jnp.zeros(3)
        >>> updates, state = optimizer.update(jnp.ones(3), optimizer.init(params), params)
        >>> updates
        Array([-3., -3., -3.], dtype=float32)

    Reference: Lee et al., 2024, Algorithm 2.
    """
    check_number("alpha", alpha, high=1.0)
    check_common(lamb, slow_only, start)
    checks.check_choice("init", init, ("first", "zero"))

    def init_fn(params: optax.Params) -> EMAState:
        return EMAState(jnp.zeros([], jnp.int32), zeros_of(params))

    def update_fn(updates: optax.Updates, state: Any, params: optax.Params | None = None) -> tuple[Any, EMAState]:
        finite = all_finite(updates)
        # The first gradient seeds the average; zeros would damp the first 1/(1-alpha) steps.
        weight = jnp.where(state.seen == 0, 1.0, 1 - alpha) if init == "first" else 1 - alpha
        slow = map_grads(partial(blend, weight=weight, finite=finite), updates, state.slow)
        active = finite & (state.seen >= start)
        return mix(updates, slow, lamb, slow_only, active), EMAState(increment(state.seen, finite), slow)

    return optax.GradientTransformation(init_fn, update_fn)


def blend(grad: Any, slow: Any, *, weight: Any, finite: jax.Array) -> Any:
    """slow + weight (grad - slow); slow itself without a gradient or if not all gradients are `finite`."""
    if grad is None:
        return slow
    weight, grad = as_real(weight, slow), grad.astype(slow.dtype)
    # Like torch.lerp, from the nearer end: a weight of 1 gives the gradient bit for bit. In fp32 the rounding error of
    # alpha slow + (1 - alpha) grad would be seven times as large at alpha 0.999.
    blended = jnp.where(weight < 0.5, slow + weight * (grad - slow), grad - (1 - weight) * (grad - slow))
    return jnp.where(finite, blended, slow)


# MA (Algorithm 1) in O(1): total <- total - oldest + g;  g <- g + lamb total / window_size ----------------------------


class MAState(NamedTuple):
    """State of `ma`: trees like the parameters, in float32 or wider.

    Attributes:
        seen: number of gradients.
        window: a ring buffer (window_size, ...); the slot to be written next is not part of the sum.
        rest: sum of the window_size - 1 newest gradients.
        fresh: sum of the gradients written since the ring buffer last began from slot 0.

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
    """Amplify slow gradients by the mean of the last `window_size` gradients: as `grokfast.MA` does.

    total <- total - oldest + g,  g <- g + lamb total / window_size

    A step takes the same time for every window size. A second sum starts from zero with each pass through the ring
    buffer and replaces the first at its end, so that a rounding error lasts two windows at most.

    Args:
        window_size: number of gradients averaged, >= 1. The state is as large as `window_size + 2` gradients.
        lamb: how much of the mean is added, >= 0.
        slow_only: use lamb * mean instead of g + lamb * mean.
        warmup: leave gradients unchanged until the window is full, like the released code. False averages the
            gradients seen so far, like Algorithm 1.
        reduction: `"mean"` or `"sum"` of the window.
        window_dtype: dtype of the stored window, None for the state's dtype. `"bfloat16"` halves the memory; each
            stored gradient is then rounded to 8 bits of mantissa.
        start: number of updates that leave gradients unchanged and only fill the window.

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
    checks.check_bool("warmup", warmup)
    checks.check_choice("reduction", reduction, ("mean", "sum"))
    stored = dtype_name(window_dtype)
    checks.check_choice("window_dtype", stored, (None, "float32", "bfloat16"))

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
    """Write a gradient into its slot of the ring buffer, or change nothing if not all gradients are `finite`.

    The write comes before the read, because a compiler may copy the window if a read comes first. So the oldest
    gradient is subtracted now, not when it is overwritten.
    """
    if grad is None:
        return Ring(window, rest, fresh, None)
    size = window.shape[0]
    newest = jnp.where(finite, grad.astype(window.dtype), 0)
    window = jax.lax.dynamic_update_index_in_dim(window, newest, place, 0)
    leaving = jax.lax.dynamic_index_in_dim(window, (place + 1) % size, keepdims=False).astype(rest.dtype)
    # Add the stored value, because the same value is subtracted later.
    total, gathered = rest + newest.astype(rest.dtype), fresh + newest.astype(rest.dtype)
    lap_ends = place == size - 1
    total, gathered = jnp.where(lap_ends, gathered, total), jnp.where(lap_ends, 0, gathered)
    return Ring(window, jnp.where(finite, total - leaving, rest), jnp.where(finite, gathered, fresh), total)


def pick(rings: Any, name: str) -> Any:
    """One field of a tree of rings, as a tree."""
    return jax.tree.map(attrgetter(name), rings, is_leaf=lambda x: isinstance(x, Ring))


# Trees of gradients, in which a leaf may be None ----------------------------------------------------------------------


def mix(grads: Any, slow: Any, lamb: Any, slow_only: bool, active: jax.Array, divisor: Any = 1) -> Any:
    """g + lamb slow / divisor, or lamb slow / divisor, in the precision of the state; g if not `active`."""

    def mixed(g: Any, m: Any) -> Any:
        if g is None:
            return None
        amplified = as_real(lamb, m) / as_real(divisor, m) * m
        changed = amplified if slow_only else g.astype(m.dtype) + amplified
        return jnp.where(active, changed.astype(g.dtype), g)

    return map_grads(mixed, grads, slow)


def map_grads(function: Callable[..., Any], grads: Any, *trees: Any) -> Any:
    """Map over `grads` and trees of the same shape. A leaf None is a parameter without a gradient."""
    return jax.tree.map(function, grads, *trees, is_leaf=lambda x: x is None)


def zeros_of(params: Any, *leading: int, dtype: Any = None) -> Any:
    """Zeros like the parameters, with `leading` dimensions in front, in a dtype precise enough for an average."""

    def zeros(p: Any) -> jax.Array:
        # In bf16 the average of a constant 1 at alpha 0.98 stalls at 0.879, because small increments are rounded away.
        own = jnp.result_type(p)
        wide = own if jnp.issubdtype(own, jnp.inexact) and own.itemsize >= 4 else jnp.float32
        like = jnp.zeros_like(p, dtype=wide if dtype is None else dtype)
        return jnp.broadcast_to(like, (*leading, *like.shape))  # keeps the sharding

    return jax.tree.map(zeros, params)


def as_real(value: Any, like: jax.Array) -> jax.Array:
    """A hyper-parameter in the precision of the state."""
    return jnp.asarray(value, jnp.finfo(like.dtype).dtype)


def all_finite(grads: Any) -> jax.Array:
    return jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(grads)], bool).all()


def increment(count: jax.Array, finite: jax.Array) -> jax.Array:
    return jnp.where(finite, optax.safe_increment(count), count)


# Checks of values that may be arrays; the messages name what to do in Optax -------------------------------------------


def check_common(lamb: object, slow_only: object, start: object) -> None:
    check_number("lamb", lamb)
    checks.check_bool("slow_only", slow_only)
    if not is_array(start):
        checks.check_count("start", start, low=0)


def check_number(name: str, value: object, *, high: float = math.inf) -> None:
    """Raise unless `value` is a number in [0, high) or an array, whose value may not be known yet."""
    if is_array(value):
        return
    if callable(value):
        remedy = f"to schedule it: optax.inject_hyperparams(...)({name}=schedule)"
        raise TypeError(f"{name} must be a number in [0, {high:g}), got {value!r}; {remedy}")
    checks.check_number(name, value, low=0.0, high=high)


def check_count(name: str, value: object) -> None:
    """Raise unless `value` is an integer >= 1. It sets a shape, so it must not be an array."""
    if is_array(value):
        remedy = f'with optax.inject_hyperparams name it in static_args="{name}"'
        raise TypeError(f"{name} must be an integer >= 1, got {value!r}; {remedy}")
    checks.check_count(name, value)


def dtype_name(dtype: Any) -> Any:
    """The name of a dtype, such as `"bfloat16"`; None and values that are not a dtype unchanged."""
    try:
        return None if dtype is None else jnp.dtype(dtype).name
    except TypeError:
        return dtype


def is_array(value: object) -> bool:
    return hasattr(value, "shape") and not isinstance(value, numbers.Number)
