"""Which parameters and of what kind: without gradients, frozen, late, tied, sparse; dtypes and memory layouts."""

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn

import grokfast
from cases import each_filter, filtered_constant, make_params, make_signal, relative_error, sgd, step_with
from grokfast import EMA, Filter
from reference import filtered, slow_part

EMA_2 = EMA(alpha=0.9, lamb=2.0)


# Which parameters -------------------------------------------------------------------------------------------------


@each_filter
def test_parameter_is_filtered_over_the_gradients_it_had(filter: Filter) -> None:
    """Its filter does not count steps without a gradient."""
    present, absent = make_params([(3,), (3,)])
    optimizer = sgd(present, absent)
    grokfast.attach(optimizer, filter)
    signal, has = make_signal(12, 3), np.array([0, 0, 0, 1, 1, 0, 1, 1, 1, 0, 1, 1], bool)
    expected = iter(filtered(filter, signal[has]))
    always = filtered(filter, signal)
    for t in range(12):
        present.grad = torch.tensor(signal[t])
        absent.grad = torch.tensor(signal[t]) if has[t] else None
        optimizer.step()
        np.testing.assert_allclose(present.grad, always[t], rtol=1e-10, atol=1e-12)
        if has[t]:
            np.testing.assert_allclose(absent.grad, next(expected), rtol=1e-10, atol=1e-12)


def test_frozen_parameter_has_no_state_until_it_is_unfrozen() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 1)).double()
    frozen = model[0].weight.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    handle = grokfast.attach(optimizer, EMA_2)

    def train() -> None:
        optimizer.zero_grad()
        model(torch.ones(1, 2, dtype=torch.float64)).sum().backward()
        optimizer.step()

    train()
    before = frozen.clone()
    train()
    assert torch.equal(frozen, before)
    assert frozen not in handle.state
    frozen.requires_grad_(True)
    train()
    assert not torch.equal(frozen, before)
    slow = handle.slow(frozen)
    assert slow is not None
    torch.testing.assert_close(slow * 3.0, frozen.grad)


def test_group_added_later_is_filtered_from_then_on() -> None:
    first, late = make_params([(3,), (2,)])
    optimizer = torch.optim.Adam([first], lr=0.1)
    grokfast.attach(optimizer, EMA_2)
    filtered_constant(optimizer, first, 3)
    optimizer.add_param_group({"params": [late], "grokfast_lamb": 4.0})
    signal = make_signal(5, 2)
    expected = filtered(EMA(alpha=0.9, lamb=4.0), signal)
    for t in range(5):
        step_with(optimizer, [first, late], [torch.ones_like(first), torch.tensor(signal[t])])
        np.testing.assert_allclose(late.grad, expected[t], rtol=1e-12)
        torch.testing.assert_close(first.grad, torch.full_like(first, 3.0))


def test_tied_parameter_is_filtered_once() -> None:
    embedding, head = nn.Embedding(4, 3), nn.Linear(3, 4, bias=False)
    head.weight = embedding.weight
    model = nn.Sequential(embedding, head)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    handle = grokfast.attach(optimizer, EMA_2)
    model(torch.tensor([0, 1])).sum().backward()
    raw = embedding.weight.grad.clone()
    optimizer.step()
    torch.testing.assert_close(embedding.weight.grad, 3 * raw)
    assert len(handle.state) == 1


def test_step_without_any_gradient_does_nothing() -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    handle = grokfast.attach(optimizer, EMA_2)
    optimizer.step()
    assert handle.step == 0
    assert not optimizer.state


# Dtypes and layouts -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "rounding"), [(torch.bfloat16, 2**-8), (torch.float16, 2**-11)], ids=str)
@each_filter
def test_half_precision_parameters_have_an_exact_average(filter: Filter, dtype: torch.dtype, rounding: float) -> None:
    (param,) = make_params([(5,)], dtype)
    optimizer = torch.optim.AdamW([param], lr=0.01)
    handle = grokfast.attach(optimizer, filter)
    signal = torch.tensor(make_signal(200, 5)).to(dtype)
    exact = signal.double().numpy()
    expected, slow = filtered(filter, exact), slow_part(filter, exact).values
    for t in range(200):
        step_with(optimizer, [param], [signal[t]])
        assert param.grad.dtype == param.dtype == dtype
        assert relative_error(handle.slow(param).double(), slow[t]) <= 1e-4
        assert np.abs(param.grad.double().numpy() - expected[t]).max() <= 2 * rounding * np.abs(expected[t]).max()


def test_parameters_of_mixed_dtypes_share_an_optimizer() -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.float64, torch.complex64]
    params = [nn.Parameter(torch.zeros(3, dtype=dtype)) for dtype in dtypes]
    optimizer = torch.optim.SGD(params, lr=0.1)
    handle = grokfast.attach(optimizer, EMA_2)
    for _ in range(3):
        step_with(optimizer, params, [torch.ones_like(p) for p in params])
    for param in params:
        torch.testing.assert_close(param.grad, torch.full_like(param, 3.0))
    assert [handle.slow(p).dtype for p in params] == [torch.float32, torch.float32, torch.float64, torch.complex64]


