"""Faults that use has found in the binding, each with the input that showed it."""

import copy
import pickle
import sys
import types
from typing import Any

import pytest
import torch
from torch import nn

import grokfast
from cases import each_kind, filtered_constant, make_params, sgd, step_with
from grokfast import EMA, MA, Filter

EMA_2 = EMA(alpha=0.5, lamb=2.0)


class HalfMuon(torch.optim.Optimizer):
    """Sets up only every second parameter, as KellerJordan's Muon does on one of two ranks; `share=1` is one rank."""

    def __init__(self, params: Any, share: int) -> None:
        self.share = share
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"][:: self.share]:
                state = self.state[p]
                if len(state) == 0:
                    state["momentum_buffer"] = torch.zeros_like(p)
                p.data.sub_(state["momentum_buffer"].lerp_(p.grad, 0.5), alpha=0.1)


# 1, 2: our entry never stands in the optimizer's state before the optimizer's own ------------------------------------


def test_01_gradient_taken_away_after_apply_leaves_the_optimizer_to_initialise_itself() -> None:
    first, second = make_params([(3,), (3,)])
    optimizer = torch.optim.Adam([first, second], lr=0.1)
    handle = grokfast.attach(optimizer, EMA_2)
    first.grad, second.grad = torch.ones_like(first), torch.ones_like(second)
    handle.apply()
    second.grad = None
    optimizer.step()
    pickle.loads(pickle.dumps(optimizer))
    step_with(optimizer, [first, second], [torch.ones_like(first)] * 2)
    assert {"exp_avg", "grokfast_slow"} <= optimizer.state[second].keys()
    assert handle.step == 2


def test_02_parameters_that_the_optimizer_does_not_set_up_have_no_entry_of_ours_alone() -> None:
    params = make_params([(2,), (3,), (4,)])
    optimizer = HalfMuon(params, share=2)
    handle = grokfast.attach(optimizer, EMA_2)
    for _ in range(2):
        step_with(optimizer, params, [torch.ones_like(p) for p in params])
    assert torch.equal(params[1].grad, torch.full_like(params[1], 3.0))
    assert set(handle.state) == set(params)
    assert all("momentum_buffer" in entry for entry in optimizer.state.values())
    alone = make_params([(2,), (3,), (4,)])
    resumed = HalfMuon(alone, share=1)
    again = grokfast.attach(resumed, EMA_2)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step_with(resumed, alone, [torch.ones_like(p) for p in alone])
    assert again.step == 3
    plain = HalfMuon(alone, share=1)
    plain.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    step_with(plain, alone, [torch.ones_like(p) for p in alone])


def test_02_entry_of_ours_alone_in_a_checkpoint_waits_for_the_optimizer() -> None:
    params = make_params([(2,), (3,)])
    optimizer = HalfMuon(params, share=1)
    grokfast.attach(optimizer, EMA_2)
    step_with(optimizer, params, [torch.ones_like(p) for p in params])
    saved = copy.deepcopy(optimizer.state_dict())
    del saved["state"][1]["momentum_buffer"]
    handle = grokfast.attach(resumed := HalfMuon(params, share=1), EMA_2)
    resumed.load_state_dict(saved)
    assert torch.equal(handle.slow(params[1]), torch.ones_like(params[1]))
    step_with(resumed, params, [torch.full_like(p, 3.0) for p in params])
    assert torch.equal(handle.slow(params[1]), torch.full_like(params[1], 2.0))
    assert handle.step == 2


def test_02_state_of_a_stateless_optimizer_is_saved_at_once_after_it_was_loaded() -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    grokfast.attach(optimizer, EMA_2)
    filtered_constant(optimizer, param, 2)
    second = sgd(param)
    grokfast.attach(second, EMA_2)
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert second.state_dict()["state"][0]["grokfast_count"] == 2


# 3: what has been filtered is known of every parameter ---------------------------------------------------------------


