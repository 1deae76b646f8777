"""The fast path is the plain model: same loss, same gradients, for every operation, depth and size."""

from __future__ import annotations

import functools
from typing import get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from grokfast.lab.tasks.modular.fast import last_logits
from grokfast.lab.tasks.modular.operations import Operation, make_equations
from grokfast.lab.tasks.modular.task import ModularConfig, ModularTask
from grokfast.lab.tasks.modular.transformer import Decoder

TOLERANCE = 1e-5


def random_decoder(symbols: int, *, width: int, depth: int, heads: int, seed: int = 0) -> Decoder:
    """A decoder without a special weight: no bias is zero, no scale is one."""
    generator = torch.Generator().manual_seed(seed)
    model = Decoder(width=width, depth=depth, heads=heads, vocabulary=symbols + 2)
    for p in model.parameters():
        spread = 0.3 if p.ndim == 1 else p.shape[1] ** -0.5
        p.data = torch.randn(p.shape, generator=generator) * spread + (1.0 if p.ndim == 1 else 0.0)
    return model


def plain_logits(model: Decoder, left: Tensor, right: Tensor) -> Tensor:
    symbols = model.tokens.num_embeddings - 2
    equals, operator = torch.full_like(left, symbols), torch.full_like(left, symbols + 1)
    return model(torch.stack([left, operator, right, equals]))[-1]


def assert_equal(model: Decoder, left: Tensor, right: Tensor, answer: Tensor) -> None:
    """Loss and every gradient agree to 1e-5, relative to the largest of the tensor."""
    losses = [cross_entropy(logits(model, left, right), answer) for logits in (plain_logits, last_logits)]
    plain, fast = (torch.autograd.grad(loss, list(model.parameters())) for loss in losses)
    assert float(losses[1].detach()) == pytest.approx(float(losses[0].detach()), rel=TOLERANCE)
    for (name, _), expected, found in zip(model.named_parameters(), plain, fast, strict=True):
        scale = float(expected.abs().max())
        assert scale > 0, name
        assert float((found - expected).abs().max()) <= TOLERANCE * scale, name
    assert_logits_equal(model, left, right)


@torch.no_grad()
def assert_logits_equal(model: Decoder, left: Tensor, right: Tensor) -> None:
    """The logits of an evaluation, which looks up more, agree to 1e-5 of the largest."""
    expected, found = (logits(model, left, right) for logits in (plain_logits, last_logits))
    assert float((found - expected).abs().max()) <= TOLERANCE * float(expected.abs().max())


@pytest.mark.parametrize("operation", get_args(Operation))
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_loss_and_every_gradient_agree_for_every_operation_and_depth(operation: Operation, depth: int) -> None:
    left, right, answer, symbols = make_equations(operation, p=13)
    some = torch.randperm(len(left), generator=torch.Generator().manual_seed(depth))[:150]
    model = random_decoder(symbols, width=24, depth=depth, heads=3, seed=depth)
    assert_equal(model, left[some], right[some], answer[some])


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_loss_and_every_gradient_agree_at_the_papers_size(depth: int) -> None:
    task = ModularTask(ModularConfig(depth=depth), seed=depth)
    batch = task.next_batch()
    assert_equal(task.model, batch.left, batch.right, batch.answer)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_whole_evaluation_agrees_at_the_papers_size(depth: int) -> None:
    left, right, _ = ModularTask(ModularConfig(depth=depth)).splits["val"]
    assert_logits_equal(random_decoder(97, width=128, depth=depth, heads=4), left, right)


@given(
    depth=st.integers(1, 3),
    heads=st.integers(1, 4),
    size=st.integers(1, 9),
    symbols=st.integers(2, 20),
    batch=st.integers(1, 40),  # fewer equations than symbols, and more
    seed=st.integers(0, 2**16),
)
def test_loss_and_every_gradient_agree_for_any_size(
    depth: int, heads: int, size: int, symbols: int, batch: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    left, right, answer = torch.randint(symbols, (3, batch), generator=generator)
    # LayerNorm over one or two numbers amplifies rounding without bound.
    model = random_decoder(symbols, width=heads * max(size, 4), depth=depth, heads=heads, seed=seed).double()
    assert_equal(model, left, right, answer)


def test_equations_do_not_influence_each_other() -> None:
    model = random_decoder(11, width=16, depth=2, heads=2)
    left, right = torch.randint(11, (2, 30), generator=torch.Generator().manual_seed(0))
    together = last_logits(model, left, right)
    for i in range(30):
        torch.testing.assert_close(last_logits(model, left[i : i + 1], right[i : i + 1])[0], together[i])


def test_the_answer_depends_on_the_order_of_the_operands() -> None:
    model = random_decoder(11, width=16, depth=2, heads=2)
    three, five = torch.tensor([3]), torch.tensor([5])
    assert not torch.allclose(last_logits(model, three, five), last_logits(model, five, three))


def test_the_plain_model_never_looks_ahead() -> None:
    model = random_decoder(11, width=16, depth=3, heads=2)
    tokens = torch.randint(13, (4, 8), generator=torch.Generator().manual_seed(0))
    changed = tokens.clone()
    changed[2:] = 0
    torch.testing.assert_close(model(changed)[:2], model(tokens)[:2])


def test_the_residual_starts_from_the_normalised_input() -> None:
    model = random_decoder(11, width=16, depth=1, heads=2)
    tokens = torch.randint(13, (4, 8), generator=torch.Generator().manual_seed(0))
    before = model(tokens)
    model.tokens.weight.data *= 1000.0  # LN1 takes the scale away, here and in the residual
    model.positions.weight.data *= 1000.0
    torch.testing.assert_close(model(tokens), before, rtol=1e-3, atol=1e-3)


def test_the_compiled_path_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    # Traced as for the compiler, run without it: C++ takes half a minute, and benchmarks/modmul.py runs that.
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager", fullgraph=True))
    eager, compiled = (
        ModularTask(ModularConfig(p=7, width=16, heads=2, batch_size=8, compile=c), seed=0) for c in (False, True)
    )
    for _ in range(eager.epoch_steps):
        for task in (eager, compiled):
            task.loss(task.next_batch())[0].backward()
    for p, q in zip(eager.model.parameters(), compiled.model.parameters(), strict=True):
        assert p.grad is not None
        torch.testing.assert_close(q.grad, p.grad, rtol=1e-4, atol=1e-6)
