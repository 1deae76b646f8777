"""Agreement with the reference for any shape, memory layout, dtype and hyper-parameter (hypothesis)."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cases import make_signal, run_filter
from grokfast import EMA, FIR, IIR, MA, Butterworth, Filter
from reference import filtered, slow_part

# Error of one rounding, relative to the largest value there is.
ROUNDING = {
    torch.float32: 1e-6,
    torch.float64: 1e-13,
    torch.bfloat16: 2**-8,
    torch.float16: 2**-11,
    torch.complex64: 1e-6,
    torch.complex128: 1e-13,
}
SHAPES = st.one_of(
    st.just(()), st.lists(st.integers(0, 4), min_size=1, max_size=3).map(tuple), st.just((2, 3, 4, 2)), st.just((1,))
)
LAYOUTS = st.sampled_from(["contiguous", "transposed", "channels_last", "sliced"])
LAMBS = st.floats(0, 10)
UNIT = st.floats(0, 0.99)
INITS = st.sampled_from(["first", "zero"])


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    common = {"lamb": draw(LAMBS), "slow_only": draw(st.booleans())}
    kind = draw(st.sampled_from([EMA, MA, FIR, IIR, Butterworth]))
    if kind is MA:
        reduction = draw(st.sampled_from(["mean", "sum"]))
        return MA(window_size=draw(st.integers(1, 12)), warmup=draw(st.booleans()), reduction=reduction, **common)
    common["init"] = draw(INITS)
    if kind is EMA:
        return EMA(alpha=draw(UNIT), **common)
    if kind is FIR:
        return FIR(draw(st.lists(st.floats(-1, 1), min_size=1, max_size=9)), **common)
    if kind is Butterworth:
        return Butterworth(draw(st.integers(1, 5)), draw(st.floats(0.02, 0.45)), **common)
    poles = draw(st.lists(st.floats(-0.95, 0.95), min_size=0, max_size=3))
    return IIR(draw(st.lists(st.floats(-1, 1), min_size=1, max_size=4)), np.atleast_1d(np.poly(poles)), **common)


def with_layout(grad: Tensor, layout: str) -> Tensor:
    """A copy of a gradient with the same values in another memory layout."""
    if layout == "transposed" and grad.dim() >= 2:
        return grad.transpose(0, -1).clone(memory_format=torch.contiguous_format).transpose(0, -1)
    if layout == "channels_last" and grad.dim() == 4:
        return grad.clone(memory_format=torch.channels_last)
    if layout == "sliced":
        return torch.stack([grad, grad], dim=-1)[..., 0]
    return grad.clone()


@given(filters(), SHAPES, LAYOUTS, st.sampled_from(list(ROUNDING)), st.integers(1, 25), st.integers(0, 99))
def test_any_filter_agrees_with_the_reference_on_any_tensor(
    filter: Filter, shape: tuple[int, ...], layout: str, dtype: torch.dtype, steps: int, seed: int
) -> None:
    signal = make_signal(steps, *shape, seed=seed).astype(complex if dtype.is_complex else float)
    if dtype.is_complex:
        signal = signal + 1j * make_signal(steps, *shape, seed=seed + 100)
    rounded = torch.from_numpy(signal).to(dtype)  # (steps, *shape)
    exact = rounded.to(torch.complex128 if dtype.is_complex else torch.float64).numpy()
    state = filter.new_state(with_layout(rounded[0], layout))
    outputs, slows = [], []
    for count, value in enumerate(rounded):
        grad = with_layout(value, layout)
        filter.update([grad], [state], count)
        assert grad.dtype == dtype
        outputs.append(grad)
        slows.append(filter.slow(state, count + 1).clone())
    expected, slow = filtered(filter, exact), slow_part(filter, exact).values
    gain = 1 + filter.lamb
    close(outputs, expected, gain * ROUNDING[dtype])
    # The state of half-precision gradients is at least single precision.
    close(slows, slow, min(ROUNDING[dtype], 1e-6) * 10)


def close(found: list[Tensor], expected: np.ndarray, tolerance: float) -> None:
    """Each value within `tolerance`, relative to the size of the signals here, which is about 5."""
    values = torch.stack([t.to(torch.complex128 if t.is_complex() else torch.float64) for t in found]).numpy()
    assert values.shape == expected.shape
    np.testing.assert_allclose(values, expected, rtol=0, atol=tolerance * max(5.0, np.abs(expected).max(initial=0.0)))


@given(filters(), st.integers(1, 20), st.floats(-1e3, 1e3))
def test_any_filter_is_linear(filter: Filter, steps: int, factor: float) -> None:
    x, y = (torch.from_numpy(make_signal(steps, 3, seed=seed)) for seed in (1, 2))
    parts = factor * run_filter(filter, x) + run_filter(filter, y)
    bound = 1e-12 * max(1.0, abs(factor)) * max(1.0, parts.abs().max().item())
    torch.testing.assert_close(run_filter(filter, factor * x + y), parts, rtol=1e-9, atol=bound)


@given(filters(), st.integers(0, 30))
def test_output_depends_on_the_past_only(filter: Filter, cut: int) -> None:
    signal = torch.from_numpy(make_signal(31, 2))
    changed = torch.cat([signal[:cut], signal[cut:] + 1.0])
    assert torch.equal(run_filter(filter, signal)[:cut], run_filter(filter, changed)[:cut])
