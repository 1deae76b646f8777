"""`grokfast.Optimizer` makes what `attach` would have made, from names, and refuses what has no effect."""

import functools
from typing import Any

import pytest
import torch

import grokfast
from cases import make_params, make_signal
from grokfast import EMA, MA, Butterworth


def train(optimizer: torch.optim.Optimizer, params: list[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
    for t in range(6):
        for i, param in enumerate(params):
            param.grad = torch.tensor(make_signal(6, *param.shape, seed=i)[t])
        optimizer.step()
    return params


SHAPES = [(3, 4), (5,)]
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "names": (EMA(alpha=0.9, lamb=1.0), {"optimizer": "AdamW", "filter": "ema", "alpha": 0.9, "lamb": 1.0, "lr": 0.1}),
    "defaults": (EMA(), {"lr": 0.1}),
    "another filter": (MA(window_size=3), {"optimizer": "AdamW", "filter": "ma", "window_size": 3, "lr": 0.1}),
    "design": (Butterworth(2, 0.1), {"filter": "butterworth", "order": 2, "cutoff": 0.1, "lr": 0.1}),
    "objects": (MA(window_size=3), {"optimizer": torch.optim.AdamW, "filter": MA(window_size=3), "lr": 0.1}),
    "partial": (EMA(), {"optimizer": functools.partial(torch.optim.AdamW, lr=0.1)}),
}


@pytest.mark.parametrize(("filter", "values"), CASES.values(), ids=CASES)
def test_it_makes_what_attach_would_have_made(filter: grokfast.Filter, values: dict[str, Any]) -> None:
    params, expected = make_params(SHAPES), make_params(SHAPES)
    by_hand = torch.optim.AdamW(expected, lr=0.1)
    grokfast.attach(by_hand, filter)
    made = grokfast.Optimizer(params, **values)
    assert type(made) is torch.optim.AdamW
    for a, b in zip(train(made, params), train(by_hand, expected), strict=True):
        assert torch.equal(a, b)


def test_start_and_nonfinite_reach_attach() -> None:
    params = make_params([(3,)])
    optimizer = grokfast.Optimizer(params, "SGD", lr=1.0, start=1, nonfinite="raise")
    before = params[0].detach().clone()
    params[0].grad = torch.ones_like(params[0])
    optimizer.step()
    torch.testing.assert_close(before - params[0].detach(), torch.ones_like(before))
    params[0].grad = torch.full_like(params[0], torch.inf)
    with pytest.raises(FloatingPointError):
        optimizer.step()


def test_it_is_an_optimizer_class_for_tools_that_ask() -> None:
    assert issubclass(grokfast.Optimizer, torch.optim.Optimizer)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"optimizer": "adamw"}, ValueError, r"optimizer must be .* \(did you mean AdamW, .*\?\), got 'adamw'"),
        ({"optimizer": "Zzz"}, ValueError, "optimizer must be a name in torch.optim, got 'Zzz'"),
        ({"optimizer": "Optimizer"}, ValueError, "optimizer must be a name in torch.optim"),
        ({"optimizer": 3}, TypeError, "optimizer must be a name in torch.optim or a callable, got 3"),
        ({"filter": "emma"}, ValueError, "filter must be one of 'ema', 'ma', .* or a filter, got 'emma'"),
        ({"filter": 3}, TypeError, "filter must be a grokfast filter"),
        ({"window_size": 5}, TypeError, "window_size is an argument of neither AdamW nor EMA"),
        ({"lamda": 5}, TypeError, r"lamda is an argument of neither AdamW nor EMA \(did you mean lamb.*\?\)"),
        ({"alpha": 2.0}, ValueError, r"alpha must be in \[0, 1\), got 2.0"),
        ({"filter": EMA(), "alpha": 0.9}, TypeError, "alpha"),
        ({"optimizer": "RMSprop", "alpha": 0.9}, ValueError, r"RMSprop takes it too, write filter=grokfast.EMA\(alpha"),
        ({"optimizer": "LBFGS"}, TypeError, "LBFGS"),
    ],
)  # fmt: skip
def test_what_cannot_work_is_refused(values: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        grokfast.Optimizer(make_params(SHAPES), **values)


def test_a_value_that_both_take_goes_to_the_optimizer_beside_a_filter() -> None:
    made = grokfast.Optimizer(make_params(SHAPES), "RMSprop", alpha=0.5, filter=EMA(alpha=0.9))
    assert made.param_groups[0]["alpha"] == 0.5
