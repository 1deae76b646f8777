"""Schedules of lamb and alpha: functions of the step, saved and resumed with it."""

import copy
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
import torch

import grokfast
from cases import each_kind, filtered_constant, make_params, make_signal, step_with
from grokfast import EMA, MA, Filter, Ramp

WARMUP = Ramp({0: 0.0, 4: 2.0, 8: 2.0, 12: 0.5})


@pytest.mark.parametrize(
    ("points", "values"),
    [
        ({0: 0.0, 4: 2.0}, [0.0, 0.5, 1.0, 1.5, 2.0, 2.0]),
        ({2: 1.0, 4: 0.0}, [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]),
        ({4: 0.0, 0: 2.0}, [2.0, 1.5, 1.0, 0.5, 0.0, 0.0]),
        ({3: 7}, [7.0] * 6),
    ],
)
def test_ramp_is_linear_between_its_points(points: dict[int, float], values: list[float]) -> None:
    assert [Ramp(points)(step) for step in range(6)] == values


@pytest.mark.parametrize(
    ("points", "error", "message"),
    [
        ({}, TypeError, "points must be a dict of values by step, got {}"),
        ([(0, 1.0)], TypeError, "points must be a dict"),
        ({-1: 1.0}, ValueError, "a step of points must be an integer >= 0, got -1"),
        ({0.5: 1.0}, TypeError, "a step of points must be an integer >= 0, got 0.5"),
        ({0: float("nan")}, ValueError, "points must have finite numbers as values, got nan at step 0"),
        ({0: None}, ValueError, "got None at step 0"),
    ],
)
def test_bad_points_are_refused(points: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Ramp(points)


@each_kind
def test_scheduled_gain_equals_a_gain_set_at_each_step(filter: Filter) -> None:
    (scheduled,), (by_hand,) = make_params([(3,)]), make_params([(3,)])
    optimizer, plain = (torch.optim.AdamW([p], lr=0.1) for p in (scheduled, by_hand))
    grokfast.attach(optimizer, filter, lamb=WARMUP)
    grokfast.attach(plain, filter)
    signal = torch.tensor(make_signal(15, 3))
    for t in range(15):
        plain.param_groups[0]["grokfast_lamb"] = WARMUP(t)
        step_with(optimizer, [scheduled], [signal[t]])
        step_with(plain, [by_hand], [signal[t]])
        assert torch.equal(scheduled.grad, by_hand.grad)


def test_alpha_and_lamb_may_be_scheduled_together() -> None:
    (param,) = make_params([(3,)])
    optimizer = torch.optim.SGD([param], lr=0.0)
    alpha = Ramp({0: 0.5, 10: 0.9})
    handle = grokfast.attach(optimizer, EMA(), lamb=WARMUP, alpha=alpha)
    signal = torch.tensor(make_signal(12, 3))
    slow = signal[0]
    for t in range(12):
        slow = torch.lerp(slow, signal[t], 1 - alpha(t)) if t else slow
        step_with(optimizer, [param], [signal[t]])
        torch.testing.assert_close(param.grad, signal[t] + WARMUP(t) * slow)
        torch.testing.assert_close(handle.slow(param), slow)
    assert handle.metrics()["grokfast/ratio"] == pytest.approx((WARMUP(11) * slow.norm() / signal[11].norm()).item())


def test_resumed_schedule_equals_uninterrupted() -> None:
    def build() -> tuple[Any, torch.optim.Optimizer, grokfast.Attachment]:
        params = make_params([(3,), (2, 2)], torch.float32)
        optimizer = torch.optim.AdamW(params, lr=0.1)
        return params, optimizer, grokfast.attach(optimizer, EMA(), lamb=WARMUP, alpha=lambda t: 0.9 - 1 / (t + 2))

    def train(params: Any, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
        for t in range(first, last):
            step_with(optimizer, params, [torch.tensor(make_signal(14, *p.shape)[t]).float() for p in params])

    params, optimizer, _ = build()
    train(params, optimizer, 0, 6)
    others, second, handle = build()
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for p, q in zip(params, others, strict=True):
        q.data.copy_(p.data)
    train(params, optimizer, 6, 14)
    train(others, second, 6, 14)
    assert all(torch.equal(p, q) for p, q in zip(params, others, strict=True))
    assert handle.step == 14


def test_group_value_comes_before_the_schedule() -> None:
    first, second = make_params([(2,), (2,)])
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": [second], "grokfast_lamb": 7.0}], lr=0.0)
    grokfast.attach(optimizer, EMA(), lamb=lambda step: 1.0)
    step_with(optimizer, [first, second], [torch.ones(2, dtype=torch.float64)] * 2)
    assert (first.grad.tolist(), second.grad.tolist()) == ([2.0, 2.0], [8.0, 8.0])


def test_schedule_counts_from_the_start_of_training_not_of_the_second_stage() -> None:
    (param,) = make_params([(2,)])
    optimizer = torch.optim.SGD([param], lr=0.0)
    grokfast.attach(optimizer, EMA(), start=2, lamb=Ramp({0: 0.0, 4: 4.0}))
    assert [filtered_constant(optimizer, param, 1) for _ in range(4)] == pytest.approx([1.0, 1.0, 3.0, 4.0])


@pytest.mark.parametrize(
    ("filter", "options", "error", "message"),
    [
        (EMA(), {"lamb": 3.0}, TypeError, r"lamb must be a schedule, .*got 3.0: for a constant write EMA\(lamb=3.0\)"),
        (MA(), {"alpha": WARMUP}, ValueError, "alpha must be None for MA, which has no alpha to schedule"),
        (EMA(), {"lamb": lambda step: -1.0}, ValueError, r"lamb must be in \[0, inf\), got -1.0"),
        (EMA(), {"alpha": WARMUP, "lamb": lambda step: None}, TypeError, "lamb must be a number"),
    ],
)
def test_bad_schedules_are_refused_at_attach(
    filter: Filter, options: Any, error: type[Exception], message: str
) -> None:
    (param,) = make_params([(2,)])
    optimizer = torch.optim.SGD([param], lr=0.1)
    with pytest.raises(error, match=message):
        grokfast.attach(optimizer, filter, **options)
    grokfast.attach(optimizer, filter)


def test_value_out_of_range_later_stops_the_step_before_anything_changes() -> None:
    (param,) = make_params([(2,)])
    optimizer = torch.optim.SGD([param], lr=0.1)
    handle = grokfast.attach(optimizer, EMA(), alpha=lambda step: 0.5 * (step + 1))
    filtered_constant(optimizer, param, 1)
    before = param.detach().clone()
    with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\), got 1.0"):
        filtered_constant(optimizer, param, 1)
    assert torch.equal(param, before)
    assert handle.step == 1


@each_kind
def test_assigning_to_a_filter_says_what_to_do_instead(filter: Filter) -> None:
    message = r"lamb of a filter cannot be changed: give attach a schedule, or set .*\['grokfast_lamb'\] = 3"
    with pytest.raises(FrozenInstanceError, match=message):
        filter.lamb = 3
    with pytest.raises(FrozenInstanceError, match="attach another one"):
        filter.slow_only = True
    assert replace(filter, lamb=3.0).lamb == 3.0  # type: ignore[type-var]
