"""The optimizers of a configuration, with its filter attached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

import grokfast
from grokfast.lab.config import (
    OPTIMIZERS,
    PATIENCE,
    SATURATED,
    MuonParams,
    OptimConfig,
    RunConfig,
    keywords_of,
    parameters_of,
)
from grokfast.lab.training.muon import Muon


def make_optimizers(model: nn.Module, config: OptimConfig) -> list[Optimizer]:
    """The optimizer that a configuration names. Muon takes matrices and leaves the rest to AdamW, its companion."""
    options = dict(config.optimizer_option)
    decay: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    fused: dict[str, Any] = {"fused": True} if config.fused else {}
    if config.optimizer == "muon":
        taken, rest = split_for_muon(model, config.muon_params)
        given = {"lr": config.companion_lr, "weight_decay": config.companion_decay}
        own = {name: value for name, value in given.items() if value is not None}
        companion = AdamW(rest, **{**decay, **own}, betas=config.betas, **fused)  # type: ignore[arg-type]
        return [Muon(taken, **decay, **options), companion]
    known = parameters_of(config.optimizer)
    if "weight_decay" not in known and config.weight_decay:
        raise ValueError(f"weight_decay must be 0 with {config.optimizer}, got {config.weight_decay}")
    values = {name: value for name, value in decay.items() if name in known}
    values |= {name: getattr(config, name) for name in keywords_of(config.optimizer)}
    return [OPTIMIZERS[config.optimizer](model.parameters(), **values, **fused, **options)]


def split_for_muon(model: nn.Module, which: MuonParams) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
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
    """Tell optimizers that train other weights than they evaluate, such as schedule-free ones, which are needed now."""
    for optimizer in optimizers:
        getattr(optimizer, mode, lambda: None)()


def attach_filter(
    optimizers: list[Optimizer], config: RunConfig
) -> tuple[list[grokfast.Attachment], grokfast.Saturation | None]:
    """The handles of the filter, if there is one, and the trigger to tell of the training accuracy, if there is one."""
    if config.filter is None:
        return [], None
    saturated = make_trigger()
    start = saturated if config.two_stage == "auto" else config.two_stage or 0
    handles = [grokfast.attach(optimizer, config.filter, start=start) for optimizer in optimizers]
    return handles, saturated if start is saturated else None


def make_trigger() -> grokfast.Saturation:
    """What fires once the training accuracy has saturated."""
    return grokfast.Saturation(above=SATURATED, patience=PATIENCE)


def filter_metrics(handles: list[grokfast.Attachment]) -> dict[str, float]:
    """The metrics of the filter, by optimizer where there are several."""
    if len(handles) == 1:
        return handles[0].metrics()
    each = ((f"grokfast/optimizer{index}/", handle.metrics()) for index, handle in enumerate(handles))
    return {prefix + name.removeprefix("grokfast/"): v for prefix, found in each for name, v in found.items()}
