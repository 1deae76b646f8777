"""The optimizers that a configuration names, and the start of its filter."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

import grokfast
from grokfast.lab.config import PATIENCE, SATURATED, OptimConfig


def make_optimizers(model: nn.Module, config: OptimConfig, *, fused: bool) -> list[Optimizer]:
    """The optimizer a configuration names; Muon takes the hidden matrices and AdamW all else."""
    assert config.lr is not None
    assert config.betas is not None
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
        case None:
            raise ValueError("optimizer must be resolved, got None")


def make_start(two_stage: int | str | None) -> int | grokfast.Saturation:
    if two_stage == "auto":
        return grokfast.Saturation(above=SATURATED, patience=PATIENCE)
    return 0 if two_stage is None else int(two_stage)
