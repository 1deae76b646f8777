"""The transfer function of a filter, H(z) = prod B(z) / A(z), and the frequency at which |H| has fallen by 3 dB."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

Section = tuple[Sequence[float], Sequence[float]]
"""Coefficients (b, a) of one factor B(z) / A(z). z stands for a delay of one step."""


def transfer(sections: Sequence[Section], z: Tensor) -> Tensor:
    """The product of all B(z) / A(z)."""
    value = torch.ones_like(z)
    for b, a in sections:
        value = value * polynomial(b, z) / polynomial(a, z)
    return value


def polynomial(coefficients: Sequence[float], z: Tensor) -> Tensor:
    """c[0] + c[1] z + c[2] z^2 + ... by Horner's rule."""
    total = torch.zeros_like(z)
    for c in reversed(coefficients):
        total = total * z + c
    return total


def half_power_frequency(sections: Sequence[Section]) -> float | None:
    """First frequency in (0, 0.5] with |H(f)|^2 = |H(0)|^2 / 2: bracketed on a grid, then bisected."""

    def excess(f: Tensor) -> Tensor:
        return transfer(sections, torch.exp(-2j * math.pi * f)).abs().square() - level

    zero = torch.zeros((), dtype=torch.float64)
    level = math.prod(sum(b) / sum(a) for b, a in sections) ** 2 / 2
    grid = torch.logspace(-8, math.log10(0.5), 1 << 14, dtype=torch.float64)
    below = torch.nonzero(excess(grid) <= 0)
    if len(below) == 0:
        return None
    first = int(below[0])
    low, high = (grid[first - 1] if first else zero), grid[first]
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return float(high)


def window_half_power_frequency(window_size: int) -> float:
    """The f at which the Dirichlet kernel |sin(pi w f) / (w sin(pi f))| is 1/sqrt(2), by bisection below its zero."""
    low, high = 0.0, 1 / window_size
    for _ in range(60):
        middle = (low + high) / 2
        gain = math.sin(math.pi * window_size * middle) / (window_size * math.sin(math.pi * middle))
        low, high = (middle, high) if gain > 0.5**0.5 else (low, middle)
    return high
