"""Validate an optimizer and attach a filter to it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from torch import Tensor
from torch.optim import LBFGS, Optimizer, SparseAdam

from grokfast.binding.handle import Attachment, handle_of
from grokfast.binding.step import Schedule
from grokfast.checks import check_choice, check_count
from grokfast.filters.base import Filter
from grokfast.stages import Trigger

Nonfinite = Literal["scaler", "ignore", "skip", "raise"]
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
    nonfinite: Nonfinite = "scaler",
    params: Iterable[Tensor] | None = None,
    lamb: Schedule | None = None,
    alpha: Schedule | None = None,
) -> Attachment:
    """Make an optimizer amplify slow gradients. The rest of the training script stays the same.

    Args:
        optimizer: any first-order `torch.optim.Optimizer`, also one prepared by Accelerate.
        filter: computes what is added to the gradients, e.g. `grokfast.EMA(alpha=0.98, lamb=2.0)`.
        start: when to begin changing gradients: a step (from 0, counting steps in which the filter saw a gradient) or
            a trigger (an object with `fired` and `streak`, e.g. `grokfast.Saturation`). Before that, gradients stay
            unchanged and the filter only updates its state.
        nonfinite: what to do if a gradient holds an inf or a NaN. Steps that a `GradScaler` discards are always
            ignored silently. `"scaler"` checks nothing else: an inf enters the filter's state and, through the
            optimizer, the parameters. The other choices check every gradient, which makes the host wait for the
            device. `"ignore"` leaves the filter's state and all gradients of the step unchanged; the optimizer takes
            the step. `"skip"` also makes the optimizer skip the step, by hiding the gradients from it. Both warn once.
            `"raise"` raises `FloatingPointError` before anything has changed.
        params: the parameters to filter, e.g. those of an embedding; all by default. Others have no state.
        lamb: a schedule instead of the filter's own value: a function of `handle.step`, e.g.
            `grokfast.Ramp({0: 0.0, 1000: 2.0})`. A resumed run continues the schedule.
        alpha: a schedule for the alpha of an `EMA`.

    Gradients are edited in place. Call `zero_grad()` between steps: a second `step()` on the same gradients filters
    them again.

    Returns:
        The handle of the filter: see `grokfast.Attachment`.

    The keys `grokfast_lamb` and `grokfast_alpha` of a param group override the filter's values and the schedules, at
    any time. `grokfast=False` switches the filter off for the group and leaves its state unchanged.

    To resume, attach, then load: an optimizer that loads without the filter casts the filter's state to the dtype of
    the parameters. Resetting the optimizer's state of a parameter resets the filter's state too. A deep copy of the
    optimizer has the filter; attach to the copy to get a handle of it.

    Examples:
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
        start = int(start)  # type: ignore[arg-type]
    check_choice("nonfinite", nonfinite, get_args(Nonfinite))
    chosen = None if params is None else check_params(optimizer, params)
    schedules = {name: schedule for name, schedule in (("lamb", lamb), ("alpha", alpha)) if schedule is not None}
    check_schedules(filter, schedules)
    return Attachment(optimizer, filter, start, nonfinite, chosen, schedules)


def check_optimizer(optimizer: object) -> None:
    """Raise unless the optimizer takes one dense gradient per step and has no filter yet."""
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if isinstance(optimizer, LBFGS):
        raise TypeError("optimizer must be of first order: LBFGS runs several backward passes per step")
    if isinstance(optimizer, SparseAdam):
        raise TypeError("optimizer must take dense gradients: SparseAdam takes sparse ones only")
    if not getattr(type(optimizer).step, "hooked", False):  # torch marks steps that run hooks
        kind = type(optimizer).__name__
        raise TypeError(f"optimizer must run its step hooks, {kind}.step() does not: was Optimizer.__init__ called?")
    refuse_other_steps(optimizer)
    if any(group.get("differentiable") for group in optimizer.param_groups):
        raise TypeError("optimizer must have differentiable=False: the filter edits gradients in place")
    if (handle := handle_of(optimizer)) is not None and not handle._copied:
        raise ValueError("optimizer has a filter attached already: call remove() on its handle first")
    if not any(group["params"] for group in optimizer.param_groups):
        raise ValueError("optimizer must have at least one parameter, got none")
    if any(getattr(p, "_is_flat_param", False) for group in optimizer.param_groups for p in group["params"]):
        raise TypeError("FSDP version 1 must keep the parameters: set use_orig_params=True or use fully_shard")


