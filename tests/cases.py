"""What the contract tests run over: every filter, every optimizer in each of its implementations, and small helpers."""

from __future__ import annotations

import inspect
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from grokfast import EMA, FIR, IIR, MA, Butterworth, Filter

TAPS = [0.4, 0.3, 0.2, 0.1]
# Two real poles, 0.8 and 0.5, and a gain of 1 at frequency 0.
B, A = [0.06, 0.04], [1.0, -1.3, 0.4]

ALL_FILTERS: dict[str, Filter] = {
    "ema": EMA(alpha=0.9, lamb=2.0),
    "ema_zero": EMA(alpha=0.9, lamb=2.0, init="zero"),
    "ema_slow_only": EMA(alpha=0.9, lamb=2.0, slow_only=True),
    "ma": MA(window_size=4, lamb=5.0),
    "ma_no_warmup": MA(window_size=4, lamb=5.0, warmup=False),
    "ma_sum": MA(window_size=4, lamb=0.5, reduction="sum"),
    "ma_slow_only": MA(window_size=4, lamb=5.0, slow_only=True),
    "fir": FIR(TAPS, 2.0),
    "fir_zero": FIR(TAPS, 2.0, init="zero"),
    "fir_slow_only": FIR(TAPS, 2.0, slow_only=True),
    "iir": IIR(B, A, 2.0),
    "iir_zero": IIR(B, A, 2.0, init="zero"),
    "iir_slow_only": IIR(B, A, 2.0, slow_only=True),
    "butterworth": Butterworth(3, 0.1, 2.0),
    "butterworth_zero": Butterworth(3, 0.1, 2.0, init="zero"),
    "butterworth_slow_only": Butterworth(3, 0.1, 2.0, slow_only=True),
}
ONE_OF_EACH = {name: ALL_FILTERS[name] for name in ("ema", "ma", "fir", "iir", "butterworth")}

each_filter = pytest.mark.parametrize("filter", ALL_FILTERS.values(), ids=ALL_FILTERS)
each_kind = pytest.mark.parametrize("filter", ONE_OF_EACH.values(), ids=ONE_OF_EACH)


class OptimizerCase(NamedTuple):
    """How to make one optimizer in one of its implementations."""

    kind: type[torch.optim.Optimizer]
    options: dict[str, Any]

    def __str__(self) -> str:
        values = [name if value is True else f"{name}={value}" for name, value in self.options.items() if name != "lr"]
        return "-".join([self.kind.__name__, *values])

    def make(self, params: Any, **more: Any) -> torch.optim.Optimizer:
        return self.kind(params, **{**self.options, **more})

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [(3, 4), (2, 5)] if self.kind.__name__ == "Muon" else [(3, 4), (5,), ()]


SETTINGS: list[tuple[type[torch.optim.Optimizer], dict[str, Any]]] = [
    (torch.optim.SGD, {"lr": 0.1}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.2, "weight_decay": 0.01}),
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (torch.optim.Adam, {"lr": 0.1}),
    (torch.optim.Adam, {"lr": 0.1, "amsgrad": True, "weight_decay": 0.01}),
    (torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.1}),
    (torch.optim.NAdam, {"lr": 0.1}),
    (torch.optim.RAdam, {"lr": 0.1}),
    (torch.optim.RMSprop, {"lr": 0.1, "momentum": 0.5}),
    (torch.optim.Adamax, {"lr": 0.1}),
    (torch.optim.Adadelta, {"lr": 0.1}),
    (torch.optim.Adagrad, {"lr": 0.1}),
    (torch.optim.ASGD, {"lr": 0.1}),
    (torch.optim.Rprop, {"lr": 0.1}),
    # torch 2.4 has no Adafactor, torch 2.8 has no Muon.
    *((getattr(torch.optim, name), {"lr": 0.1}) for name in ("Adafactor", "Muon") if hasattr(torch.optim, name)),
]
REFUSED = {torch.optim.LBFGS, torch.optim.SparseAdam}


def implementations(kind: type[torch.optim.Optimizer]) -> list[dict[str, bool]]:
    """The ways in which an optimizer can be told to compute its step."""
    known = inspect.signature(kind).parameters
    ways = [{"foreach": False}, {"foreach": True}, {"fused": True}, {"capturable": True}]
    return [way for way in ways if set(way) <= set(known)] or [{}]


ALL_OPTIMIZERS = [
    OptimizerCase(kind, {**options, **way}) for kind, options in SETTINGS for way in implementations(kind)
]
each_optimizer = pytest.mark.parametrize("case", ALL_OPTIMIZERS, ids=str)


def allow_capturable_on_cpu(case: OptimizerCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch offers capturable steps on accelerators only, by a check; behind it they run on the CPU as well."""
    if case.options.get("capturable"):
        for module in {sys.modules[base.__module__] for base in case.kind.__mro__}:
            name = "_get_capturable_supported_devices"
            monkeypatch.setattr(module, name, lambda supports_xla=True: ["cpu"], raising=False)


def make_params(shapes: list[tuple[int, ...]], dtype: torch.dtype = torch.float64, seed: int = 0) -> list[nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)) for shape in shapes]


def sgd(*params: nn.Parameter, **options: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(params, lr=0.1, **options)


def make_signal(steps: int, *shape: int, seed: int = 0) -> np.ndarray:
    """Random gradients of one parameter over time: a slow drift and noise."""
    rng = np.random.default_rng(seed)
    drift = np.sin(np.arange(steps) / 20).reshape(-1, *[1] * len(shape))
    return drift + rng.standard_normal((steps, *shape))


def run_filter(filter: Filter, signal: Tensor) -> Tensor:
    """What a filter makes of a signal (steps, ...), fed one gradient at a time."""
    state = filter.new_state(signal[0])
    output = signal.clone()
    for count, grad in enumerate(output):
        filter.update([grad], [state], count)
    return output


def step_with(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], grads: list[Tensor]) -> None:
    """One optimizer step on copies of the given gradients."""
    for param, grad in zip(params, grads, strict=True):
        param.grad = grad.clone()
    optimizer.step()


def filtered_constant(optimizer: torch.optim.Optimizer, param: nn.Parameter, steps: int, value: float = 1.0) -> float:
    """The gradient the optimizer sees after `steps` steps of a constant one."""
    for _ in range(steps):
        param.grad = torch.full_like(param, value)
        optimizer.step()
    assert param.grad is not None
    return param.grad.double().mean().item()


def relative_error(found: Any, expected: Any) -> float:
    """max |found - expected| / max |expected|."""
    found, expected = np.asarray(found), np.asarray(expected)
    return float(np.abs(found - expected).max() / np.abs(expected).max())
