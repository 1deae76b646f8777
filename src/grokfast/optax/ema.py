"""EMA low-pass filter (Algorithm 2): m <- alpha m + (1 - alpha) g;  g <- g + lamb m."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax

from grokfast.checks import check_choice
from grokfast.optax.checks import Number, check_common, check_number
from grokfast.optax.trees import all_finite, as_real, increment, map_grads, mix, zeros_of


class EMAState(NamedTuple):
    """State of `ema`.

    Attributes:
        seen: number of gradients.
        slow: the average, like the parameters, in float32 at least.

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
    """Amplify slow gradients by an exponential moving average: the twin of `grokfast.EMA`.

    m_1 = g_1,  m_t = alpha m_{t-1} + (1 - alpha) g_t,  g_t <- g_t + lamb m_t

    Args:
        alpha: memory of the average, in [0, 1). The paper recommends 0.8 to 0.99.
        lamb: gain of the average, >= 0. The paper recommends 0.1 to 5.
        slow_only: use lamb m instead of g + lamb m.
        init: `"first"` seeds the average with the first gradient, `"zero"` with zeros.
        start: number of updates that leave gradients as they are and only keep the average warm.

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
    check_choice("init", init, ("first", "zero"))

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
    """slow + weight (grad - slow), or slow itself if there is no gradient or not all are `finite`."""
    if grad is None:
        return slow
    weight, grad = as_real(weight, slow), grad.astype(slow.dtype)
    # Like torch.lerp, from the nearer end: a weight of 1 gives the gradient bit for bit. In fp32 the rounding error of
    # alpha slow + (1 - alpha) grad would be seven times as large at alpha 0.999.
    blended = jnp.where(weight < 0.5, slow + weight * (grad - slow), grad - (1 - weight) * (grad - slow))
    return jnp.where(finite, blended, slow)
