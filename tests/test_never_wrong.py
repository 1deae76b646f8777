"""What used to be silently wrong: loads without hooks, steps by other names, reused and shared gradients."""

import copy
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import grokfast
from cases import each_kind, filtered_constant, make_params, sgd, step_with
from grokfast import EMA, MA, Filter, Saturation

EMA_2 = EMA(alpha=0.5, lamb=2.0)


class Bypassing(torch.optim.AdamW):
    """Loads as bitsandbytes' optimizers do: without torch's hooks, casting floating state to the parameters' dtype."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:  # type: ignore[override]
        params = [p for group in self.param_groups for p in group["params"]]
        state: defaultdict[Any, Any] = defaultdict(dict)
        for key, entry in copy.deepcopy(state_dict["state"]).items():
            param = params[key]
            state[param] = {
                k: v.to(param.dtype) if isinstance(v, torch.Tensor) and v.is_floating_point() and k != "step" else v
                for k, v in entry.items()
            }
        self.__setstate__({"state": state, "param_groups": self.param_groups})


def bypassing(filter: Filter, dtype: torch.dtype = torch.float32, **options: Any) -> tuple[Any, Any, Any]:
    (param,) = make_params([(4,)], dtype)
    optimizer = Bypassing([param], lr=0.1)
    return param, optimizer, grokfast.attach(optimizer, filter, **options)


# Loads without hooks ------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:the filter's state was found in torch.float32, narrower than torch.float64")
@each_kind
def test_load_without_hooks_continues_at_the_next_step(filter: Filter) -> None:
    param, optimizer, _ = bypassing(filter, start=3)
    for value in (1.0, 2.0, 3.0, 4.0):
        filtered_constant(optimizer, param, 1, value)
    other, second, resumed = bypassing(filter, start=3)
    filtered_constant(second, other, 1, value=100.0)
    second.load_state_dict(optimizer.state_dict())
    other.data.copy_(param.data)
    assert resumed.step == 4
    for value in (5.0, 6.0):
        assert filtered_constant(optimizer, param, 1, value) == filtered_constant(second, other, 1, value)
    assert torch.equal(param, other)
    assert (resumed.step, resumed.resumed) == (6, True)


def test_load_without_hooks_brings_the_state_back_to_its_dtype() -> None:
    param, optimizer, _ = bypassing(EMA_2, torch.bfloat16)
    filtered_constant(optimizer, param, 3)
    other, second, handle = bypassing(EMA_2, torch.bfloat16)
    second.load_state_dict(optimizer.state_dict())
    assert second.state[other]["grokfast_slow"].dtype == torch.bfloat16
    with pytest.warns(UserWarning, match="narrower than torch.float32"):
        filtered_constant(second, other, 1)
    assert handle.slow(other).dtype == torch.float32
    assert handle.step == 4


def test_load_without_hooks_restores_the_trigger() -> None:
    param, optimizer, _ = bypassing(EMA_2, start=(trigger := Saturation(above=0.5, patience=2)))
    filtered_constant(optimizer, param, 1)
    trigger.observe(1.0)
    _, second, handle = bypassing(EMA_2, start=(restored := Saturation(above=0.5, patience=2)))
    second.load_state_dict(optimizer.state_dict())
    assert handle.step == 1
    assert restored.streak == 1


def test_state_of_another_filter_loaded_without_hooks_is_refused_at_the_step() -> None:
    param, optimizer, _ = bypassing(EMA_2)
    filtered_constant(optimizer, param, 1)
    other, second, _ = bypassing(MA(window_size=3))
    second.load_state_dict(optimizer.state_dict())
    before = other.detach().clone()
    with pytest.raises(ValueError, match="saved filter state must fit MA"):
        filtered_constant(second, other, 1)
    assert torch.equal(other, before)


def test_load_without_hooks_and_without_filter_state_starts_anew_with_a_warning() -> None:
    param, optimizer, handle = bypassing(EMA_2)
    plain = Bypassing(make_params([(4,)], torch.float32), lr=0.1)
    filtered_constant(plain, plain.param_groups[0]["params"][0], 2)
    filtered_constant(optimizer, param, 3, value=100.0)
    optimizer.load_state_dict(plain.state_dict())
    with pytest.warns(UserWarning, match="starts anew"):
        assert filtered_constant(optimizer, param, 1) == pytest.approx(3.0)
    assert handle.step == 1


def test_optimizer_whose_state_dict_leaves_the_filter_out_says_so_once() -> None:
    class Forgetful(torch.optim.SGD):
        def state_dict(self) -> dict[str, Any]:  # type: ignore[override]
            return {"state": {}, "param_groups": []}

    (param,) = make_params([(2,)])
    optimizer = Forgetful([param], lr=0.1)
    grokfast.attach(optimizer, EMA_2)
    with pytest.warns(UserWarning, match=r"Forgetful.state_dict\(\) leaves out the filter's state"):
        filtered_constant(optimizer, param, 1)
    filtered_constant(optimizer, param, 2)


def test_load_hook_that_reorders_by_name_moves_the_filters_state_too() -> None:
    def build(order: str) -> tuple[dict[str, nn.Parameter], torch.optim.Optimizer, grokfast.Attachment]:
        named = {name: nn.Parameter(torch.zeros(2)) for name in order}
        optimizer = torch.optim.AdamW(list(named.items()), lr=0.1)
        return named, optimizer, grokfast.attach(optimizer, EMA_2)

    def by_name(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        saved, groups = state_dict["param_groups"][0], copy.deepcopy(state_dict["param_groups"])
        places = dict(zip(saved["param_names"], saved["params"], strict=True))
        names = optimizer.param_groups[0]["param_names"]
        groups[0]["param_names"] = names
        state = {place: state_dict["state"][places[name]] for place, name in enumerate(names)}
        return {"state": state, "param_groups": groups}

    params, optimizer, _ = build("ab")
    step_with(optimizer, list(params.values()), [torch.full((2,), 1.0), torch.full((2,), 5.0)])
    others, second, handle = build("ba")
    second.register_load_state_dict_pre_hook(by_name)
    second.load_state_dict(optimizer.state_dict())
    assert handle.slow(others["b"]).tolist() == [5.0, 5.0]
    assert torch.equal(second.state[others["a"]]["exp_avg"], optimizer.state[params["a"]]["exp_avg"])


@pytest.mark.parametrize("value", ["three", -1, 2.5, None, float("nan"), True])
@pytest.mark.parametrize("key", ["grokfast_count", "grokfast_step"])
def test_malformed_counts_fail_at_the_load(key: str, value: Any) -> None:
    (param,) = make_params([(2,)])
    optimizer = torch.optim.AdamW([param], lr=0.1)
    handle = grokfast.attach(optimizer, EMA_2)
    filtered_constant(optimizer, param, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["state"][0][key] = value
    state = optimizer.state
    with pytest.raises(ValueError, match=f"saved {key} must be an integer >= 0, got"):
        optimizer.load_state_dict(saved)
    assert optimizer.state is state
    assert handle.step == 2


# Optimizers -----------------------------------------------------------------------------------------------------------


def test_optimizers_that_step_by_other_methods_are_refused() -> None:
    class Lomo(torch.optim.SGD):
        def fused_backward(self, loss: torch.Tensor, lr: float) -> None: ...

    class TwoSteps(torch.optim.SGD):
        def first_step(self) -> None: ...
        def second_step(self) -> None: ...

    for kind, reason in ((Lomo, r"during it, in fused_backward\(\)"), (TwoSteps, r"takes two, in first_step\(\)")):
        with pytest.raises(TypeError, match=reason):
            grokfast.attach(kind(make_params([(2,)])), EMA_2)


def test_wrapper_with_a_base_optimizer_is_refused_in_favour_of_it() -> None:
    class Sam(torch.optim.SGD):
        base_optimizer: torch.optim.Optimizer

    params = make_params([(2,)])
    optimizer = Sam(params)
    optimizer.base_optimizer = torch.optim.AdamW(params)
    with pytest.raises(TypeError, match="attach to the AdamW inside the Sam"):
        grokfast.attach(optimizer, EMA_2)


@pytest.mark.parametrize("keep", [list, tuple, lambda inner: dict(enumerate(inner))])
def test_wrapper_of_several_optimizers_is_refused_in_favour_of_each(keep: Any) -> None:
    class Split(torch.optim.SGD):  # steps and saves by its parts, as heavyball's SplitOpt does
        parts: Any

    params = make_params([(2,), (3,)])
    optimizer = Split(params)
    optimizer.parts = keep([torch.optim.AdamW([param]) for param in params])
    with pytest.raises(TypeError, match="attach to each of the 2 inside the Split"):
        grokfast.attach(optimizer, EMA_2)


def test_wrapper_is_refused_whatever_it_calls_the_optimizer_inside() -> None:
    class Perturbed(torch.optim.SGD):
        wrapped_optimizer: torch.optim.Optimizer  # heavyball's SAMWrapper

    params = make_params([(2,)])
    optimizer = Perturbed(params)
    optimizer.wrapped_optimizer = torch.optim.AdamW(params)
    with pytest.raises(TypeError, match="attach to the AdamW inside the Perturbed"):
        grokfast.attach(optimizer, EMA_2)


def test_differentiable_optimizers_are_refused() -> None:
    with pytest.raises(TypeError, match="differentiable=False"):
        grokfast.attach(torch.optim.AdamW(make_params([(2,)]), differentiable=True), EMA_2)


def test_foreign_things_in_the_optimizers_state_are_left_alone() -> None:
    (param,) = make_params([(2,)])
    optimizer = sgd(param, momentum=0.9)
    optimizer.state["k"] = torch.tensor([3])  # MADGRAD
    optimizer.state["total_steps"] = 7  # SPAM
    handle = grokfast.attach(optimizer, EMA_2)
    filtered_constant(optimizer, param, 2)
    assert handle.memory_bytes == 2 * param.element_size()
    saved = optimizer.state_dict()
    assert saved["state"]["total_steps"] == 7
    optimizer.load_state_dict(saved)
    assert handle.step == 2
    assert list(handle.state) == [param]
    handle.remove()
    assert set(optimizer.state) == {param, "k", "total_steps"}


# Gradients ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clipped", [False, True])
def test_reused_gradient_tensor_is_filtered_again_after_a_new_backward(clipped: bool) -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    handle = grokfast.attach(optimizer, EMA(alpha=0.5, lamb=2.0))
    param.sum().backward()
    handle.apply()
    if clipped:
        nn.utils.clip_grad_norm_([param], 0.1)
    optimizer.zero_grad(set_to_none=False)
    param.sum().backward()
    optimizer.step()
    torch.testing.assert_close(param.grad, torch.full_like(param, 3.0))
    assert handle.step == 2


def test_reused_gradient_tensor_is_filtered_again_after_a_step_that_failed() -> None:
    class Failing(torch.optim.SGD):
        broken = True

        def step(self, closure: None = None) -> None:  # type: ignore[override]
            if self.broken:
                raise MemoryError
            super().step()

    (param,) = make_params([(3,)])
    optimizer = Failing([param], lr=0.1)
    grokfast.attach(optimizer, EMA_2)
    param.sum().backward()
    with pytest.raises(MemoryError):
        optimizer.step()
    optimizer.broken = False
    optimizer.zero_grad(set_to_none=False)
    param.sum().backward()
    optimizer.step()
    torch.testing.assert_close(param.grad, torch.full_like(param, 3.0))


def test_applying_twice_filters_once() -> None:
    (param,) = make_params([(3,)])
    handle = grokfast.attach(sgd(param), EMA(alpha=0.98, lamb=2.0))
    param.grad = torch.ones_like(param)
    for _ in range(2):
        handle.apply()
        assert torch.equal(param.grad, torch.full_like(param, 3.0))  # elsewhere 5.08
    assert handle.step == 1


def test_gradients_that_share_memory_are_filtered_once_each() -> None:
    params = make_params([(3,), (3,), (2,)])
    optimizer = sgd(*params)
    handle = grokfast.attach(optimizer, EMA_2)
    for value in (1.0, 2.0, 4.0):
        shared = torch.full((3,), value, dtype=torch.float64)
        params[0].grad, params[1].grad, params[2].grad = shared, shared, shared[:2]
        optimizer.step()
        for param in params:
            torch.testing.assert_close(param.grad, value + 2 * handle.slow(param))  # type: ignore
    assert handle.slow(params[2]).tolist() == handle.slow(params[0]).tolist()[:2] == [2.75, 2.75]


def test_gradient_that_shares_memory_with_one_without_a_filter_leaves_that_one_alone() -> None:
    first, second = make_params([(3,), (3,)])
    optimizer = torch.optim.SGD([{"params": [first], "grokfast": False}, {"params": [second]}], lr=0.1)
    grokfast.attach(optimizer, EMA_2)
    for _ in range(3):
        first.grad = second.grad = torch.ones(3, dtype=torch.float64)
        optimizer.step()
        assert (first.grad.tolist(), second.grad.tolist()) == ([1.0] * 3, [3.0] * 3)


def test_expanded_gradients_are_filtered() -> None:
    (param,) = make_params([(3,)])
    optimizer = sgd(param)
    grokfast.attach(optimizer, EMA_2)
    for _ in range(2):
        param.grad = torch.ones((), dtype=torch.float64).expand(3)
        optimizer.step()
        assert torch.equal(param.grad, torch.full_like(param, 3.0))


@pytest.mark.parametrize("make", [lambda g: g.t().contiguous().t(), lambda g: torch.cat([g, g], 1)[:, ::2]])
def test_gradients_laid_out_unlike_their_state_are_filtered_rightly(make: Any) -> None:
    (param,) = make_params([(4, 6)])
    optimizer = sgd(param)
    handle = grokfast.attach(optimizer, EMA_2)
    generator = torch.Generator().manual_seed(0)
    slow = None
    for t in range(4):
        raw = torch.randn(4, 6, generator=generator, dtype=torch.float64)
        grad = make(raw) if t % 2 else raw.clone()
        raw = grad.clone()
        slow = raw if slow is None else 0.5 * slow + 0.5 * raw
        param.grad = grad
        optimizer.step()
        torch.testing.assert_close(param.grad, raw + 2 * slow)
        torch.testing.assert_close(handle.slow(param), slow)


@pytest.mark.parametrize("slow_only", [False, True])
def test_fp16_gradients_are_saturated_where_the_filter_would_overflow(slow_only: bool) -> None:
    param = nn.Parameter(torch.zeros(4, dtype=torch.float16))
    optimizer = torch.optim.SGD([param], lr=0.0)
    grokfast.attach(optimizer, EMA(lamb=2.0, slow_only=slow_only))
    param.grad = torch.tensor([60000.0, -60000.0, 1.0, float("inf")], dtype=torch.float16)
    optimizer.step()
    small = 2.0 if slow_only else 3.0
    assert param.grad.tolist() == [65504.0, -65504.0, small, float("inf")]


@pytest.mark.parametrize("function", [grokfast.gradfilter_ema, grokfast.gradfilter_ma])
def test_functions_resolve_conjugated_gradients(function: Any) -> None:
    model = nn.ParameterDict({"w": nn.Parameter(torch.zeros(2, dtype=torch.complex64))})
    (model["w"].conj() * torch.tensor([1j, 2.0])).sum().real.backward()
    raw = model["w"].grad.clone()
    function(model, **({"window_size": 1} if function is grokfast.gradfilter_ma else {}), lamb=2.0)
    torch.testing.assert_close(model["w"].grad.resolve_conj(), 3 * raw.resolve_conj())


@pytest.mark.parametrize("function", [grokfast.gradfilter_ema, grokfast.gradfilter_ma])
def test_functions_filter_shared_and_expanded_gradients_once_each(function: Any) -> None:
    model = nn.ParameterList([nn.Parameter(torch.zeros(3)) for _ in range(3)])
    model[0].grad = model[1].grad = torch.ones(3)
    model[2].grad = torch.ones(()).expand(3)
    function(model, **({"window_size": 1} if function is grokfast.gradfilter_ma else {}), lamb=2.0)
    assert [param.grad.tolist() for param in model] == [[3.0] * 3] * 3


# Stages ---------------------------------------------------------------------------------------------------------------


def test_trigger_that_is_never_told_anything_is_reported_once() -> None:
    (param,) = make_params([(1,)])
    optimizer = sgd(param)
    trigger = Saturation(above=0.9)
    grokfast.attach(optimizer, EMA_2, start=trigger)
    filtered_constant(optimizer, param, 1000)
    with pytest.warns(UserWarning, match=r"has observed no value in 1000 steps: call observe\(\)"):
        filtered_constant(optimizer, param, 1)
    filtered_constant(optimizer, param, 2)


def test_trigger_that_is_told_values_is_not_reported() -> None:
    (param,) = make_params([(1,)])
    optimizer = sgd(param)
    trigger = Saturation(above=0.9)
    grokfast.attach(optimizer, EMA_2, start=trigger)
    trigger.observe(0.1)
    filtered_constant(optimizer, param, 1001)


# Some parameters ------------------------------------------------------------------------------------------------------


def test_only_chosen_parameters_are_filtered_and_have_state() -> None:
    chosen, other = make_params([(3,), (3,)])
    optimizer = torch.optim.AdamW([chosen, other], lr=0.1)
    handle = grokfast.attach(optimizer, EMA_2, params=[chosen])
    step_with(optimizer, [chosen, other], [torch.ones_like(chosen)] * 2)
    assert (chosen.grad.tolist(), other.grad.tolist()) == ([3.0] * 3, [1.0] * 3)
    assert list(handle.state) == [chosen]


@pytest.mark.parametrize(
    ("params", "error", "message"),
    [
        ([], ValueError, "params must be parameters of the optimizer, got none"),
        ([nn.Parameter(torch.zeros(7))], ValueError, r"got one of shape \(7,\) that it does not have"),
        (["weight"], TypeError, "params must be parameters, got 'weight'"),
        (nn.Parameter(torch.zeros(2)), TypeError, "params must be an iterable"),
    ],
)
def test_chosen_parameters_must_be_the_optimizers(params: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        grokfast.attach(sgd(*make_params([(2,)])), EMA_2, params=params)


def test_state_that_is_moved_into_new_tensors_is_the_one_that_continues() -> None:
    moved, plain = ([nn.Parameter(torch.ones(3))] for _ in range(2))
    optimizers = [torch.optim.SGD(params, lr=0.0) for params in (moved, plain)]
    handles = [grokfast.attach(optimizer, EMA(alpha=0.9)) for optimizer in optimizers]
    for step in range(6):
        for params, optimizer in zip((moved, plain), optimizers, strict=True):
            params[0].grad = torch.full((3,), float(step))
            optimizer.step()
        for entry in optimizers[0].state.values():  # what programs do that move an optimizer to another device
            entry.update({key: value.clone() for key, value in entry.items() if isinstance(value, torch.Tensor)})
        assert_close(handles[0].slow(moved[0]), handles[1].slow(plain[0]), rtol=0, atol=0)
        assert_close(moved[0].grad, plain[0].grad, rtol=0, atol=0)


@pytest.mark.parametrize("size", [(5, 2), (1, 2), (3, 2), (6,)])
def test_parameter_that_changes_its_shape_is_refused_and_reads_no_foreign_memory(size: tuple[int, ...]) -> None:
    param = nn.Parameter(torch.ones(2, 3))
    optimizer = torch.optim.SGD([param], lr=0.0)
    grokfast.attach(optimizer, EMA())
    for _ in range(3):
        param.grad = torch.ones(2, 3)
        optimizer.step()
    param.grad, param.data = None, torch.ones(size)
    param.grad = torch.ones(size)
    with pytest.raises(ValueError, match=r"state must fit a gradient of shape .*, got slow \(2, 3\)"):
        optimizer.step()
    del optimizer.state[param]
    optimizer.step()
    assert torch.equal(param.grad, torch.full(size, 3.0))


def test_negated_gradients_are_filtered() -> None:
    params = make_params([(), ()])  # a gradient of one element is taken as it is, others are copied by autograd
    optimizer = sgd(*params)
    grokfast.attach(optimizer, EMA_2)
    for _ in range(4):
        optimizer.zero_grad()
        (torch.complex(*params).conj() * torch.tensor(1 + 2j)).real.backward()
        assert params[1].grad.is_neg()
        optimizer.step()
        assert [param.grad.item() for param in params] == [3.0, 6.0]


def test_step_that_a_scaler_discards_is_skipped_though_clipping_made_it_finite() -> None:
    (param,) = make_params([(3,)], torch.float32)
    optimizer = torch.optim.SGD([param], lr=0.0, fused=True)
    handle = grokfast.attach(optimizer, EMA_2, nonfinite="ignore")
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for factor in (1.0, float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale((param * factor).sum()).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_value_([param], 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert (handle.step, handle.skipped) == (2, 1)


@dataclass(frozen=True, kw_only=True)
class MeanOnly(Filter):
    """Adds the running mean of a gradient's elements: its state is one number, whatever the shape."""

    lamb: float = 1.0
    slow_only: bool = False

    def new_state(self, grad: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"total": torch.zeros((), dtype=grad.dtype, device=grad.device)}

    def advance(self, grads: Any, states: Any, count: int) -> grokfast.Slow:
        for grad, state in zip(grads, states, strict=True):
            state["total"] += grad.mean()
        return grokfast.Slow([(s["total"] / (count + 1)).expand_as(g) for g, s in zip(grads, states, strict=True)], 1.0)

    def slow(self, state: Any, count: int) -> torch.Tensor:
        return state["total"] / count

    def sections(self) -> Any:
        return [([1.0], [1.0])]


def test_filters_whose_state_has_another_shape_than_the_gradient_work() -> None:
    param = nn.Parameter(torch.zeros(2, 3))
    optimizer = torch.optim.SGD([param], lr=0.0)
    grokfast.attach(optimizer, MeanOnly())
    for value, mean in ((1.0, 1.0), (3.0, 2.0), (5.0, 3.0)):
        param.grad = torch.full((2, 3), value)
        optimizer.step()
        assert_close(param.grad, torch.full((2, 3), value + mean))
