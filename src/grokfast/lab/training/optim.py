"""The optimizers of a run, with its filter attached, and what rival methods do to gradients and weights.

    perp_grad     g <- g - (w.g / w.w) w, rescaled to |g|, tensor by tensor
    equal_grad    G = U S V' -> U V', for the matrices of MLPs
    late_decay    L <- L + c sum |w|^2, so g <- g + 2 c w, once training has saturated
    row_norm      rows begin as c row / |row|; after each step row <- row min(1, c / |row|); not token table and head

The rivals change gradients before they are clipped and before the filter sees them. StableMax, a loss, is in tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

import grokfast
from grokfast.lab.settings import (
    OPTIMIZERS,
    PATIENCE,
    SATURATED,
    OptimConfig,
    keywords_of,
    parameters_of,
)

TINY = 1e-30  # avoids a division by zero


def make_optimizers(model: nn.Module, config: OptimConfig) -> list[Optimizer]:
    """The optimizer that a configuration names. Muon takes matrices and leaves the rest, if any, to AdamW."""
    options = dict(config.optimizer_option)
    decay: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    fused: dict[str, Any] = {"fused": True} if config.fused else {}
    if config.optimizer == "muon":
        taken, rest = split_for_muon(model, config.muon_params)
        given = {"lr": config.companion_lr, "weight_decay": config.companion_decay}
        own = {name: value for name, value in given.items() if value is not None}
        companion = [AdamW(rest, **{**decay, **own}, betas=config.betas, **fused)] if rest else []  # type: ignore[arg-type]
        return [Muon(taken, **decay, **options), *companion]
    known = parameters_of(config.optimizer)
    if "weight_decay" not in known and config.weight_decay:
        raise ValueError(f"weight_decay must be 0 with {config.optimizer}, got {config.weight_decay}")
    values = {name: value for name, value in decay.items() if name in known}
    values |= {name: getattr(config, name) for name in keywords_of(config.optimizer)}
    return [OPTIMIZERS[config.optimizer](model.parameters(), **values, **fused, **options)]


def split_for_muon(model: nn.Module, which: str) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The matrices for Muon, and what is left. Hidden ones are neither tables of embeddings nor the last layer."""
    left: set[int] = set()
    if which != "all":
        left |= {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    if which == "hidden":
        left.add(id(last_linear(model)))
    taken = [p for p in model.parameters() if p.ndim == 2 and id(p) not in left]
    chosen = {id(p) for p in taken}
    if not taken:
        raise ValueError(f"muon_params must leave muon a matrix, got {which}")
    return taken, [p for p in model.parameters() if id(p) not in chosen]


def last_linear(model: nn.Module) -> Tensor | None:
    """The weight of the last linear layer: in all our models the head."""
    found = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    return found[-1] if found else None


def switch(optimizers: Sequence[Optimizer], mode: Literal["train", "eval"]) -> None:
    """Switch optimizers with separate weights for training and evaluation, such as schedule-free ones."""
    for optimizer in optimizers:
        getattr(optimizer, mode, lambda: None)()


def attach_filter(
    optimizers: list[Optimizer], filter: grokfast.Filter | None, two_stage: int | str | None
) -> tuple[list[grokfast.Attachment], grokfast.Saturation | None]:
    """Attach the filter; returns its handles, and the trigger that needs the training accuracy, if there is one."""
    if filter is None:
        return [], None
    saturated = make_trigger()
    start = int(two_stage or 0) if two_stage != "auto" else saturated
    handles = [grokfast.attach(optimizer, filter, start=start) for optimizer in optimizers]
    return handles, saturated if start is saturated else None


def make_trigger() -> grokfast.Saturation:
    """A trigger that fires once the training accuracy has saturated."""
    return grokfast.Saturation(above=SATURATED, patience=PATIENCE)


def filter_metrics(handles: list[grokfast.Attachment]) -> dict[str, float]:
    """The metrics of the filter, by optimizer if there are several."""
    if len(handles) == 1:
        return handles[0].metrics()
    each = ((f"grokfast/optimizer{index}/", handle.metrics()) for index, handle in enumerate(handles))
    return {prefix + name.removeprefix("grokfast/"): v for prefix, found in each for name, v in found.items()}


# Muon -----------------------------------------------------------------------------------------------------------------

# torch rounds the orthogonalisation to bf16. CPUs without bf16 instructions emulate them, and a step of the
# modular task takes about seven times as long.


class Muon(torch.optim.Muon):
    """torch's Muon in the precision of the gradient: b <- mu b + (1 - mu) g;  w <- w - lr NS(b)."""

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


# Rivals ---------------------------------------------------------------------------------------------------------------


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
