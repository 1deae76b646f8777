"""Gradients in frequency: S(f) = <|FFT g|^2>, and how a filter changes them and the updates: S <- |1 + H(f)|^2 S."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import grokfast
from grokfast.lab.analysis.frequency import ring_out, silence, transfer
from grokfast.lab.analysis.weights import few_digits
from grokfast.lab.filters import FILTERS
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.metrics import Kind
from grokfast.lab.runs.recording import Sampled, has_gradients, load_gradients
from grokfast.lab.settings import filter_of

SHORTEST = 16  # steps; fewer have no useful spectrum
SEGMENT = 1024  # steps; shorter ones do not reach below the cutoff of the paper's filters


class _Phase(NamedTuple):
    """The gradients of the steps start < t <= stop; both densities in units of the power before the filter."""

    start: int
    stop: int
    frequency: NDArray[Any]  # (bins,): cycles per step, evenly spaced up to 0.5, without 0
    before: NDArray[Any]  # (bins,): power per cycle per step; times the spacing it adds up to 1
    after: NDArray[Any]  # (bins,): times the spacing it adds up to the gain in power


class _Gain(NamedTuple):
    """A gain over frequency, measured and in theory: |1 + H|^2 for the power of gradients, 1 + H for updates."""

    frequency: NDArray[Any]  # (bins,): cycles per step
    measured: NDArray[Any]  # (bins,): with the filter / without
    theory: NDArray[Any]  # (bins,)


def power_density(
    signals: NDArray[Any], *, segment: int = SEGMENT, reference: NDArray[Any] | None = None
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Welch's power spectral density of many signals over frequency: the mean, each divided by its own power.

    Gradients of one layer may be a thousand times those of another, so each scalar has the same weight. Scalars that
    never change do not count. The mean of each segment is removed, so frequencies below 1 / `segment` are lost. A short
    run gets shorter segments, so that there are three to average.

    Args:
        signals: (steps, scalars), of 16 steps or more; may be mapped from a file, it is read a segment at a time.
        segment: steps per segment; the frequencies are multiples of 1 / segment.
        reference: signals of the same shape by whose powers to divide instead.

    Examples:
        >>> wave = np.sin(2 * np.pi * 0.125 * np.arange(512))[:, None]
        >>> frequency, density = power_density(wave, segment=256)
        >>> float(frequency[density.argmax()]), round(float(density.sum()) / 256, 6)
        (0.125, 1.0)
    """
    segment = fit_segment(len(signals), segment)
    density = welch(signals, segment)
    total = (density if reference is None else welch(reference, segment)).sum(axis=0) / segment
    keep = total > 0  # which NaN is not
    if not keep.any():
        raise ValueError("signals must hold a finite scalar that changes, got none")
    return np.fft.rfftfreq(segment)[1:], (density[:, keep] / total[keep]).mean(axis=1)


