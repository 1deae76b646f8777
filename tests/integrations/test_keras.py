"""Keras trains with the reference's gradients, resumes bit for bit and keeps every option of the wrapped optimizer.

The suite runs this file on the torch backend. Its last test runs it again on JAX, in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras.optimizers import SGD, Adam, AdamW, LossScaleOptimizer

import grokfast
from cases import make_signal
from grokfast import EMA, MA, Filter
from grokfast.integrations.keras import Grokfast, GrokfastEMA, GrokfastMA
from reference import filtered

JAX = keras.backend.backend() == "jax"
STEPS = 12
FILTERS: dict[str, tuple[type[Grokfast], dict[str, Any]]] = {
    "ema": (GrokfastEMA, {"alpha": 0.9, "lamb": 2.0}),
    "ema_zero": (GrokfastEMA, {"alpha": 0.9, "lamb": 2.0, "init": "zero"}),
    "ema_slow_only": (GrokfastEMA, {"alpha": 0.9, "lamb": 2.0, "slow_only": True}),
    "ema_without_memory": (GrokfastEMA, {"alpha": 0.0, "lamb": 2.0}),
    "ma": (GrokfastMA, {"window_size": 4, "lamb": 5.0}),
    "ma_no_warmup": (GrokfastMA, {"window_size": 4, "lamb": 5.0, "warmup": False}),
    "ma_sum": (GrokfastMA, {"window_size": 4, "lamb": 0.5, "reduction": "sum"}),
    "ma_slow_only": (GrokfastMA, {"window_size": 4, "lamb": 5.0, "slow_only": True}),
    "ma_of_one": (GrokfastMA, {"window_size": 1, "lamb": 5.0}),
}
each_filter = pytest.mark.parametrize(("kind", "values"), FILTERS.values(), ids=FILTERS)
each_kind = pytest.mark.parametrize(("kind", "values"), [FILTERS["ema"], FILTERS["ma"]], ids=["ema", "ma"])
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def environment(backend: str = keras.backend.backend()) -> dict[str, str]:
    """Of a process that imports the same package as this one."""
    path = os.pathsep.join([str(Path(grokfast.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": path}


def twin(kind: type[Grokfast], values: dict[str, Any]) -> Filter:
    return (EMA if kind is GrokfastEMA else MA)(**values)


def signals(seed: int = 0, steps: int = STEPS) -> list[np.ndarray]:
    return [make_signal(steps, *shape, seed=seed + i) for i, shape in enumerate([(3, 4), (5,), ()])]


def zeros_like(grads: list[np.ndarray], dtype: str = "float32") -> list[keras.Variable]:
    return [keras.Variable(np.zeros(g.shape[1:]), dtype=dtype) for g in grads]


def values_of(variables: list[keras.Variable]) -> list[np.ndarray]:
    return [np.array(keras.ops.convert_to_numpy(v.value), dtype="float64") for v in variables]


def apply(optimizer: Any, variables: list[keras.Variable], grads: list[Any]) -> None:
    """One call of the optimizer, on JAX inside jit."""
    tensors = [
        None if g is None else keras.ops.convert_to_tensor(g, dtype=v.dtype)
        for g, v in zip(grads, variables, strict=True)
    ]
    if not JAX:
        return optimizer.apply(tensors, variables)
    import jax

    if not optimizer.built:
        optimizer.build(variables)
    state = [v.value for v in optimizer.variables]
    jitted = vars(optimizer).setdefault("jitted", jax.jit(optimizer.stateless_apply))
    new, state = jitted(state, tensors, [v.value for v in variables])
    for variable, value in zip([*variables, *optimizer.variables], [*new, *state], strict=True):
        variable.assign(value)


def changes(optimizer: Any, grads: list[np.ndarray], dtype: str = "float32") -> list[np.ndarray]:
    """How far each variable moves down at each step: with SGD(1.0) what the optimizer received."""
    variables = zeros_like(grads, dtype)
    path = [values_of(variables)]
    for step in range(len(grads[0])):
        apply(optimizer, variables, [g[step] for g in grads])
        path.append(values_of(variables))
    return [-np.diff(np.stack(values), axis=0) for values in zip(*path, strict=True)]


def assert_close(found: list[np.ndarray], expected: list[np.ndarray], atol: float = 2e-5) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


@each_filter
def test_the_wrapped_optimizer_receives_the_references_gradients(kind: Any, values: dict[str, Any]) -> None:
    grads = signals()
    found = changes(kind(SGD(1.0), **values), grads)
    assert_close(found, [filtered(twin(kind, values), g) for g in grads])


@pytest.mark.skipif(JAX, reason="JAX has no float64 by default")
@each_filter
def test_float64_is_as_exact_as_the_reference(kind: Any, values: dict[str, Any]) -> None:
    grads = signals()
    found = changes(kind(SGD(1.0), **values), grads, "float64")
    assert_close(found, [filtered(twin(kind, values), g) for g in grads], atol=1e-6)  # SGD's rate is float32


def test_a_rounding_error_lasts_two_windows_at_most() -> None:
    optimizer, variable = GrokfastMA(SGD(0.0), window_size=4), keras.Variable(np.zeros(2), dtype="float32")
    for step in range(12):
        apply(optimizer, [variable], [np.full(2, 1.1e8 if step == 1 else 1.0)])  # 1 is lost beside it in float32
    rest = next(v for v in optimizer.variables if v.path.endswith("grokfast_rest"))
    assert values_of([rest])[0].tolist() == [3.0, 3.0]


@each_kind
def test_start_leaves_gradients_as_they_are_and_keeps_the_state_warm(kind: Any, values: dict[str, Any]) -> None:
    grads = signals()
    expected = [filtered(twin(kind, values), g) for g in grads]
    for whole, g in zip(expected, grads, strict=True):
        whole[:6] = g[:6]
    assert_close(changes(kind(SGD(1.0), start=6, **values), grads), expected)


@each_kind
def test_the_filter_runs_once_per_accumulated_step(kind: Any, values: dict[str, Any]) -> None:
    grads = signals(steps=3 * STEPS)
    moves = changes(kind(SGD(1.0, gradient_accumulation_steps=3), **values), grads)
    means = [g.reshape(STEPS, 3, *g.shape[1:]).mean(axis=1) for g in grads]
    assert_close([move[2::3] for move in moves], [filtered(twin(kind, values), mean) for mean in means])
    for skipped in (0, 1):
        assert all(not move[skipped::3].any() for move in moves)


def clipped(grads: list[np.ndarray], limits: dict[str, float]) -> list[np.ndarray]:
    (name, limit), steps = next(iter(limits.items())), len(grads[0])
    if name == "clipvalue":
        return [np.clip(g, -limit, limit) for g in grads]
    norms = [np.sqrt((g.reshape(steps, -1) ** 2).sum(axis=1)) for g in grads]
    if name == "global_clipnorm":
        norms = [np.sqrt(sum(norm**2 for norm in norms))] * len(grads)
    scales = [np.minimum(1, limit / norm) for norm in norms]
    return [g * scale.reshape(-1, *[1] * (g.ndim - 1)) for g, scale in zip(grads, scales, strict=True)]


@pytest.mark.parametrize("limits", [{"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.3}], ids=str)
@each_kind
def test_clipping_comes_before_or_after_the_filter_as_asked(kind: Any, values: dict[str, Any], limits: Any) -> None:
    grads, filter = signals(), twin(kind, values)
    before = changes(kind(SGD(1.0, **limits), **values), grads)
    assert_close(before, [filtered(filter, g) for g in clipped(grads, limits)])
    after = changes(kind(SGD(1.0, **limits), order="filter-then-clip", **values), grads)
    assert_close(after, clipped([filtered(filter, g) for g in grads], limits))


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_a_variable_without_a_gradient_keeps_its_state_and_is_seeded_by_its_first_one() -> None:
    first, second = signals()[:2]
    grads: list[list[Any]] = [[first[t], second[t] if t % 3 == 1 else None] for t in range(STEPS)]
    optimizer, variables = GrokfastEMA(SGD(1.0), alpha=0.9), zeros_like([first, second])
    moves = []
    for given in grads:
        before = values_of(variables)
        apply(optimizer, variables, given)
        moves.append([b - a for a, b in zip(values_of(variables), before, strict=True)])
    assert_close([np.stack([m[0] for m in moves])], [filtered(EMA(alpha=0.9), first)])
    assert_close([np.stack([m[1] for m in moves[1::3]])], [filtered(EMA(alpha=0.9), second[1::3])])


def test_a_step_that_loss_scaling_discards_leaves_the_filter_as_it_was() -> None:
    grads = signals()
    poisoned = [g * 8 for g in grads]
    bad = (0, 5, 6)
    for step in bad:
        poisoned[0][step] = np.inf
    scale = 8.0
    inner = GrokfastEMA(SGD(1.0, loss_scale_factor=4.0), alpha=0.9)  # LossScaleOptimizer takes over: no second scale
    optimizer, variables = LossScaleOptimizer(inner, initial_scale=scale), zeros_like(grads)
    moves = []
    for step in range(STEPS):
        before = values_of(variables)
        finite = step not in bad
        apply(optimizer, variables, [g[step] * scale / 8 for g in poisoned])
        scale = scale if finite else scale / 2
        moves.append([b - a for a, b in zip(values_of(variables), before, strict=True)])
    good = [step for step in range(STEPS) if step not in bad]
    assert_close(
        [np.stack([moves[s][i] for s in good]) for i in range(3)], [filtered(EMA(alpha=0.9), g[good]) for g in grads]
    )
    assert not any(move.any() for step in bad for move in moves[step])


# In fit --------------------------------------------------------------------------------------------------------------

INPUTS = make_signal(48, 4).astype("float32")
TARGETS = INPUTS[:, :1] * INPUTS[:, 1:2]


def model(optimizer: Any, *, seed: int = 0, constraint: Any = None) -> keras.Model:
    keras.utils.set_random_seed(seed)
    first = keras.layers.Dense(6, activation="tanh", kernel_constraint=constraint)
    net = keras.Sequential([keras.Input((4,)), first, keras.layers.Dense(1)])
    net.compile(optimizer=optimizer, loss="mse")
    return net


def fit(net: keras.Model, epochs: int) -> keras.Model:
    net.fit(INPUTS, TARGETS, batch_size=6, epochs=epochs, shuffle=False, verbose=0)
    return net


def assert_equal(a: keras.Model, b: keras.Model) -> None:
    for x, y in zip(a.get_weights(), b.get_weights(), strict=True):
        np.testing.assert_array_equal(x, y)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulation": {"gradient_accumulation_steps": 3},
    "clipping": {"global_clipnorm": 0.1},
    "decay": {"weight_decay": 0.1},
    "averaged weights": {"use_ema": True, "ema_momentum": 0.5, "ema_overwrite_frequency": 5},
    "loss scale": {"loss_scale_factor": 64.0},
    "schedule": {"learning_rate": keras.optimizers.schedules.CosineDecay(0.05, 20)},
    "all": {
        "learning_rate": keras.optimizers.schedules.CosineDecay(0.05, 20),
        "gradient_accumulation_steps": 2,
        "clipnorm": 0.1,
        "weight_decay": 0.1,
        "use_ema": True,
        "loss_scale_factor": 64.0,
    },
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_lamb_zero_changes_nothing(options: dict[str, Any]) -> None:
    def adam() -> Any:
        return Adam(**{"learning_rate": 0.05, **options})

    constraint = keras.constraints.MaxNorm(0.5)
    plain = fit(model(adam(), constraint=constraint), 3)
    wrapped = fit(model(GrokfastEMA(adam(), lamb=0.0), constraint=constraint), 3)
    for x, y in zip(plain.get_weights(), wrapped.get_weights(), strict=True):
        # XLA compiles another program and may round the last bit otherwise.
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-6 if JAX else 0)
    assert int(plain.optimizer.iterations) == int(wrapped.optimizer.iterations)
    assert float(plain.optimizer.learning_rate) == float(wrapped.optimizer.learning_rate)


def test_embeddings_are_filtered_too() -> None:
    def embed(optimizer: Any) -> list[np.ndarray]:
        keras.utils.set_random_seed(0)
        layers = [keras.layers.Embedding(10, 4), keras.layers.Flatten(), keras.layers.Dense(1)]
        net = keras.Sequential([keras.Input((3,), dtype="int32"), *layers])
        net.compile(optimizer=optimizer, loss="mse")
        words = np.arange(48).reshape(16, 3) % 10
        net.fit(words, words.sum(axis=1, keepdims=True) / 10, epochs=2, batch_size=4, shuffle=False, verbose=0)
        return net.get_weights()

    rate = 0.01
    # A filter without memory multiplies gradients by 1 + lamb.
    assert_close(embed(SGD(3 * rate)), embed(GrokfastEMA(SGD(rate), alpha=0.0, lamb=2.0)))
    assert_close(embed(SGD(3 * rate)), embed(GrokfastMA(SGD(rate), window_size=1, lamb=2.0)))


@pytest.mark.parametrize("steps", [None, 3])  # 3: saved with one gradient accumulated
@each_kind
def test_a_saved_model_continues_as_if_uninterrupted(kind: Any, values: Any, steps: int | None, tmp_path: Path) -> None:
    def make() -> Any:
        return kind(AdamW(0.05, gradient_accumulation_steps=steps), **values)

    uninterrupted = fit(model(make()), 5)
    saved = fit(model(make()), 2)
    saved.save(tmp_path / "model.keras")
    saved.save_weights(tmp_path / "model.weights.h5")

    loaded: Any = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded.optimizer) is kind
    assert loaded.optimizer.get_config()["inner_optimizer"] == saved.optimizer.get_config()["inner_optimizer"]
    assert_equal(fit(loaded, 3), uninterrupted)

    other = model(make(), seed=1)
    other.optimizer.build(other.trainable_variables)  # Keras loads the state of optimizers that are built
    other.load_weights(tmp_path / "model.weights.h5")
    assert_equal(fit(other, 3), uninterrupted)


def test_a_saved_model_loads_in_a_process_that_has_imported_the_module(tmp_path: Path) -> None:
    fit(model(GrokfastMA("adam", window_size=3)), 1).save(tmp_path / "model.keras")
    script = """
        import keras, grokfast.integrations.keras
        optimizer = keras.saving.load_model("model.keras").optimizer
        print(type(optimizer).__name__, optimizer.window_size, int(optimizer.iterations))
    """
    words = [sys.executable, "-c", textwrap.dedent(script)]
    run = subprocess.run(words, env=environment(), cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout.split() == ["GrokfastMA", "3", "8"], run.stderr


def test_every_variable_is_saved_once(tmp_path: Path) -> None:
    import h5py

    net = fit(model(GrokfastMA("sgd", window_size=50)), 1)
    net.save_weights(tmp_path / "model.weights.h5")
    with h5py.File(tmp_path / "model.weights.h5") as file:
        sizes: list[int] = []
        file.visititems(lambda name, item: sizes.append(item.size) if isinstance(item, h5py.Dataset) else None)
    assert sum(sizes) == sum(int(np.prod(v.shape)) for v in [*net.variables, *net.optimizer.variables])


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16", "bfloat16"])
def test_low_precision_has_state_in_float32(policy: str) -> None:
    keras.config.set_dtype_policy(policy)
    try:
        net = fit(model(GrokfastEMA(Adam(0.01), alpha=0.9)), 2)
    finally:
        keras.config.set_dtype_policy("float32")
    ours = [v for v in net.optimizer.variables if v.path.endswith("grokfast_slow")]
    assert len(ours) == 4
    assert all(v.dtype == "float32" for v in ours)
    assert all(np.isfinite(w.astype("float32")).all() for w in net.get_weights())
    assert isinstance(net.optimizer, LossScaleOptimizer) == (policy == "mixed_float16")


def test_what_only_the_filter_makes_overflow_in_float16_becomes_the_largest_number() -> None:
    variable = keras.Variable(np.zeros(2), dtype="float16")
    optimizer = GrokfastEMA(SGD(1.0), lamb=2.0)
    apply(optimizer, [variable], [np.array([30000.0, -1.0])])
    assert values_of([variable])[0].tolist() == [-65504.0, 3.0]


def test_callbacks_see_the_rate_of_the_wrapped_optimizer() -> None:
    net = model(GrokfastEMA(SGD(0.5)))
    schedule = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)
    net.fit(INPUTS, TARGETS, epochs=2, verbose=0, callbacks=[schedule])
    assert float(net.optimizer.learning_rate) == 0.125
    assert net.optimizer.inner_optimizer.learning_rate is net.optimizer.learning_rate


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (GrokfastEMA, {"alpha": 1.0}, r"alpha must be in \[0, 1\), got 1.0"),
        (GrokfastEMA, {"lamb": -1.0}, r"lamb must be in \[0, inf\), got -1.0"),
        (GrokfastEMA, {"init": "last"}, "init must be one of 'first', 'zero', got 'last'"),
        (GrokfastEMA, {"start": -1}, "start must be an integer >= 0, got -1"),
        (GrokfastEMA, {"order": "clip"}, "order must be one of 'clip-then-filter', 'filter-then-clip', got 'clip'"),
        (GrokfastEMA, {"order": "filter-then-clip"}, "order must be 'clip-then-filter' without clipping"),
        (GrokfastMA, {"window_size": 0}, "window_size must be an integer >= 1, got 0"),
        (GrokfastMA, {"reduction": "max"}, "reduction must be one of 'mean', 'sum', got 'max'"),
    ],
)
def test_a_wrong_value_is_refused_and_leaves_the_optimizer_alone(kind: Any, values: Any, message: str) -> None:
    inner = SGD(1.0)
    with pytest.raises(ValueError, match=message):
        kind(inner, **values)
    GrokfastEMA(inner)


def test_what_belongs_to_the_wrapped_optimizer_is_refused() -> None:
    with pytest.raises(TypeError, match="clipnorm"):
        GrokfastEMA(SGD(1.0), clipnorm=1.0)  # type: ignore


def test_an_optimizer_that_leaves_its_steps_to_another_is_refused() -> None:
    with pytest.raises(TypeError, match=r"got LossScaleOptimizer.*LossScaleOptimizer\(GrokfastEMA"):
        GrokfastEMA(LossScaleOptimizer(SGD(1.0)))


def test_two_filters_are_refused() -> None:
    inner = SGD(1.0)
    wrapped = GrokfastEMA(inner)
    for again in (inner, wrapped):
        with pytest.raises(ValueError, match="inner_optimizer must have no filter yet"):
            GrokfastMA(again)


def test_names_and_defaults_are_those_of_the_library() -> None:
    for kind, own, missing in ((GrokfastEMA, EMA(), {"state_dtype"}), (GrokfastMA, MA(), {"window_dtype"})):
        config = kind("sgd").get_config()
        wanted = {name: value for name, value in vars(own).items() if name not in missing}
        assert {name: config[name] for name in wanted} == wanted


@pytest.mark.skipif(not JAX, reason="Keras itself needs torch here")
def test_torch_is_not_needed() -> None:
    script = "import sys; sys.modules['torch'] = None; import grokfast.integrations.keras as k; k.GrokfastEMA('sgd')"
    subprocess.run([sys.executable, "-c", script], env=environment(), check=True)


@pytest.mark.skipif(JAX, reason="this is the run on JAX")
def test_all_of_this_holds_on_jax() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", __file__]
    run = subprocess.run(words, env=environment("jax"), cwd=Path(__file__).parents[2], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
