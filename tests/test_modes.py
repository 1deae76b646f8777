"""The ways people train: closures, accumulation, clipping before and after, zeroing, schedulers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import grokfast
from cases import ALL_FILTERS, each_filter, make_params, make_signal, sgd, step_with
from grokfast import EMA, Filter
from reference import filtered

EMA_2 = EMA(alpha=0.9, lamb=2.0)


# Closures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call", [lambda step, f: step(f), lambda step, f: step(closure=f)], ids=["positional", "keyword"]
)
def test_step_with_a_closure_equals_step_without(call: Callable[..., float]) -> None:
    with_closure, without = (make_params([(4,)])[0] for _ in range(2))
    optimizer, plain = sgd(with_closure, momentum=0.9), sgd(without, momentum=0.9)
    handles = [grokfast.attach(o, EMA_2) for o in (optimizer, plain)]
    for t in range(6):
        target = torch.tensor(make_signal(6, 4)[t])

        def closure(target: torch.Tensor = target) -> torch.Tensor:
            optimizer.zero_grad()
            loss = (with_closure - target).square().sum()
            loss.backward()
            return loss

        expected = (with_closure.detach() - target).square().sum()
        assert torch.equal(call(optimizer.step, closure).detach(), expected)  # type: ignore
        plain.zero_grad()
        (without - target).square().sum().backward()
        plain.step()
        assert torch.equal(with_closure, without)
    assert [handle.step for handle in handles] == [6, 6]


class TwiceADay(torch.optim.SGD):
    """Calls its closure twice in one step, as line searches do."""

    def step(self, closure: Any = None) -> Any:
        closure()
        return super().step(closure)


def test_closure_called_twice_in_one_step_is_refused() -> None:
    (param,) = make_params([(3,)])
    optimizer = TwiceADay([param], lr=0.1)
    handle = grokfast.attach(optimizer, EMA_2)
    before = param.detach().clone()

    def closure() -> None:
        param.grad = torch.ones_like(param)

    with pytest.raises(RuntimeError, match="closure twice"):
        optimizer.step(closure)
    assert torch.equal(param, before)
    assert handle.step == 1


# Accumulation, clipping, zeroing ----------------------------------------------------------------------------------


def test_closure_that_the_optimizer_does_not_call_is_an_error() -> None:
    class Deaf(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            """Takes the gradients that there are."""

    (param,) = make_params([(2,)])
    optimizer = Deaf([param], lr=0.1)
    handle = grokfast.attach(optimizer, EMA())
    param.grad = torch.ones_like(param)
    with pytest.raises(RuntimeError, match=r"Deaf.step\(\) did not call its closure"):
        optimizer.step(lambda: 1.0)
    optimizer.step()
    assert handle.step == 1


def test_accumulated_gradients_are_filtered_once_per_step() -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    handle = grokfast.attach(optimizer, EMA_2)
    signal = make_signal(40, 3)
    expected = filtered(EMA_2, signal.reshape(10, 4, 3).sum(axis=1))
    for step in range(10):
        optimizer.zero_grad()
        for micro in range(4):
            (param * torch.tensor(signal[4 * step + micro])).sum().backward()
        optimizer.step()
        np.testing.assert_allclose(param.grad, expected[step], rtol=1e-12)
    assert handle.step == 10


def test_clipping_before_the_filter_feeds_it_clipped_gradients() -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    grokfast.attach(optimizer, EMA_2)
    signal = make_signal(10, 3)
    norms = np.linalg.norm(signal, axis=1, keepdims=True)
    expected = filtered(EMA_2, signal * np.minimum(1, 0.5 / (norms + 1e-6)))
    for t in range(10):
        param.grad = torch.tensor(signal[t])
        torch.nn.utils.clip_grad_norm_([param], 0.5)
        optimizer.step()
        np.testing.assert_allclose(param.grad, expected[t], rtol=1e-9)


def test_clipping_after_apply_bounds_the_filtered_gradient() -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    handle = grokfast.attach(optimizer, EMA_2)
    signal = make_signal(10, 3)
    expected = filtered(EMA_2, signal)
    for t in range(10):
        before = param.detach().clone()
        param.grad = torch.tensor(signal[t])
        handle.apply()
        np.testing.assert_allclose(param.grad, expected[t], rtol=1e-12)
        torch.nn.utils.clip_grad_norm_([param], 0.5)
        clipped = param.grad.clone()
        optimizer.step()
        assert torch.equal(param.grad, clipped)
        torch.testing.assert_close(param.detach(), before - 0.1 * clipped)
    assert handle.step == 10


def test_applying_again_after_a_skipped_step_filters_the_new_gradients() -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    handle = grokfast.attach(optimizer, EMA_2)
    for skipped in (True, False, False):
        param.grad = torch.ones_like(param)
        handle.apply()
        torch.testing.assert_close(param.grad, torch.full_like(param, 3.0))
        if not skipped:
            optimizer.step()
            torch.testing.assert_close(param.grad, torch.full_like(param, 3.0))


@pytest.mark.parametrize("with_closure", [False, True])
def test_a_step_that_calls_the_step_it_inherits_filters_once(with_closure: bool) -> None:
    class Scheduled(torch.optim.AdamW):
        def step(self, closure: Any = None) -> Any:
            return super().step(closure)

    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])  # makes torch fire the hooks of AdamW.step too
    (param,) = make_params([(1,)])
    optimizer = Scheduled([param])
    handle = grokfast.attach(optimizer, EMA_2)

    def closure() -> float:
        param.grad = torch.ones_like(param)
        return 0.0

    for step in range(1, 4):
        closure()
        optimizer.step(closure if with_closure else None)
        torch.testing.assert_close(param.grad, torch.full_like(param, 3.0))
        assert handle.step == step


def test_a_positional_argument_that_is_no_closure_is_passed_on() -> None:
    class Scaled(torch.optim.SGD):
        def step(self, scale: float) -> None:  # type: ignore[override]
            seen.append(scale)

    seen: list[float] = []
    (param,) = make_params([(1,)])
    optimizer = Scaled([param])
    grokfast.attach(optimizer, EMA_2)
    param.grad = torch.ones_like(param)
    optimizer.step(0.5)
    assert seen == [0.5]
    torch.testing.assert_close(param.grad, torch.full_like(param, 3.0))


def test_a_wrapper_is_refused_in_favour_of_what_it_wraps() -> None:
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.optimizer = optimizer

    with pytest.raises(TypeError, match="attach to the SGD inside the Wrapper"):
        grokfast.attach(Wrapper(sgd(*make_params([(1,)]))), EMA_2)


def test_the_filter_of_a_handle_cannot_be_replaced() -> None:
    handle = grokfast.attach(sgd(*make_params([(1,)])), EMA_2)
    assert handle.filter is EMA_2
    with pytest.raises(AttributeError):
        handle.filter = EMA()  # type: ignore[misc]


@pytest.mark.parametrize("nonfinite", ["scaler", "skip"])
def test_many_param_groups_share_one_kernel_one_check_and_one_synchronisation(nonfinite: Any) -> None:
    params = make_params([(2,)] * 24)
    optimizer = torch.optim.SGD([{"params": [p], "lr": 0.1 * i} for i, p in enumerate(params)], lr=0.1)
    grokfast.attach(optimizer, EMA_2, nonfinite=nonfinite)
    for p in params:
        p.grad = torch.ones_like(p)
    optimizer.step()
    with torch.profiler.profile() as profile:
        optimizer.step()
    calls = {event.key: event.count for event in profile.key_averages()}
    checks = 1 if nonfinite == "skip" else 0
    assert calls.get("aten::_amp_foreach_non_finite_check_and_unscale_", 0) == checks
    assert calls["aten::_fused_sgd_"] == 1
    assert calls.get("aten::item", 0) == checks


def test_slow_part_is_there_after_apply() -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    handle = grokfast.attach(optimizer, EMA_2)
    param.grad = torch.ones_like(param)
    handle.apply()
    slow = handle.slow(param)
    assert slow is not None
    assert torch.equal(slow, torch.ones_like(param))


@pytest.mark.parametrize("set_to_none", [True, False])
@each_filter
def test_zeroing_gradients_either_way_gives_the_reference(filter: Filter, set_to_none: bool) -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    grokfast.attach(optimizer, filter)
    signal = make_signal(10, 3)
    expected = filtered(filter, signal)
    for t in range(10):
        optimizer.zero_grad(set_to_none=set_to_none)
        (param * torch.tensor(signal[t])).sum().backward()
        optimizer.step()
        np.testing.assert_allclose(param.grad, expected[t], rtol=1e-10, atol=1e-12)


# Schedulers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
        lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
        lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 1.0, total_steps=10),
        lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda t: t / 10),  # the first learning rate is 0
    ],
    ids=["step", "cosine", "one_cycle", "from_zero"],
)
def test_learning_rate_schedulers_keep_working(make: Callable[[torch.optim.Optimizer], Any]) -> None:
    (param,), (by_hand,) = make_params([(3,)]), make_params([(3,)])
    optimizer, plain = sgd(param, momentum=0.9), sgd(by_hand, momentum=0.9)
    grokfast.attach(optimizer, ALL_FILTERS["ema"])
    schedulers = [make(optimizer), make(plain)]
    signal = make_signal(10, 3)
    expected = filtered(ALL_FILTERS["ema"], signal)
    for t in range(10):
        step_with(optimizer, [param], [torch.tensor(signal[t])])
        step_with(plain, [by_hand], [torch.tensor(expected[t])])
        for scheduler in schedulers:
            scheduler.step()
    torch.testing.assert_close(param, by_hand, rtol=1e-12, atol=1e-12)
    assert schedulers[0].get_last_lr() == schedulers[1].get_last_lr()
