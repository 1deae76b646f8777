"""gradfilter_ema and gradfilter_ma: the signatures and the numbers of the paper's appendix C."""

import inspect
import io
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import grokfast
from cases import make_signal
from grokfast import EMA, MA, gradfilter_ema, gradfilter_ma
from reference import filtered

# Appendix C of the paper, without its types. The only change: the window stores copies (row 2 of the peer bugs).
LISTING = """
def gradfilter_ma(m, grads=None, window_size=100, lamb=5.0, filter_type="mean", warmup=True):
    if grads is None:
        grads = {n: deque(maxlen=window_size) for n, p in m.named_parameters() if p.requires_grad}

    for n, p in m.named_parameters():
        if p.requires_grad:
            grads[n].append(p.grad.data.detach().clone())

            if not warmup or len(grads[n]) == window_size:
                if filter_type == "mean":
                    avg = sum(grads[n]) / len(grads[n])
                elif filter_type == "sum":
                    avg = sum(grads[n])
                else:
                    raise ValueError(f"Unrecognized filter_type {filter_type}")
                p.grad.data = p.grad.data + avg * lamb

    return grads

def gradfilter_ema(m, grads=None, alpha=0.98, lamb=2.0):
    if grads is None:
        grads = {n: p.grad.data.detach() for n, p in m.named_parameters() if p.requires_grad}

    for n, p in m.named_parameters():
        if p.requires_grad:
            grads[n] = grads[n] * alpha + p.grad.data.detach() * (1 - alpha)
            p.grad.data = p.grad.data + grads[n] * lamb

    return grads
"""
PAPER: dict[str, Any] = {"deque": deque}
exec(LISTING, PAPER)

CALLS = {
    "ema": ("gradfilter_ema", {"alpha": 0.9, "lamb": 2.0}, EMA(alpha=0.9, lamb=2.0)),
    "ema_default": ("gradfilter_ema", {}, EMA(alpha=0.98, lamb=2.0)),
    "ma": ("gradfilter_ma", {"window_size": 4, "lamb": 5.0}, MA(window_size=4, lamb=5.0)),
    "ma_default": ("gradfilter_ma", {}, MA(window_size=100, lamb=5.0)),
    "ma_sum": ("gradfilter_ma", {"window_size": 4, "filter_type": "sum"}, MA(window_size=4, lamb=5.0, reduction="sum")),
    "ma_no_warmup": ("gradfilter_ma", {"window_size": 4, "warmup": False}, MA(window_size=4, lamb=5.0, warmup=False)),
}
each_call = pytest.mark.parametrize(("name", "options", "filter"), CALLS.values(), ids=CALLS)


