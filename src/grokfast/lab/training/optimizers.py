"""The optimizers of a configuration, with its filter attached."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

import grokfast
from grokfast.lab.config import PATIENCE, SATURATED, OptimConfig, RunConfig


def make_optimizers(model: nn.Module, config: OptimConfig) -> list[Optimizer]:
    """The optimizer that a configuration names; Muon takes the hidden matrices and AdamW all else."""
    fused = config.fused
    decay: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    adam: dict[str, Any] = {**decay, "betas": config.betas}
    match config.optimizer:
        case "adam":
            return [torch.optim.Adam(model.parameters(), **adam, fused=fused or None)]
        case "adamw":
            return [torch.optim.AdamW(model.parameters(), **adam, fused=fused or None)]
        case "nadam":
            return [torch.optim.NAdam(model.parameters(), **adam)]
        case "sgd":
            return [torch.optim.SGD(model.parameters(), **decay, momentum=config.momentum, nesterov=config.nesterov)]
        case "muon":
            tables = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
            matrices = [p for p in model.parameters() if p.ndim == 2 and id(p) not in tables]
            chosen = {id(p) for p in matrices}
            rest = [p for p in model.parameters() if id(p) not in chosen]
            return [torch.optim.Muon(matrices, **decay), torch.optim.AdamW(rest, **adam, fused=fused or None)]


def attach_filter(
    optimizers: list[Optimizer], config: RunConfig
) -> tuple[list[grokfast.Attachment], grokfast.Saturation | None]:
    """The handles of the filter, if there is one, and the trigger to tell of the training accuracy, if there is one."""
    if config.filter is None:
        return [], None
    saturated = grokfast.Saturation(above=SATURATED, patience=PATIENCE)
    start = saturated if config.two_stage == "auto" else config.two_stage or 0
    handles = [grokfast.attach(optimizer, config.filter, start=start) for optimizer in optimizers]
    return handles, saturated if start is saturated else None