def refuse_other_steps(optimizer: Optimizer) -> None:
    """Refuse optimizers that step in other methods than `step()`, which run no hooks."""
    kind = type(optimizer).__name__
    if any(base.__name__ in ("GrokFastAdamW", "GrokAdamW") for base in type(optimizer).__mro__):
        raise TypeError(f"optimizer must have no filter of its own: {kind} has one inside, and two would amplify twice")
    if hasattr(optimizer, "fused_backward"):  # LOMO, AdaLOMO
        raise TypeError(f"optimizer must step after the backward pass: {kind} steps during it, in fused_backward()")
    if hasattr(optimizer, "first_step") and hasattr(optimizer, "second_step"):  # SAM and relatives
        raise TypeError(
            f"optimizer must take one gradient per step: {kind} takes two, in first_step() and second_step()"
        )


def check_schedules(filter: Filter, schedules: Mapping[str, Any]) -> None:
    """Refuse a schedule if the filter does not have its value or if its first value is invalid."""
    kind = type(filter).__name__
    for name, schedule in schedules.items():
        if name not in filter.tunable:
            raise ValueError(f"{name} must be None for {kind}, which has no {name} to schedule, got {schedule!r}")
        if not callable(schedule):
            remedy = f"for a constant write {kind}({name}={schedule!r})"
            raise TypeError(f"{name} must be a schedule, a function of the step, got {schedule!r}: {remedy}")
    dataclasses.replace(filter, **{name: schedule(0) for name, schedule in schedules.items()})  # type: ignore[type-var]


def check_params(optimizer: Optimizer, params: Iterable[Tensor]) -> list[Tensor]:
    """The chosen parameters as a list. The optimizer must have each of them."""
    if isinstance(params, Tensor):
        raise TypeError("params must be an iterable of parameters, got a tensor")
    chosen = list(params)
    if not all(isinstance(param, Tensor) for param in chosen):
        raise TypeError(f"params must be parameters, got {next(p for p in chosen if not isinstance(p, Tensor))!r}")
    owned = {id(param) for group in optimizer.param_groups for param in group["params"]}
    strangers = [param for param in chosen if id(param) not in owned]
    if not chosen or strangers:
        got = f"one of shape {tuple(strangers[0].shape)} that it does not have" if strangers else "none"
        raise ValueError(f"params must be parameters of the optimizer, got {got}")
    return chosen


def unwrap(optimizer: Any) -> Any:
    """The optimizer inside one that Accelerate prepared. Any other wrapper is a TypeError."""
    kinds = {f"{kind.__module__}.{kind.__name__}" for kind in type(optimizer).__mro__}
    kind = type(optimizer).__name__
    if kinds & ENGINES:
        raise TypeError(f"optimizer must take its steps itself: {kind} leaves them to an engine that bypasses filters")
    if ACCELERATED in kinds:
        return unwrap(optimizer.optimizer)
    inner = wrapped_by(optimizer)
    if len(inner) > 1:
        raise TypeError(f"optimizer must not be a wrapper: attach to each of the {len(inner)} inside the {kind}")
    if inner:
        raise TypeError(f"optimizer must not be a wrapper: attach to the {type(inner[0]).__name__} inside the {kind}")
    return optimizer


def wrapped_by(optimizer: Any) -> list[Optimizer]:
    """The optimizers in the attributes of an optimizer, which is then a wrapper around them."""
    found = dict[int, Optimizer]()
    for value in getattr(optimizer, "__dict__", {}).values():
        several = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else (value,)
        found |= {id(inner): inner for inner in several if isinstance(inner, Optimizer) and inner is not optimizer}
    return list(found.values())
