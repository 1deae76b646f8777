"""What a network has learnt of a group that is a circle: Fourier power, circles, and the loss by frequency.

The symbols of the group are put in the order in which its generator visits them, so that the operation adds places
mod n. For multiplication mod p the place of x is its discrete logarithm, n is p - 1, and 0 has no place. A network that
has generalised computes cos(2 pi k (a + b - c) / n) for a few frequencies k (Nanda et al., 2023, arXiv:2301.05217).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

SIGNS = {"add": 1, "subtract": -1, "multiply": 1, "divide": -1}  # place of the answer: a + sign b
KEY = 5  # frequencies that are looked at by themselves


class Circle(NamedTuple):
    """The symbols of a group in the order of their places, and how places are combined."""

    symbols: Tensor  # (n,)
    sign: int

    @property
    def size(self) -> int:
        return len(self.symbols)

    def pairs(self) -> tuple[Tensor, Tensor]:
        """All pairs of places, the first slow and the second fast."""
        left, right = torch.cartesian_prod(torch.arange(self.size), torch.arange(self.size)).T
        return left, right

    def answers(self) -> Tensor:
        """The place of the answer of each pair."""
        left, right = self.pairs()
        return (left + self.sign * right) % self.size


def circle_of(operation: str, p: int) -> Circle:
    """The circle of an operation mod p; ValueError for one that has none.

    >>> circle_of("multiply", 97).symbols[:4].tolist()
    [1, 5, 25, 28]
    """
    if operation not in SIGNS:
        known = ", ".join(SIGNS)
        raise ValueError(
            f"operation must be one of {known} to be looked at by frequencies, got {operation}: its symbols have no "
            "order in which it adds places on a circle"
        )
    if operation in ("add", "subtract"):
        return Circle(torch.arange(p), SIGNS[operation])
    root = primitive_root(p)
    return Circle(torch.tensor([pow(root, place, p) for place in range(p - 1)]), SIGNS[operation])


def primitive_root(p: int) -> int:
    """The smallest number whose powers are all numbers from 1 to p - 1.

    >>> primitive_root(97), primitive_root(7)
    (5, 3)
    """
    return next(g for g in range(1, p) if len({pow(g, place, p) for place in range(p - 1)}) == p - 1)


# Power ----------------------------------------------------------------------------------------------------------------


def power(table: Tensor) -> Tensor:
    """The share of each frequency from 1 to n / 2 in the power of a table of one row per place."""
    found = torch.fft.rfft(table.double(), dim=0).abs().square().flatten(1).sum(1)
    found[1 : (len(table) + 1) // 2] *= 2  # these have a twin among the negative frequencies
    return found[1:] / found[1:].sum().clamp_min(1e-300)


def logit_power(logits: Tensor, circle: Circle) -> Tensor:
    """The share of each frequency k in what the logits hold of cos(2 pi k (c - answer) / n), by all pairs.

    `logits` has one row per pair and one column per place of the answer.
    """
    shift = torch.arange(circle.size)
    turned = (circle.answers()[:, None] + shift) % circle.size  # (pairs, n)
    return power(logits.double().gather(1, turned).mean(0)[:, None])


def gini(shares: Tensor) -> float:
    """How unequal the shares are: 0 if all are equal, near 1 if one has everything.

    >>> gini(torch.ones(10)), round(gini(torch.eye(10)[0]), 9)
    (0.0, 0.9)
    """
    ordered, n = shares.double().sort().values, len(shares)
    rank = torch.arange(1, n + 1, dtype=torch.float64)
    return float(((2 * rank - n - 1) * ordered).sum() / (n * ordered.sum().clamp_min(1e-300)))


def key_frequencies(shares: Tensor, count: int = KEY) -> list[int]:
    """The strongest frequencies, the strongest first."""
    return [int(i) + 1 for i in shares.argsort(descending=True)[:count]]


def plane(table: Tensor, frequency: int) -> Tensor:
    """The rows of a table on the plane of one frequency: (n, 2), on a circle if they contain only this frequency."""
    wave = waves(torch.arange(len(table)), frequency, len(table))  # (n, 2)
    basis, _ = torch.linalg.qr(table.double().T @ wave)  # (width, 2)
    return (table.double() - table.double().mean(0)) @ basis


def waves(places: Tensor, frequency: int, size: int) -> Tensor:
    """Cosine and sine of one frequency at these places: (places, 2)."""
    angle = 2 * math.pi * frequency * places.double() / size
    return torch.stack([angle.cos(), angle.sin()], 1)


# Loss by frequency ----------------------------------------------------------------------------------------------------


def component(logits: Tensor, circle: Circle, frequency: int) -> Tensor:
    """What of the logits of all pairs varies with the answer at one frequency."""
    wave = waves(circle.answers(), frequency, circle.size)  # (pairs, 2)
    wave = wave / wave.norm(dim=0).clamp_min(1e-12)
    return wave @ (wave.T @ logits.double())


def excluded(logits: Tensor, circle: Circle, frequency: int) -> Tensor:
    """The logits without one frequency: a network that relies on it gets worse."""
    return logits.double() - component(logits, circle, frequency)


def restricted(logits: Tensor, circle: Circle, frequencies: Sequence[int]) -> Tensor:
    """The logits of these frequencies alone, with the mean over pairs: a network that needs no other stays as good."""
    parts = [component(logits, circle, frequency) for frequency in frequencies]
    return logits.double().mean(0) + torch.stack(parts).sum(0)


# Layers ---------------------------------------------------------------------------------------------------------------


def effective_rank(matrix: Tensor) -> float:
    """exp of the entropy of the singular values: as many directions as a matrix uses.

    >>> round(effective_rank(torch.eye(4)), 6), round(effective_rank(torch.ones(3, 5)), 4)
    (4.0, 1.0)
    """
    values = torch.linalg.svdvals(matrix.double())
    shares = values / values.sum().clamp_min(1e-300)
    return math.exp(-float(torch.special.xlogy(shares, shares).sum()))
