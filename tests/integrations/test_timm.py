"""Optimizers from timm's factory with a filter do what gradfilter_ema by hand does."""

import importlib.util
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import grokfast

if importlib.util.find_spec("timm") is None:
    pytest.skip("timm is not installed: pip install --no-deps timm", allow_module_level=True)

ROOT = Path(__file__).parents[2]
ALPHA, LAMB = 0.9, 2.0


@pytest.fixture(scope="module", autouse=True)
def factory() -> Iterator[Any]:
    """`create_optimizer_v2`, which needs no torchvision; where that is missing, the rest of timm is a stand-in."""
    yield runpy.run_path(str(ROOT / "benchmarks" / "candidates.py"))["load"]("timm.optim").create_optimizer_v2
    for name in [name for name in sys.modules if name.split(".")[0] == "timm"]:
        del sys.modules[name]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 3))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, *, lamb_by_hand: float) -> list[nn.Parameter]:
    averages, made = None, torch.Generator().manual_seed(1)
    for _ in range(6):
        optimizer.zero_grad()
        model(torch.randn(16, 4, generator=made)).square().mean().backward()
        averages = grokfast.gradfilter_ema(model, averages, alpha=ALPHA, lamb=lamb_by_hand)
        optimizer.step()
    return list(model.parameters())


@pytest.mark.parametrize("opt", ["adamw", "sgdw", "lamb", "clion", "adafactorbv", "nadamw", "muon"])
def test_factory_equals_gradfilter_ema_by_hand(opt: str, factory: Any) -> None:
    plain, by_hand, attached = network(), network(), network()
    optimizers = [factory(model, opt=opt, lr=0.01, weight_decay=0.1) for model in (plain, by_hand, attached)]
    assert len(optimizers[0].param_groups) == 2  # biases and norms have no decay
    handle = grokfast.attach(optimizers[2], grokfast.EMA(alpha=ALPHA, lamb=LAMB))
    unfiltered = train(plain, optimizers[0], lamb_by_hand=0.0)
    expected = train(by_hand, optimizers[1], lamb_by_hand=LAMB)
    found = train(attached, optimizers[2], lamb_by_hand=0.0)
    assert handle.step == 6
    assert all(map(torch.equal, found, expected))
    assert not all(map(torch.equal, found, unfiltered))


def test_lookahead_is_refused_by_name(factory: Any) -> None:
    optimizer = factory(network(), opt="lookahead_adamw", lr=0.01)
    with pytest.raises(TypeError, match="optimizer must not be a wrapper: attach to the AdamW inside the Lookahead"):
        grokfast.attach(optimizer, grokfast.EMA())


def test_lookahead_around_a_filtered_optimizer_equals_gradfilter_ema_by_hand(factory: Any) -> None:
    by_hand, attached = network(), network()
    expected = train(by_hand, factory(by_hand, opt="lookahead_adamw", lr=0.01), lamb_by_hand=LAMB)
    optimizer = factory(attached, opt="adamw", lr=0.01)
    grokfast.attach(optimizer, grokfast.EMA(alpha=ALPHA, lamb=LAMB))
    found = train(attached, sys.modules["timm.optim"].Lookahead(optimizer), lamb_by_hand=0.0)
    assert all(map(torch.equal, found, expected))
