"""The equations of all filters, slow and obvious, in float64. A signal has shape (steps, ...), newest value last."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import signal as scipy_signal

from grokfast import EMA, FIR, IIR, MA, Butterworth, Filter


class SlowPart(NamedTuple):
    """The slow part at each step, and whether there was one (a moving average that warms up has none)."""

    values: np.ndarray  # (steps, ...)
    present: np.ndarray  # (steps,) of bool


def ema(g: np.ndarray, alpha: float, init: str = "first") -> SlowPart:
    """m_0 = g_0 (or 0, then one step),  m_t = alpha m_{t-1} + (1 - alpha) g_t."""
    m = g[0] if init == "first" else (1 - alpha) * g[0]
    values = [m]
    for x in g[1:]:
        m = alpha * m + (1 - alpha) * x
        values.append(m)
    return everywhere(np.stack(values))


def ma(g: np.ndarray, window_size: int, warmup: bool = True, reduction: str = "mean") -> SlowPart:
    """Mean or sum of the last `window_size` values, of those there are at the start."""
    values = []
    for t in range(len(g)):
        window = g[max(0, t + 1 - window_size) : t + 1]
        values.append(window.mean(axis=0) if reduction == "mean" else window.sum(axis=0))
    full = np.arange(1, len(g) + 1) >= window_size
    return SlowPart(np.stack(values), full | (not warmup))


def fir(g: np.ndarray, taps: tuple[float, ...], init: str = "first") -> SlowPart:
    """sum_i taps[i] g_{t-i}, where g before the start is g_0 or 0."""
    before = g[0] if init == "first" else np.zeros_like(g[0])
    past = [before] * (len(taps) - 1)
    values = []
    for x in g:
        past.append(x)
        values.append(sum(tap * past[-1 - i] for i, tap in enumerate(taps)))
    return everywhere(np.stack(values))


def iir(g: np.ndarray, b: tuple[float, ...], a: tuple[float, ...], init: str = "first") -> SlowPart:
    """(sum_i b[i] g_{t-i} - sum_{i>0} a[i] y_{t-i}) / a[0], where the past is a settled constant g_0 or 0."""
    b0, a0 = np.asarray(b, float), np.asarray(a, float)
    past_g = g[0] if init == "first" else np.zeros_like(g[0])
    past_y = past_g * (b0.sum() / a0.sum())
    inputs, outputs = [past_g] * (len(b0) - 1), [past_y] * (len(a0) - 1)
    for x in g:
        inputs.append(x)
        forward = sum(b0[i] * inputs[-1 - i] for i in range(len(b0)))
        back = sum((a0[i] * outputs[-i] for i in range(1, len(a0))), np.zeros_like(x))
        outputs.append((forward - back) / a0[0])
    return everywhere(np.stack(outputs[len(a0) - 1 :]))


def butterworth(g: np.ndarray, order: int, cutoff: float, init: str = "first") -> SlowPart:
    """scipy's sosfilt, started in the steady state of a constant g_0 or from silence."""
    sos = scipy_signal.butter(order, cutoff, fs=1.0, output="sos")
    zi = scipy_signal.sosfilt_zi(sos)  # (sections, 2)
    flat = g.reshape(len(g), -1)  # (steps, n)
    start = zi[:, :, None] * flat[0] if init == "first" else np.zeros((*zi.shape, flat.shape[1]), g.dtype)
    values, _ = scipy_signal.sosfilt(sos, flat, axis=0, zi=start.astype(g.dtype))
    return everywhere(values.reshape(g.shape))


def everywhere(values: np.ndarray) -> SlowPart:
    return SlowPart(values, np.ones(len(values), bool))


def slow_part(filter: Filter, g: np.ndarray) -> SlowPart:
    """The slow part that `filter` should find in a signal."""
    match filter:
        case EMA():
            return ema(g, filter.alpha, filter.init)
        case MA():
            return ma(g, filter.window_size, filter.warmup, filter.reduction)
        case FIR():
            return fir(g, tuple(filter.taps), filter.init)
        case IIR():
            return iir(g, tuple(filter.b), tuple(filter.a), filter.init)
        case Butterworth():
            return butterworth(g, filter.order, filter.cutoff, filter.init)
    raise NotImplementedError(f"write down the equation of {type(filter).__name__} here")


def filtered(filter: Filter, g: np.ndarray) -> np.ndarray:
    """What the optimizer should receive: g + lamb slow, or lamb slow, or g while there is no slow part."""
    slow = slow_part(filter, g)
    present = slow.present.reshape(-1, *[1] * (g.ndim - 1))
    changed = filter.lamb * slow.values if filter.slow_only else g + filter.lamb * slow.values
    return np.where(present, changed, g)
