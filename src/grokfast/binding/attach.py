"""The door: attach a filter to any first-order torch.optim.Optimizer, and refuse what cannot work."""

from __future__ import annotations

from typing import Any, Literal

from torch.optim import LBFGS, Optimizer, SparseAdam

from grokfast.binding.handle import Attachment, is_attached
from grokfast.checks import check_choice, check_count
from grokfast.filters.base import Filter
from grokfast.stages import Trigger

# By name, since Accelerate may not be installed.
ACCELERATED = "accelerate.optimizer.AcceleratedOptimizer"
ENGINES = {
    "accelerate.utils.deepspeed.DeepSpeedOptimizerWrapper",
    "accelerate.utils.megatron_lm.MegatronLMOptimizerWrapper",
}


def attach(
    optimizer: Optimizer,
    filter: Filter,
    *,
    start: int | Trigger = 0,
    nonfinite: Literal["skip", "raise"] = "skip",
) -> Attachment:
    """Make an optimizer amplify slow gradients. Nothing else in the training script changes.

    Args:
        optimizer: any first-order `torch.optim.Optimizer`, also as prepared by Accelerate.
        filter: what to add to the gradients, e.g. `grokfast.EMA(alpha=0.98, lamb=2.0)`.
        start: when to begin changing gradients: a step (from 0, counting steps in which the filter saw a gradient) or
            a trigger (anything with `fired` and `streak`, e.g. `grokfast.Saturation`). Until then gradients stay as
            they are, and the filter's state is kept warm.
        nonfinite: what to do when a gradient holds an inf or a NaN. `"skip"` leaves the filter's state and all
            gradients of this step as they are and warns once; `"raise"` raises `FloatingPointError` before anything
            has changed. Steps that a `GradScaler` discards are always skipped silently.

    Gradients are edited in place, once per backward pass: call `zero_grad()` between steps as usual. A second `step()`
    on the same gradients would amplify them again.

    Returns:
        A handle: `remove()`, `enabled`, `apply()`, `state`, `slow(p)`, `memory_bytes`, `resumed`.

    A param group may override the filter's values at any time by its keys `grokfast_lamb` and `grokfast_alpha`;
    `grokfast=False` switches the filter off for the group and freezes its state.

    To resume, attach, then load: an optimizer that loads without the filter attached casts the filter's state to the
    dtype of the parameters.

    Example:
        >>> import grokfast, torch
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
        >>> handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.98, lamb=2.0))
    """
    optimizer = unwrap(optimizer)
    check_optimizer(optimizer)
    if not isinstance(filter, Filter):
        raise TypeError(f"filter must be a grokfast filter such as grokfast.EMA(), got {filter!r}")
    if not (hasattr(start, "fired") and hasattr(start, "streak")):
        check_count("start", start, low=0)
    check_choice("nonfinite", nonfinite, ("skip", "raise"))
    return Attachment(optimizer, filter, start, nonfinite)


def check_optimizer(optimizer: object) -> None:
    """Refuse what takes no dense gradient exactly once per step, and what has a filter already."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, LBFGS):
        raise TypeError("optimizer must be of first order: LBFGS runs several backward passes per step")
    if isinstance(optimizer, SparseAdam):
        raise TypeError("optimizer must take dense gradients: SparseAdam takes sparse ones only")
    if not getattr(type(optimizer).step, "hooked", False):  # torch marks steps that run hooks
        kind = type(optimizer).__name__
        raise TypeError(f"optimizer must run its step hooks, {kind}.step() does not: was Optimizer.__init__ called?")
    if is_attached(optimizer):
        raise ValueError("optimizer has a filter attached already: call remove() on its handle first")
    if not any(group["params"] for group in optimizer.param_groups):
        raise ValueError("optimizer must have at least one parameter, got none")
    if any(getattr(p, "_is_flat_param", False) for group in optimizer.param_groups for p in group["params"]):
        raise TypeError("parameters must be whole or DTensors: FSDP version 1 flattens them, use fully_shard")


def unwrap(optimizer: Any) -> Any:
    """The optimizer inside one that Accelerate prepared; TypeError for any other wrapper."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(optimizer).__mro__}
    kind = type(optimizer).__name__
    if kinds & ENGINES:
        raise TypeError(f"optimizer must take its steps itself: {kind} leaves them to an engine that bypasses filters")
    inner = getattr(optimizer, "optimizer", getattr(optimizer, "optim", None))
    if ACCELERATED in kinds:
        return unwrap(inner)
    if isinstance(inner, Optimizer):
        raise TypeError(f"optimizer must not be a wrapper: attach to the {type(inner).__name__} inside the {kind}")
    return optimizer
