"""The Optax twins equal the torch filters and keep their laws in every place where Optax may put them."""

from __future__ import annotations

import importlib
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import grokfast
import grokfast.optax

jax.config.update("jax_num_cpu_devices", 2)

Factory = Callable[..., optax.GradientTransformation]
BOTH: dict[str, Factory] = {
    "ema": grokfast.optax.ema,
    "ma": lambda **options: grokfast.optax.ma(**{"window_size": 3, "warmup": False, **options}),
}
both = pytest.mark.parametrize("make", BOTH.values(), ids=BOTH.keys())


def signal(steps: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Noise around a slow wave."""
    noise = np.random.default_rng(seed).standard_normal((steps, *shape))
    wave = np.sin(np.arange(steps) / 50).reshape(-1, *[1] * len(shape))
    return (noise + wave).astype(np.float32)


def run(transform: optax.GradientTransformation, grads: Any, state: Any = None) -> tuple[Any, Any]:
    """Filter many steps, stacked in the leaves of `grads`, by one scan: outputs and the last state."""
    if state is None:
        state = transform.init(jax.tree.map(lambda g: jnp.zeros(g.shape[1:], g.dtype), grads))

    def step(state: Any, g: Any) -> tuple[Any, Any]:
        out, state = transform.update(g, state)
        return state, out

    state, out = jax.jit(lambda state, grads: jax.lax.scan(step, state, grads))(state, grads)
    return out, state


def run_torch(filter: grokfast.Filter, grads: torch.Tensor) -> np.ndarray:
    """What the torch filter makes of the same steps."""
    state, out = filter.new_state(grads[0]), []
    for count, grad in enumerate(grads.clone()):
        filter.update([grad], [state], count)
        out.append(grad.to(torch.promote_types(grad.dtype, torch.float32)).numpy())
    return np.stack(out)


def same(a: Any, b: Any) -> bool:
    """Equal bit for bit, leaf by leaf."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return jax.tree.structure(a) == jax.tree.structure(b) and all(np.array_equal(x, y, True) for x, y in pairs)


# The same numbers as torch -------------------------------------------------------------------------------------------


TWINS: list[tuple[str, dict[str, Any], str]] = [
    ("EMA", {}, "float32"),
    ("EMA", {}, "bfloat16"),
    ("EMA", {"alpha": 0.0}, "float32"),
    ("EMA", {"alpha": 0.3, "lamb": 0.5, "init": "zero"}, "float32"),
    ("EMA", {"slow_only": True}, "bfloat16"),
    ("MA", {}, "float32"),
    ("MA", {}, "bfloat16"),
    ("MA", {"window_size": 1, "lamb": 0.5}, "float32"),
    ("MA", {"window_size": 7, "warmup": False}, "float32"),
    ("MA", {"window_size": 7, "reduction": "sum", "slow_only": True}, "float32"),
    ("MA", {"window_size": 7, "window_dtype": "bfloat16"}, "float32"),
]
# The average is alpha m + (1 - alpha) g there and m + (1 - alpha)(g - m) here: a few last bits differ.
TOLERANCE = {"float32": {"rtol": 1e-6, "atol": 4e-6}, "bfloat16": {"rtol": 2**-7, "atol": 1e-6}}


@pytest.mark.parametrize(("name", "options", "dtype"), TWINS, ids=lambda value: str(value))
def test_equals_the_torch_filter_over_1000_steps(name: str, options: dict[str, Any], dtype: str) -> None:
    g = signal(1000, 5)
    twin = getattr(grokfast.optax, name.lower())(**options)
    out, _ = run(twin, jnp.asarray(g).astype(dtype))
    theirs = {k: torch.bfloat16 if k == "window_dtype" else v for k, v in options.items()}
    expected = run_torch(getattr(grokfast, name)(**theirs), torch.tensor(g).to(getattr(torch, dtype)))
    assert out.dtype == dtype
    if dtype == "bfloat16":  # a last bit may round the other way, rarely
        assert np.mean(np.asarray(out, np.float32) == expected) > 0.999
    np.testing.assert_allclose(np.asarray(out, np.float32), expected, **TOLERANCE[dtype])


def test_defaults_are_those_of_the_torch_filters() -> None:
    for twin, filter in ((grokfast.optax.ema, grokfast.EMA), (grokfast.optax.ma, grokfast.MA)):
        ours = {k: p.default for k, p in inspect.signature(twin).parameters.items()}
        theirs = {k: p.default for k, p in inspect.signature(filter).parameters.items()}
        assert ours.pop("start") == 0  # an argument of attach there
        theirs.pop("state_dtype", None)  # of the torch filter only
        assert ours == theirs


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@both
def test_state_of_half_precision_is_fp32_and_a_constant_is_held(make: Factory, dtype: str) -> None:
    out, state = run(make(lamb=1.0), jnp.ones((300, 2), dtype))
    assert np.all(np.asarray(out) == 2)
    assert all(leaf.dtype in (jnp.float32, jnp.int32) for leaf in jax.tree.leaves(state))


def test_rounding_stays_small_at_a_long_memory() -> None:
    g = signal(1000, 50) + np.float32(1)
    out, _ = run(grokfast.optax.ema(alpha=0.999, lamb=1.0, slow_only=True), g)
    exact = run_torch(grokfast.EMA(alpha=0.999, lamb=1.0, slow_only=True), torch.tensor(g).double())
    np.testing.assert_allclose(out, exact, rtol=5e-6, atol=5e-6)


def test_alpha_zero_has_no_memory() -> None:
    g = jnp.array([[1e8], [1.0], [1e-8]])
    assert same(run(grokfast.optax.ema(alpha=0.0, lamb=1.0, slow_only=True), g)[0], g)


def test_ma_forgets_rounding_errors_after_two_windows() -> None:
    g = np.full((30, 1), 0.1, np.float32)
    g[0] = 1e8  # swallows what is added to it
    out, _ = run(grokfast.optax.ma(window_size=5, slow_only=True, lamb=1.0), jnp.asarray(g))
    np.testing.assert_allclose(out[10:], 0.1, rtol=1e-6)


def test_double_precision_stays_double() -> None:
    with jax.enable_x64(True):
        for make in BOTH.values():
            g = signal(20, 3).astype(np.float64) + 1e-12
            out, state = run(make(slow_only=True, lamb=1.0), jnp.asarray(g))
            assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype("float64"), jnp.dtype("int32")}
            filter = grokfast.EMA if make is grokfast.optax.ema else grokfast.MA
            options = {} if filter is grokfast.EMA else {"window_size": 3, "warmup": False}
            expected = run_torch(filter(lamb=1.0, slow_only=True, **options), torch.tensor(g))
            np.testing.assert_allclose(out, expected, rtol=1e-12)
            single, state = run(make(), jnp.ones((2, 3), jnp.float32))
            assert single.dtype == jnp.float32
            assert {leaf.dtype for leaf in jax.tree.leaves(state)} == {jnp.dtype("float32"), jnp.dtype("int32")}


