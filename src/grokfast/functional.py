"""gradfilter_ema and gradfilter_ma with the signatures of the paper's appendix C, computed by the filters.

Call one of them between `loss.backward()` and `optimizer.step()`, once per optimizer step and not per micro-batch.
`grokfast.attach` does this for you and handles AMP, accumulation, closures and checkpoints.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn

from grokfast.binding.state import local, shard_like
from grokfast.binding.step import own_gradient
from grokfast.filters.base import Filter, State, all_finite
from grokfast.filters.ema import EMA
from grokfast.filters.kernel import kernel_of
from grokfast.filters.ma import MA

COUNT = "count"


def gradfilter_ema(
    m: nn.Module,
    grads: dict[str, Tensor] | None = None,
    alpha: float = 0.98,
    lamb: float = 2.0,
) -> dict[str, Tensor]:
    """Add lamb times the exponential moving average of each gradient to it, in place (Algorithm 2).

    Args:
        m: the model, after `backward()`.
        grads: the result of the last call; None at the first call.
        alpha: decay of the average, in [0, 1).
        lamb: how much of the average is added, >= 0.

    Returns:
        The average of each parameter by name, for the next call. `torch.save` can save it.

    Examples:
        >>> model, averages = nn.Linear(2, 1), None
        >>> model(torch.ones(1, 2)).sum().backward()
        >>> averages = gradfilter_ema(model, grads=averages, alpha=0.98, lamb=2.0)
        >>> model.weight.grad
        tensor([[3., 3.]])
    """
    averages = {} if grads is None else grads
    states: dict[str, dict[str, Any]] = {name: {"slow": average, COUNT: 1} for name, average in averages.items()}
    filter_module(m, EMA(alpha=alpha, lamb=lamb), states)
    averages.update({name: state["slow"] for name, state in states.items()})
    return averages


def gradfilter_ma(
    m: nn.Module,
    grads: dict[str, dict[str, Any]] | None = None,
    window_size: int = 100,
    lamb: float = 5.0,
    filter_type: Literal["mean", "sum"] = "mean",
    warmup: bool = True,
    trigger: bool = False,
) -> dict[str, dict[str, Any]]:
    """Add lamb times the mean of the last `window_size` gradients to each gradient, in place (Algorithm 1).

    Args:
        m: the model, after `backward()`.
        grads: the result of the last call; None at the first call.
        window_size: number of gradients averaged, >= 1.
        lamb: how much of the mean is added, >= 0.
        filter_type: `"mean"` or `"sum"` of the window.
        warmup: leave gradients unchanged until the window is full.
        trigger: leave gradients unchanged and only fill the window, as the authors' scripts do in the first stage.

    Returns:
        The window of each parameter by name, for the next call. `torch.save` can save it. It is the state of
        `grokfast.MA`, not a deque as in the paper's listing, so that a step takes the same time for every window size.

    Examples:
        >>> model = nn.Linear(2, 1)
        >>> model(torch.ones(1, 2)).sum().backward()
        >>> windows = gradfilter_ma(model, window_size=1, lamb=5.0)
        >>> model.weight.grad
        tensor([[6., 6.]])
    """
    filter = MA(window_size=window_size, lamb=lamb, reduction=filter_type, warmup=warmup)
    states = {} if grads is None else grads
    for name, state in states.items():
        if not isinstance(state, dict) or len(state.get("window", ())) != window_size:
            kind = type(state).__name__
            raise TypeError(
                f"grads must come from gradfilter_ma with window_size {window_size}, got {kind} for {name!r}"
            )
    filter_module(m, filter, states, active=not trigger)
    return states


@torch.no_grad()
def filter_module(m: nn.Module, filter: Filter, states: dict[str, dict[str, Any]], *, active: bool = True) -> None:
    """Filter all gradients of a module in place. Create missing states."""
    params = {name: p for name, p in m.named_parameters() if p.requires_grad and p.grad is not None}
    taken: set[int] = set()
    for name, p in params.items():
        if gradient(p).layout is not torch.strided:
            raise TypeError(f"gradients must be dense, got a sparse one in parameter {name!r}: use sparse=False")
        own_gradient(p, taken)
    bundles = bundle_names(params, states, filter)
    if not all_finite([[gradient(params[name]) for name in names] for names in bundles]):
        warnings.warn("inf or NaN in a gradient: the filter ignores such steps", stacklevel=3)
        return
    for names in bundles:
        grads = [gradient(params[name]) for name in names]
        for name, grad in zip(names, grads, strict=True):
            if name not in states:
                tensors = filter.new_state(local(grad))
                states[name] = {**{key: shard_like(tensor, grad) for key, tensor in tensors.items()}, COUNT: 0}
        own: list[State] = [{k: local(v) for k, v in states[name].items() if k != COUNT} for name in names]
        filter.update([local(grad) for grad in grads], own, states[names[0]][COUNT], active=active)
        for name in names:
            states[name][COUNT] += 1


def bundle_names(params: dict[str, nn.Parameter], states: dict[str, dict[str, Any]], filter: Filter) -> list[list[str]]:
    """Groups of parameter names for one filter call each: same phase, dtype, device and kernel."""
    groups: dict[Any, list[str]] = {}
    for name, p in params.items():
        grad = gradient(p)
        phase = filter.phase(states[name][COUNT] if name in states else 0)
        groups.setdefault((phase, grad.dtype, grad.device, type(grad), kernel_of(local(grad))), []).append(name)
    return list(groups.values())


def gradient(param: nn.Parameter) -> Tensor:
    assert param.grad is not None
    return param.grad
