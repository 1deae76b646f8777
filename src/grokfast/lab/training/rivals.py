"""What rival methods do to the gradient, to the loss, and after the step.

    perp_grad     g <- g - (w.g / w.w) w, rescaled to |g|, tensor by tensor
    equal_grad    G = U S V' -> U V', for the matrices of MLPs
    late_decay    L <- L + c sum |w|^2, so g <- g + 2 c w, once training has saturated
    row_norm      rows begin as c row / |row|; after each step row <- row min(1, c / |row|); not token table and head

The gradients are changed before they are clipped and before the filter sees them. StableMax, a loss, belongs to tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from grokfast.lab.training.optimizers import last_linear

TINY = 1e-30  # keeps what is divided by from being zero


@torch.no_grad()
def project_gradients(params: Iterable[Tensor]) -> None:
    """Keep of each gradient what is orthogonal to its weights, at the length that the gradient had."""
    for p in params:
        if p.grad is not None:
            rest = p.grad - (p * p.grad).sum() / (p * p).sum().clamp_min(TINY) * p
            p.grad.copy_(rest * (p.grad.norm() / rest.norm().clamp_min(TINY)))


@torch.no_grad()
def equalise_gradients(matrices: Iterable[Tensor]) -> None:
    """Give all singular values of each gradient the size 1."""
    for p in matrices:
        if p.grad is not None:
            u, _, v = torch.linalg.svd(p.grad, full_matrices=False)
            p.grad.copy_(u @ v)


@torch.no_grad()
def add_decay(params: Iterable[Tensor], strength: float) -> None:
    """Add the gradient of `strength` times the sum of all squared weights."""
    for p in params:
        if p.grad is not None:
            p.grad.add_(p, alpha=2 * strength)


@torch.no_grad()
def set_row_norms(matrices: Iterable[Tensor], norm: float) -> None:
    """Give each row this norm."""
    for p in matrices:
        p.mul_(norm / p.norm(dim=1, keepdim=True).clamp_min(TINY))


@torch.no_grad()
def clip_rows(matrices: Sequence[Tensor], norm: float) -> None:
    """Shorten the rows that are longer than this norm."""
    for p in matrices:
        p.mul_((norm / p.norm(dim=1, keepdim=True).clamp_min(TINY)).clamp_max(1.0))


def clipped_matrices(model: nn.Module) -> list[Tensor]:
    """All matrices but the token table, which is the longest table of embeddings, and the head."""
    tables = [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    spared = {id(max(tables, key=len)) if tables else None, id(last_linear(model))}
    return [p for p in model.parameters() if p.ndim == 2 and id(p) not in spared]


def mlp_matrices(model: nn.Module) -> list[Tensor]:
    """The weights of all linear layers outside attention but the last."""
    attention = [module for module in model.modules() if isinstance(module, nn.MultiheadAttention)]
    spared = {id(p) for module in attention for p in module.parameters()} | {id(last_linear(model))}
    linear = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    return [p for p in linear if id(p) not in spared]
