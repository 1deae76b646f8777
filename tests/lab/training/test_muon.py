"""Muon in full precision does what torch's does in bf16."""

import pytest
import torch

from grokfast.lab.training.optim import Muon, orthogonalise

COEFFICIENTS = (3.4445, -4.7750, 2.0315)


@pytest.mark.parametrize("options", [{}, {"nesterov": False}, {"adjust_lr_fn": "match_rms_adamw"}, {"ns_steps": 3}])
@pytest.mark.parametrize("shape", [(24, 8), (8, 24), (8, 8)])
def test_steps_equal_those_of_torch_to_the_rounding_of_bf16(shape: tuple[int, int], options: dict[str, object]) -> None:
    start = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    ours, theirs = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    pair = [
        kind([p], lr=0.02, weight_decay=0.1, momentum=0.9, **options)
        for kind, p in ((Muon, ours), (torch.optim.Muon, theirs))
    ]
    for step in range(5):
        gradient = torch.randn(shape, generator=torch.Generator().manual_seed(step + 1))
        for optimizer, p in zip(pair, (ours, theirs), strict=True):
            p.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(ours, theirs, atol=2e-3, rtol=0)
    assert (ours - start).abs().max() > 0.02  # they moved by far more than that
    assert pair[0].state_dict()["param_groups"] == pair[1].state_dict()["param_groups"]


def test_singular_values_come_close_to_one() -> None:
    matrix = torch.randn(16, 48, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(matrix, COEFFICIENTS, 5, 1e-7))
    assert 0.6 < values.min() <= values.max() < 1.3


def test_a_closure_is_called_and_its_loss_returned() -> None:
    weight = torch.nn.Parameter(torch.eye(4))
    optimizer = Muon([weight], lr=0.1)

    def closure() -> torch.Tensor:
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure) == 4.0
    assert weight[0, 0] < 1
