"""Each rival against its formula, and in the loop at the right time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TINY, comparable, tiny
from torch import nn

from grokfast.lab.tasks.losses import stablemax
from grokfast.lab.tasks.modular.task import ModularTask
from grokfast.lab.tasks.modular.transformer import Decoder
from grokfast.lab.training import optim as rivals
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.run import train


def make(*shape: int, seed: int = 0) -> nn.Parameter:
    generator = torch.Generator().manual_seed(seed)
    parameter = nn.Parameter(torch.randn(shape, generator=generator))
    parameter.grad = torch.randn(shape, generator=generator)
    return parameter


def gradient(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None
    return parameter.grad


def test_a_projected_gradient_is_orthogonal_to_the_weights_and_keeps_its_length() -> None:
    w = make(3, 4)
    before = gradient(w).clone()
    rest = before - (w.detach() * before).sum() / (w.detach() ** 2).sum() * w.detach()
    rivals.project_gradients([w])
    assert torch.allclose(gradient(w), rest * before.norm() / rest.norm(), atol=1e-6)
    assert abs(float((w.detach() * gradient(w)).sum())) < 1e-5
    assert torch.isclose(gradient(w).norm(), before.norm())


def test_zero_weights_leave_a_gradient_alone() -> None:
    w = nn.Parameter(torch.zeros(3))
    w.grad = torch.tensor([1.0, -2.0, 0.5])
    rivals.project_gradients([w])
    assert gradient(w).tolist() == [1.0, -2.0, 0.5]


def test_equalised_gradients_have_singular_values_one_in_the_same_directions() -> None:
    w = make(5, 3)
    u, s, v = torch.linalg.svd(gradient(w), full_matrices=False)
    rivals.equalise_gradients([w])
    assert torch.allclose(gradient(w), u @ v, atol=1e-5)
    assert not torch.allclose(s, torch.ones(3))
    assert torch.allclose(torch.linalg.svdvals(gradient(w)), torch.ones(3), atol=1e-5)


def test_decay_is_the_gradient_of_the_sum_of_squares() -> None:
    w = make(2, 3)
    before = gradient(w).clone()
    penalty = torch.autograd.grad(0.3 * (w**2).sum(), w)[0]
    rivals.add_decay([w], 0.3)
    assert torch.allclose(gradient(w), before + penalty)


def test_rows_start_at_the_norm_and_only_longer_ones_are_clipped() -> None:
    w = nn.Parameter(torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]))
    rivals.clip_rows([w], 2.0)
    assert torch.allclose(w, torch.tensor([[1.2, 1.6], [0.3, 0.4], [0.0, 0.0]]))
    rivals.set_row_norms([w], 2.0)
    assert torch.allclose(w, torch.tensor([[1.2, 1.6], [1.2, 1.6], [0.0, 0.0]]))


def test_which_matrices_are_clipped_and_which_equalised() -> None:
    model = Decoder(width=8, depth=1, heads=2, vocabulary=9)
    names = {id(p): name for name, p in model.named_parameters()}
    clipped = [names[id(p)] for p in rivals.clipped_matrices(model)]
    attention = ["blocks.0.attn.in_proj_weight", "blocks.0.attn.out_proj.weight"]
    mlp = ["blocks.0.mlp.0.weight", "blocks.0.mlp.2.weight"]
    assert clipped == ["positions.weight", *attention, *mlp]
    assert [names[id(p)] for p in rivals.mlp_matrices(model)] == mlp


def test_stablemax_is_its_formula_and_does_not_overflow() -> None:
    logits, answer = torch.tensor([[0.5, -1.0, 2.0], [0.0, 1.0, -3.0]]), torch.tensor([1, 0])
    s = torch.tensor([[1.5, 0.5, 3.0], [1.0, 2.0, 0.25]])
    expected = -(s[[0, 1], answer] / s.sum(1)).log().mean()
    assert torch.isclose(stablemax(logits, answer), expected)
    far = torch.tensor([[1e6, -1e6], [1.0, 1.0]], requires_grad=True)
    stablemax(far, torch.tensor([1, 0])).backward()
    assert far.grad is not None
    assert bool(far.grad.isfinite().all())
    assert bool((far.grad[0] != 0).all())


# In the loop --------------------------------------------------------------------------------------------------------

SATURATING: dict[str, Any] = {"lr": 0.003, "steps": 220, "eval_every": 4, "batch_size": 21, "width": 32}
SETTINGS: list[dict[str, Any]] = [
    {"row_norm": 1.0},
    {"perp_grad": True},
    {"equal_grad": True},
    {"loss": "stablemax"},
    {"late_decay": 0.1, **SATURATING},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: next(iter(settings)))
def test_a_rival_changes_a_run_which_resumes_bit_for_bit(settings: dict[str, Any], tmp_path: Path) -> None:
    config = tiny(**{"eval_every": 5, **settings})
    whole = train(config, tmp_path / "whole")
    name = next(iter(settings))
    plain = train(tiny(**{"eval_every": 5, **{k: v for k, v in settings.items() if k != name}}), tmp_path)
    assert comparable(whole.rows)[-1] != comparable(plain.rows)[-1]
    rows = len(whole.rows) - 2
    assert not train(config, tmp_path / "parts", Watcher(should_stop=stop_after(rows))).done
    parts = train(config, tmp_path / "parts")
    assert parts.done
    assert comparable(parts.rows) == comparable(whole.rows)


def stop_after(rows: int) -> Any:
    left = iter(range(1, rows + 1))
    return lambda: next(left) == rows


def test_late_decay_waits_for_saturation(tmp_path: Path) -> None:
    base = SATURATING
    late, plain = (train(tiny(**base, **more), tmp_path).rows for more in ({"late_decay": 0.1}, {}))
    accuracies = [row.train_accuracy or 0.0 for row in plain]
    full = [all(value >= 0.99 for value in accuracies[i - 2 : i + 1]) for i in range(len(plain))]
    fired = next(i for i in range(2, len(plain)) if full[i])
    assert comparable(late[: fired + 1]) == comparable(plain[: fired + 1])
    assert late[fired + 1].weight_norm < plain[fired + 1].weight_norm


def test_clipped_rows_stay_below_the_norm(tmp_path: Path) -> None:
    run = train(tiny(row_norm=0.5, lr=0.1), tmp_path)
    task = ModularTask(TINY)
    task.model.load_state_dict(run.weights())
    assert max(float(p.detach().norm(dim=1).max()) for p in rivals.clipped_matrices(task.model)) <= 0.5 + 1e-5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"row_norm": 0.0}, r"row_norm must be in \(0, inf\), got 0"),
        ({"late_decay": -1.0}, r"late_decay must be in \(0, inf\), got -1"),
        ({"loss": "hinge"}, r"loss must be one of cross-entropy, stablemax, got 'hinge'"),
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**changes)
