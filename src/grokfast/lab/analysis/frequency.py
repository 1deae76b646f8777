"""A filter in time and in frequency: H(w) = sum_t h(t) exp(-i w t), and what the optimizer receives, 1 + H(w)."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import grokfast

Floats = NDArray[np.float64]
PERIODS = (1000, 300, 100, 30, 10, 2)  # steps of an oscillation


class Response(NamedTuple):
    """What a filter does to each frequency and to a single unit gradient: the paper's figure of MA and EMA."""

    frequency: Floats  # (points,): cycles per step, a log grid up to 0.5, without 0
    slow: Floats  # (points,): |H|, with lamb
    total: Floats  # (points,): |1 + H|, or |H| again for a slow-only filter
    impulse: Floats  # (steps,): h(t), with lamb
    cutoff: float | None  # cycles per step, where |H| has fallen by 3 dB; None if it never does
    gain: float  # of a constant gradient: `total` at frequency 0


def response(filter: grokfast.Filter, *, points: int = 400, steps: int = 200, lowest: float = 1e-4) -> Response:
    """The response of any filter: its transfer function from its coefficients, its impulse response by running it.

    Args:
        points: of the frequency grid.
        steps: of the impulse response.
        lowest: frequency of the grid, cycles per step in (0, 0.5).

    Example:
        >>> found = response(grokfast.EMA(alpha=0.98, lamb=2.0))
        >>> round(found.gain, 6), round(found.cutoff, 5), found.impulse[:2].round(4).tolist()
        (3.0, 0.00322, [0.04, 0.0392])
    """
    check(points=points, steps=steps)
    if not 0 < lowest < 0.5:
        raise ValueError(f"lowest must be in (0, 0.5), got {lowest!r}")
    frequency = np.geomspace(lowest, 0.5, points)
    slow, total = np.abs(transfer(filter, frequency, of_slow=True)), np.abs(transfer(filter, frequency))
    gain = abs(filter.frequency_response(0.0, of="1+h").item())
    return Response(frequency, slow, total, impulse_response(filter, steps), filter.cutoff_frequency(), gain)


def transfer(filter: grokfast.Filter, frequency: Floats, *, of_slow: bool = False) -> NDArray[np.complex128]:
    """1 + H of a filter at frequencies in cycles per step (H alone for a slow-only one, or if `of_slow`)."""
    return filter.frequency_response(2 * math.pi * frequency, of="h" if of_slow else "1+h").numpy()


def impulse_response(filter: grokfast.Filter, steps: int) -> Floats:
    """h(t): lamb times the slow part that a running filter makes of one unit gradient after silence."""
    start = silence(filter)
    grads = torch.zeros(start + steps, 1, dtype=torch.float64)
    grads[start] = 1.0
    state, answer = filter.new_state(grads[0]), np.zeros(start + steps)
    for count, grad in enumerate(grads):
        # Not `update`, of which `slow_only` and `compile` would have to be undone.
        slow = filter.advance([grad], [state], count)
        answer[count] = 0.0 if slow is None else filter.lamb * slow.scale * slow.tensors[0].item()
    return answer[start:]


def silence(filter: grokfast.Filter) -> int:
    """How many zero gradients make the beginning of a filter like any other time.

    The first gradient seeds the state of some filters, and a window changes nothing, or has another scale, until it is
    full. After as many zeros as the longest section has coefficients all are time-invariant and at rest.
    """
    return max(len(b) for b, _ in filter.sections())


def ring_out(filter: grokfast.Filter, *, pole: float = 0.0, level: float = 1e-12) -> int:
    """Steps until the answer to an impulse has fallen to `level`, through a further pole such as a momentum's."""
    radius = max([pole, *(abs(root) for _, a in filter.sections() for root in np.roots(a))])
    # Poles that lie together decay as a polynomial times an exponential: hence twice as long.
    decay = 2 * math.log(level) / math.log(radius) if radius > 0 else 0.0
    return silence(filter) + math.ceil(decay)


def gain_rows(filter: grokfast.Filter) -> list[list[str]]:
    """The headings, and how much of an oscillation of the gradient reaches the optimizer, by its period in steps.

    >>> gain_rows(grokfast.EMA(alpha=0.98, lamb=2.0))[:2]
    [['period', 'gain of 1 + h', 'gain of h'], ['constant', '3.000', '2.000']]
    """
    w = [0.0, *(2 * math.pi / period for period in PERIODS)]
    total, slow = (filter.frequency_response(w, of=of).abs().tolist() for of in ("1+h", "h"))
    rows = zip(("constant", *map(str, PERIODS)), total, slow, strict=True)
    return [["period", "gain of 1 + h", "gain of h"], *([period, f"{a:.3f}", f"{b:.3f}"] for period, a, b in rows)]


def cutoff_text(filter: grokfast.Filter) -> str:
    cutoff = filter.cutoff_frequency()
    return "h is flat" if cutoff is None else f"h has fallen by 3 dB at a period of {1 / cutoff:,.0f} steps"


def check(**counts: int) -> None:
    """Raise unless every value is at least 1."""
    for name, value in counts.items():
        if value < 1:
            raise ValueError(f"{name} must be an integer >= 1, got {value!r}")
