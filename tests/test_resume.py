"""Save, load, continue: bit for bit the run that was never interrupted; state that does not fit is refused."""

import copy
import gc
import io
import itertools
import textwrap
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import grokfast
from cases import ALL_FILTERS, ONE_OF_EACH, each_filter, filtered_constant, make_params
from forks import Fork, run_code
from grokfast import EMA, FIR, IIR, MA, Butterworth, Filter, Saturation

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05),
    "momentum": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.05),
    "adamw_fused": lambda params: torch.optim.AdamW(params, lr=0.05, fused=True),
    "adafactor": lambda params: torch.optim.Adafactor(params, lr=0.05),
}
if not hasattr(torch.optim, "Adafactor"):  # torch 2.4
    del OPTIMIZERS["adafactor"]


class Run:
    """A small training whose gradients depend on the parameters, so that every difference grows."""

    def __init__(
        self, make: Callable[..., Any], filter: Filter, dtype: torch.dtype = torch.float32, **options: Any
    ) -> None:
        self.params = [nn.Parameter(torch.ones(3, 4, dtype=dtype)), nn.Parameter(torch.ones(5, dtype=dtype))]
        self.optimizer = make(self.params)
        self.handle = grokfast.attach(self.optimizer, filter, **options)

    def train(self, first: int, last: int) -> "Run":
        for step in range(first, last):
            for i, p in enumerate(self.params):
                noise = torch.randn(p.shape, generator=torch.Generator().manual_seed(100 * step + i))
                p.grad = (p.detach() * 0.5 + noise.to(p.dtype)).to(p.dtype)
            self.optimizer.step()
        return self

    def save(self) -> io.BytesIO:
        file = io.BytesIO()
        torch.save({"params": [p.detach() for p in self.params], "optimizer": self.optimizer.state_dict()}, file)
        file.seek(0)
        return file

    def load(self, file: Any) -> "Run":
        saved = torch.load(file, weights_only=True)
        for p, value in zip(self.params, saved["params"], strict=True):
            p.data.copy_(value)
        self.optimizer.load_state_dict(saved["optimizer"])
        return self