@each_filter
def test_channels_last_parameters_train_like_contiguous_ones(filter: Filter) -> None:
    conv = nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    plain = nn.Conv2d(3, 4, 2)
    plain.load_state_dict(conv.state_dict())
    for model in (conv, plain):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        grokfast.attach(optimizer, filter)
        for t in range(6):
            optimizer.zero_grad()
            images = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(t))
            model(images).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(conv.weight, plain.weight, rtol=1e-4, atol=1e-5)


def test_gradient_of_a_conjugated_parameter_is_filtered() -> None:
    param = nn.Parameter(torch.zeros(2, dtype=torch.complex64))
    optimizer = torch.optim.SGD([param], lr=0.1)
    grokfast.attach(optimizer, EMA_2)
    (param.conj() * torch.tensor([1j, 2.0])).sum().real.backward()
    assert param.grad.is_conj()
    raw = param.grad.clone()
    optimizer.step()
    torch.testing.assert_close(param.grad.resolve_conj(), 3 * raw.resolve_conj())


def test_sparse_gradients_are_refused_by_name() -> None:
    embedding, linear = nn.Embedding(4, 3, sparse=True), nn.Linear(3, 1)
    model = nn.ModuleDict({"words": embedding, "head": linear})
    optimizer = torch.optim.SGD(model.named_parameters(), lr=0.1)
    handle = grokfast.attach(optimizer, EMA_2)
    linear(embedding(torch.tensor([1]))).sum().backward()
    before, raw = linear.weight.detach().clone(), linear.weight.grad.clone()
    with pytest.raises(TypeError, match=r"sparse one in parameter 'words.weight'.*grokfast=False"):
        optimizer.step()
    assert torch.equal(linear.weight, before)
    assert torch.equal(linear.weight.grad, raw)
    assert handle.step == 0
    assert not handle.state


def test_sparse_gradients_in_a_group_without_the_filter_pass() -> None:
    embedding, linear = nn.Embedding(4, 3, sparse=True), nn.Linear(3, 1)
    groups = [{"params": embedding.parameters(), "grokfast": False}, {"params": linear.parameters()}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    handle = grokfast.attach(optimizer, EMA_2)
    before = embedding.weight.detach().clone()
    linear(embedding(torch.tensor([1]))).sum().backward()
    sparse, raw = embedding.weight.grad.to_dense(), linear.weight.grad.clone()
    optimizer.step()
    torch.testing.assert_close(embedding.weight.detach(), before - 0.1 * sparse)
    torch.testing.assert_close(linear.weight.grad, 3 * raw)
    assert set(handle.state) == set(linear.parameters())


def test_state_of_a_gradient_that_never_stepped_leaves_the_optimizers_initialisation_alone() -> None:
    params = make_params([(3,), (3,)])
    optimizer = torch.optim.Adam(params)
    handle = grokfast.attach(optimizer, EMA(alpha=0.5, lamb=2.0))
    for grads in ([1.0, 1.0], [1.0, None], [None, None], [1.0, 1.0]):
        for param, value in zip(params, grads, strict=True):
            param.grad = None if value is None else torch.full_like(param, value)
        if grads == [1.0, 1.0] and handle.step == 0:
            handle.apply()  # and then no step, as after a loss that is not finite
        else:
            optimizer.step()
    assert [set(optimizer.state[param]) >= {"exp_avg", "grokfast_slow"} for param in params] == [True, True]
    assert [optimizer.state_dict()["state"][i]["grokfast_count"] for i in (0, 1)] == [3, 2]


def replace_parameter(optimizer: torch.optim.Optimizer, place: int) -> nn.Parameter:
    """What programs do that grow, prune or re-make a parameter: a new one inherits the state of the old one."""
    params = optimizer.param_groups[0]["params"]
    new = nn.Parameter(params[place].detach().clone())
    optimizer.state[new] = optimizer.state.pop(params[place])
    params[place] = new
    return new


def test_parameters_that_the_optimizer_gives_up_are_freed() -> None:
    optimizer = torch.optim.Adam(make_params([(3,)]))
    handle = grokfast.attach(optimizer, EMA_2)
    old: list[weakref.ref[nn.Parameter]] = []
    for _ in range(4):
        param = optimizer.param_groups[0]["params"][0]
        filtered_constant(optimizer, param, 2)
        old.append(weakref.ref(param))
        param = replace_parameter(optimizer, 0)
    filtered_constant(optimizer, param, 1)
    gc.collect()
    assert [ref() for ref in old] == [None] * 4
    assert handle.step == 9


def test_parameter_that_takes_the_place_of_another_leaves_the_count_of_steps() -> None:
    always, once = make_params([(3,), (3,)])
    optimizer = torch.optim.Adam([always, once])
    handle = grokfast.attach(optimizer, EMA_2, start=5)
    step_with(optimizer, [always, once], [torch.ones_like(always)] * 2)
    once.grad = None
    filtered_constant(optimizer, always, 8)
    new = replace_parameter(optimizer, 1)
    step_with(optimizer, [always, new], [torch.ones_like(always)] * 2)
    assert handle.step == 10
    torch.testing.assert_close(new.grad, torch.full_like(new, 3.0))
