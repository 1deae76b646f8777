"""The optimizers of other packages, each with a way to make it for a small model."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

PACKAGES = {  # what to import: what to install
    "pytorch_optimizer": "pytorch-optimizer",
    "timm.optim": "timm",
    "bitsandbytes.optim": "bitsandbytes",
    "torchao.optim": "torchao",
    "heavyball": "heavyball",
    "schedulefree": "schedulefree",
    "lion_pytorch": "lion-pytorch",
    "came_pytorch": "came-pytorch",
    "prodigyopt": "prodigyopt",
}


class Candidate(NamedTuple):
    name: str
    make: Callable[[nn.Module], Any]


def make_model() -> nn.Module:
    torch.manual_seed(0)
    # A matrix of 4096 elements: 8-bit optimizers keep smaller ones in 32 bits.
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))


def make(kind: Any, model: nn.Module) -> torch.optim.Optimizer:
    """An optimizer with the fewest arguments that it accepts."""
    params = list(model.parameters())
    matrices, rest = [p for p in params if p.dim() == 2], [p for p in params if p.dim() != 2]
    muon = [{"params": matrices, "use_muon": True}, {"params": rest, "use_muon": False}]
    split = [
        {"params": part, "optimizer": getattr(sys.modules.get("heavyball"), "SGD", None)} for part in (matrices, rest)
    ]
    attempts = [
        lambda: kind(params, lr=1e-2),
        lambda: kind(params),
        lambda: kind(model, lr=1e-2),
        lambda: kind(model),
        lambda: kind(params, lr=1e-2, num_iterations=10),
        lambda: kind(params, base_optimizer=torch.optim.SGD, lr=1e-2),
        lambda: kind(params, torch.optim.SGD, lr=1e-2),
        lambda: kind(torch.optim.SGD(params, lr=1e-2)),
        lambda: kind(muon, lr=1e-2),
        lambda: kind(muon),
        lambda: kind(split),
        lambda: kind(params, num_data=32),
        lambda: kind(params, lr=1e-2, momentum=0.9),
        lambda: kind(matrices, lr=1e-2),
        lambda: kind(model, params, torch.optim.SGD, lr=1e-2),
    ]
    errors = list[Exception]()
    for attempt in attempts:
        try:
            made = attempt()
            assert len(made.param_groups) > 0
            return made
        except Exception as error:
            errors.append(error)
    raise errors[0]


def load(name: str) -> Any:
    """Import a package; timm's optimizers need no torchvision, which the rest of timm imports."""
    if name == "timm.optim" and importlib.util.find_spec("torchvision") is None:
        spec = importlib.util.find_spec("timm")
        if spec is not None:
            root, models = types.ModuleType("timm"), types.ModuleType("timm.models")
            root.__path__ = list(spec.submodule_search_locations or [])
            models.group_parameters = None  # type: ignore[attr-defined]
            sys.modules.update({"timm": root, "timm.models": models})
    return importlib.import_module(name)


def candidates_in(name: str) -> Iterator[Candidate]:
    module = load(name)
    if name == "timm.optim":
        for kind in module.list_optimizers():
            yield Candidate(kind, partial(module.create_optimizer_v2, opt=kind, lr=1e-2))
        return
    for value in sorted({v for v in vars(module).values() if inspect.isclass(v)}, key=lambda v: v.__name__):
        ours = value.__module__.split(".")[0] == name.split(".")[0] and not value.__name__.startswith("_")
        if ours and not value.__name__.endswith("Base") and hasattr(value, "step") and hasattr(value, "zero_grad"):
            yield Candidate(value.__name__, partial(make, value))
