"""A filter for Keras 3: an optimizer that wraps a Keras optimizer.  g <- g + lamb lowpass(g), once per update.

It uses Keras's own operations. The tests run it on torch and JAX.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from grokfast.checks import check_bool, check_choice, check_count, check_number

try:
    import keras
except ImportError as error:
    raise ImportError(
        'grokfast.integrations.keras needs keras and the backend in KERAS_BACKEND: pip install "grokfast[keras]"'
    ) from error
if tuple(map(int, keras.__version__.split(".")[:2])) < (3, 10):
    raise ImportError(
        f'grokfast.integrations.keras needs keras >= 3.10, got {keras.__version__}: pip install -U "grokfast[keras]"'
    )

ops: Any = keras.ops
Order = Literal["clip-then-filter", "filter-then-clip"]
State = dict[str, Any]  # name -> keras.Variable
CLIPPING = ("clipnorm", "clipvalue", "global_clipnorm")


class Grokfast(keras.optimizers.Optimizer):
    """Base of the two optimizers. The wrapped optimizer takes the steps, and a hook filters the gradients of each.

    The filter's variables belong to the wrapped optimizer, so that Keras saves them with it. Its jitted step on JAX
    discards their changes while it only accumulates gradients.
    """

    def __init__(
        self, inner_optimizer: Any, *, lamb: float, slow_only: bool, start: int, order: Order, name: str | None
    ) -> None:
        check_number("lamb", lamb, low=0.0)
        check_bool("slow_only", slow_only)
        check_count("start", start, low=0)
        check_choice("order", order, ("clip-then-filter", "filter-then-clip"))
        inner: Any = keras.optimizers.get(inner_optimizer)
        check_inner(inner, order)
        super().__init__(learning_rate=0.0, name=name)
        self.lamb, self.slow_only, self.start, self.order = lamb, slow_only, start, order
        self.inner_optimizer: Any = inner
        self._iterations = inner._iterations
        self._update, self._clip = inner._backend_update_step, inner._clip_gradients
        inner._backend_update_step = self._filter_and_update
        if order == "filter-then-clip":
            inner._clip_gradients = list  # `_filter_and_update` clips

    def build(self, variables: list[Any]) -> None:
        inner = self.inner_optimizer
        if not inner.built:
            inner.build(variables)
        inner._check_variables_are_known(variables)
        kept = inner._trainable_variables
        # One count per variable, because a variable without a gradient keeps its state.
        self._seen: Any = inner.add_variable((len(kept),), dtype="int32", name="grokfast_seen")
        self._states = [None if getattr(v, "overwrite_with_gradient", False) else self._new_state(v) for v in kept]
        super().build(variables)

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        if not self.built:
            variables = trainable_variables or self.inner_optimizer._trainable_variables
            if variables:
                self.build(list(variables))
        self.inner_optimizer.apply(grads, trainable_variables)

    def stateless_apply(self, optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        return self.inner_optimizer.stateless_apply(optimizer_variables, grads, trainable_variables)

    def _filter_and_update(self, grads: list[Any], variables: list[Any], learning_rate: Any) -> None:
        """Replace the update of the wrapped optimizer: filter the finished gradients, then update."""
        grads = self._filter(grads, [self.inner_optimizer._get_variable_index(v) for v in variables])
        self._update(self._clip(grads) if self.order == "filter-then-clip" else grads, variables, learning_rate)

    def _filter(self, grads: list[Any], places: list[int]) -> list[Any]:
        """The filtered gradients of the variables with indices `places`. Advances their states."""
        before = ops.convert_to_tensor(self._seen)  # (variables,)
        started = None if self.start == 0 else ops.max(before) >= self.start
        filtered = [
            self._filter_one(g, self._states[i], before[i], started) for g, i in zip(grads, places, strict=True)
        ]
        # Last, because on torch it shares memory with `before`.
        advanced = np.isin(np.arange(len(self._states)), places).astype("int32")
        self._seen.assign(before + ops.convert_to_tensor(advanced))
        return filtered

    def _filter_one(self, grad: Any, state: Any, seen: Any, started: Any) -> Any:
        dtype = next(iter(state.values())).dtype
        wide = ops.cast(dense(grad), dtype)
        slow, present = self._advance(wide, state, seen)
        mixed = ops.multiply(slow, self.lamb) if self.slow_only else wide + ops.multiply(slow, self.lamb)
        for condition in (started, present):
            mixed = mixed if condition is None else ops.where(condition, mixed, wide)
        return narrow(mixed, grad)

    def _new_state(self, variable: Any) -> State:
        raise NotImplementedError

    def _advance(self, grad: Any, state: State, seen: Any) -> tuple[Any, Any]:
        """Advance a state after `seen` gradients. Return the slow part, and whether it exists (None: it does)."""
        raise NotImplementedError

    # Everything else is passed to the wrapped optimizer.
    @property
    def variables(self) -> list[Any]:
        return self.inner_optimizer.variables

    @property
    def iterations(self) -> Any:
        return self.inner_optimizer.iterations

    @property
    def learning_rate(self) -> Any:
        return self.inner_optimizer.learning_rate

    @learning_rate.setter
    def learning_rate(self, learning_rate: Any) -> None:
        self.inner_optimizer.learning_rate = learning_rate

    @property
    def loss_scale_factor(self) -> Any:
        return self.inner_optimizer.loss_scale_factor

    @loss_scale_factor.setter
    def loss_scale_factor(self, factor: Any) -> None:
        if hasattr(self, "inner_optimizer"):  # false while Keras initialises
            self.inner_optimizer.loss_scale_factor = factor

    def scale_loss(self, loss: Any) -> Any:
        return self.inner_optimizer.scale_loss(loss)

    def set_weights(self, weights: Any) -> None:
        self.inner_optimizer.set_weights(weights)

    def exclude_from_weight_decay(self, var_list: Any = None, var_names: Any = None) -> None:
        self.inner_optimizer.exclude_from_weight_decay(var_list, var_names)

    def finalize_variable_values(self, var_list: Any) -> None:
        self.inner_optimizer.finalize_variable_values(var_list)

    def save_own_variables(self, store: Any) -> None:
        """Do nothing: Keras saves the wrapped optimizer, which owns all variables."""

    def load_own_variables(self, store: Any) -> None:
        """Do nothing: Keras loads the wrapped optimizer."""

    def get_config(self) -> dict[str, Any]:
        inner = keras.saving.serialize_keras_object(self.inner_optimizer)
        shared = ("name", "lamb", "slow_only", "start", "order")
        return {"inner_optimizer": inner, **{name: getattr(self, name) for name in shared}}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Grokfast:
        inner = keras.saving.deserialize_keras_object(config["inner_optimizer"], custom_objects=custom_objects)
        return cls(**{**config, "inner_optimizer": inner})


@keras.saving.register_keras_serializable(package="grokfast")
class GrokfastEMA(Grokfast):
    """Amplify slow gradients by an exponential moving average: as `grokfast.EMA` does.

    m_1 = g_1,  m_t = alpha m_{t-1} + (1 - alpha) g_t,  g_t <- g_t + lamb m_t

    Args:
        inner_optimizer: the Keras optimizer that takes the steps, or its name. Learning rate, weight decay, clipping,
            gradient accumulation, loss scale and averaged weights are set there.
        alpha: decay of the average, in [0, 1). The paper recommends 0.8 to 0.99.
        lamb: how much of the average is added, >= 0. The paper recommends 0.1 to 5.
        slow_only: use lamb m instead of g + lamb m.
        init: `"first"` seeds the average with the first gradient, `"zero"` with zeros.
        start: number of updates that leave gradients unchanged and only update the average.
        order: whether the wrapped optimizer clips before the filter or after it. `"clip-then-filter"` lets gradients
            reach (1 + lamb) times the limit; `"filter-then-clip"` keeps them within it.
        name: name of the optimizer.

    Examples:
        >>> import keras
        >>> from grokfast.integrations.keras import GrokfastEMA
        >>> optimizer = GrokfastEMA(keras.optimizers.AdamW(1e-3, weight_decay=0.01), alpha=0.98, lamb=2.0)
        >>> # model.compile(optimizer=optimizer, ...)

    Reference: Lee et al., 2024, Algorithm 2.
    """

    def __init__(
        self,
        inner_optimizer: Any,
        *,
        alpha: float = 0.98,
        lamb: float = 2.0,
        slow_only: bool = False,
        init: Literal["first", "zero"] = "first",
        start: int = 0,
        order: Order = "clip-then-filter",
        name: str | None = None,
    ) -> None:
        check_number("alpha", alpha, low=0.0, high=1.0)
        check_choice("init", init, ("first", "zero"))
        super().__init__(inner_optimizer, lamb=lamb, slow_only=slow_only, start=start, order=order, name=name)
        self.alpha, self.init = alpha, init

    def _new_state(self, variable: Any) -> State:
        return {"slow": new_variable(self.inner_optimizer, variable, "slow")}

    def _advance(self, grad: Any, state: State, seen: Any) -> tuple[Any, Any]:
        slow, weight = state["slow"], ops.convert_to_tensor(1 - self.alpha, dtype=state["slow"].dtype)
        if self.init == "first":
            # The first gradient seeds the average; zeros would damp the first 1/(1-alpha) steps.
            weight = ops.where(seen == 0, ops.ones_like(weight), weight)
        slow.assign(slow + weight * (grad - slow))
        return ops.convert_to_tensor(slow), None

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "alpha": self.alpha, "init": self.init}


@keras.saving.register_keras_serializable(package="grokfast")
class GrokfastMA(Grokfast):
    """Amplify slow gradients by the mean of the last `window_size` gradients: as `grokfast.MA` does.

    total <- total - oldest + g,  g <- g + lamb total / window_size

    A step takes the same time for every window size. A second sum starts from zero with each pass through the ring
    buffer and replaces the first at its end, so that a rounding error lasts two windows at most.

    Args:
        inner_optimizer: the Keras optimizer that takes the steps, as in `GrokfastEMA`.
        window_size: number of gradients averaged, >= 1. The state is as large as `window_size + 2` gradients.
        lamb: how much of the mean is added, >= 0.
        slow_only: use lamb * mean instead of g + lamb * mean.
        warmup: leave gradients unchanged until the window is full, like the released code. False averages the
            gradients seen so far, like Algorithm 1.
        reduction: `"mean"` or `"sum"` of the window.
        start: number of updates that leave gradients unchanged and only fill the window.
        order: whether the wrapped optimizer clips before the filter or after it, as in `GrokfastEMA`.
        name: name of the optimizer.

    Examples:
        >>> from grokfast.integrations.keras import GrokfastMA
        >>> optimizer = GrokfastMA("sgd", window_size=100, lamb=5.0)
        >>> # model.compile(optimizer=optimizer, ...)

    Reference: Lee et al., 2024, Algorithm 1.
    """

    def __init__(
        self,
        inner_optimizer: Any,
        *,
        window_size: int = 100,
        lamb: float = 5.0,
        slow_only: bool = False,
        warmup: bool = True,
        reduction: Literal["mean", "sum"] = "mean",
        start: int = 0,
        order: Order = "clip-then-filter",
        name: str | None = None,
    ) -> None:
        check_count("window_size", window_size)
        check_bool("warmup", warmup)
        check_choice("reduction", reduction, ("mean", "sum"))
        super().__init__(inner_optimizer, lamb=lamb, slow_only=slow_only, start=start, order=order, name=name)
        self.window_size, self.warmup, self.reduction = window_size, warmup, reduction

    def _new_state(self, variable: Any) -> State:
        """`window` is a ring buffer; `rest` sums its newest window_size - 1 gradients, `fresh` those of this pass."""
        inner = self.inner_optimizer
        window = new_variable(inner, variable, "window", self.window_size)
        return {"window": window, **{name: new_variable(inner, variable, name) for name in ("rest", "fresh")}}

    def _advance(self, grad: Any, state: State, seen: Any) -> tuple[Any, Any]:
        size, rest, fresh = self.window_size, state["rest"], state["fresh"]
        place = ops.mod(seen, size)
        write_slot(state["window"], place, grad)
        # The write comes before the read, because a compiler may copy the window if a read comes first. So the oldest
        # gradient is subtracted now, not when it is overwritten.
        oldest = ops.take(state["window"], ops.mod(place + 1, size), axis=0)
        gathered, lap_ends = fresh + grad, place == size - 1
        total = ops.where(lap_ends, gathered, rest + grad)
        fresh.assign(ops.where(lap_ends, ops.zeros_like(gathered), gathered))
        rest.assign(total - oldest)
        number = ops.cast(ops.minimum(seen + 1, size), total.dtype)
        slow = total if self.reduction == "sum" else total / number
        return slow, seen + 1 >= size if self.warmup else None

    def get_config(self) -> dict[str, Any]:
        own = {"window_size": self.window_size, "warmup": self.warmup, "reduction": self.reduction}
        return {**super().get_config(), **own}


def check_inner(inner: Any, order: str) -> None:
    """Refuse an optimizer that leaves its steps to another one or has a filter already."""
    kind = type(inner).__name__
    if isinstance(inner, Grokfast) or "_backend_update_step" in vars(inner):
        raise ValueError(f"inner_optimizer must have no filter yet, got a {kind} with one")
    if type(inner).apply is not keras.optimizers.Optimizer.apply:
        remedy = (
            "filter inside: LossScaleOptimizer(GrokfastEMA(...))" if "LossScale" in kind else "filter those inside it"
        )
        raise TypeError(
            f"inner_optimizer must take its steps itself, got {kind}, which leaves them to others: {remedy}"
        )
    if order == "filter-then-clip" and not any(getattr(inner, name) for name in CLIPPING):
        raise ValueError(
            f"order must be 'clip-then-filter' without clipping: set one of {', '.join(CLIPPING)} of {kind}"
        )


def new_variable(optimizer: Any, like: Any, name: str, *leading: int) -> Any:
    """A variable of zeros like a model's, with `leading` dimensions, in a dtype precise enough for an average."""
    # In bf16 the average of a constant 1 at alpha 0.98 stalls at 0.879, because small increments are rounded away.
    dtype = "float32" if like.dtype in ("bfloat16", "float16") else like.dtype
    layout = getattr(like, "_layout", None)
    if layout is not None and leading:
        layout = keras.distribution.TensorLayout((*(None for _ in leading), *layout.axes), layout.device_mesh)
    name = f"{like.path.replace('/', '_')}_grokfast_{name}"
    return optimizer.add_variable((*leading, *like.shape), dtype=dtype, layout=layout, name=name)


def write_slot(window: Any, place: Any, value: Any) -> None:
    """window[place] <- value."""
    if keras.backend.backend() == "torch":  # Keras's own operation copies the window
        window.value.index_copy_(0, place.long().view(1), value[None])
    else:
        starts = (place, *(0 for _ in value.shape))
        window.assign(ops.slice_update(ops.convert_to_tensor(window), starts, value[None]))


def dense(grad: Any) -> Any:
    """The gradient as a dense tensor. That of an embedding may be sparse."""
    if type(grad).__name__ == "IndexedSlices":  # TensorFlow's
        return ops.add(grad, ops.zeros(grad.shape, grad.dtype))
    return ops.convert_to_tensor(grad, sparse=False)


def narrow(mixed: Any, grad: Any) -> Any:
    """`mixed` in the dtype of `grad`. If only the filter makes it overflow float16, it becomes the largest number."""
    dtype = keras.backend.standardize_dtype(grad.dtype)
    if dtype == "float16":
        largest = float(np.finfo("float16").max)
        mixed = ops.where(ops.isfinite(grad), ops.clip(mixed, -largest, largest), mixed)
    return ops.cast(mixed, dtype)
