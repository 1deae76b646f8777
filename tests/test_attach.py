"""The handle: attaching, detaching, looking inside, and leaving no trace."""

import copy
import gc
import math
import weakref
from typing import Any, Literal

import pytest
import torch

import grokfast
from cases import ALL_FILTERS, each_filter, filtered_constant, make_params, make_signal, step_with
from grokfast import EMA, MA, Filter
from reference import slow_part

NAMES = ("SGD", "AdamW", "RMSprop", "Adafactor")
KINDS = [getattr(torch.optim, name) for name in NAMES if hasattr(torch.optim, name)]  # torch 2.4 has no Adafactor


def one_param(value: float = 0.0, **options: float) -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
    param = torch.nn.Parameter(torch.full((3,), value))
    return param, torch.optim.SGD([param], lr=0.1, **options)


def test_attaching_twice_is_refused_and_changes_nothing() -> None:
    param, optimizer = one_param()
    handle = grokfast.attach(optimizer, EMA(lamb=2.0))
    with pytest.raises(ValueError, match=r"optimizer has a filter attached already: call remove\(\)"):
        grokfast.attach(optimizer, MA())
    assert filtered_constant(optimizer, param, 3) == pytest.approx(3.0)
    assert handle.step == 3


def test_attaching_after_remove_starts_anew() -> None:
    param, optimizer = one_param()
    first = grokfast.attach(optimizer, EMA(lamb=2.0))
    filtered_constant(optimizer, param, 3, value=100.0)
    first.remove()
    second = grokfast.attach(optimizer, EMA(lamb=5.0))
    assert second.step == 0
    assert filtered_constant(optimizer, param, 1) == pytest.approx(6.0)


def test_removing_twice_leaves_a_later_attachment_alone() -> None:
    param, optimizer = one_param()
    first = grokfast.attach(optimizer, EMA(lamb=2.0))
    first.remove()
    second = grokfast.attach(optimizer, EMA(lamb=5.0))
    filtered_constant(optimizer, param, 1)
    first.remove()
    assert param in second.state
    with pytest.raises(ValueError, match="attached already"):
        grokfast.attach(optimizer, EMA())


def test_removed_handle_can_no_longer_filter() -> None:
    param, optimizer = one_param()
    handle = grokfast.attach(optimizer, EMA(lamb=2.0))
    handle.remove()
    param.grad = torch.ones(3)
    with pytest.raises(RuntimeError, match="remove"):
        handle.apply()
    assert torch.equal(param.grad, torch.ones(3))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@each_filter
def test_remove_leaves_the_optimizer_as_if_never_attached(kind: type[torch.optim.Optimizer], filter: Filter) -> None:
    params, alone = make_params([(3, 2), (4,)]), make_params([(3, 2), (4,)])
    optimizer, plain = kind(params, lr=0.1), kind(alone, lr=0.1)
    handle = grokfast.attach(optimizer, filter, start=1000)  # gradients pass, so that the parameters stay the same
    for t in range(5):
        grads = [torch.tensor(make_signal(5, *p.shape)[t]) for p in params]
        step_with(optimizer, params, grads)
        step_with(plain, alone, grads)
    handle.remove()
    same(optimizer.state_dict(), plain.state_dict())
    assert len(optimizer.state) == len(plain.state)
    assert vars(optimizer).keys() == vars(plain).keys()
    assert not any(value for key, value in vars(optimizer).items() if key.endswith("_hooks"))
    grads = [torch.ones_like(p) for p in params]
    step_with(optimizer, params, grads)
    step_with(plain, alone, grads)
    assert all(torch.equal(p, q) for p, q in zip(params, alone, strict=True))


def same(left: object, right: object) -> None:
    """Equal to the bit, through dicts and lists."""
    if isinstance(left, dict):
        assert isinstance(right, dict)
        assert left.keys() == right.keys()
        for key in left:
            same(left[key], right[key])
    elif isinstance(left, torch.Tensor):
        assert isinstance(right, torch.Tensor)
        assert torch.equal(left, right)
    else:
        assert left == right


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@each_filter
def test_kept_state_continues_when_attached_again(kind: type[torch.optim.Optimizer], filter: Filter) -> None:
    params, uninterrupted = make_params([(3, 2), (4,)]), make_params([(3, 2), (4,)])
    optimizer, plain = kind(params, lr=0.1), kind(uninterrupted, lr=0.1)
    handle = grokfast.attach(optimizer, filter)
    grokfast.attach(plain, filter)
    for t in range(10):
        if t == 5:
            handle.remove(keep_state=True)
            assert not any(value for key, value in vars(optimizer).items() if key.endswith("_hooks"))
            handle = grokfast.attach(optimizer, filter)
            assert (handle.step, handle.resumed) == (5, True)
        grads = [torch.tensor(make_signal(10, *p.shape)[t]) for p in params]
        step_with(optimizer, params, grads)
        step_with(plain, uninterrupted, grads)
    assert all(torch.equal(p, q) for p, q in zip(params, uninterrupted, strict=True))