def same_params(left: Run, right: Run) -> bool:
    return all(torch.equal(p, q) for p, q in zip(left.params, right.params, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@each_filter
def test_resume_equals_uninterrupted(make: Callable[..., Any], filter: Filter, dtype: torch.dtype) -> None:
    uninterrupted = Run(make, filter, dtype).train(0, 12)
    file = Run(make, filter, dtype).train(0, 6).save()
    resumed = Run(make, filter, dtype).load(file).train(6, 12)
    assert same_params(resumed, uninterrupted)
    assert resumed.handle.step == uninterrupted.handle.step == 12
    for p, q in zip(resumed.params, uninterrupted.params, strict=True):
        ours, theirs = resumed.handle.state[p], uninterrupted.handle.state[q]
        assert {k: (t.dtype, t.shape) for k, t in ours.items()} == {k: (t.dtype, t.shape) for k, t in theirs.items()}
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_resume_with_a_window_in_bf16_equals_uninterrupted() -> None:
    filter = MA(window_size=4, window_dtype=torch.bfloat16)
    uninterrupted = Run(OPTIMIZERS["adamw"], filter).train(0, 12)
    file = Run(OPTIMIZERS["adamw"], filter).train(0, 6).save()
    assert same_params(Run(OPTIMIZERS["adamw"], filter).load(file).train(6, 12), uninterrupted)


@pytest.mark.parametrize("filter", ONE_OF_EACH.values(), ids=ONE_OF_EACH)
def test_resume_forgets_what_the_optimizer_had_seen_before_loading(filter: Filter) -> None:
    make = OPTIMIZERS["adamw"]
    file = Run(make, filter).train(0, 6).save()
    used = Run(make, filter).train(50, 59).load(file)
    assert used.handle.step == 6
    assert same_params(used.train(6, 12), Run(make, filter).train(0, 12))


def test_resume_keeps_the_step_from_which_the_filter_acts() -> None:
    make, filter = OPTIMIZERS["adamw"], ALL_FILTERS["ema"]
    uninterrupted = Run(make, filter, start=8).train(0, 12)
    file = Run(make, filter, start=8).train(0, 6).save()
    assert same_params(Run(make, filter, start=8).load(file).train(6, 12), uninterrupted)
    assert not same_params(Run(make, filter, start=6).train(0, 12), uninterrupted)


@pytest.mark.parametrize("observed", [1, 3], ids=["streak", "fired"])
def test_resume_keeps_the_progress_of_saturation(observed: int) -> None:
    make, filter = OPTIMIZERS["adamw"], ALL_FILTERS["ema"]

    def two_stages() -> tuple[Run, Saturation]:
        saturated = Saturation(above=0.9, patience=3)
        return Run(make, filter, start=saturated), saturated

    first, saturated = two_stages()
    first.train(0, 6)
    for _ in range(observed):
        saturated.observe(1.0)
    file = first.save()
    resumed, restored = two_stages()
    resumed.load(file)
    assert restored.streak == observed
    live = [run.optimizer.state[run.params[0]].keys() for run in (first, resumed)]
    assert live[0] == live[1]
    for run, trigger in ((first, saturated), (resumed, restored)):
        for _ in range(3 - observed):
            trigger.observe(1.0)
        assert run.handle.active
        run.train(6, 12)
    assert same_params(resumed, first)


def test_state_dict_holds_tensors_and_numbers_only() -> None:
    run = Run(OPTIMIZERS["adamw"], ALL_FILTERS["butterworth"], start=Saturation(below=0.0)).train(0, 3)
    values = [value for entry in run.optimizer.state_dict()["state"].values() for value in entry.values()]
    assert all(isinstance(value, torch.Tensor | int | float) for value in values)


@each_filter
def test_loaded_state_is_a_copy(filter: Filter) -> None:
    saved = Run(OPTIMIZERS["sgd"], filter).train(0, 3).optimizer.state_dict()
    before = copy.deepcopy(saved["state"])
    other = Run(OPTIMIZERS["sgd"], filter)
    other.optimizer.load_state_dict(saved)
    other.train(0, 2)
    for key, entry in before.items():
        assert entry.keys() == saved["state"][key].keys()
        assert all(
            torch.equal(torch.as_tensor(value), torch.as_tensor(saved["state"][key][k])) for k, value in entry.items()
        )


def test_loading_first_and_attaching_after_continues_too() -> None:
    make, filter = OPTIMIZERS["adamw"], ALL_FILTERS["ma"]
    uninterrupted = Run(make, filter).train(0, 12)
    file = Run(make, filter).train(0, 6).save()
    run = Run(make, filter)
    run.handle.remove()
    run.load(file)
    run.handle = grokfast.attach(run.optimizer, filter)
    assert run.handle.step == 6
    assert same_params(run.train(6, 12), uninterrupted)


def test_resumed_tells_whether_the_filter_continues_from_saved_state() -> None:
    make, filter = OPTIMIZERS["adamw"], ALL_FILTERS["ema"]
    run = Run(make, filter)
    assert not run.handle.resumed
    file = run.train(0, 6).save()
    assert not run.handle.resumed
    assert Run(make, filter).load(file).handle.resumed
    assert grokfast.attach(copy.deepcopy(run.optimizer), filter).resumed
    plain = make(run.params)
    run = Run(make, filter).load(run.save())
    with pytest.warns(UserWarning, match="starts anew"):
        run.optimizer.load_state_dict(plain.state_dict())
    assert not run.handle.resumed


def test_loading_discards_what_was_applied_before() -> None:
    make, filter = OPTIMIZERS["sgd"], ALL_FILTERS["ema"]
    file = Run(make, filter).train(0, 6).save()
    run = Run(make, filter)
    for p in run.params:
        p.grad = torch.full_like(p, 100.0)
    run.handle.apply()
    assert same_params(run.load(file).train(6, 12), Run(make, filter).train(0, 12))
    assert run.handle.step == 12


def test_resume_in_a_fresh_process_equals_uninterrupted(tmp_path: Path) -> None:
    make, filter = OPTIMIZERS["adamw"], ALL_FILTERS["ma"]
    uninterrupted = Run(make, filter, torch.bfloat16).train(0, 12)
    (tmp_path / "saved.pt").write_bytes(Run(make, filter, torch.bfloat16).train(0, 6).save().getvalue())
    script = f"""
        import torch
        from test_resume import ALL_FILTERS, OPTIMIZERS, Run
        run = Run(OPTIMIZERS["adamw"], ALL_FILTERS["ma"], torch.bfloat16).load({str(tmp_path / "saved.pt")!r})
        torch.save([p.detach() for p in run.train(6, 12).params], {str(tmp_path / "done.pt")!r})
    """
    fork = Fork(run_code, textwrap.dedent(script))
    assert fork.wait() == 0, fork.err
    resumed = torch.load(tmp_path / "done.pt", weights_only=True)
    assert all(torch.equal(p, q) for p, q in zip(resumed, uninterrupted.params, strict=True))


# State that does not fit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["momentum", "adamw"])
def test_state_dict_without_filter_state_loads_with_one_warning(name: str) -> None:
    make = OPTIMIZERS[name]
    plain = Run(make, ALL_FILTERS["ema"])
    plain.handle.remove()
    state_dict = copy.deepcopy(plain.train(0, 4).optimizer.state_dict())  # torch loads without copying
    run = Run(make, ALL_FILTERS["ema"]).train(0, 3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.optimizer.load_state_dict(state_dict)
    assert [str(w.message) for w in caught] == ["the state dict holds no grokfast state: the filter starts anew"]
    assert run.handle.step == 0
    assert run.handle.state == {}
    plain.handle = grokfast.attach(plain.optimizer, ALL_FILTERS["ema"])
    for p, q in zip(run.params, plain.params, strict=True):
        p.data.copy_(q.data)
    assert same_params(run.train(4, 8), plain.train(4, 8))


FAMILY: dict[str, Filter] = {
    "ema": EMA(),
    "ma_4": MA(window_size=4),
    "ma_5": MA(window_size=5),
    "fir_2": FIR([0.5, 0.5]),
    "fir_3": FIR([0.5, 0.3, 0.2]),
    "iir_1": IIR([0.1], [1.0, -0.9]),
    "iir_2": IIR([0.06, 0.04], [1.0, -1.3, 0.4]),
    "butterworth_2": Butterworth(2, 0.1),
    "butterworth_3": Butterworth(3, 0.1),
}


@pytest.mark.parametrize(("saved", "current"), list(itertools.permutations(FAMILY, 2)))
def test_state_of_another_filter_is_refused_and_changes_nothing(saved: str, current: str) -> None:
    state_dict = Run(OPTIMIZERS["adamw"], FAMILY[saved]).train(0, 3).optimizer.state_dict()
    refuse(state_dict, Run(OPTIMIZERS["adamw"], FAMILY[current]))


def test_state_of_other_shapes_is_refused_and_changes_nothing() -> None:
    run = Run(OPTIMIZERS["adamw"], ALL_FILTERS["ema"])
    other = Run(OPTIMIZERS["adamw"], ALL_FILTERS["ema"]).train(0, 3).optimizer.state_dict()
    for entry in other["state"].values():
        entry["grokfast_slow"] = entry["grokfast_slow"][:2]
    refuse(other, run)


def test_damaged_filter_state_is_refused_and_changes_nothing() -> None:
    run = Run(OPTIMIZERS["adamw"], ALL_FILTERS["ma"])
    other = Run(OPTIMIZERS["adamw"], ALL_FILTERS["ma"]).train(0, 3).optimizer.state_dict()
    del other["state"][1]["grokfast_total"]
    refuse(other, run)


def refuse(state_dict: dict[str, Any], run: Run) -> None:
    """Loading raises ValueError, and nothing in optimizer, parameters or handle is different afterwards."""
    run.train(0, 5)
    before = copy.deepcopy(run.optimizer.state_dict()), [p.detach().clone() for p in run.params], repr(run.handle)
    with pytest.raises(ValueError, match=r"saved filter state must fit .* expected .*, got "):
        run.optimizer.load_state_dict(state_dict)
    after = run.optimizer.state_dict()
    assert repr(run.handle) == before[2]
    assert all(torch.equal(p, q) for p, q in zip(run.params, before[1], strict=True))
    assert after["param_groups"] == before[0]["param_groups"]
    assert after["state"].keys() == before[0]["state"].keys()
    for key, entry in before[0]["state"].items():
        assert after["state"][key].keys() == entry.keys()
        assert all(torch.equal(torch.as_tensor(after["state"][key][k]), torch.as_tensor(entry[k])) for k in entry)


def test_attaching_to_an_optimizer_with_the_state_of_another_filter_is_refused() -> None:
    run = Run(OPTIMIZERS["adamw"], ALL_FILTERS["ma"]).train(0, 3)
    twin = copy.deepcopy(run.optimizer)
    before = copy.deepcopy(twin.state_dict())
    with pytest.raises(ValueError, match="saved filter state must fit EMA"):
        grokfast.attach(twin, EMA())
    assert twin.state_dict()["state"][0].keys() == before["state"][0].keys()
    assert grokfast.attach(twin, ALL_FILTERS["ma"]).step == 3


def test_state_dict_of_another_number_of_parameters_is_the_optimizers_to_refuse() -> None:
    run = Run(OPTIMIZERS["adamw"], ALL_FILTERS["ema"]).train(0, 5)
    single = nn.Parameter(torch.ones(3, 4))
    optimizer = OPTIMIZERS["adamw"]([single])
    grokfast.attach(optimizer, ALL_FILTERS["ema"])
    single.grad = torch.ones(3, 4)
    optimizer.step()
    slow = [run.handle.slow(p).clone() for p in run.params]
    with pytest.raises(ValueError, match="parameter group"):
        run.optimizer.load_state_dict(optimizer.state_dict())
    assert run.handle.step == 5
    assert all(torch.equal(run.handle.slow(p), s) for p, s in zip(run.params, slow, strict=True))


def test_a_state_dict_from_before_the_filter_keeps_the_keys_of_the_groups() -> None:
    def build() -> torch.optim.Optimizer:
        a, b = (torch.nn.Parameter(torch.zeros(2)) for _ in range(2))
        return torch.optim.AdamW([{"params": [a]}, {"params": [b]}])

    old = build()
    for group in old.param_groups:
        group["params"][0].grad = torch.ones(2)
    old.step()
    new = build()
    new.param_groups[0]["grokfast_lamb"] = 0.5
    new.param_groups[1]["grokfast"] = False
    grokfast.attach(new, grokfast.EMA())
    with pytest.warns(UserWarning, match="starts anew"):
        new.load_state_dict(old.state_dict())
    assert new.param_groups[0]["grokfast_lamb"] == 0.5
    assert new.param_groups[1]["grokfast"] is False


def test_memory_of_a_recursive_filter_with_other_coefficients_is_refused() -> None:
    def build(cutoff: float) -> tuple[torch.nn.Parameter, torch.optim.Optimizer]:
        param = torch.nn.Parameter(torch.zeros(2))
        optimizer = torch.optim.SGD([param])
        grokfast.attach(optimizer, grokfast.Butterworth(2, cutoff))
        return param, optimizer

    param, optimizer = build(0.1)
    param.grad = torch.ones(2)
    optimizer.step()
    saved = optimizer.state_dict()
    with pytest.raises(ValueError, match="other coefficients"):
        build(0.01)[1].load_state_dict(saved)
    build(0.1)[1].load_state_dict(saved)


def test_loading_frees_the_state_that_was_there_before() -> None:
    (param,) = make_params([(3,)])
    optimizer = torch.optim.AdamW([param])
    grokfast.attach(optimizer, EMA())
    filtered_constant(optimizer, param, 2)
    old = [weakref.ref(optimizer.state[param][key]) for key in ("exp_avg", "grokfast_slow")]
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(saved)
    filtered_constant(optimizer, param, 1)
    gc.collect()
    assert [ref() for ref in old] == [None, None]


def test_copied_optimizer_attached_again_keeps_the_progress_of_saturation() -> None:
    (param,) = make_params([(3,)])
    optimizer = torch.optim.AdamW([param])
    trigger = Saturation(above=0.5, patience=2)
    grokfast.attach(optimizer, EMA(), start=trigger)
    for _ in range(2):
        filtered_constant(optimizer, param, 1)
        trigger.observe(1.0)
    filtered_constant(optimizer, param, 1)
    for again in (trigger, Saturation(above=0.5, patience=2)):
        handle = grokfast.attach(copy.deepcopy(optimizer), EMA(), start=again)
        assert (handle.step, handle.active, again.streak) == (3, True, 2)
