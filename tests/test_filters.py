"""The arithmetic of each filter: step-by-step agreement with the reference, and the laws of linear filters."""

import dataclasses

import numpy as np
import pytest
import torch

from cases import TAPS, A, B, each_filter, each_kind, make_signal, relative_error, run_filter
from grokfast import EMA, FIR, IIR, MA, Butterworth, Filter
from reference import filtered, slow_part

PAPER_SIZES = {
    "ema": EMA(alpha=0.98, lamb=2.0),
    "ma": MA(window_size=100, lamb=5.0),
    "butterworth": Butterworth(4, 0.01, 2.0),
    "fir": FIR(np.hamming(25) / np.hamming(25).sum(), 5.0),
}


@each_filter
def test_fp32_agrees_with_the_reference_over_10000_steps(filter: Filter) -> None:
    agree_over_10000_steps(filter)


@pytest.mark.parametrize("filter", PAPER_SIZES.values(), ids=PAPER_SIZES)
def test_fp32_agrees_with_the_reference_at_the_sizes_of_the_paper(filter: Filter) -> None:
    agree_over_10000_steps(filter)


def agree_over_10000_steps(filter: Filter) -> None:
    """Error of the output and of the slow part at every step, as max |error| / max |reference|."""
    signal = torch.from_numpy(make_signal(10_000, 3)).float()
    exact = signal.double().numpy()
    state = filter.new_state(signal[0])
    output, slow = signal.clone(), torch.empty_like(signal)
    for count, grad in enumerate(output):
        filter.update([grad], [state], count)
        slow[count] = filter.slow(state, count + 1)
    assert relative_error(output, filtered(filter, exact)) <= 1e-6
    assert relative_error(slow, slow_part(filter, exact).values) <= 1e-6


@each_kind
def test_lamb_zero_changes_nothing(filter: Filter) -> None:
    signal = torch.from_numpy(make_signal(20, 5)).float()
    assert torch.equal(run_filter(dataclasses.replace(filter, lamb=0.0), signal), signal)


@each_kind
def test_constant_gradient_is_amplified_by_one_plus_lamb(filter: Filter) -> None:
    output = run_filter(filter, torch.full((20, 2), 0.7, dtype=torch.float64))
    settled = filter.window_size - 1 if isinstance(filter, MA) else 0  # the window fills first
    expected = torch.full((20 - settled, 2), 0.7 * (1 + filter.lamb), dtype=torch.float64)
    torch.testing.assert_close(output[settled:], expected, rtol=1e-12, atol=0)
    assert torch.equal(output[:settled], torch.full((settled, 2), 0.7, dtype=torch.float64))


@each_kind
def test_slow_only_is_the_residual_without_the_gradient(filter: Filter) -> None:
    filter = dataclasses.replace(filter, warmup=False) if isinstance(filter, MA) else filter
    signal = torch.from_numpy(make_signal(20, 3))
    residual = run_filter(filter, signal)
    slow_only = run_filter(dataclasses.replace(filter, slow_only=True), signal)
    torch.testing.assert_close(slow_only, residual - signal, rtol=0, atol=1e-13)


@pytest.mark.parametrize("init", ["first", "zero"])
def test_ema_is_the_iir_filter_of_one_pole(init: str) -> None:
    signal = torch.from_numpy(make_signal(50, 3))
    ema = run_filter(EMA(alpha=0.9, lamb=2.0, init=init), signal)
    iir = run_filter(IIR([0.1], [1.0, -0.9], 2.0, init=init), signal)
    torch.testing.assert_close(ema, iir, rtol=0, atol=1e-13)


def test_full_window_is_the_fir_filter_of_equal_taps() -> None:
    signal = torch.from_numpy(make_signal(50, 3))
    ma = run_filter(MA(window_size=8, lamb=5.0), signal)
    fir = run_filter(FIR([1 / 8] * 8, 5.0), signal)
    torch.testing.assert_close(ma[7:], fir[7:], rtol=0, atol=1e-13)


def test_window_of_one_is_the_gradient_itself() -> None:
    signal = torch.from_numpy(make_signal(10, 3))
    torch.testing.assert_close(run_filter(MA(window_size=1, lamb=4.0), signal), 5 * signal)


