"""Transfer functions: theory against scipy and against the running filters, and conversions between the knobs."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal as scipy_signal

from cases import ALL_FILTERS, each_filter, run_filter
from grokfast import EMA, FIR, IIR, MA, Butterworth, Filter, attach

# A multiple of 2 pi / 400, so that whole periods fit into 400 steps.
FREQUENCIES = 2 * np.pi / 400 * np.array([0, 1, 2, 5, 10, 20, 50, 100, 150, 199, 200])
DESIGNED = [
    Butterworth(2, 0.05),
    Butterworth(5, 0.2),
    Butterworth(8, 0.01),
    Butterworth(8, 0.001),
    Butterworth(6, 1e-4),
]


def scipy_response(filter: Filter, w: np.ndarray) -> np.ndarray:
    """H(w) without lamb, from the coefficients a textbook would give."""
    match filter:
        case EMA():
            b, a = [1 - filter.alpha], [1, -filter.alpha]
        case MA():
            b, a = np.ones(filter.window_size), [filter.window_size if filter.reduction == "mean" else 1.0]
        case FIR():
            b, a = filter.taps, [1.0]
        case IIR():
            b, a = filter.b, filter.a
        case Butterworth():
            sos = scipy_signal.butter(filter.order, filter.cutoff, fs=1.0, output="sos")
            return scipy_signal.freqz_sos(sos, w)[1]  # type: ignore
    return scipy_signal.freqz(b, a, w)[1]


@pytest.mark.parametrize(
    "filter",
    [*ALL_FILTERS.values(), EMA(), MA(), *DESIGNED],
    ids=[*ALL_FILTERS, "paper_ema", "paper_ma", *map(str, DESIGNED)],
)
def test_frequency_response_agrees_with_scipy(filter: Filter) -> None:
    w = np.concatenate([[0.0], np.geomspace(1e-4, np.pi, 200)])
    expected = filter.lamb * scipy_response(filter, w)
    np.testing.assert_allclose(filter.frequency_response(w, of="h").numpy(), expected, rtol=0, atol=1e-9)
    whole = expected if filter.slow_only else 1 + expected
    np.testing.assert_allclose(filter.frequency_response(w, of="1+h").numpy(), whole, rtol=0, atol=1e-9)


@each_filter
def test_running_filter_answers_a_sinusoid_by_its_frequency_response(filter: Filter) -> None:
    time = np.arange(1200)
    waves = torch.from_numpy(np.cos(np.outer(time, FREQUENCIES)))  # (steps, frequencies)
    settled = run_filter(filter, waves)[-400:].numpy()
    # The complex amplitude at each frequency; cos has weight 1/2 there, except at 0 and pi.
    half = np.where((FREQUENCIES == 0) | (FREQUENCIES[-1] == FREQUENCIES), 1.0, 0.5)
    amplitude = (settled * np.exp(-1j * np.outer(time[-400:], FREQUENCIES))).mean(axis=0) / half
    np.testing.assert_allclose(amplitude, filter.frequency_response(FREQUENCIES, of="1+h"), rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "w", [0.5, [0.5], (0.5,), np.array([0.5]), torch.tensor([0.5])], ids=lambda w: type(w).__name__
)
def test_frequencies_may_be_of_any_kind(w: object) -> None:
    response = EMA().frequency_response(w)
    assert response.dtype == torch.complex128
    assert response.flatten()[0] == EMA().frequency_response(torch.tensor(0.5, dtype=torch.float64))


LOW_PASS = [EMA(alpha=0.5), EMA(), EMA(alpha=0.9999), MA(window_size=2), MA(), MA(window_size=1000), *DESIGNED]


@pytest.mark.parametrize("filter", LOW_PASS, ids=str)
def test_cutoff_is_where_the_gain_first_falls_by_3_db(filter: Filter) -> None:
    cutoff = filter.cutoff_frequency()
    assert cutoff is not None
    below = np.linspace(0, 1, 2000, endpoint=False) * 2 * np.pi * cutoff
    gains = np.abs(scipy_response(filter, np.append(below, 2 * np.pi * cutoff)))
    assert gains[-1] == pytest.approx(gains[0] / math.sqrt(2), rel=1e-6)
    assert (gains[:-1] > gains[-1]).all()


def test_filter_that_never_falls_by_3_db_has_no_cutoff() -> None:
    assert EMA(alpha=0.1).cutoff_frequency() is None
    assert MA(window_size=1).cutoff_frequency() is None


# The paper's knobs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speedup", [1, 2, 10, 50, 100, 1000])
def test_aiming_for_n_times_acceleration_follows_the_paper(speedup: int) -> None:
    assert MA.from_speedup(speedup).window_size == speedup
    assert EMA.from_speedup(speedup).alpha ** speedup == pytest.approx(0.1)


@given(st.integers(1, 2000))
def test_window_and_alpha_convert_into_each_other(window_size: int) -> None:
    ema = EMA.from_window(window_size)
    assert ema.alpha**window_size == pytest.approx(0.1)
    assert ema.window_size == pytest.approx(window_size)
    assert MA.from_alpha(ema.alpha).window_size == window_size
    assert MA(window_size=window_size).alpha == pytest.approx(ema.alpha)


@given(st.floats(1e-6, 0.49))
def test_ema_from_cutoff_has_that_cutoff(cutoff: float) -> None:
    gain = np.abs(scipy_response(EMA.from_cutoff(cutoff), np.array([2 * np.pi * cutoff])))
    assert gain[0] == pytest.approx(math.sqrt(0.5), rel=1e-4)


@given(st.floats(0.2, 0.9999))
def test_alpha_survives_the_way_through_its_cutoff(alpha: float) -> None:
    cutoff = EMA(alpha=alpha).cutoff_frequency()
    assert cutoff is not None
    assert EMA.from_cutoff(cutoff).alpha == pytest.approx(alpha, rel=1e-6)


@pytest.mark.parametrize("window_size", [2, 3, 4, 5, 7, 10, 33, 100, 300])
def test_window_survives_the_way_through_its_cutoff(window_size: int) -> None:
    cutoff = MA(window_size=window_size).cutoff_frequency()
    assert cutoff is not None
    assert MA.from_cutoff(cutoff).window_size == window_size


@settings(max_examples=15)
@given(st.floats(0.005, 0.25))
def test_ma_from_cutoff_is_the_nearest_window(cutoff: float) -> None:
    chosen = MA.from_cutoff(cutoff).window_size

    def miss(window_size: int) -> float:
        found = MA(window_size=window_size).cutoff_frequency()
        return abs((0.5 if found is None else found) - cutoff)

    neighbours = [w for w in range(chosen - 2, chosen + 3) if w >= 2]
    assert miss(chosen) == min(miss(w) for w in neighbours)


def test_conversions_pass_other_options_on() -> None:
    assert EMA.from_window(10, lamb=3.0, slow_only=True) == EMA(
        alpha=EMA.from_window(10).alpha, lamb=3.0, slow_only=True
    )
    assert EMA.from_speedup(10, lamb=3.0).lamb == EMA.from_cutoff(0.1, lamb=3.0).lamb == 3.0
    assert MA.from_alpha(0.5, warmup=False) == MA(window_size=3, warmup=False)
    assert MA.from_speedup(7, reduction="sum") == MA(window_size=7, reduction="sum")
    assert MA.from_cutoff(0.25, lamb=1.0) == MA(window_size=2, lamb=1.0)


# Appendix A -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.9},
        {"momentum": 0.5, "dampening": 0.3},
        {"momentum": 0.9, "nesterov": True},
    ],
    ids=str,
)
@each_filter
def test_filtering_gradients_equals_filtering_updates_of_sgd(filter: Filter, options: dict[str, float]) -> None:
    """Theorem of appendix A: a linear optimizer commutes with a linear filter."""
    # The first gradients are 0. torch starts the momentum with the whole first gradient, not with (1 - dampening) of
    # it; filters with init="first" start in a steady state; a window fills first. Each makes the beginning special,
    # so that optimizer and filter are time-invariant, as the theorem asks, only from silence and with a full window.
    grads = torch.randn(40, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    grads[: ALL_FILTERS["ma"].window_size] = 0.0  # type: ignore
    filtered_updates = run_filter(filter, sgd_updates(grads, options))
    torch.testing.assert_close(sgd_updates(grads, options, filter), filtered_updates, rtol=0, atol=1e-12)
    assert filtered_updates.abs().max() > 0.01


def sgd_updates(grads: torch.Tensor, options: dict[str, float], filter: Filter | None = None) -> torch.Tensor:
    """theta(t+1) - theta(t) of torch.optim.SGD with the given gradients, through a filter if there is one."""
    param = torch.nn.Parameter(torch.zeros(grads.shape[1:], dtype=grads.dtype))
    optimizer = torch.optim.SGD([param], lr=0.1, **options)
    if filter is not None:
        attach(optimizer, filter)
    updates = []
    for grad in grads:
        before = param.detach().clone()
        param.grad = grad.clone()
        optimizer.step()
        updates.append(param.detach() - before)
    return torch.stack(updates)