def test_03_step_after_a_discarded_one_is_filtered_though_the_first_parameter_has_no_new_gradient() -> None:
    first, second = make_params([(3,), (3,)])
    optimizer = sgd(first, second)
    handle = grokfast.attach(optimizer, EMA_2)
    (first.sum() + second.sum()).backward()
    handle.apply()  # and then a GradScaler discards the step
    optimizer.zero_grad(set_to_none=False)
    second.sum().backward()
    optimizer.step()
    assert handle.step == 2
    torch.testing.assert_close(second.grad, torch.full_like(second, 3.0))
    torch.testing.assert_close(first.grad, torch.full_like(first, 1.0))  # 0 + 2 * 0.5


def test_03_parameter_frozen_at_its_first_step_is_noticed_later() -> None:
    (param,) = make_params([(3,)])
    param.requires_grad_(False)
    optimizer = sgd(param)
    handle = grokfast.attach(optimizer, EMA_2)
    filtered_constant(optimizer, param, 1)
    param.requires_grad_(True)
    param.grad = None
    for _ in range(2):
        optimizer.zero_grad(set_to_none=False)
        param.sum().backward()
        handle.apply()  # and then no step
    assert handle.step == 3


def test_03_gradient_of_a_parameter_that_had_none_is_filtered() -> None:
    first, second = make_params([(3,), (3,)])
    optimizer = sgd(first, second)
    handle = grokfast.attach(optimizer, EMA_2)
    first.grad = torch.ones_like(first)
    handle.apply()
    first.grad, second.grad = torch.ones_like(first), torch.ones_like(second)
    optimizer.step()
    assert handle.step == 2
    assert second.grad.tolist() == [3.0] * 3


# 4: the authors' calls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("warmup", [True, False])
def test_04_gradfilter_ma_takes_the_trigger_of_the_released_scripts(warmup: bool) -> None:
    model = nn.ParameterDict({"w": nn.Parameter(torch.zeros(1))})
    windows, seen = None, []
    for step in range(6):
        model["w"].grad = torch.full((1,), float(step))
        windows = grokfast.gradfilter_ma(model, windows, window_size=2, lamb=1.0, warmup=warmup, trigger=step < 4)
        seen.append(model["w"].grad.item())
    assert seen == [0.0, 1.0, 2.0, 3.0, 4.0 + 3.5, 5.0 + 4.5]


# 5: DTensors in the oldest torch -------------------------------------------------------------------------------------


def test_05_dtensor_is_found_where_its_module_is_private(monkeypatch: pytest.MonkeyPatch) -> None:
    from grokfast.binding import state

    private: Any = types.ModuleType("torch.distributed._tensor")
    private.DTensor, private.Shard = object(), object()
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor", None)
    monkeypatch.setitem(sys.modules, "torch.distributed._tensor", private)
    assert state.dtensor_types() == (private.DTensor, private.Shard)


# 6: steps never go backwards -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("carried", ["newest", "oldest", "none"])
def test_06_replacing_parameters_keeps_the_steps(carried: str) -> None:
    once, always = make_params([(3,), (3,)])
    optimizer = torch.optim.Adam([once, always], lr=0.1)
    handle = grokfast.attach(optimizer, EMA_2, start=4)
    step_with(optimizer, [once, always], [torch.ones_like(once)] * 2)
    once.grad = None
    filtered_constant(optimizer, always, 5)
    params = optimizer.param_groups[0]["params"]
    for place, (old, name) in enumerate([(once, "oldest"), (always, "newest")]):
        params[place] = nn.Parameter(old.detach().clone())
        entry = optimizer.state.pop(old)
        if name == carried:
            optimizer.state[params[place]] = entry
    assert (handle.step, handle.active) == (6, True)
    assert filtered_constant(optimizer, params[1], 1) == pytest.approx(3.0)
    assert handle.step == 7


# 7: one rule of reset ------------------------------------------------------------------------------------------------


def clear(optimizer: torch.optim.Optimizer) -> None:
    optimizer.state.clear()


def delete(optimizer: torch.optim.Optimizer) -> None:
    for param in list(optimizer.state):
        del optimizer.state[param]


def replace(optimizer: torch.optim.Optimizer) -> None:
    optimizer.state = type(optimizer.state)(dict)


def begin(optimizer: torch.optim.Optimizer) -> None:
    for param in list(optimizer.state):
        optimizer.state[param] = {}


