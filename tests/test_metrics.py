"""handle.metrics(): numbers for a logger, the same before the step and after it."""

import copy
import math

import numpy as np
import pytest
import torch

import grokfast
from cases import ALL_FILTERS, each_filter, make_params, make_signal, sgd, step_with
from grokfast import EMA, MA, Filter
from reference import slow_part


def expected_ratio(filter: Filter, signal: np.ndarray) -> tuple[float, float]:
    g, s = signal[-1], filter.lamb * slow_part(filter, signal).values[-1]
    return np.linalg.norm(s) / np.linalg.norm(g), float((g * s).sum() / np.linalg.norm(s) / np.linalg.norm(g))


@pytest.mark.parametrize("filter", [f for f in ALL_FILTERS.values() if not f.slow_only], ids=repr)
def test_ratio_and_cosine_are_those_of_the_raw_gradient(filter: Filter) -> None:
    (param,) = make_params([(5,)])
    optimizer = torch.optim.SGD([param], lr=0.1)
    handle = grokfast.attach(optimizer, filter)
    signal = make_signal(7, 5)
    for t in range(7):
        step_with(optimizer, [param], [torch.tensor(signal[t])])
        found = handle.metrics()
        ratio, cosine = expected_ratio(filter, signal[: t + 1])
        assert found["grokfast/ratio"] == found["grokfast/group0/ratio"] == pytest.approx(ratio)
        assert found["grokfast/cosine"] == pytest.approx(cosine)
    assert (found["grokfast/steps"], found["grokfast/active"], found["grokfast/skipped"]) == (7.0, 1.0, 0.0)


@each_filter
def test_metrics_change_nothing_and_are_numbers(filter: Filter) -> None:
    params = make_params([(3,), (2, 2)])
    optimizer = torch.optim.AdamW([{"params": [params[0]]}, {"params": [params[1]], "grokfast": False}], lr=0.1)
    handle = grokfast.attach(optimizer, filter)
    assert all(isinstance(value, float) for value in handle.metrics(detail=True).values())
    step_with(optimizer, params, [torch.ones_like(p) for p in params])
    before = [p.grad.clone() for p in params], {k: t.clone() for k, t in handle.state[params[0]].items()}
    found = handle.metrics(detail=True)
    assert all(isinstance(value, float) for value in found.values())
    assert math.isnan(found["grokfast/group1/ratio"])
    assert all(torch.equal(p.grad, grad) for p, grad in zip(params, before[0], strict=True))
    assert all(torch.equal(handle.state[params[0]][k], t) for k, t in before[1].items())


def test_detail_is_by_name() -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.1)
    handle = grokfast.attach(optimizer, EMA(lamb=2.0))
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    found = handle.metrics(detail=True)
    assert found["grokfast/weight/ratio"] == pytest.approx(2.0)
    assert found["grokfast/bias/cosine"] == pytest.approx(1.0)
    assert "grokfast/weight/ratio" not in handle.metrics()


def test_inactive_filter_has_metrics_too() -> None:
    (param,) = make_params([(3,)])
    optimizer = torch.optim.SGD([param], lr=0.1)
    handle = grokfast.attach(optimizer, MA(window_size=3, lamb=4.0), start=100)
    step_with(optimizer, [param], [torch.ones_like(param)])
    found = handle.metrics()
    assert found["grokfast/ratio"] == pytest.approx(4.0)
    assert found["grokfast/active"] == 0.0


# A state in bf16 ------------------------------------------------------------------------------------------------------

HALF = EMA(alpha=0.98, lamb=2.0, state_dtype=torch.bfloat16)


def test_rounded_average_of_a_constant_does_not_stall() -> None:
    grad = torch.ones(10_000)
    state = EMA(init="zero", state_dtype=torch.bfloat16).new_state(grad)
    for count in range(1000):
        EMA(alpha=0.98, lamb=0.0, init="zero", state_dtype=torch.bfloat16).update([grad], [state], count)
    assert state["slow"].dtype == torch.bfloat16
    assert state["slow"].double().mean().item() == pytest.approx(1.0, abs=1e-3)  # rounded to nearest it stays at 0.879


def test_rounded_average_follows_the_exact_one() -> None:
    signal = torch.tensor(make_signal(200, 500)).float()
    half, exact = HALF.new_state(signal[0]), EMA().new_state(signal[0])
    for count in range(200):
        HALF.update([signal[count].clone()], [half], count)
        EMA().update([signal[count].clone()], [exact], count)
    error = (half["slow"].float() - exact["slow"]).norm() / exact["slow"].norm()
    assert error < 0.03


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_resume_with_a_rounded_average_equals_uninterrupted(dtype: torch.dtype) -> None:
    def build() -> tuple[list[torch.nn.Parameter], torch.optim.Optimizer, grokfast.Attachment]:
        params = make_params([(3, 4), (5,)], dtype)
        optimizer = torch.optim.AdamW(params, lr=0.1)
        return params, optimizer, grokfast.attach(optimizer, HALF)

    def train(params: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
        for t in range(first, last):
            noise = [torch.randn(p.shape, generator=torch.Generator().manual_seed(t)).to(dtype) for p in params]
            step_with(optimizer, params, noise)

    params, optimizer, handle = build()
    train(params, optimizer, 0, 5)
    others, second, resumed = build()
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))  # torch loads without copying
    for p, q in zip(params, others, strict=True):
        q.data.copy_(p.data)
    train(params, optimizer, 5, 10)
    train(others, second, 5, 10)
    assert all(torch.equal(p, q) for p, q in zip(params, others, strict=True))
    assert handle.memory_bytes == resumed.memory_bytes == 2 * sum(p.numel() for p in params)


def test_metrics_are_those_of_the_step_though_lamb_has_changed_since() -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    handle = grokfast.attach(optimizer, EMA(lamb=2.0))
    step_with(optimizer, [param], [torch.ones_like(param)])
    optimizer.param_groups[0]["grokfast_lamb"] = 1.0  # as a schedule does after the step
    assert handle.metrics()["grokfast/ratio"] == pytest.approx(2.0)


def test_metrics_of_a_step_that_the_device_discarded_are_those_of_its_gradients() -> None:
    (param,) = make_params([(3,)], torch.float32)
    optimizer = torch.optim.SGD([param], lr=0.1, fused=True)
    handle = grokfast.attach(optimizer, EMA(lamb=2.0))
    step_with(optimizer, [param], [torch.ones_like(param)])
    optimizer.grad_scale, optimizer.found_inf = None, torch.tensor(1.0)  # type: ignore[attr-defined]
    step_with(optimizer, [param], [torch.full_like(param, 4.0)])
    assert handle.metrics()["grokfast/ratio"] == pytest.approx(0.5)


def test_metrics_after_zero_grad_give_a_hint_once() -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    handle = grokfast.attach(optimizer, EMA(lamb=2.0))
    step_with(optimizer, [param], [torch.ones_like(param)])
    optimizer.zero_grad()
    with pytest.warns(UserWarning, match=r"ratio and cosine are NaN: call it before zero_grad\(\)"):
        assert math.isnan(handle.metrics()["grokfast/ratio"])
    handle.metrics()
