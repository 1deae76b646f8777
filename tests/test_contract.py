"""The contract: every filter on every optimizer, in each of its implementations, equals a hand-written loop."""

import inspect
from contextlib import nullcontext

import numpy as np
import pytest
import torch

import grokfast
from cases import (
    ALL_FILTERS,
    ALL_OPTIMIZERS,
    REFUSED,
    OptimizerCase,
    allow_capturable_on_cpu,
    each_filter,
    each_optimizer,
    make_params,
    make_signal,
    step_with,
)
from grokfast import Filter
from reference import filtered

STEPS = 8


@each_optimizer
@each_filter
def test_attached_optimizer_equals_the_reference_loop(
    case: OptimizerCase, filter: Filter, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow_capturable_on_cpu(case, monkeypatch)
    signals = [make_signal(STEPS, *shape, seed=i) for i, shape in enumerate(case.shapes)]
    expected = [filtered(filter, signal) for signal in signals]

    attached, by_hand = make_params(case.shapes), make_params(case.shapes)
    optimizer, plain = case.make(attached), case.make(by_hand)
    grokfast.attach(optimizer, filter)
    for t in range(STEPS):
        step_with(optimizer, attached, [torch.tensor(signal[t]) for signal in signals])
        step_with(plain, by_hand, [torch.tensor(series[t]) for series in expected])
        for p, q in zip(attached, by_hand, strict=True):
            np.testing.assert_allclose(p.detach(), q.detach(), rtol=1e-9, atol=1e-9)
    assert all(p.isfinite().all() for p in attached)


@each_optimizer
def test_filter_matters_to_every_optimizer(case: OptimizerCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the contract above would hold for an attachment that does nothing."""
    allow_capturable_on_cpu(case, monkeypatch)
    attached, alone = make_params(case.shapes), make_params(case.shapes)
    optimizer, plain = case.make(attached), case.make(alone)
    grokfast.attach(optimizer, ALL_FILTERS["ema"])
    for t in range(STEPS):
        grads = [torch.tensor(make_signal(STEPS, *shape)[t]) for shape in case.shapes]
        step_with(optimizer, attached, grads)
        step_with(plain, alone, grads)
    assert not any(torch.allclose(p, q, atol=1e-5) for p, q in zip(attached, alone, strict=True))


@pytest.mark.parametrize("with_closure", [False, True])
@each_optimizer
def test_skipped_step_changes_nothing(case: OptimizerCase, with_closure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nonfinite="skip", parameters and states are those of a training without the bad gradients."""
    allow_capturable_on_cpu(case, monkeypatch)
    skipping, without = make_params(case.shapes), make_params(case.shapes)
    optimizers = [case.make(skipping), case.make(without)]
    handles = [grokfast.attach(optimizer, ALL_FILTERS["ema"], nonfinite="skip") for optimizer in optimizers]
    signals = [torch.tensor(make_signal(STEPS, *shape)) for shape in case.shapes]
    for t in range(STEPS):
        bad = t in (0, 3)
        for own, optimizer in zip((skipping, without), optimizers, strict=True):
            if bad and own is without:
                continue
            for p, signal in zip(own, signals, strict=True):
                p.grad = torch.full_like(p, torch.inf) if bad else signal[t].clone()
            with pytest.warns(UserWarning, match="skips such steps") if t == 0 else nullcontext():
                optimizer.step(*[lambda: 0.0] if with_closure else [])
            assert all(p.grad is not None for p in own)
    assert (handles[0].step, handles[0].skipped) == (STEPS - 2, 2)
    assert all(torch.equal(p, q) for p, q in zip(skipping, without, strict=True))
    for left, right in zip(*(optimizer.state_dict()["state"].values() for optimizer in optimizers), strict=True):
        assert left.keys() == right.keys()
        assert all(torch.equal(torch.as_tensor(left[k]), torch.as_tensor(right[k])) for k in left)


def test_every_optimizer_of_torch_is_covered_or_refused() -> None:
    exported = {value for value in vars(torch.optim).values() if inspect.isclass(value)}
    optimizers = {kind for kind in exported if issubclass(kind, torch.optim.Optimizer)} - {torch.optim.Optimizer}
    assert {case.kind for case in ALL_OPTIMIZERS} == optimizers - REFUSED


def test_every_public_filter_is_covered() -> None:
    public = {getattr(grokfast, name) for name in grokfast.__all__}
    filters = {value for value in public if inspect.isclass(value) and issubclass(value, Filter)}
    assert {type(filter) for filter in ALL_FILTERS.values()} == filters - {Filter}


@pytest.mark.parametrize("kind", sorted(REFUSED, key=lambda kind: kind.__name__))  # type: ignore
def test_optimizers_without_one_dense_gradient_per_step_are_refused(kind: type[torch.optim.Optimizer]) -> None:
    optimizer = kind(make_params([(3,)]))
    with pytest.raises(TypeError, match=kind.__name__):
        grokfast.attach(optimizer, grokfast.EMA())
    assert not optimizer.state
    assert not optimizer._optimizer_step_pre_hooks


COMPILED = [case for case in ALL_OPTIMIZERS if case.kind in (torch.optim.SGD, torch.optim.AdamW, torch.optim.RMSprop)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile warns about torch.jit, by itself
@pytest.mark.filterwarnings("ignore:Guards may run slower:RuntimeWarning")  # the same, with Python 3.13.0
@pytest.mark.parametrize("case", COMPILED, ids=str)
def test_compiled_step_equals_the_plain_step(case: OptimizerCase) -> None:
    torch._dynamo.reset()
    plain = OptimizerCase(case.kind, {**case.options, "capturable": False}) if "capturable" in case.options else case
    params = [make_params(case.shapes) for _ in range(2)]
    optimizers = [case.make(params[0]), plain.make(params[1])]
    handles = [grokfast.attach(optimizer, ALL_FILTERS["ema"]) for optimizer in optimizers]
    steps = [torch.compile(optimizers[0].step, backend="eager"), optimizers[1].step]
    for t in range(4):
        for own, step in zip(params, steps, strict=True):
            for i, p in enumerate(own):
                p.grad = torch.tensor(make_signal(4, *p.shape, seed=i)[t])
            step()
    for p, q in zip(*params, strict=True):
        # torch computes the bias corrections of a compiled Adam in fp32.
        torch.testing.assert_close(p, q, rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(handles[0].slow(p), handles[1].slow(q), rtol=0, atol=0)
    assert [handle.step for handle in handles] == [4, 4]