def test_iir_coefficients_may_have_any_common_factor() -> None:
    signal = torch.from_numpy(make_signal(30, 3))
    scaled = IIR([2 * x for x in B], [2 * x for x in A], 2.0)
    torch.testing.assert_close(run_filter(scaled, signal), run_filter(IIR(B, A, 2.0), signal))


def test_iir_without_poles_is_the_fir_filter() -> None:
    signal = torch.from_numpy(make_signal(30, 3))
    torch.testing.assert_close(run_filter(IIR(TAPS, [1.0], 2.0), signal), run_filter(FIR(TAPS, 2.0), signal))


@each_filter
def test_state_never_aliases_the_gradient(filter: Filter) -> None:
    grad = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    state = filter.new_state(grad)
    for count in range(6):
        filter.update([grad], [state], count)
        before = {name: t.clone() for name, t in state.items()}
        grad.fill_(torch.nan).copy_(torch.full((3, 4), float(count)))
        assert all(torch.equal(state[name], t) for name, t in before.items())
        storages = {t.untyped_storage().data_ptr() for t in state.values()}
        assert grad.untyped_storage().data_ptr() not in storages


@each_filter
def test_gradients_are_edited_in_place(filter: Filter) -> None:
    grad = torch.ones(3)
    address, state = grad.data_ptr(), filter.new_state(grad)
    for count in range(6):
        filter.update([grad.fill_(1.0)], [state], count)
    assert grad.data_ptr() == address
    assert not torch.equal(grad, torch.ones(3))


@each_filter
def test_many_tensors_at_once_equal_one_by_one(filter: Filter) -> None:
    first, second = (torch.from_numpy(make_signal(8, *shape, seed=3)) for shape in ((2, 3), (5,)))
    states = [filter.new_state(first[0]), filter.new_state(second[0])]
    together = first.clone(), second.clone()
    for count in range(8):
        filter.update([together[0][count], together[1][count]], states, count)
    assert torch.equal(together[0], run_filter(filter, first))
    assert torch.equal(together[1], run_filter(filter, second))


@each_filter
def test_inactive_filter_keeps_its_state_warm_and_passes_gradients(filter: Filter) -> None:
    signal = torch.from_numpy(make_signal(12, 3))
    state, cold = filter.new_state(signal[0]), signal.clone()
    for count, grad in enumerate(cold):
        filter.update([grad], [state], count, active=count >= 6)
    assert torch.equal(cold[:6], signal[:6])
    torch.testing.assert_close(cold[6:], run_filter(filter, signal)[6:], rtol=1e-12, atol=1e-12)


@each_kind
def test_lamb_may_change_between_steps_without_touching_the_state(filter: Filter) -> None:
    signal = torch.from_numpy(make_signal(12, 3))
    exact = signal.numpy()
    slow = slow_part(filter, exact).values
    state, output = filter.new_state(signal[0]), signal.clone()
    for count, grad in enumerate(output):
        dataclasses.replace(filter, lamb=float(count)).update([grad], [state], count)
    for count in range(4, 12):
        np.testing.assert_allclose(output[count], exact[count] + count * slow[count], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@each_filter
def test_half_precision_gradients_have_a_state_of_at_least_single_precision(filter: Filter, dtype: torch.dtype) -> None:
    state = filter.new_state(torch.ones(3, dtype=dtype))
    assert {t.dtype for t in state.values()} <= {torch.float32, torch.float64}


def test_what_makes_a_filter_and_its_gain_may_be_positional() -> None:
    assert EMA(0.9, 3.0) == EMA(alpha=0.9, lamb=3.0)
    assert MA(7, 3.0) == MA(window_size=7, lamb=3.0)
    assert FIR([0.5], 3.0) == FIR(taps=[0.5], lamb=3.0)
    assert IIR([0.1], [1.0, -0.9], 3.0) == IIR(b=[0.1], a=[1.0, -0.9], lamb=3.0)
    assert Butterworth(2, 0.1, 3.0) == Butterworth(order=2, cutoff=0.1, lamb=3.0)
