"""The running total of MA does not drift, forgets, and may keep its window in bf16."""

import numpy as np
import pytest
import torch

from cases import make_signal, run_filter
from grokfast import MA, attach
from reference import ma


def badly_scaled(steps: int, width: int, seed: int) -> torch.Tensor:
    """Gradients whose scale wanders over eight decades, with a spike a million times larger now and then."""
    rng = np.random.default_rng(seed)
    wander = 4 * np.sin(np.arange(steps)[:, None] / np.array([37, 910, 5_003, 100_003][:width]))
    signal = rng.standard_normal((steps, width)) * 10**wander
    signal[rng.random((steps, width)) < 1e-3] *= 1e6
    return torch.from_numpy(signal).float()


def test_running_total_does_not_drift_over_200_000_steps() -> None:
    """Error of the mean at sampled steps, relative to the mean |g| of the last two windows: <= 1e-5."""
    w, chunk = 100, 10_000
    filter = MA(window_size=w)
    state = filter.new_state(torch.zeros(4))
    states, worst = [state], 0.0
    for start in range(0, 200_000, chunk):
        grads = badly_scaled(chunk, 4, seed=start)
        for offset, grad in enumerate(grads.unbind()):
            filter.advance([grad], states, start + offset)
            if offset % 1_111 == 1_110 or offset == chunk - 1:
                recent = grads[max(0, offset + 1 - 2 * w) : offset + 1].double()
                error = filter.slow(state, start + offset + 1).double() - recent[-w:].mean(dim=0)
                worst = max(worst, (error.abs() / recent.abs().mean(dim=0)).max().item())
    assert worst <= 1e-5


@pytest.mark.parametrize("window_size", [1, 2, 7, 100])
def test_spike_is_forgotten_within_one_further_window(window_size: int) -> None:
    filter = MA(window_size=window_size)
    signal = torch.from_numpy(make_signal(5 * window_size, 3)).float()
    spiked = signal.clone()
    spike = window_size + window_size // 2
    spiked[spike] = 1e12
    state = filter.new_state(signal[0])
    for count, grad in enumerate(spiked):
        filter.advance([grad], [state], count)
        if count >= spike + 2 * window_size:  # gone from the window, and one further window has passed
            recent = spiked[count + 1 - window_size : count + 1].double()
            error = filter.slow(state, count + 1).double() - recent.mean(dim=0)
            assert error.abs().max() <= 1e-6 * recent.abs().mean()


def test_bf16_window_errs_by_the_rounding_of_its_entries() -> None:
    filter = MA(window_size=50, lamb=1.0, slow_only=True, warmup=False, window_dtype=torch.bfloat16)
    signal = torch.from_numpy(make_signal(500, 4)).float()
    exact = signal.double().numpy()
    error = np.abs(run_filter(filter, signal).numpy() - ma(exact, 50).values)
    bound = 2**-8 * ma(np.abs(exact), 50).values  # half a unit in the last of 8 bits, of each entry
    assert (error <= bound + 1e-6).all()
    rounded = signal.bfloat16().double().numpy()
    np.testing.assert_allclose(run_filter(filter, signal).numpy(), ma(rounded, 50).values, rtol=0, atol=2e-6)


def test_window_in_fp32_keeps_the_numbers_of_the_default() -> None:
    signal = torch.from_numpy(make_signal(30, 4)).float()
    default, explicit = (run_filter(MA(window_size=5, window_dtype=dtype), signal) for dtype in (None, torch.float32))
    assert torch.equal(default, explicit)


def test_bf16_window_of_complex_gradients_is_refused() -> None:
    param = torch.nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    optimizer = torch.optim.SGD([param], lr=0.1)
    attach(optimizer, MA(window_size=2, window_dtype=torch.bfloat16))
    param.grad = torch.full_like(param, 1 + 2j)
    with pytest.raises(TypeError, match="window_dtype"):
        optimizer.step()
    assert torch.equal(param.grad, torch.full_like(param, 1 + 2j))
    assert torch.equal(param, torch.zeros_like(param))
