"""JAX: put the filter first in an Optax chain. The model learns to multiply modulo 7."""

import jax
import jax.numpy as jnp
import optax

import grokfast.optax

x, y = jnp.divmod(jnp.arange(49), 7)
inputs = jnp.concatenate([jax.nn.one_hot(x, 7), jax.nn.one_hot(y, 7)], axis=1)
answers = x * y % 7

optimizer = optax.chain(
    grokfast.optax.ema(alpha=0.98, lamb=2.0),  # the one line
    optax.adamw(1e-2, weight_decay=0.1),
)


def loss(params: dict[str, jax.Array]) -> jax.Array:
    logits = jax.nn.relu(inputs @ params["in"]) @ params["out"]  # (49, 7)
    return optax.softmax_cross_entropy_with_integer_labels(logits, answers).mean()


@jax.jit
def step(params: dict[str, jax.Array], state: optax.OptState) -> tuple[dict[str, jax.Array], optax.OptState, jax.Array]:
    value, grads = jax.value_and_grad(loss)(params)
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value


first, second = jax.random.split(jax.random.key(0))
params = {"in": 0.3 * jax.random.normal(first, (14, 64)), "out": 0.1 * jax.random.normal(second, (64, 7))}
state = optimizer.init(params)
for _ in range(200):
    params, state, value = step(params, state)
print(f"loss after 200 steps: {value:.4f}")
assert value < 0.1