def test_kept_state_is_saved_and_stays_as_it_is_while_detached() -> None:
    param, optimizer = one_param()
    saturated = grokfast.Saturation(above=0.9, patience=5)
    handle = grokfast.attach(optimizer, EMA(lamb=2.0), start=saturated)
    filtered_constant(optimizer, param, 3, value=7.0)
    saturated.observe(1.0)
    handle.remove(keep_state=True)
    assert filtered_constant(optimizer, param, 2) == 1.0
    saved = optimizer.state_dict()["state"][0]
    assert torch.equal(saved["grokfast_slow"], torch.full((3,), 7.0))
    assert (saved["grokfast_count"], saved["grokfast_streak"]) == (3, 1)


def test_state_of_gradients_without_a_step_is_dropped_also_if_kept() -> None:
    """An optimizer that found it would not initialise itself."""
    (param,) = make_params([(3,)])
    optimizer = torch.optim.AdamW([param], lr=0.1)
    handle = grokfast.attach(optimizer, EMA())
    param.grad = torch.ones_like(param)
    handle.apply()
    handle.remove(keep_state=True)
    assert not optimizer.state
    optimizer.step()


def test_keep_state_takes_nothing_but_a_bool() -> None:
    param, optimizer = one_param()
    handle = grokfast.attach(optimizer, EMA(lamb=2.0))
    with pytest.raises(TypeError, match="keep_state must be True or False, got 1"):
        handle.remove(keep_state=1)  # type: ignore[arg-type]
    assert filtered_constant(optimizer, param, 1) == pytest.approx(3.0)


def test_disabled_handle_passes_gradients_and_keeps_the_state_warm() -> None:
    param, optimizer = one_param()
    handle = grokfast.attach(optimizer, EMA(alpha=0.5, lamb=2.0))
    filtered_constant(optimizer, param, 1, value=8.0)
    handle.enabled = False
    assert not handle.active
    assert filtered_constant(optimizer, param, 2, value=0.0) == 0.0
    handle.enabled = True
    assert handle.active
    assert filtered_constant(optimizer, param, 1, value=0.0) == pytest.approx(2.0)  # 2 * 8 * 0.5**3


def test_enabled_takes_nothing_but_a_bool() -> None:
    _, optimizer = one_param()
    handle = grokfast.attach(optimizer, EMA())
    with pytest.raises(TypeError, match="enabled must be True or False, got 'no'"):
        handle.enabled = "no"  # type: ignore[assignment]
    assert handle.enabled is True


@each_filter
def test_slow_is_the_slow_part_of_the_reference(filter: Filter) -> None:
    (param,) = make_params([(2, 3)])
    optimizer = torch.optim.SGD([param], lr=0.1)
    handle = grokfast.attach(optimizer, filter)
    signal = make_signal(10, 2, 3)
    assert handle.slow(param) is None
    for t in range(10):
        step_with(optimizer, [param], [torch.tensor(signal[t])])
        slow = handle.slow(param)
        assert slow is not None
        torch.testing.assert_close(slow, torch.tensor(slow_part(filter, signal).values[t]), rtol=0, atol=1e-12)


def test_slow_of_a_stranger_is_none() -> None:
    param, optimizer = one_param()
    handle = grokfast.attach(optimizer, EMA())
    filtered_constant(optimizer, param, 1)
    assert handle.slow(torch.nn.Parameter(torch.zeros(1))) is None


def test_state_shows_the_live_tensors_by_parameter() -> None:
    param, optimizer = one_param()
    handle = grokfast.attach(optimizer, EMA(lamb=2.0))
    assert handle.state == {}
    filtered_constant(optimizer, param, 1)
    assert list(handle.state) == [param]
    handle.state[param]["slow"].fill_(10.0)
    slow = handle.slow(param)
    assert slow is not None
    assert torch.equal(slow, torch.full((3,), 10.0))


def test_repr_says_what_is_attached_to_what() -> None:
    _, optimizer = one_param()
    text = repr(grokfast.attach(optimizer, EMA(alpha=0.9), start=5))
    assert all(part in text for part in ("EMA(alpha=0.9", "SGD", "step=0", "active=False"))


@each_filter
def test_attached_optimizer_is_garbage_collected(filter: Filter) -> None:
    param, optimizer = one_param()
    handle = grokfast.attach(optimizer, filter, start=grokfast.Saturation(above=1.0))
    filtered_constant(optimizer, param, 2)
    dead = weakref.ref(optimizer), weakref.ref(handle)
    del optimizer, handle
    gc.collect()
    assert dead[0]() is None
    assert dead[1]() is None


