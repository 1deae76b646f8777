"""When a filter starts: at a step, or once training has saturated, with a warm state; and gradients not finite."""

import warnings

import numpy as np
import pytest
import torch

import grokfast
from cases import each_filter, filtered_constant, make_params, make_signal, sgd, step_with
from grokfast import EMA, Filter, Saturation
from reference import filtered


@pytest.mark.parametrize("start", [0, 1, 5, 100])
@each_filter
def test_gradients_pass_unchanged_before_the_start_and_are_filtered_warm_after(filter: Filter, start: int) -> None:
    params = make_params([(3,)])
    optimizer = sgd(*params)
    handle = grokfast.attach(optimizer, filter, start=start)
    signal = make_signal(10, 3)
    expected = filtered(filter, signal)
    for t in range(10):
        assert handle.active == (t >= start)
        step_with(optimizer, params, [torch.tensor(signal[t])])
        if t < start:
            assert torch.equal(params[0].grad, torch.tensor(signal[t]))
        else:
            np.testing.assert_allclose(params[0].grad, expected[t], rtol=1e-10, atol=1e-12)


@each_filter
def test_saturation_starts_the_filter_with_a_warm_state(filter: Filter) -> None:
    params = make_params([(3,)])
    optimizer = sgd(*params)
    saturated = Saturation(above=0.9, patience=2)
    handle = grokfast.attach(optimizer, filter, start=saturated)
    accuracies = [0.5, 0.95, 0.8, 0.95, 0.99, 0.2, 0.1, 0.1, 0.1, 0.1]
    signal = make_signal(10, 3)
    expected = filtered(filter, signal)
    for t in range(10):
        step_with(optimizer, params, [torch.tensor(signal[t])])
        started = t > 4  # observed after the step: two in a row at 3 and 4, and once fired it stays fired
        assert torch.equal(params[0].grad, torch.tensor(signal[t])) != started
        if started:
            np.testing.assert_allclose(params[0].grad, expected[t], rtol=1e-10, atol=1e-12)
        saturated.observe(accuracies[t])
        assert handle.active == (t >= 4)


@pytest.mark.parametrize(
    ("trigger", "values", "fired"),
    [
        (Saturation(above=0.9), [0.8, 0.9, 0.1], [False, True, True]),
        (Saturation(below=0.1), [0.2, 0.1, 5.0], [False, True, True]),
        (Saturation(above=0.9, patience=3), [1, 1, 0, 1, 1, 1, 0], [False] * 5 + [True] * 2),
        (Saturation(above=0.9), [float("nan"), float("inf")], [False, True]),
        (Saturation(below=0.1, patience=2), [0.0, float("nan"), 0.0, 0.0], [False, False, False, True]),
    ],
    ids=str,
)
def test_saturation_fires_after_patience_observations_in_a_row(
    trigger: Saturation, values: list[float], fired: list[bool]
) -> None:
    found = [(trigger.observe(value), trigger.fired) for value in values]
    assert found == [(f, f) for f in fired]


def test_any_object_with_fired_and_streak_is_a_trigger() -> None:
    class Switch:
        streak = 0
        fired = False

    (param,) = make_params([(2,)])
    optimizer, switch = sgd(param), Switch()
    handle = grokfast.attach(optimizer, EMA(lamb=2.0), start=switch)
    assert filtered_constant(optimizer, param, 2) == 1.0
    switch.fired = True
    assert handle.active
    assert filtered_constant(optimizer, param, 1) == pytest.approx(3.0)


# Gradients that are not finite --------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [torch.inf, -torch.inf, torch.nan])
@each_filter
def test_ignoring_leaves_the_state_and_passes_the_gradients(filter: Filter, bad: float) -> None:
    params = make_params([(3,), (3,)])
    optimizer = torch.optim.SGD(params, lr=0.0)
    handle = grokfast.attach(optimizer, filter, nonfinite="ignore")
    signal = make_signal(8, 3)
    expected = filtered(filter, np.delete(signal, 4, axis=0))
    for t in range(4):
        step_with(optimizer, params, [torch.tensor(signal[t])] * 2)
    before = {name: t.clone() for name, t in handle.state[params[0]].items()}
    spoilt = torch.tensor([1.0, bad, 2.0], dtype=torch.float64)
    with pytest.warns(UserWarning, match="inf or NaN in the gradient of parameter 1 of group 0 at step 4"):
        step_with(optimizer, params, [torch.tensor(signal[4]), spoilt])
    assert torch.equal(params[0].grad, torch.tensor(signal[4]))
    torch.testing.assert_close(params[1].grad, spoilt, rtol=0, atol=0, equal_nan=True)
    assert all(torch.equal(t, before[name]) for name, t in handle.state[params[0]].items())
    assert handle.step == 4
    for param in params:
        param.data.nan_to_num_()
    for t in range(5, 8):
        step_with(optimizer, params, [torch.tensor(signal[t])] * 2)
        np.testing.assert_allclose(params[1].grad, expected[t - 1], rtol=1e-10, atol=1e-12)