def welch(signals: NDArray[Any], segment: int) -> NDArray[Any]:
    """The density of each signal without that at 0, (bins, scalars), as scipy.signal.welch has it.

    Segment by segment: a recorded run is on disk step by step, so one pass reads it in order.
    """
    starts = range(0, len(signals) - segment + 1, segment - segment // 2)
    total = np.zeros((segment // 2, signals.shape[1]))
    for start in starts:
        part = np.asarray(signals[start : start + segment], np.float64)
        # From its first value, so that a constant becomes exact zeros and not the rounding error of its mean.
        with np.errstate(invalid="ignore"):  # a diverged run
            total += periodogram(part - part[0])
    return total / len(starts)


def periodogram(part: NDArray[Any]) -> NDArray[Any]:
    """The density of one segment by a Hann window, without that at 0. In numpy: to import scipy takes a second."""
    segment = len(part)
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(segment) / segment)
    density = np.abs(np.fft.rfft((part - part.mean(0)) * window[:, None], axis=0)[1:]) ** 2 / (window**2).sum()
    density[: (segment - 1) // 2] *= 2  # the negative frequencies; the highest of an even length has none
    return density


def fit_segment(steps: int, segment: int) -> int:
    """The length of a segment of which half-overlapping ones fit three times, if there are steps enough."""
    if steps < SHORTEST:
        raise ValueError(f"signals must hold at least {SHORTEST} steps, got {steps}")
    return min(segment, max(SHORTEST, steps // 2))


# Recorded runs ----------------------------------------------------------------------------------------------------


def filtered_spectra(run: Run, *, segment: int = SEGMENT) -> dict[str, _Phase]:
    """The gradients a run recorded, before and after the filter: of the `"whole run"` and of its two phases.

    The phases are `"before grokking"` and `"after grokking"`. If the run has too few steps after grokking, they are
    `"memorisation"` (until the training data is learnt) and `"generalisation"`. If these are too short as well, the
    whole run is the only one.
    """
    if (table := read_spectra(run)) is not None:
        return {name: read_phase(values) for name, values in table["phases"].items()}
    sampled = load_gradients(run)
    steps = len(sampled.before)
    found = {"whole run": phase(sampled, 0, steps, segment)}
    spans = phases(run, steps, max(SHORTEST, min(segment, steps // 8)))
    # One length of segment for both, or they could not be compared.
    shared = min((fit_segment(stop - start, segment) for start, stop in spans.values()), default=segment)
    return found | {name: phase(sampled, start, stop, shared) for name, (start, stop) in spans.items()}


def phases(run: Run, steps: int, least: int) -> dict[str, tuple[int, int]]:
    """The first and the last step of the phases of a run, none of less than `least` steps."""
    kinds: dict[Kind, tuple[str, str]] = {
        "first": ("before grokking", "after grokking"),
        "train": ("memorisation", "generalisation"),
    }
    for kind, (early, late) in kinds.items():
        split = run.crossing(kind).step
        if split is not None and least <= split <= steps - least:
            return {early: (0, split), late: (split, steps)}
    return {}


def phase(sampled: Sampled, start: int, stop: int, segment: int) -> _Phase:
    before, after = sampled.before[start:stop], sampled.after[start:stop]
    frequency, density = power_density(before, segment=segment)
    return _Phase(start, stop, frequency, density, power_density(after, segment=segment, reference=before)[1])


def measured_gain(run: Run, *, segment: int = SEGMENT) -> _Gain:
    """The power after the filter divided by that before, and |1 + H|^2; both are 1 for a run without a filter.

    At the lowest frequencies, and near zeros of the filter, the measured value is too high: power leaks in from
    neighbouring frequencies, and gradients shrink over training, so the filter still contains earlier, larger ones.
    Longer segments move these bins down.
    """
    if (table := read_spectra(run)) is not None:
        return _Gain(*(np.array(table["gain"][name]) for name in _Gain._fields))
    name = run.settings["filter"]
    if name is not None and name not in FILTERS:
        raise RunError(f"{run.name} has a filter that is not known here: {name}")
    sampled, filter = load_gradients(run), filter_of(run.settings)
    start = 0 if filter is None else settled(sampled, filter)
    _, _, frequency, before, after = phase(sampled, start, len(sampled.before), segment)
    theory = np.ones_like(frequency) if filter is None else np.abs(transfer(filter, frequency)) ** 2
    return _Gain(frequency, after / before, theory)


def settled(sampled: Sampled, filter: grokfast.Filter) -> int:
    """How many steps to leave out: those before the filter starts, and those in which its first gradient has an effect.

    The first gradient seeds an average, and it is often large. A run of modmul (EMA of 0.98, segments of 1,024) gave a
    gain of 12.5 in its first bin with these steps and 9.4 without; theory says 8.3. At most a quarter of a run is left
    out.
    """
    rows = enumerate(zip(sampled.before, sampled.after, strict=True))
    first = next((step for step, (before, after) in rows if (before != after).any()), 0)
    return first + min(ring_out(filter, level=0.1), (len(sampled.before) - first) // 4)


# Recorded evidence ------------------------------------------------------------------------------------------------


def spectrum_table(run: Run) -> dict[str, Any]:
    """The table that results/ keeps of the gradients of a run: the spectra of its phases and the measured gain."""
    gain = {name: few_digits(values) for name, values in measured_gain(run)._asdict().items()}
    return {"phases": {name: plain_phase(found) for name, found in filtered_spectra(run).items()}, "gain": gain}


def plain_phase(found: _Phase) -> dict[str, Any]:
    densities = {name: few_digits(getattr(found, name)) for name in ("before", "after")}
    return {"start": found.start, "stop": found.stop, "segment": round(1 / found.frequency[0]), **densities}


def read_spectra(run: Run) -> dict[str, Any] | None:
    return None if has_gradients(run) else run.tables.get("spectra")


def has_spectra(run: Run) -> bool:
    """Whether a run has recorded gradients, or a table of their spectra."""
    return has_gradients(run) or run.tables.get("spectra") is not None


def read_phase(values: dict[str, Any]) -> _Phase:
    frequency = np.fft.rfftfreq(values["segment"])[1:]
    return _Phase(values["start"], values["stop"], frequency, np.array(values["before"]), np.array(values["after"]))


# Appendix A -------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=16)  # it takes a second, and a page and a figure show the same filters
def update_gain(filter: grokfast.Filter, *, steps: int = 1000, momentum: float = 0.9, **options: Any) -> _Gain:
    """The theorem of appendix A in numbers: filtered gradients give SGD the updates that filtering these would give.

    torch.optim.SGD gets white noise with and without the filter, with zeros before and after it until the response has
    decayed. Then the ratio of the Fourier transforms of the updates is 1 + H(w) up to rounding, without windows or
    averages. It is a least-squares ratio over eight scalars, to avoid dividing by near-zero bins.
    `options` are further ones of SGD.
    """
    ends = silence(filter), ring_out(filter, pole=momentum)
    grads = np.pad(np.random.default_rng(0).standard_normal((steps, 8)), (ends, (0, 0)))
    options = {"lr": 0.1, "momentum": momentum, **options}
    plain, filtered = (np.fft.rfft(sgd_updates(grads, options, f), axis=0) for f in (None, filter))
    measured = (plain.conj() * filtered).sum(axis=1) / (np.abs(plain) ** 2).sum(axis=1)
    frequency = np.fft.rfftfreq(len(grads))
    return _Gain(frequency, measured, transfer(filter, frequency))


def sgd_updates(grads: NDArray[Any], options: dict[str, Any], filter: grokfast.Filter | None) -> NDArray[Any]:
    """u(t) = theta(t+1) - theta(t) of SGD with the given gradients, (steps, scalars)."""
    param = torch.nn.Parameter(torch.zeros(grads.shape[1], dtype=torch.float64))
    optimizer = torch.optim.SGD([param], **options)
    if filter is not None:
        grokfast.attach(optimizer, filter)
    updates = np.zeros_like(grads)
    for t, grad in enumerate(torch.from_numpy(grads)):
        param.grad = grad.clone()
        optimizer.step()
        updates[t] = param.detach().numpy()
        param.data.zero_()  # from 0 each time: differences of a far-off position would lose digits
    return updates