@pytest.mark.parametrize("name", ["gradfilter_ema", "gradfilter_ma"])
def test_signature_is_that_of_appendix_c(name: str) -> None:
    def parameters(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
        return [(p.name, p.default, p.kind) for p in inspect.signature(function).parameters.values()]

    more = [("trigger", False, inspect.Parameter.POSITIONAL_OR_KEYWORD)] if name == "gradfilter_ma" else []
    assert parameters(getattr(grokfast, name)) == parameters(PAPER[name]) + more  # as in the released code


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()


def train(model: nn.Module, steps: int, between: Callable[[nn.Module], Any], optimizer: Any = None) -> nn.Module:
    """The loop of appendix C, with `between` backward and step."""
    optimizer = optimizer or torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(steps):
        model.zero_grad()
        batch = torch.randn(8, 3, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        model(batch).square().mean().backward()
        between(model)
        optimizer.step()
    return model


def listing_loop(function: Callable[..., Any], options: dict[str, Any]) -> Callable[[nn.Module], None]:
    grads = None

    def between(model: nn.Module) -> None:
        nonlocal grads
        grads = function(model, grads=grads, **options)

    return between


def same_params(left: nn.Module, right: nn.Module, tolerance: float) -> None:
    for p, q in zip(left.parameters(), right.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=tolerance, atol=tolerance)


@each_call
def test_loop_of_the_paper_gives_the_numbers_of_the_paper(name: str, options: dict[str, Any], filter: Any) -> None:
    ours = train(make_model(), 120, listing_loop(getattr(grokfast, name), options))
    paper = train(make_model(), 120, listing_loop(PAPER[name], options))
    same_params(ours, paper, 1e-9)


@each_call
def test_functions_and_attach_give_the_same_numbers(name: str, options: dict[str, Any], filter: Any) -> None:
    by_function = train(make_model(), 120, listing_loop(getattr(grokfast, name), options))
    attached = make_model()
    optimizer = torch.optim.AdamW(attached.parameters(), lr=0.01)
    grokfast.attach(optimizer, filter)
    train(attached, 120, lambda model: None, optimizer)
    same_params(by_function, attached, 0.0)


@each_call
def test_functions_agree_with_the_reference(name: str, options: dict[str, Any], filter: Any) -> None:
    model = nn.ParameterDict({"w": nn.Parameter(torch.zeros(3, dtype=torch.float64))})
    signal, kept = make_signal(120, 3), None
    expected = filtered(filter, signal)
    for t in range(120):
        model["w"].grad = torch.tensor(signal[t])
        kept = getattr(grokfast, name)(model, kept, **options)
        np.testing.assert_allclose(model["w"].grad, expected[t], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("function", [gradfilter_ema, gradfilter_ma])
def test_late_and_frozen_parameters_are_taken_as_they_come(function: Callable[..., Any]) -> None:
    model = nn.ParameterDict({name: nn.Parameter(torch.zeros(2)) for name in ("early", "late", "frozen")})
    model["frozen"].requires_grad_(False)
    kept = None
    for step in range(3):
        model["early"].grad = torch.ones(2)
        model["late"].grad = torch.ones(2) if step == 2 else None
        kept = function(model, kept)
        assert set(kept) == ({"early", "late"} if step == 2 else {"early"})


def test_average_returned_by_ema_is_one_tensor_per_name_as_in_the_paper() -> None:
    model = make_model()
    model(torch.ones(1, 3).double()).sum().backward()
    raw = {name: p.grad.clone() for name, p in model.named_parameters()}
    averages = gradfilter_ema(model)
    assert averages.keys() == raw.keys()
    assert all(torch.equal(averages[name], raw[name]) for name in raw)
    assert all(averages[name].data_ptr() != p.grad.data_ptr() for name, p in model.named_parameters())


@each_call
def test_returned_state_can_be_saved_and_resumed(name: str, options: dict[str, Any], filter: Any) -> None:
    function = getattr(grokfast, name)
    model = nn.ParameterDict({"w": nn.Parameter(torch.zeros(3))})
    signal = torch.tensor(make_signal(12, 3)).float()
    grads: list[list[torch.Tensor]] = [[], []]
    for run, interrupted in enumerate((False, True)):
        kept = None
        for t in range(12):
            if interrupted and t == 6:
                file = io.BytesIO()
                torch.save(kept, file)
                file.seek(0)
                kept = torch.load(file, weights_only=True)
            model["w"].grad = signal[t].clone()
            kept = function(model, kept, **options)
            grads[run].append(model["w"].grad)
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_deques_of_the_released_code_are_refused_by_name() -> None:
    model = make_model()
    model(torch.ones(1, 3).double()).sum().backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters()}
    deques = {name: deque(maxlen=100) for name, _ in model.named_parameters()}
    with pytest.raises(TypeError, match=r"grads must come from gradfilter_ma .*got deque for '0.weight'"):
        gradfilter_ma(model, deques)
    assert all(torch.equal(p.grad, before[name]) for name, p in model.named_parameters())


def test_window_of_another_size_is_refused() -> None:
    model = make_model()
    model(torch.ones(1, 3).double()).sum().backward()
    windows = gradfilter_ma(model, window_size=5)
    with pytest.raises(TypeError, match="window_size 6"):
        gradfilter_ma(model, windows, window_size=6)


@pytest.mark.parametrize("function", [gradfilter_ema, gradfilter_ma])
def test_infinities_never_enter_the_returned_state(function: Callable[..., Any]) -> None:
    model = nn.ParameterDict({"w": nn.Parameter(torch.zeros(2))})
    model["w"].grad = torch.ones(2)
    kept = function(model)
    model["w"].grad = torch.tensor([1.0, torch.inf])
    with pytest.warns(UserWarning, match="inf or NaN"):
        kept = function(model, kept)
    assert torch.equal(model["w"].grad, torch.tensor([1.0, torch.inf]))
    tensors = [t for state in kept.values() for t in (state.values() if isinstance(state, dict) else [state])]
    assert all(t.isfinite().all() for t in tensors if isinstance(t, torch.Tensor))


@pytest.mark.parametrize("function", [gradfilter_ema, gradfilter_ma])
def test_model_without_gradients_is_left_alone(function: Callable[..., Any]) -> None:
    model = make_model()
    assert function(model) == {}
    assert all(p.grad is None for p in model.parameters())
