"""Losses of a batch of logits, by name.

stablemax    s(x) = x + 1 for x >= 0, else 1 / (1 - x);  p = s / sum s;  loss = -log p[answer], in float64
"""

from __future__ import annotations

from torch import Tensor, where
from torch.nn.functional import cross_entropy as cross_entropy


def stablemax(logits: Tensor, answer: Tensor) -> Tensor:
    """Mean loss of (batch, classes) logits; unlike softmax it does not saturate in floating point."""
    x = logits.double()
    s = where(x >= 0, x + 1, 1 / (1 - x.clamp_max(0)))  # (batch, classes)
    right = s.gather(1, answer.unsqueeze(1)).squeeze(1)
    return (s.sum(1).log() - right.log()).mean().to(logits.dtype)


LOSSES = {"cross-entropy": cross_entropy, "stablemax": stablemax}