def load(optimizer: torch.optim.Optimizer) -> None:
    params = optimizer.param_groups[0]["params"]
    with pytest.warns(UserWarning, match="starts anew"):
        optimizer.load_state_dict(type(optimizer)(params, lr=0.1).state_dict())


WAYS = [clear, delete, replace, begin, load]


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("reset", WAYS, ids=lambda way: way.__name__)
@each_kind
def test_07_resetting_the_optimizers_state_resets_the_filter(filter: Filter, reset: Any, kind: Any) -> None:
    params, fresh = make_params([(3,), (2,)]), make_params([(3,), (2,)])
    optimizer, other = kind(params, lr=0.1), kind(fresh, lr=0.1)
    handle = grokfast.attach(optimizer, filter, start=1)
    grokfast.attach(other, filter, start=1)
    for _ in range(6):
        step_with(optimizer, params, [torch.full_like(p, 100.0) for p in params])
    reset(optimizer)
    assert (handle.step, handle.active, handle.slow(params[0])) == (0, False, None)
    for t in range(6):
        for own, stepping in ((params, optimizer), (fresh, other)):
            step_with(stepping, own, [torch.full_like(p, float(t)) for p in own])
        assert all(torch.equal(p.grad, q.grad) for p, q in zip(params, fresh, strict=True))


def test_07_deleting_the_state_of_one_parameter_resets_the_filter_of_that_one() -> None:
    first, second = make_params([(3,), (3,)])
    optimizer = torch.optim.AdamW([first, second], lr=0.1)
    handle = grokfast.attach(optimizer, EMA_2)
    step_with(optimizer, [first, second], [torch.full_like(first, 8.0)] * 2)
    del optimizer.state[first]
    assert handle.slow(first) is None
    step_with(optimizer, [first, second], [torch.zeros_like(first)] * 2)
    assert (first.grad.tolist(), second.grad.tolist()) == ([0.0] * 3, [8.0] * 3)
    assert handle.step == 2


def test_07_entry_that_the_optimizer_makes_anew_inside_its_step_keeps_the_filters_state() -> None:
    class Rebuilding(torch.optim.SGD):
        def step(self, closure: None = None) -> None:  # type: ignore[override]
            for p in self.param_groups[0]["params"]:
                self.state[p] = {"steps": 1}

    (param,) = make_params([(3,)])
    optimizer = Rebuilding([param], lr=0.1)
    handle = grokfast.attach(optimizer, EMA_2)
    filtered_constant(optimizer, param, 2, value=8.0)
    assert filtered_constant(optimizer, param, 1, value=0.0) == pytest.approx(8.0)  # 2 * 8 / 2
    assert handle.step == 3


# 8: parameters that come and go --------------------------------------------------------------------------------------


@pytest.mark.parametrize("filter", [EMA_2, MA(window_size=2)], ids=repr)
def test_08_gradients_of_changing_sets_share_their_kernels(filter: Filter) -> None:
    params = make_params([(2,)] * 60, torch.float32)
    optimizer = torch.optim.SGD(params, lr=0.0)
    grokfast.attach(optimizer, filter)
    generator = torch.Generator().manual_seed(0)
    for _ in range(30):
        for param, present in zip(params, torch.rand(60, generator=generator) < 0.5, strict=True):
            param.grad = torch.ones(2) if present else None
        with torch.profiler.profile() as profile:
            optimizer.step()
    calls = {event.key: event.count for event in profile.key_averages()}
    assert calls["aten::_fused_sgd_"] <= 2  # MA renews its total every other step, without the fused kernel


# 9: precision lost before we could help ------------------------------------------------------------------------------


def test_09_state_that_was_rounded_before_attach_is_reported() -> None:
    (param,) = make_params([(3,)], torch.bfloat16)
    optimizer = torch.optim.AdamW([param], lr=0.1)
    grokfast.attach(optimizer, EMA())
    filtered_constant(optimizer, param, 2)
    second = torch.optim.AdamW([param], lr=0.1)
    second.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with pytest.warns(UserWarning, match=r"state was found in torch\.bfloat16, .* attach first, then load"):
        handle = grokfast.attach(second, EMA())
    assert handle.slow(param).dtype == torch.float32