@both
def test_works_where_implicit_promotion_is_forbidden(make: Factory) -> None:
    with jax.numpy_dtype_promotion("strict"):
        run(make(), jnp.ones((2, 3), jnp.bfloat16))


@both
def test_complex_gradients_are_filtered_part_by_part(make: Factory) -> None:
    real, imaginary = signal(20, 3), signal(20, 3, seed=1)
    out, _ = run(make(), jnp.asarray(real + 1j * imaginary))
    assert out.dtype == jnp.complex64
    np.testing.assert_allclose(out.real, run(make(), jnp.asarray(real))[0], rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(out.imag, run(make(), jnp.asarray(imaginary))[0], rtol=1e-6, atol=1e-6)


# The laws ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@both
def test_lamb_zero_changes_nothing(make: Factory, dtype: str) -> None:
    g = jnp.asarray(signal(20, 3)).astype(dtype)
    assert same(run(make(lamb=0.0), g)[0], g)


@pytest.mark.parametrize(("at", "bad"), [([0], np.nan), ([4, 5], np.inf), ([20], np.nan)])
@both
def test_a_step_that_is_not_finite_passes_as_it_is_and_leaves_no_trace(
    make: Factory, at: list[int], bad: float
) -> None:
    good = {"a": signal(20, 3), "b": signal(20, 2, seed=1)}
    mixed = {k: np.insert(g, at, 7.0, axis=0) for k, g in good.items()}
    places = np.array(at) + np.arange(len(at))
    mixed["b"][places, 0] = bad  # in one number of one leaf
    out, state = run(make(), mixed)
    expected, end = run(make(), good)
    assert same({k: g[places] for k, g in out.items()}, {k: g[places] for k, g in mixed.items()})
    assert same({k: np.delete(g, places, axis=0) for k, g in out.items()}, expected)
    assert same(run(make(), good, state)[0], run(make(), good, end)[0])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


@both
def test_before_start_gradients_pass_while_the_state_is_warm(make: Factory) -> None:
    g = signal(20, 3)
    g[2] = np.nan  # does not count
    out, _ = run(make(start=6), g)
    filtered, _ = run(make(), g)
    assert same(out[:7], g[:7])
    assert same(out[7:], filtered[7:])
    assert not np.any(np.asarray(out[7:]) == g[7:])


@both
def test_leaves_without_a_gradient_stay_none(make: Factory) -> None:
    g = signal(10, 3)
    params = {"a": jnp.zeros(3), "none": None, "frozen": jnp.ones(2)}
    transform = make()
    state = transform.init(params)
    frozen = jax.tree.map(np.asarray, state)
    for x in g:
        out, state = transform.update({"a": jnp.asarray(x), "none": None, "frozen": None}, state, params)
    assert out["none"] is None
    assert out["frozen"] is None
    np.testing.assert_allclose(out["a"], run(transform, g)[0][-1], rtol=1e-6, atol=1e-6)
    assert jax.tree.structure(state) == jax.tree.structure(frozen)
    assert all(same(now["frozen"], then["frozen"]) for now, then in zip(state[1:], frozen[1:], strict=True))


@both
def test_an_empty_tree_is_filtered_to_itself(make: Factory) -> None:
    assert make().update({}, make().init({}))[0] == {}


# In Optax ------------------------------------------------------------------------------------------------------------


@both
def test_in_a_chain_the_optimizer_sees_filtered_gradients(make: Factory) -> None:
    g = signal(20, 3)
    params, adamw = jnp.ones(3), optax.adamw(0.1)

    def train(optimizer: optax.GradientTransformation, grads: Any) -> Any:
        def step(carry: Any, g: Any) -> tuple[Any, None]:
            params, state = carry
            updates, state = optimizer.update(g, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, (params, optimizer.init(params)), grads)[0][0]

    end = train(optax.chain(make(), adamw), g)
    np.testing.assert_allclose(end, train(adamw, run(make(), g)[0]), rtol=1e-5)
    assert not np.allclose(end, train(adamw, g))


def test_the_place_in_the_chain_decides_the_order_of_clipping_and_filtering() -> None:
    g = jnp.array([[3.0, 4.0], [3.0, 4.0]])
    clip, filter = optax.clip_by_global_norm(1.0), grokfast.optax.ema(lamb=2.0)
    np.testing.assert_allclose(run(optax.chain(clip, filter), g)[0][-1], [1.8, 2.4], rtol=1e-6)
    np.testing.assert_allclose(run(optax.chain(filter, clip), g)[0][-1], [0.6, 0.8], rtol=1e-6)


@pytest.mark.parametrize(
    ("factory", "static"),
    [(grokfast.optax.ema, {}), (grokfast.optax.ma, {"window_size": 3, "warmup": False, "window_dtype": "bfloat16"})],
    ids=["ema", "ma"],
)
def test_injected_values_may_change_and_equal_fixed_ones(factory: Factory, static: dict[str, Any]) -> None:
    g, params = jnp.asarray(signal(1, 3)[0]), jnp.zeros(3)
    transform = optax.inject_hyperparams(factory, static_args=set(static) & {"window_size"})(lamb=1.0, **static)
    state = jax.jit(transform.init)(params)
    for lamb in (1.0, 3.0):
        state.hyperparams["lamb"] = jnp.float32(lamb)
        out, _ = jax.jit(transform.update)(g, state, params)
        fixed = factory(lamb=lamb, **static)
        np.testing.assert_allclose(out, fixed.update(g, fixed.init(params))[0], rtol=1e-6)


def test_lamb_and_alpha_follow_a_schedule() -> None:
    g = signal(10, 3)
    inject = optax.inject_hyperparams(grokfast.optax.ema)
    transform = inject(lamb=lambda t: 0.1 * t, alpha=lambda t: jnp.where(t < 5, 0.5, 0.9))
    state, slow = transform.init(jnp.zeros(3)), g[0]
    update = jax.jit(transform.update)
    for t, x in enumerate(g):
        updates, state = update(x, state, jnp.zeros(3))
        alpha = 0.5 if t < 5 else 0.9
        slow = alpha * slow + (1 - alpha) * x if t else x
        np.testing.assert_allclose(updates, x + 0.1 * t * slow, rtol=1e-5, atol=1e-6)


def test_multi_steps_filter_once_per_real_step() -> None:
    multi = optax.MultiSteps(grokfast.optax.ema(alpha=0.98, lamb=2.0), every_k_schedule=4)
    g = signal(40, 3)
    out, state = run(optax.GradientTransformation(multi.init, multi.update), g)
    expected, _ = run(grokfast.optax.ema(alpha=0.98, lamb=2.0), g.reshape(10, 4, 3).mean(1))
    np.testing.assert_allclose(out[3::4], expected, rtol=1e-5, atol=1e-6)
    assert state.inner_opt_state.seen == 10


@both
def test_masked_leaves_pass_and_keep_no_state(make: Factory) -> None:
    g = {"w": signal(10, 3), "b": signal(10, 2, seed=1)}
    out, state = run(optax.masked(make(), {"w": True, "b": False}), g)
    assert same(out["b"], jnp.asarray(g["b"]))
    assert same(out["w"], run(make(), g["w"])[0])
    assert not any(leaf.shape[-1:] == (2,) for leaf in jax.tree.leaves(state))


def test_partition_gives_each_group_its_own_filter() -> None:
    g = {"w": signal(10, 3), "b": signal(10, 2, seed=1)}
    filters = {"slow": grokfast.optax.ema(lamb=5.0), "window": grokfast.optax.ma(window_size=3)}
    out, _ = run(optax.partition(filters, {"w": "slow", "b": "window"}), g)
    assert same(out["w"], run(filters["slow"], g["w"])[0])
    assert same(out["b"], run(filters["window"], g["b"])[0])


@both
def test_apply_if_finite_drops_the_step_and_keeps_the_state(make: Factory) -> None:
    g = signal(10, 3)
    bad = np.insert(g, 4, np.nan, axis=0)
    out, _ = run(optax.apply_if_finite(make(), 3), bad)
    assert np.all(np.asarray(out[4]) == 0)
    np.testing.assert_allclose(np.delete(out, 4, axis=0), run(make(), g)[0], rtol=1e-6, atol=1e-6)


@both
def test_trees_of_the_state_are_known_as_like_the_parameters(make: Factory) -> None:
    params = {"w": jnp.ones(3), "b": jnp.ones(2)}
    optimizer = optax.chain(make(), optax.adam(0.1))
    state = optax.tree_utils.tree_map_params(optimizer, lambda _: "p", optimizer.init(params))
    assert all(tree == {"w": "p", "b": "p"} for tree in state[0][1:])  # type: ignore
    assert optax.tree_utils.tree_get(optimizer.init(params), "count") == 0  # Adam's own, not ambiguous


@both
def test_resume_equals_uninterrupted(make: Factory) -> None:
    g = {"w": signal(20, 3), "b": signal(20, 2, seed=1)}
    head, tail = (jax.tree.map(lambda x, part=part: x[part], g) for part in (slice(10), slice(10, None)))
    whole, _ = run(make(), g)
    _, state = run(make(), head)
    saved = pickle.dumps([np.asarray(leaf) for leaf in jax.tree.leaves(state)])
    like = make().init({"w": jnp.zeros(3), "b": jnp.zeros(2)})
    loaded = jax.tree.unflatten(jax.tree.structure(like), pickle.loads(saved))
    assert same(run(make(), tail, loaded)[0], jax.tree.map(lambda x: x[10:], whole))


# In JAX --------------------------------------------------------------------------------------------------------------


@both
def test_steps_one_by_one_without_jit_equal_a_scan(make: Factory) -> None:
    g, transform, out = signal(7, 3), make(), []
    state = transform.init(jnp.zeros(3))
    for x in g:
        y, state = transform.update(x, state)
        out.append(y)
    np.testing.assert_allclose(out, run(transform, g)[0], rtol=1e-6, atol=1e-6)


@both
def test_vmap_over_models_and_over_lamb_equals_one_by_one(make: Factory) -> None:
    g, lambs = signal(7, 2, 3), jnp.array([0.5, 4.0])

    def train(g: Any, lamb: Any) -> Any:
        return run(make(lamb=lamb), g)[0]

    together = jax.vmap(train, in_axes=(1, 0), out_axes=1)(jnp.asarray(g), lambs)
    for i, lamb in enumerate([0.5, 4.0]):
        np.testing.assert_allclose(together[:, i], run(make(lamb=lamb), g[:, i])[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
@both
def test_sharded_state_lies_like_the_parameters_and_results_are_equal(make: Factory, kind: AxisType) -> None:
    g = {"w": signal(5, 4, 2), "b": signal(5, 3, seed=1)}
    mesh = jax.make_mesh((2,), ("x",), axis_types=(kind,))
    layout = {"w": NamedSharding(mesh, P("x")), "b": NamedSharding(mesh, P())}
    transform = make()
    state = transform.init(jax.device_put(jax.tree.map(lambda x: jnp.zeros(x.shape[1:]), g), layout))
    update = jax.jit(transform.update)
    for step in range(5):
        for tree in state[1:]:  # type: ignore
            leading = tree["w"].ndim - 2
            expected = NamedSharding(mesh, P(*[None] * leading, "x"))
            assert tree["w"].sharding.is_equivalent_to(expected, tree["w"].ndim)
            assert tree["b"].sharding.is_fully_replicated
        out, state = update(jax.device_put(jax.tree.map(lambda x, step=step: x[step], g), layout), state)
    assert out["w"].sharding.is_equivalent_to(layout["w"], 2)
    expected, _ = run(transform, g)
    for name in g:
        np.testing.assert_allclose(out[name], expected[name][-1], rtol=1e-6, atol=1e-6)


def test_with_donated_buffers_a_step_never_copies_the_window() -> None:
    params = {"w": jnp.ones((8, 16)), "b": jnp.ones(64)}
    optimizer = optax.chain(grokfast.optax.ma(window_size=100), optax.adamw(0.1))

    def step(carry: Any, _: Any) -> tuple[Any, None]:
        params, state = carry
        updates, state = optimizer.update(jax.tree.map(jnp.sin, params), state, params)
        return (optax.apply_updates(params, updates), state), None

    carry = (params, optimizer.init(params))
    one = jax.jit(lambda carry: step(carry, None)[0], donate_argnums=0).lower(carry).compile()
    many = jax.jit(lambda carry: jax.lax.scan(step, carry, length=9)[0], donate_argnums=0).lower(carry).compile()
    for program in (one, many):
        assert program.memory_analysis().temp_size_in_bytes < 64 * 100 * 4  # the smaller window
    window = carry[1][0].window["w"]  # type: ignore
    many(one(carry))
    assert window.is_deleted()


# What is refused -----------------------------------------------------------------------------------------------------


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("EMA", {"alpha": 2.0}),
    ("EMA", {"alpha": 1}),
    ("EMA", {"alpha": float("nan")}),
    ("EMA", {"alpha": np.float64(-0.5)}),
    ("EMA", {"alpha": "0.9"}),
    ("EMA", {"lamb": -1.0}),
    ("EMA", {"lamb": True}),
    ("EMA", {"lamb": float("inf")}),
    ("EMA", {"slow_only": 1}),
    ("EMA", {"init": "last"}),
    ("MA", {"window_size": 0}),
    ("MA", {"window_size": 2.5}),
    ("MA", {"warmup": "yes"}),
    ("MA", {"reduction": "max"}),
    ("MA", {"lamb": None}),
]


@pytest.mark.parametrize(("name", "options"), WRONG, ids=lambda value: str(value))
def test_wrong_values_are_refused_in_the_words_of_the_torch_filter(name: str, options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)) as theirs:
        getattr(grokfast, name)(**options)
    with pytest.raises(theirs.type) as ours:
        getattr(grokfast.optax, name.lower())(**options)
    assert str(ours.value) == str(theirs.value)


def test_errors_name_the_remedy() -> None:
    with pytest.raises(TypeError, match=r"lamb must be a number in \[0, inf\).*inject_hyperparams"):
        grokfast.optax.ema(lamb=optax.linear_schedule(0.0, 2.0, 100))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"window_size must be an integer >= 1.*static_args=\"window_size\""):
        optax.inject_hyperparams(grokfast.optax.ma)(window_size=10).init(jnp.zeros(3))
    with pytest.raises(ValueError, match=r"start must be an integer >= 0, got -1"):
        grokfast.optax.ema(start=-1)
    with pytest.raises(ValueError, match=r"window_dtype must be one of None, 'float32', 'bfloat16', got 'float16'"):
        grokfast.optax.ma(window_dtype=jnp.float16)
    with pytest.raises(ValueError, match=r"window_dtype must be one of .*, got torch.bfloat16"):
        grokfast.optax.ma(window_dtype=torch.bfloat16)
    with pytest.raises(TypeError, match=r"window_dtype must be None for complex gradients, got 'bfloat16'"):
        grokfast.optax.ma(window_dtype=jnp.bfloat16).init(jnp.zeros(3, jnp.complex64))


def test_without_optax_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "grokfast.optax")
    monkeypatch.setitem(sys.modules, "optax", None)
    with pytest.raises(ImportError, match=r'pip install "grokfast\[optax\]"'):
        importlib.import_module("grokfast.optax")


def test_an_optax_too_old_is_refused_by_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "grokfast.optax")
    monkeypatch.delattr(optax, "safe_increment")
    monkeypatch.setattr(optax, "__version__", "0.2.3")
    with pytest.raises(ImportError, match=r"needs optax 0.2.4 or newer, got 0.2.3: pip install -U"):
        importlib.import_module("grokfast.optax")