def test_attachment_lives_as_long_as_its_optimizer() -> None:
    param, optimizer = one_param()
    grokfast.attach(optimizer, EMA(lamb=2.0))  # nobody keeps the handle
    gc.collect()
    assert filtered_constant(optimizer, param, 1) == pytest.approx(3.0)


@each_filter
def test_deep_copy_attached_again_continues_identically(filter: Filter) -> None:
    params = make_params([(2, 3), (4,)])
    optimizer = torch.optim.AdamW(params, lr=0.1)
    grokfast.attach(optimizer, filter)
    signal = [make_signal(10, *p.shape, seed=i) for i, p in enumerate(params)]
    for t in range(5):
        step_with(optimizer, params, [torch.tensor(s[t]) for s in signal])
    twin = copy.deepcopy(optimizer)
    twin_params = twin.param_groups[0]["params"]
    handle = grokfast.attach(twin, filter)
    assert handle.step == 5
    for t in range(5, 10):
        step_with(optimizer, params, [torch.tensor(s[t]) for s in signal])
        step_with(twin, twin_params, [torch.tensor(s[t]) for s in signal])
    assert all(torch.equal(p, q) for p, q in zip(params, twin_params, strict=True))


@each_filter
def test_deep_copy_keeps_the_filter(filter: Filter) -> None:
    params = make_params([(2, 3), (4,)])
    optimizer = torch.optim.AdamW(params, lr=0.1)
    grokfast.attach(optimizer, filter, params=params[:1], start=2)
    signal = [make_signal(10, *p.shape, seed=i) for i, p in enumerate(params)]
    twin: Any = copy.deepcopy(optimizer)  # also before the first step
    for t in range(10):
        if t == 5:
            twin, copies = copy.deepcopy([optimizer, params])
            assert twin.param_groups[0]["params"] == copies
        for stepping in (optimizer, twin):
            step_with(stepping, stepping.param_groups[0]["params"], [torch.tensor(s[t]) for s in signal])
        assert all(torch.equal(p, q) for p, q in zip(params, twin.param_groups[0]["params"], strict=True))
    assert torch.equal(twin.param_groups[0]["params"][1].grad, torch.tensor(signal[1][9]))
    assert grokfast.attach(twin, filter).step == 10
    with pytest.raises(ValueError, match="attached already"):
        grokfast.attach(optimizer, filter)


def test_one_filter_may_serve_many_optimizers() -> None:
    filter = ALL_FILTERS["ma"]
    pairs = [one_param() for _ in range(2)]
    for _, optimizer in pairs:
        grokfast.attach(optimizer, filter)
    assert filtered_constant(pairs[0][1], pairs[0][0], 4) == pytest.approx(6.0)
    assert filtered_constant(pairs[1][1], pairs[1][0], 1, value=7.0) == pytest.approx(7.0)


def test_a_step_that_failed_does_not_leave_the_next_unfiltered() -> None:
    class Failing(torch.optim.SGD):
        broken = True

        def step(self, closure: None = None) -> None:  # type: ignore[override]
            if self.broken:
                raise MemoryError
            super().step()

    param = torch.nn.Parameter(torch.zeros(1))
    optimizer = Failing([param], lr=0.1)
    handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.5, lamb=2.0))
    param.grad = torch.ones(1)
    with pytest.raises(MemoryError):
        optimizer.step()
    Failing.broken = False
    param.grad = torch.ones(1)
    optimizer.step()
    assert handle.step == 2
    assert param.grad.item() == 3.0


def test_apply_and_then_no_step_leaves_the_next_gradients_to_the_step() -> None:
    param = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([param], lr=0.1)
    handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.5, lamb=2.0))
    param.grad = torch.ones(1)
    handle.apply()
    optimizer.zero_grad()
    param.grad = torch.ones(1)
    optimizer.step()
    assert param.grad.item() == 3.0


@pytest.mark.parametrize("nonfinite", ["skip", "raise"])
def test_clipping_an_inf_away_does_not_let_it_into_the_filter(nonfinite: Literal["skip", "raise"]) -> None:
    param = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([param], lr=0.1)
    handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.5, lamb=2.0), nonfinite=nonfinite)
    param.grad = torch.tensor([math.inf, 1.0])
    handle.apply()
    torch.nn.utils.clip_grad_value_([param], 0.1)
    complaint = (
        pytest.warns(UserWarning, match="inf or NaN") if nonfinite == "skip" else pytest.raises(FloatingPointError)
    )
    with complaint:
        optimizer.step()
    assert handle.step == 0
    torch.testing.assert_close(param.grad, torch.tensor([0.1, 0.1]))
