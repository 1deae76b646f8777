"""torch.distributed.checkpoint on one process: the filter's state travels, and the dry step leaves no trace."""

import copy
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict, set_optimizer_state_dict

import grokfast
from cases import each_kind
from grokfast import EMA, Filter, Saturation

# torch's own, about running without a process group or about itself.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch", "ignore::FutureWarning")


def build(
    filter: Filter, kind: type[torch.optim.Optimizer]
) -> tuple[nn.Module, torch.optim.Optimizer, grokfast.Attachment]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = kind(model.parameters(), lr=0.05)
    return model, optimizer, grokfast.attach(optimizer, filter, start=Saturation(above=0.0, patience=2))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, first: int, last: int) -> None:
    for step in range(first, last):
        optimizer.zero_grad()
        model(torch.randn(8, 3, generator=torch.Generator().manual_seed(step))).square().mean().backward()
        optimizer.step()
    optimizer.zero_grad()


@pytest.mark.parametrize("through_disk", [False, True])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW], ids=lambda kind: kind.__name__)
@each_kind
def test_distributed_checkpoint_restores_filter_and_trigger(
    filter: Filter, kind: type[torch.optim.Optimizer], through_disk: bool, tmp_path: Path
) -> None:
    model, optimizer, handle = build(filter, kind)
    for _ in range(2):
        handle.start.observe(1.0)  # type: ignore
    train(model, optimizer, 0, 6)
    saved = copy.deepcopy(get_optimizer_state_dict(model, optimizer))  # torch loads without copying
    weights = {name: t.clone() for name, t in model.state_dict().items()}

    other_model, other, other_handle = build(filter, kind)
    if through_disk:
        dcp.save({"optimizer": saved}, checkpoint_id=tmp_path, no_dist=True)
        saved = get_optimizer_state_dict(other_model, other)
        dcp.load({"optimizer": saved}, checkpoint_id=tmp_path, no_dist=True)
    set_optimizer_state_dict(other_model, other, saved)
    other_model.load_state_dict(weights)
    assert other_handle.step == 6
    assert other_handle.active
    train(model, optimizer, 6, 12)
    train(other_model, other, 6, 12)
    for p, q in zip(model.parameters(), other_model.parameters(), strict=True):
        assert torch.equal(p, q)


@each_kind
def test_dry_step_of_a_distributed_checkpoint_is_not_counted(filter: Filter) -> None:
    probed, plain = build(filter, torch.optim.SGD), build(filter, torch.optim.SGD)
    get_optimizer_state_dict(probed[0], probed[1])
    assert probed[2].step == 0
    assert set(probed[2].state) == set(probed[0].parameters())
    for model, optimizer, handle in (probed, plain):
        handle.start.streak = 2  # type: ignore
        train(model, optimizer, 0, 6)
    for p, q in zip(probed[0].parameters(), plain[0].parameters(), strict=True):
        assert torch.equal(p, q)
        assert torch.equal(probed[2].slow(p), plain[2].slow(q))


def test_real_steps_at_learning_rate_zero_are_counted() -> None:
    param = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([param], lr=0.0)
    handle = grokfast.attach(optimizer, EMA())
    param.grad = torch.ones(2)
    optimizer.step()
    assert handle.step == 1


def test_real_steps_of_zero_gradients_are_counted() -> None:
    param = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([param], lr=0.1)
    handle = grokfast.attach(optimizer, EMA(alpha=0.5, lamb=2.0))
    for g in (0.0, 4.0):
        param.grad = torch.full((2,), g)
        optimizer.step()
    assert handle.step == 2
    assert torch.equal(param.grad, torch.full((2,), 4.0 + 2.0 * 2.0))
