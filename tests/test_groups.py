"""Param groups: own values, no filter, values scheduled during training, and keys that do not exist."""

import pytest
import torch
from torch import nn

import grokfast
from cases import each_kind, make_params, make_signal, step_with
from grokfast import EMA, MA, Filter
from reference import filtered


def train(optimizer: torch.optim.Optimizer, params: list[nn.Parameter], steps: int = 8) -> list[torch.Tensor]:
    """Feed each parameter the same gradients; what the optimizer received last."""
    signal = make_signal(steps, 3)
    for t in range(steps):
        step_with(optimizer, params, [torch.tensor(signal[t])] * len(params))
    return [p.grad for p in params]  # type: ignore


def expected(filter: Filter, steps: int = 8) -> torch.Tensor:
    return torch.tensor(filtered(filter, make_signal(steps, 3))[-1])


def test_groups_override_alpha_and_lamb_for_themselves() -> None:
    params = make_params([(3,)] * 4)
    groups = [
        {"params": [params[0]]},
        {"params": [params[1]], "grokfast_alpha": 0.5},
        {"params": [params[2]], "grokfast_lamb": 7.0},
        {"params": [params[3]], "grokfast_alpha": 0.5, "grokfast_lamb": 7.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=0.1)
    grokfast.attach(optimizer, EMA(alpha=0.9, lamb=2.0, slow_only=True))
    found = train(optimizer, params)
    for grad, (alpha, lamb) in zip(found, [(0.9, 2.0), (0.5, 2.0), (0.9, 7.0), (0.5, 7.0)], strict=True):
        torch.testing.assert_close(grad, expected(EMA(alpha=alpha, lamb=lamb, slow_only=True)))


@each_kind
def test_every_filter_lets_groups_override_lamb(filter: Filter) -> None:
    first, second = make_params([(3,), (3,)])
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": [second], "grokfast_lamb": 0.0}], lr=0.1)
    grokfast.attach(optimizer, filter)
    found = train(optimizer, [first, second])
    torch.testing.assert_close(found[0], expected(filter))
    assert torch.equal(found[1], torch.tensor(make_signal(8, 3)[-1]))


def test_group_without_the_filter_gets_plain_gradients_and_no_state() -> None:
    first, second = make_params([(3,), (3,)])
    optimizer = torch.optim.SGD([{"params": [first]}, {"params": [second], "grokfast": False}], lr=0.1)
    handle = grokfast.attach(optimizer, EMA(alpha=0.9, lamb=2.0))
    found = train(optimizer, [first, second])
    torch.testing.assert_close(found[0], expected(EMA(alpha=0.9, lamb=2.0)))
    assert torch.equal(found[1], torch.tensor(make_signal(8, 3)[-1]))
    assert list(handle.state) == [first]


def test_switching_a_group_off_freezes_its_state() -> None:
    params = make_params([(3,)])
    optimizer = torch.optim.SGD(params, lr=0.1)
    handle = grokfast.attach(optimizer, EMA(alpha=0.5, lamb=2.0))
    for value, off in ((8.0, False), (4.0, True), (0.0, False)):
        optimizer.param_groups[0]["grokfast"] = not off
        step_with(optimizer, params, [torch.full_like(params[0], value)])
        assert params[0].grad.mean().item() == pytest.approx({8.0: 24.0, 4.0: 4.0, 0.0: 8.0}[value])
    assert handle.step == 2


def test_optimizer_with_the_filter_off_in_all_groups_is_the_plain_one() -> None:
    params = make_params([(3,)])
    optimizer = torch.optim.AdamW([{"params": params, "grokfast": False}], lr=0.1)
    handle = grokfast.attach(optimizer, EMA())
    assert torch.equal(train(optimizer, params)[0], torch.tensor(make_signal(8, 3)[-1]))
    assert handle.memory_bytes == 0


@pytest.mark.parametrize(
    ("kind", "alpha"), [(torch.optim.RMSprop, 0.99), (torch.optim.ASGD, 0.75)], ids=["RMSprop", "ASGD"]
)
def test_the_alpha_of_an_optimizer_is_its_own(kind: type[torch.optim.Optimizer], alpha: float) -> None:
    params = make_params([(3,)])
    optimizer = kind([{"params": params, "grokfast_alpha": 0.5}], lr=0.1, alpha=alpha)
    grokfast.attach(optimizer, EMA(alpha=0.9, lamb=2.0))
    torch.testing.assert_close(train(optimizer, params)[0], expected(EMA(alpha=0.5, lamb=2.0)))
    assert optimizer.param_groups[0]["alpha"] == alpha


def test_lamb_may_be_scheduled_by_its_group_key() -> None:
    params = make_params([(3,)])
    optimizer = torch.optim.SGD([{"params": params, "grokfast_lamb": 0.0}], lr=0.1)
    handle = grokfast.attach(optimizer, EMA(alpha=0.9, lamb=2.0))
    signal = torch.tensor(make_signal(10, 3))
    for t in range(10):
        optimizer.param_groups[0]["grokfast_lamb"] = t / 2
        step_with(optimizer, params, [signal[t]])
        torch.testing.assert_close(params[0].grad, signal[t] + t / 2 * handle.slow(params[0]))  # type: ignore
    torch.testing.assert_close(params[0].grad, expected(EMA(alpha=0.9, lamb=4.5), steps=10))


def test_key_set_and_taken_away_during_training_has_effect() -> None:
    params = make_params([(3,)])
    optimizer = torch.optim.SGD(params, lr=0.1)
    grokfast.attach(optimizer, EMA(lamb=2.0))
    group = optimizer.param_groups[0]
    gains = []
    for lamb in (None, 5.0, None):
        group.update({} if lamb is None else {"grokfast_lamb": lamb})
        step_with(optimizer, params, [torch.ones_like(params[0])])
        gains.append(params[0].grad.mean().item())
        group.pop("grokfast_lamb", None)
    assert gains == pytest.approx([3.0, 6.0, 3.0])


@pytest.mark.parametrize(
    ("filter", "key", "value", "error", "message"),
    [
        (
            EMA(),
            "grokfast_gamma",
            1.0,
            ValueError,
            "param group 0 may set .*grokfast_alpha.* for EMA, got 'grokfast_gamma'",
        ),
        (MA(), "grokfast_alpha", 0.5, ValueError, "grokfast_lamb for MA, got 'grokfast_alpha'"),
        (MA(), "grokfast_window_size", 5, ValueError, "got 'grokfast_window_size'"),
        (EMA(), "grokfastlamb", 5, ValueError, "got 'grokfastlamb'"),
        (EMA(), "grokfast_alpha", 1.5, ValueError, r"alpha must be in \[0, 1\), got 1.5"),
        (EMA(), "grokfast_lamb", -1.0, ValueError, r"lamb must be in \[0, inf\), got -1.0"),
        (EMA(), "grokfast_lamb", None, TypeError, "lamb must be a number .* got None"),
        (EMA(), "grokfast", 0, TypeError, "grokfast must be True or False, got 0"),
        (EMA(), "grokfast", "off", TypeError, "grokfast must be True or False, got 'off'"),
    ],
)
def test_bad_group_keys_are_refused_at_attach_and_at_step(
    filter: Filter, key: str, value: object, error: type[Exception], message: str
) -> None:
    params = make_params([(3,)])
    before = params[0].detach().clone()
    optimizer = torch.optim.SGD([{"params": params, key: value}], lr=0.1)
    with pytest.raises(error, match=message):
        grokfast.attach(optimizer, filter)
    assert not any(value for name, value in vars(optimizer).items() if name.endswith("_hooks"))
    del optimizer.param_groups[0][key]
    handle = grokfast.attach(optimizer, filter)
    optimizer.param_groups[0][key] = value
    with pytest.raises(error, match=message):
        step_with(optimizer, params, [torch.ones_like(params[0])])
    assert torch.equal(params[0], before)
    assert torch.equal(params[0].grad, torch.ones_like(params[0]))
    assert handle.step == 0
