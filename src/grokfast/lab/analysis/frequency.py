"""A filter in time and in frequency: H(w) = sum_t h(t) exp(-i w t), and what the optimizer receives, 1 + H(w)."""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import grokfast


class _Response(NamedTuple):
    """What a filter does to each frequency and to a single unit gradient: the paper's figure of MA and EMA."""

    frequency: NDArray[Any]  # (points,): cycles per step, a log grid up to 0.5, without 0
    slow: NDArray[Any]  # (points,): |H|, with lamb
    total: NDArray[Any]  # (points,): |1 + H|, or |H| again for a slow-only filter
    impulse: NDArray[Any]  # (steps,): h(t), with lamb
    cutoff: float | None  # cycles per step at which |H| has fallen by 3 dB; None if it never does


@functools.lru_cache(maxsize=64)  # a page asks for it twice
def response(filter: grokfast.Filter) -> _Response:
    """The response of any filter: its transfer function from its coefficients, its impulse response by running it.

    >>> found = response(grokfast.EMA(alpha=0.98, lamb=2.0))
    >>> round(found.cutoff, 5), found.impulse[:2].round(4).tolist()
    (0.00322, [0.04, 0.0392])
    """
    frequency = np.geomspace(1e-4, 0.5, 400)
    slow, total = np.abs(transfer(filter, frequency, of_slow=True)), np.abs(transfer(filter, frequency))
    return _Response(frequency, slow, total, impulse_response(filter, 200), filter.cutoff_frequency())


def transfer(filter: grokfast.Filter, frequency: NDArray[Any], *, of_slow: bool = False) -> NDArray[np.complex128]:
    """1 + H of a filter at frequencies in cycles per step (H alone for a slow-only one, or if `of_slow`)."""
    return filter.frequency_response(2 * math.pi * frequency, of="h" if of_slow else "1+h").numpy()


def impulse_response(filter: grokfast.Filter, steps: int) -> NDArray[Any]:
    """h(t): lamb times the slow part that a running filter makes of one unit gradient after silence."""
    start = silence(filter)
    grads = torch.zeros(start + steps, 1, dtype=torch.float64)
    grads[start] = 1.0
    state, answer = filter.new_state(grads[0]), np.zeros(start + steps)
    for count, grad in enumerate(grads):
        # Not `update`, because `slow_only` and `compile` change it.
        slow = filter.advance([grad], [state], count)
        answer[count] = 0.0 if slow is None else filter.lamb * slow.scale * slow.tensors[0].item()
    return answer[start:]


def silence(filter: grokfast.Filter) -> int:
    """How many zero gradients a filter needs before it is time-invariant.

    The first gradient seeds the state of some filters, and a window changes nothing, or has another scale, until it is
    full. As many zeros as the longest section has coefficients are enough.
    """
    return max(len(b) for b, _ in filter.sections())


def ring_out(filter: grokfast.Filter, *, pole: float = 0.0, level: float = 1e-12) -> int:
    """Steps until the answer to an impulse has fallen to `level`, through a further pole such as a momentum's."""
    radius = max([pole, *(abs(root) for _, a in filter.sections() for root in np.roots(a))])
    # Equal poles decay as a polynomial times an exponential, so we take twice as long.
    decay = 2 * math.log(level) / math.log(radius) if radius > 0 else 0.0
    return silence(filter) + math.ceil(decay)
