"""A filter for Lightning: a callback that filters the gradients once in every optimizer step."""

from __future__ import annotations

import importlib
import numbers
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch.optim import Optimizer

import grokfast

ORDERS = ("clip-then-filter", "filter-then-clip")
INSTALL = 'pip install "grokfast[lightning]"'


def find_host() -> Any:
    """lightning or pytorch_lightning, preferably the one that is already imported."""
    names = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(names, key=lambda name: name not in sys.modules):
        try:
            host = importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, name.split(".")[0]):
                raise
            continue
        # Before 2.0 hooks took an optimizer index, and automatic optimization several optimizers.
        if int(host.__version__.split(".")[0]) < 2:
            raise ImportError(f"lightning must be >= 2.0, got {host.__version__}: {INSTALL}")
        return host
    raise ImportError(f"neither lightning nor pytorch_lightning is installed: {INSTALL}")


if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    Callback = find_host().Callback


class GrokfastCallback(Callback):
    """Make the optimizers of a Lightning module amplify slow gradients. The rest of your script stays the same.

    Args:
        filter: computes what is added to the gradients, e.g. `grokfast.EMA(alpha=0.98, lamb=2.0)`.
        start: the step or the trigger that starts the filter, as in `grokfast.attach`.
        nonfinite: what to do if a gradient holds an inf or a NaN, as in `grokfast.attach`.
        lamb: a schedule, as in `grokfast.attach`.
        alpha: a schedule for an `EMA`, as in `grokfast.attach`.
        order: whether the trainer clips before the filter or after it. `"clip-then-filter"` lets gradients reach
            (1 + lamb) times `gradient_clip_val`; `"filter-then-clip"` keeps them within it.
        log_every: log `handle.metrics()` every N batches, which waits for the device. None: never.
        optimizers: which of the optimizers that `configure_optimizers` returns, by index; all by default.

    The filter is attached before a checkpoint is restored and detached at the end of `fit`. Its state stays in the
    optimizer, so every checkpoint holds it, also one saved after `fit`.

    Attributes:
        handles: one handle from `grokfast.attach` per filtered optimizer; empty until `fit` starts.

    Examples:
        >>> import grokfast
        >>> from grokfast.integrations.lightning import GrokfastCallback
        >>> callback = GrokfastCallback(grokfast.EMA(alpha=0.98, lamb=2.0))  # Trainer(callbacks=[callback])
    """

    def __init__(
        self,
        filter: grokfast.Filter,
        *,
        start: int | grokfast.Trigger = 0,
        nonfinite: Literal["scaler", "ignore", "skip", "raise"] = "scaler",
        lamb: Callable[[int], float] | None = None,
        alpha: Callable[[int], float] | None = None,
        order: Literal["clip-then-filter", "filter-then-clip"] = "clip-then-filter",
        optimizers: Sequence[int] | None = None,
        log_every: int | None = None,
    ) -> None:
        check_log_every(log_every)
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(map(repr, ORDERS))}, got {order!r}")
        if optimizers is not None:
            check_indices(optimizers)
        self.filter, self.start, self.order, self.optimizers = filter, start, order, optimizers
        self.log_every = log_every
        self._options: dict[str, Any] = {"start": start, "nonfinite": nonfinite, "lamb": lamb, "alpha": alpha}
        self._streak = getattr(start, "streak", 0)
        self.handles: list[grokfast.Attachment] = []
        self._watches: list[Any] = []  # one hook per handle, which sees the steps of its optimizer
        self._spared: list[Optimizer] = []  # optimizers without a filter
        self._due: set[Optimizer] = set()  # optimizers that must have stepped by the end of the batch
        self._seen: set[Optimizer] = set()  # optimizers whose steps have run their hooks
        self._backward = False  # whether this batch had a backward pass

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # The optimizers exist, and the state of a checkpoint has not been loaded yet.
        self._detach()
        check_strategy(trainer)
        chosen = choose(trainer.optimizers, self.optimizers)
        if self.order == "filter-then-clip":
            check_filter_can_come_first(trainer, pl_module, chosen)
        self.handles, self._due, self._seen = [], set(), set()
        self._spared = [optimizer for optimizer in trainer.optimizers if optimizer not in chosen]
        for optimizer in chosen:
            handle = grokfast.attach(optimizer, self.filter, **self._options)
            if not isinstance(self.start, int) and not handle.resumed:
                self.start.streak = self._streak  # for a new optimizer the trigger starts again
            self.handles.append(handle)
            self._watches.append(optimizer.register_step_post_hook(self._see))

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        self._backward = False

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._backward = True

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        if optimizer in self._spared:
            return
        handle = next((handle for handle in self.handles if handle.optimizer is optimizer), None)
        if handle is None:
            kind = type(optimizer).__name__
            raise RuntimeError(f"the {kind} that steps did not exist at the start of fit, so it has no filter")
        scaled = scaler_of(trainer) is not None
        if scaled and not self._backward:
            # training_step returned None. Lightning leaves the gradients scaled and does not step.
            return
        if optimizer not in self._seen and not (scaled and has_nonfinite(optimizer)):
            self._due.add(optimizer)
        if self.order == "filter-then-clip":
            handle.apply()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.log_every is not None and (batch_idx + 1) % self.log_every == 0:
            self._log(pl_module)
        for optimizer in self._due - self._seen:
            kind = type(optimizer).__name__
            raise RuntimeError(f"the {kind} stepped without running its step hooks, so the filter was bypassed")

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._detach()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._detach()

    def _log(self, module: LightningModule) -> None:
        """Log the metrics of each filter. With several optimizers, the names include their indices."""
        for index, handle in enumerate(self.handles):
            prefix = f"optimizer{index}/" if len(self.handles) > 1 else ""
            module.log_dict({prefix + name: value for name, value in handle.metrics().items()})

    def _see(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._seen.add(optimizer)

    def _detach(self) -> None:
        for handle, watch in zip(self.handles, self._watches, strict=False):
            watch.remove()
            handle.remove(keep_state=True)
        self._watches = []


def check_log_every(log_every: int | None) -> None:
    if log_every is not None and (not isinstance(log_every, int) or isinstance(log_every, bool) or log_every < 1):
        raise ValueError(f"log_every must be an integer >= 1 or None, got {log_every!r}")


def check_indices(optimizers: Sequence[int]) -> None:
    if not isinstance(optimizers, Sequence) or not optimizers:
        raise ValueError(f"optimizers must be None or indices such as (0,), got {optimizers!r}")
    for index in optimizers:
        if isinstance(index, bool) or not isinstance(index, numbers.Integral):
            raise TypeError(f"optimizers must be indices >= 0, got {index!r}")
        if index < 0:
            raise ValueError(f"optimizers must be indices >= 0, got {index!r}")


def choose(optimizers: Sequence[Optimizer], indices: Sequence[int] | None) -> list[Optimizer]:
    """The optimizers to filter."""
    if not optimizers:
        raise ValueError("configure_optimizers must return at least one optimizer to filter, got none")
    for index in indices or ():
        if index >= len(optimizers):
            raise ValueError(f"optimizers must be indices in [0, {len(optimizers)}), got {index}")
    return [optimizer for i, optimizer in enumerate(optimizers) if indices is None or i in indices]


def check_strategy(trainer: Trainer) -> None:
    """Refuse strategies that take the steps themselves or flatten parameters."""
    kind = type(trainer.strategy).__name__
    if trainer.strategy.handles_gradient_accumulation:
        raise ValueError(f"strategy must leave gradients and steps to the optimizer, got {kind}, which has its own")
    # Compare names, because the trainer may come from the other package.
    if any(base.__name__ == "FSDPStrategy" for base in type(trainer.strategy).__mro__):
        raise ValueError(f"strategy must keep parameters whole or as DTensors (ModelParallelStrategy), got {kind}")


def check_filter_can_come_first(trainer: Trainer, module: LightningModule, optimizers: Sequence[Optimizer]) -> None:
    """Refuse setups in which no hook sees finished, unscaled gradients before they are clipped."""
    if not module.automatic_optimization:
        remedy = "call callback.handles[0].apply() before you clip"
        raise ValueError(f"order must be 'clip-then-filter' with manual optimization: {remedy}")
    if scaler_of(trainer) is not None and any(getattr(o, "_step_supports_amp_scaling", False) for o in optimizers):
        raise ValueError("order must be 'clip-then-filter' with a fused optimizer under 16-mixed: it unscales late")


def scaler_of(trainer: Trainer) -> Any:
    return getattr(trainer.precision_plugin, "scaler", None)


def has_nonfinite(optimizer: Optimizer) -> bool:
    grads = (param.grad for group in optimizer.param_groups for param in group["params"])
    return not all(grad is None or grad.is_sparse or bool(grad.isfinite().all()) for grad in grads)
