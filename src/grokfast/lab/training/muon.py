"""torch's Muon with the orthogonalisation in the precision of the gradient: b <- mu b + (1 - mu) g;  w <- w - lr NS(b).

torch rounds it to bf16. CPUs without bf16 instructions emulate them, and a step of the modular task takes about seven
times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, optim


class Muon(optim.Muon):
    """The same arguments, state and update as torch's, to the rounding of bf16."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:  # type: ignore[override]
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self._update(p, p.grad, group)
        return loss

    def _update(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        state = self.state[p]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(p)
        buffer = state["momentum_buffer"].lerp_(grad, 1 - group["momentum"])
        slow = grad.lerp(buffer, group["momentum"]) if group["nesterov"] else buffer
        update = orthogonalise(slow, group["ns_coefficients"], group["ns_steps"], group["eps"])
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(update, alpha=-group["lr"] * shape_factor(p, group["adjust_lr_fn"]))


def orthogonalise(matrix: Tensor, coefficients: tuple[float, float, float], steps: int, eps: float) -> Tensor:
    """Move all singular values towards 1 by Newton and Schulz: x <- a x + b (x x') x + c (x x')^2 x."""
    a, b, c = coefficients
    x = matrix.mT if matrix.shape[0] > matrix.shape[1] else matrix
    x = x / x.norm().clamp(min=eps)  # singular values are at most 1
    for _ in range(steps):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if matrix.shape[0] > matrix.shape[1] else x


def shape_factor(matrix: Tensor, rule: str | None) -> float:
    """By how much torch's rules change the learning rate of a matrix of this shape."""
    rows, columns = matrix.shape
    return 0.2 * math.sqrt(max(rows, columns)) if rule == "match_rms_adamw" else math.sqrt(max(1, rows / columns))
