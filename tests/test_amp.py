"""Mixed precision: GradScaler with fused and other optimizers, injected infinities, changing scales."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import grokfast
from cases import each_filter, make_signal
from grokfast import EMA, MA, Filter
from reference import filtered, slow_part

KINDS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, foreach=True),
    # Without momentum: torch 2.13 leaves it uninitialised when the very first fused step overflows.
    "sgd_fused": lambda params: torch.optim.SGD(params, lr=0.1, fused=True),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.1, foreach=False),
    "adamw_fused": lambda params: torch.optim.AdamW(params, lr=0.1, fused=True),
    "adagrad_fused": lambda params: torch.optim.Adagrad(params, lr=0.1, fused=True),
}
each_kind_of_optimizer = pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)


def make_scaler(**options: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", **{"init_scale": 2.0**10, "growth_interval": 1000, **options})


def scaled_step(
    scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer, params: list[nn.Parameter], grads: list[Any]
) -> None:
    """backward of a loss whose gradients are `grads`, then the usual lines; inf stands for an overflow."""
    optimizer.zero_grad()
    loss = sum(
        (p * torch.as_tensor(g, dtype=p.dtype).nan_to_num(posinf=0.0)).sum() for p, g in zip(params, grads, strict=True)
    )
    scaler.scale(loss).backward()
    for p, g in zip(params, grads, strict=True):
        p.grad[torch.as_tensor(g).isinf()] = torch.inf
    scaler.step(optimizer)
    scaler.update()


@each_kind_of_optimizer
@each_filter
def test_scaled_training_equals_unscaled_training(make: Callable[..., torch.optim.Optimizer], filter: Filter) -> None:
    """Also when the scale changes, and when some steps overflow and are discarded."""
    param, by_hand = (nn.Parameter(torch.zeros(4)) for _ in range(2))
    optimizer, plain = make([param]), make([by_hand])
    handle = grokfast.attach(optimizer, filter)
    scaler = make_scaler(growth_interval=4)
    signal = make_signal(16, 4).astype(np.float32)
    overflows = np.isin(np.arange(16), [0, 5, 6, 11])
    signal[overflows, 1] = np.inf
    kept = signal[~overflows].astype(float)
    expected, slow = filtered(filter, kept), slow_part(filter, kept).values
    scales, done = set(), 0
    for t in range(16):
        scales.add(scaler.get_scale())
        before = {name: tensor.clone() for name, tensor in handle.state.get(param, {}).items()}
        scaled_step(scaler, optimizer, [param], [signal[t]])
        if overflows[t]:
            for name, tensor in handle.state.get(param, {}).items():
                assert torch.equal(tensor, before.get(name, torch.zeros_like(tensor)))
            continue
        by_hand.grad = torch.tensor(expected[done], dtype=torch.float32)
        plain.step()
        np.testing.assert_allclose(param.detach(), by_hand.detach(), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(handle.slow(param), slow[done], rtol=0, atol=1e-5)
        done += 1
    assert handle.step == done == 12
    assert len(scales) >= 3


@each_kind_of_optimizer
def test_overflow_is_skipped_silently_whatever_the_policy(make: Callable[..., torch.optim.Optimizer]) -> None:
    param = nn.Parameter(torch.zeros(2))
    optimizer = make([param])
    handle = grokfast.attach(optimizer, EMA(lamb=2.0), nonfinite="raise")
    scaler = make_scaler()
    scaled_step(scaler, optimizer, [param], [np.array([1.0, np.inf])])
    assert torch.equal(param, torch.zeros(2))
    assert handle.step == 0
    assert scaler.get_scale() == 2.0**9


@each_kind_of_optimizer
def test_group_without_the_filter_is_unscaled_all_the_same(make: Callable[..., torch.optim.Optimizer]) -> None:
    filtered_param, other, alone = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    optimizer = make([{"params": [filtered_param]}, {"params": [other], "grokfast": False}])
    grokfast.attach(optimizer, EMA(lamb=2.0))
    plain = make([alone])
    scaler = make_scaler()
    for g in (1.0, 2.0, 3.0):
        scaled_step(scaler, optimizer, [filtered_param, other], [np.full(2, g), np.full(2, g)])
        alone.grad = torch.full((2,), g)
        plain.step()
        torch.testing.assert_close(other, alone)


@each_kind_of_optimizer
def test_overflow_in_a_group_without_the_filter_discards_the_step_of_the_filter(
    make: Callable[..., torch.optim.Optimizer],
) -> None:
    filtered_param, other = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    optimizer = make([{"params": [filtered_param]}, {"params": [other], "grokfast": False}])
    handle = grokfast.attach(optimizer, EMA(lamb=2.0), nonfinite="raise")
    scaler = make_scaler()
    scaled_step(scaler, optimizer, [filtered_param, other], [np.ones(2), np.array([1.0, np.inf])])
    assert handle.step == 0
    assert torch.equal(filtered_param, torch.zeros(2))
    scaled_step(scaler, optimizer, [filtered_param, other], [np.full(2, 5.0), np.ones(2)])
    torch.testing.assert_close(handle.slow(filtered_param), torch.full((2,), 5.0))


@each_kind_of_optimizer
def test_unscaling_clipping_and_applying_by_hand(make: Callable[..., torch.optim.Optimizer]) -> None:
    param = nn.Parameter(torch.zeros(3))
    optimizer = make([param])
    handle = grokfast.attach(optimizer, EMA(alpha=0.9, lamb=2.0))
    scaler = make_scaler()
    signal = make_signal(6, 3)
    expected = filtered(handle.filter, signal)
    for t in range(6):
        optimizer.zero_grad()
        scaler.scale((param * torch.tensor(signal[t])).sum()).backward()
        scaler.unscale_(optimizer)
        handle.apply()
        np.testing.assert_allclose(param.grad, expected[t], rtol=1e-4, atol=1e-6)
        nn.utils.clip_grad_norm_([param], 0.1)
        clipped = param.grad.clone()
        scaler.step(optimizer)
        scaler.update()
        assert torch.equal(param.grad, clipped)
    assert handle.step == 6


@each_kind_of_optimizer
def test_applying_survives_a_step_that_the_scaler_discards(make: Callable[..., torch.optim.Optimizer]) -> None:
    filtered_param, other = (nn.Parameter(torch.zeros(2)) for _ in range(2))
    optimizer = make([{"params": [filtered_param]}, {"params": [other], "grokfast": False}])
    handle = grokfast.attach(optimizer, EMA(lamb=2.0))
    scaler = make_scaler()
    for overflow in (True, False):
        optimizer.zero_grad()
        scaler.scale(filtered_param.sum() + other.sum()).backward()
        other.grad[0] = torch.inf if overflow else 1.0
        scaler.unscale_(optimizer)
        handle.apply()
        scaler.step(optimizer)
        scaler.update()
    torch.testing.assert_close(filtered_param.grad, torch.full((2,), 3.0))
    assert handle.step == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast_training_filters_the_gradients_of_the_model(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    handle = grokfast.attach(optimizer, MA(window_size=3, lamb=1.0))
    scaler = make_scaler()
    raw: list[np.ndarray] = []
    for t in range(6):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype):
            loss = model(torch.randn(16, 6, generator=torch.Generator().manual_seed(t))).square().mean()
        scaler.scale(loss).backward()
        raw.append(model[0].weight.grad.double().numpy() / scaler.get_scale())
        scaler.step(optimizer)
        scaler.update()
    assert handle.step == 6
    np.testing.assert_allclose(handle.slow(model[0].weight), np.mean(raw[-3:], axis=0), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(model[0].weight.grad, raw[-1] + np.mean(raw[-3:], axis=0), rtol=1e-4, atol=1e-7)
