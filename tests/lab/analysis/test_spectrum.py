"""Filters and gradients in frequency: against scipy, against signals that are known, and the theorem of appendix A."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import signal
from tiny import tiny

from grokfast import EMA, FIR, IIR, MA, Butterworth, Filter
from grokfast.lab.analysis.frequency import impulse_response, response, ring_out, silence
from grokfast.lab.analysis.spectrum import (
    filtered_spectra,
    measured_gain,
    power_density,
    settled,
    update_gain,
)
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.metrics import Row
from grokfast.lab.runs.recording import Sampled, load_gradients
from grokfast.lab.runs.writer import create_run
from grokfast.lab.training.run import train

B, A = [0.06, 0.04], [1.0, -1.3, 0.4]  # poles at 0.8 and 0.5, gain 1 at 0
TAPS = [0.4, 0.3, 0.2, 0.1]
# Each filter with the (b, a) a textbook would give for its slow part.
TEXTBOOK = [
    (EMA(alpha=0.9, lamb=2.0), [0.1], [1.0, -0.9]),
    (EMA(alpha=0.9, lamb=2.0, init="zero"), [0.1], [1.0, -0.9]),
    (EMA(alpha=0.0, lamb=1.0), [1.0], [1.0]),
    (MA(window_size=5, lamb=5.0), [0.2] * 5, [1.0]),
    (MA(window_size=5, lamb=5.0, warmup=False), [0.2] * 5, [1.0]),
    (MA(window_size=5, lamb=0.5, reduction="sum"), [1.0] * 5, [1.0]),
    (FIR(TAPS, 2.0), TAPS, [1.0]),
    (IIR(B, A, 2.0), B, A),
    (Butterworth(3, 0.1, 2.0), *signal.butter(3, 0.1, fs=1.0)),
    (EMA(alpha=0.9, lamb=2.0, slow_only=True), [0.1], [1.0, -0.9]),
    (MA(window_size=5, lamb=5.0, slow_only=True), [0.2] * 5, [1.0]),
]
each_filter = pytest.mark.parametrize(("filter", "b", "a"), TEXTBOOK, ids=[str(filter) for filter, _, _ in TEXTBOOK])
Coefficients = list[float]


def noise(steps: int, scalars: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((steps, scalars))


# Filters ----------------------------------------------------------------------------------------------------------


@each_filter
def test_response_is_that_of_scipy(filter: Filter, b: Coefficients, a: Coefficients) -> None:
    found = response(filter)
    assert found.frequency[[0, -1]] == pytest.approx([1e-4, 0.5])
    expected = filter.lamb * signal.freqz(b, a, found.frequency, fs=1.0)[1]
    whole = expected if filter.slow_only else 1 + expected
    np.testing.assert_allclose(found.slow, np.abs(expected), rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.total, np.abs(whole), rtol=0, atol=1e-12)
    assert found.cutoff == filter.cutoff_frequency()


@each_filter
def test_impulse_response_is_that_of_scipy(filter: Filter, b: Coefficients, a: Coefficients) -> None:
    expected = filter.lamb * signal.lfilter(b, a, np.eye(1, 200)[0])  # type: ignore
    np.testing.assert_allclose(response(filter).impulse, expected, rtol=0, atol=1e-12)


@each_filter
def test_transform_of_the_impulse_response_is_the_transfer_function(
    filter: Filter, b: Coefficients, a: Coefficients
) -> None:
    steps = ring_out(filter)
    found = np.fft.rfft(impulse_response(filter, steps))
    frequency = np.fft.rfftfreq(steps)
    np.testing.assert_allclose(found, filter.lamb * signal.freqz(b, a, frequency, fs=1.0)[1], rtol=0, atol=1e-10)


@each_filter
def test_impulse_response_is_what_a_gradient_leaves_in_later_ones(
    filter: Filter, b: Coefficients, a: Coefficients
) -> None:
    start = silence(filter)
    grads = torch.zeros(start + 30, 1, dtype=torch.float64)
    grads[start] = 1.0
    state = filter.new_state(grads[0])
    for count, grad in enumerate(grads):
        filter.update([grad], [state], count)
    kept = np.eye(1, 30)[0] * (not filter.slow_only)
    np.testing.assert_allclose(grads[start:, 0], kept + impulse_response(filter, 30), rtol=0, atol=1e-12)


# Spectra ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "used"), [(2000, 256), (512, 256), (300, 150), (101, 50), (30, 16), (16, 16)])
def test_power_is_the_mean_of_normalised_welch_densities(steps: int, used: int) -> None:
    signals = noise(steps, 3).cumsum(axis=0)
    frequency, density = power_density(signals, segment=256)
    expected_frequency, each = signal.welch(signals, nperseg=used, detrend="constant", axis=0)
    np.testing.assert_allclose(frequency, expected_frequency[1:])
    np.testing.assert_allclose(density, (each[1:] / (each[1:].sum(axis=0) / used)).mean(axis=1), rtol=1e-9)
    assert density.sum() * frequency[0] == pytest.approx(1.0)


def slow_share(frequency: np.ndarray, density: np.ndarray, cutoff: float) -> float:
    """The fraction of the power at frequencies below `cutoff`, bins cut in proportion."""
    half = frequency[0] / 2
    edges = np.minimum(np.append(half, frequency + half), 0.5)
    return float(np.interp(cutoff, edges, np.append(0.0, density.cumsum()) / density.sum()))


@pytest.mark.parametrize("at", [0.0625, 0.25, 0.4375])
def test_wave_in_noise_stands_at_its_frequency(at: float) -> None:
    wave = np.sin(2 * np.pi * at * np.arange(2048))[:, None]
    found = power_density(0.5 * wave + noise(2048, 20), segment=256)
    assert found[0][found[1].argmax()] == at
    # A sine of amplitude 1/2 has power 1/8, the noise 1.
    share = slow_share(*found, at + 0.01) - slow_share(*found, at - 0.01)
    assert share == pytest.approx((1 / 8 + 0.04) / (9 / 8), rel=0.1)


def test_white_noise_is_flat() -> None:
    found = power_density(noise(8192, 40), segment=256)
    np.testing.assert_allclose(found[1][1:-1], 2.0, rtol=0.1)  # a power of 1 over half a cycle per step
    for cutoff in (0.05, 0.1, 0.3, 0.5):
        # The mean of each segment is lost, and with it most of the first bin, 1/128 of the power.
        assert slow_share(*found, cutoff) == pytest.approx(2 * cutoff, abs=0.01)


def test_no_scalar_counts_more_for_being_large() -> None:
    signals = np.hstack([noise(600, 2), noise(600, 2, seed=1).cumsum(axis=0)])
    np.testing.assert_allclose(power_density(signals * [1.0, 1e-6, 1e6, 3.0])[1], power_density(signals)[1])


def test_scalars_that_never_change_do_not_count() -> None:
    moving, still = noise(600, 5), np.full((600, 4), [0.0, 0.1, 1e20, np.nan])
    expected = power_density(moving)[1]
    np.testing.assert_allclose(power_density(np.hstack([still, moving]))[1], expected)
    with pytest.raises(ValueError, match="signals must hold a finite scalar that changes, got none"):
        power_density(still)


def test_power_relative_to_others_is_the_gain() -> None:
    signals = noise(600, 5)
    np.testing.assert_allclose(power_density(3 * signals, reference=signals)[1], 9 * power_density(signals)[1])


def test_power_refuses_what_is_too_short() -> None:
    with pytest.raises(ValueError, match="signals must hold at least 16 steps, got 15"):
        power_density(noise(15, 2))


# Recorded runs ----------------------------------------------------------------------------------------------------


def recorded(runs_dir: Path, **changes: object) -> Run:
    return train(tiny(steps=160, gradients=300, eval_every=80, **changes), runs_dir)


@pytest.mark.parametrize(
    "changes",
    [
        {"filter": "ema", "alpha": 0.8, "lamb": 2.0},
        {"filter": "ma", "window_size": 5, "lamb": 2.0, "slow_only": True},
        {"filter": "butterworth", "order": 2, "cutoff": 0.1, "lamb": 2.0, "two_stage": 50},
        {},
    ],
    ids=str,
)
def test_gain_of_a_recorded_run_is_that_of_its_filter(runs_dir: Path, changes: dict[str, object]) -> None:
    frequency, measured, theory = measured_gain(recorded(runs_dir, **changes), segment=32)
    assert len(frequency) == 16
    # The zeros of a window are filled by leakage, hence the second term.
    np.testing.assert_allclose(measured[1:], theory[1:], rtol=0.1, atol=0.02 * theory.max())


def write_gradients(run: Run, before: np.ndarray, after: np.ndarray) -> None:
    (run.path / "gradients.json").write_text(json.dumps({"names": ["w"] * before.shape[1]}))
    (run.path / "gradients.f32").write_bytes(np.stack([before, after], axis=1).astype(np.float32).tobytes())


@pytest.mark.parametrize("idle", [0, 1500])
def test_gain_is_measured_once_the_filter_runs_and_has_forgotten_its_start(runs_dir: Path, idle: int) -> None:
    run = create_run(tiny(filter="ema", alpha=0.9, lamb=2.0), runs_dir, {})
    before = noise(3000, 10)
    before[0] = before[idle] = 300.0
    after = before + 2.0 * signal.lfilter([0.1], [1.0, -0.9], before, axis=0)  # type: ignore
    after[:idle] = before[:idle]
    write_gradients(run, before, after)
    _, measured, theory = measured_gain(run, segment=64)
    np.testing.assert_allclose(measured[1:], theory[1:], rtol=0.1)


def test_at_most_a_quarter_of_a_run_is_left_out_for_the_filter_to_forget() -> None:
    before = noise(400, 2).astype(np.float32)
    after = before.copy()
    after[150:] += 1
    assert settled(Sampled(["w"] * 2, before, after), EMA(alpha=0.8)) == 150 + 22  # 0.8^22 < 0.01
    assert settled(Sampled(["w"] * 2, before, after), EMA(alpha=0.999)) == 150 + 62
    assert settled(Sampled(["w"] * 2, before, before), EMA(alpha=0.8)) == 22


def fabricated(runs_dir: Path, accuracies: list[tuple[int, float, float]]) -> Run:
    """A run whose gradients are fast until step 200 and slow from then on, after the filter twice what they were."""
    run = create_run(tiny(steps=400, gradients=4), runs_dir, {})
    before = np.vstack([noise(200, 4), noise(200, 4).cumsum(axis=0)])
    write_gradients(run, before, 2 * before)
    rows = [Row(t, 1.0, train, 1.0, val, 1.0, 1.0, None, 1e-3, t, 1.0) for t, train, val in accuracies]
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(row._asdict()) + "\n" for row in rows))
    return run


GROKKED = [(100, 1.0, 0.1), (200, 1.0, 1.0), (400, 1.0, 1.0)]
STOPPED_THERE = [(100, 0.5, 0.1), (200, 1.0, 0.5), (400, 1.0, 1.0)]
NEVER_LEARNT = [(200, 0.5, 0.1), (400, 0.6, 0.2)]


def test_phases_are_split_at_grokking_or_else_at_memorisation(runs_dir: Path, tmp_path: Path) -> None:
    grokked = filtered_spectra(fabricated(runs_dir, GROKKED))
    stopped = filtered_spectra(fabricated(tmp_path / "stopped", STOPPED_THERE))
    assert list(grokked) == ["whole run", "before grokking", "after grokking"]
    assert list(stopped) == ["whole run", "memorisation", "generalisation"]
    for found in (grokked, stopped):
        assert [(phase.start, phase.stop) for phase in found.values()] == [(0, 400), (0, 200), (200, 400)]
        _, early, late = found.values()
        assert slow_share(*early[2:4], 0.05) < 0.2 < 0.8 < slow_share(*late[2:4], 0.05)
        assert np.array_equal(early.frequency, late.frequency)
    for phase in grokked.values():
        np.testing.assert_allclose(phase.after, 4 * phase.before)


@pytest.mark.parametrize("accuracies", [NEVER_LEARNT, [(4, 1.0, 1.0)], []], ids=["never", "at_once", "not_yet"])
def test_run_without_two_phases_is_one(runs_dir: Path, accuracies: list[tuple[int, float, float]]) -> None:
    assert list(filtered_spectra(fabricated(runs_dir, accuracies))) == ["whole run"]


def test_phases_of_unequal_length_share_their_frequencies(runs_dir: Path) -> None:
    _, early, late = filtered_spectra(fabricated(runs_dir, [(60, 1.0, 1.0)])).values()
    assert (early.stop, late.start) == (60, 60)
    assert np.array_equal(early.frequency, late.frequency)


def test_spectra_need_recorded_gradients(runs_dir: Path) -> None:
    run = create_run(tiny(), runs_dir, {})
    for analyse in (filtered_spectra, measured_gain, load_gradients):
        with pytest.raises(RunError, match="recorded no gradients: train it with --gradients"):
            analyse(run)


# Appendix A -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"momentum": 0.0},
        {"momentum": 0.6},
        {"momentum": 0.6, "dampening": 0.5},
        {"momentum": 0.6, "nesterov": True},
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "filter",
    [
        EMA(alpha=0.6),
        MA(window_size=7),
        MA(window_size=7, warmup=False),
        Butterworth(2, 0.1),
        EMA(slow_only=True, alpha=0.6),
    ],
    ids=str,
)
def test_filter_acts_on_updates_as_on_gradients(filter: Filter, options: dict[str, float]) -> None:
    frequency, measured, theory = update_gain(filter, steps=64, **options)  # type: ignore[arg-type]
    np.testing.assert_allclose(measured, theory, rtol=0, atol=1e-9)
    whole = filter.frequency_response(2 * np.pi * frequency, of="1+h").numpy()
    np.testing.assert_array_equal(theory, whole)
    assert np.abs(theory).max() > 1.5 * np.abs(theory).min()


def test_update_gain_does_not_depend_on_the_learning_rate() -> None:
    one, other = (update_gain(EMA(alpha=0.7), momentum=0.5, steps=32, lr=lr) for lr in (0.1, 3.0))
    np.testing.assert_allclose(one.measured, other.measured, rtol=0, atol=1e-9)