def test_ignoring_warns_once() -> None:
    (param,) = make_params([(2,)])
    optimizer = torch.optim.SGD([param], lr=0.0)
    grokfast.attach(optimizer, EMA(), nonfinite="ignore")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            step_with(optimizer, [param], [torch.full_like(param, torch.nan)])
    assert [str(w.message) for w in caught if "inf or NaN" in str(w.message)] == [
        "inf or NaN in the gradient of parameter 0 of group 0 at step 0: the filter ignores such steps"
    ]


@pytest.mark.parametrize("position", [0, 1])
def test_raising_names_the_parameter_and_changes_nothing(position: int) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.named_parameters(), lr=0.1)
    handle = grokfast.attach(optimizer, EMA(lamb=2.0), nonfinite="raise")
    params = list(model.parameters())
    grads = [torch.ones_like(p) for p in params]
    step_with(optimizer, params, grads)
    values = [p.detach().clone() for p in params]
    slow = [handle.slow(p).clone() for p in params]
    grads[position].view(-1)[0] = torch.inf
    name = ["weight", "bias"][position]
    with pytest.raises(FloatingPointError, match=f"gradients must be finite, got .* parameter '{name}' at step 1"):
        step_with(optimizer, params, grads)
    for param, value, average, grad in zip(params, values, slow, grads, strict=True):
        assert torch.equal(param, value)
        assert torch.equal(handle.slow(param), average)
        assert torch.equal(param.grad, grad)
    assert handle.step == 1


@pytest.mark.parametrize("nonfinite", ["scaler", "ignore", "skip", "raise"])
def test_apply_leaves_the_complaint_to_the_step(nonfinite: str) -> None:
    """After apply() a GradScaler may still discard the step, silently."""
    (param,) = make_params([(2,)])
    optimizer = torch.optim.SGD([param], lr=0.0)
    handle = grokfast.attach(optimizer, EMA(lamb=2.0), nonfinite=nonfinite)
    param.grad = torch.full_like(param, torch.inf)
    handle.apply()
    assert handle.step == 0
    if nonfinite == "raise":
        with pytest.raises(FloatingPointError, match="parameter 0 of group 0 at step 0"):
            optimizer.step()
    else:
        with pytest.warns(UserWarning, match="parameter 0 of group 0 at step 0"):
            optimizer.step()
    param.data.zero_()
    param.grad = torch.ones_like(param)
    handle.apply()
    assert torch.equal(param.grad, torch.full_like(param, 3.0))


def test_gradients_of_groups_without_the_filter_are_checked_too() -> None:
    """One optimizer, one step: what a GradScaler would discard, the filter skips."""
    first, second = make_params([(2,), (2,)])
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": [second], "grokfast": False}], lr=0.0)
    handle = grokfast.attach(optimizer, EMA(), nonfinite="raise")
    with pytest.raises(FloatingPointError, match="parameter 0 of group 1"):
        step_with(optimizer, [first, second], [torch.ones_like(first), torch.full_like(second, torch.nan)])
    assert torch.equal(first.grad, torch.ones_like(first))
    assert handle.step == 0


def test_finite_gradients_too_large_to_square_are_finite() -> None:
    (param,) = make_params([(3,)], torch.float32)
    optimizer = torch.optim.SGD([param], lr=0.0)
    handle = grokfast.attach(optimizer, EMA(lamb=2.0), nonfinite="raise")
    assert filtered_constant(optimizer, param, 2, value=1e30) == pytest.approx(3e30)
    assert handle.step == 2
