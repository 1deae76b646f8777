"""Without a GradScaler, step() makes the host wait for no device: a dispatch mode refuses what reads a tensor."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import grokfast
from cases import each_filter, make_params, make_signal, step_with
from grokfast import EMA, Filter, Saturation
from reference import filtered, slow_part

READS = {"_local_scalar_dense", "item", "nonzero", "is_nonzero", "equal", "masked_select", "unique_dim", "_unique2"}


class NoReads(TorchDispatchMode):
    """Raises where an accelerator would make the host wait."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.overloadpacket.__name__ in READS:
            raise AssertionError(f"the host reads a tensor: {func}")
        return func(*args, **(kwargs or {}))


class Reads(TorchDispatchMode):
    """Counts what would make the host wait."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func.overloadpacket.__name__ in READS
        return func(*args, **(kwargs or {}))


class Plain(torch.optim.Optimizer):
    """SGD without reads of its own, which takes what a GradScaler gives to fused optimizers."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        discard = getattr(self, "found_inf", None)
        keep = 1.0 if discard is None else (discard == 0).double()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data.sub_(p.grad.nan_to_num(0.0, 0.0, 0.0) * keep * 0.1)


@contextmanager
def scaled(optimizer: Any, scale: float, found: bool) -> Iterator[None]:
    """What GradScaler.step does around the step of a fused optimizer."""
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(scale), torch.tensor(float(found))
    yield
    del optimizer.grad_scale, optimizer.found_inf


def run(
    filter: Filter,
    signal: np.ndarray,
    *,
    discarded: frozenset[int] = frozenset(),
    with_scaler: bool = True,
    prepare: Callable[[Tensor], Tensor] = Tensor.clone,
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> tuple[list[np.ndarray], grokfast.Attachment, nn.Parameter]:
    """The gradients that the optimizer saw, in steps that read nothing unless there is a scaler."""
    param, other = make_params([signal.shape[1:], (2,)], dtype)
    optimizer = Plain([{"params": [param]}, {"params": [other], "grokfast_lamb": 0.5}])
    handle = grokfast.attach(optimizer, filter, **options)
    seen: list[np.ndarray] = []
    for t, value in enumerate(signal):
        raw = torch.tensor(value, dtype=dtype) * (8.0 if with_scaler else 1.0)
        if t in discarded:
            raw[0] = torch.inf
        param.grad, other.grad = prepare(raw), torch.ones(2, dtype=dtype)
        if with_scaler:
            with scaled(optimizer, 8.0, t in discarded):
                optimizer.step()
        else:
            with NoReads():
                optimizer.step()
        if t not in discarded:
            seen.append(param.grad.double().numpy().copy())
    return seen, handle, param


def test_the_mode_sees_reads() -> None:
    for read in (Tensor.item, bool, Tensor.nonzero, lambda t: torch.equal(t, t), lambda t: t[t > 0]):
        with NoReads(), pytest.raises((AssertionError, RuntimeError)):
            read(torch.ones(()) if read is not Tensor.nonzero else torch.ones(2))


@each_filter
def test_default_policy_reads_nothing(filter: Filter) -> None:
    signal = make_signal(8, 3)
    seen, handle, _ = run(filter, signal, with_scaler=False)
    np.testing.assert_allclose(np.stack(seen), filtered(filter, signal), rtol=1e-9, atol=1e-9)
    assert (handle.step, handle.skipped) == (8, 0)


@pytest.mark.parametrize("start", [3, Saturation(above=0.5)], ids=str)
@each_filter
def test_start_and_trigger_read_nothing(filter: Filter, start: Any) -> None:
    signal = make_signal(6, 3)
    seen, _, _ = run(filter, signal, with_scaler=False, start=start)
    begin = start if isinstance(start, int) else 6
    np.testing.assert_allclose(np.stack(seen[:begin]), signal[:begin])
    np.testing.assert_allclose(np.stack(seen)[begin:], filtered(filter, signal)[begin:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("rate", [0.0, torch.tensor(0.0), torch.tensor(0.1)], ids=str)
def test_first_step_reads_no_learning_rate_and_no_gradient(rate: Any) -> None:
    """A distributed checkpoint's dry step has learning rate 0; so have schedules that begin there."""
    (param,) = make_params([(3,)])
    optimizer = Plain([param])
    optimizer.param_groups[0]["lr"] = rate
    handle = grokfast.attach(optimizer, EMA())
    with NoReads():
        step_with(optimizer, [param], [torch.zeros_like(param)])
    assert handle.step == 1


# Steps that a GradScaler discards: a fused optimizer's flag is read once per step -----------------------------------


@pytest.mark.parametrize(
    "discarded", [{0}, {0, 1}, {3}, {0, 2, 5, 6}, {4, 9}], ids=lambda d: "-".join(map(str, sorted(d)))
)
@each_filter
def test_discarded_steps_leave_the_state(filter: Filter, discarded: set[int]) -> None:
    """Also the very first one: the next gradient is then the first."""
    signal = make_signal(14, 3)
    kept = signal[[t for t in range(14) if t not in discarded]]
    seen, handle, param = run(filter, signal, discarded=frozenset(discarded))
    np.testing.assert_allclose(np.stack(seen), filtered(filter, kept), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(handle.slow(param), slow_part(filter, kept).values[-1], rtol=1e-9, atol=1e-9)
    assert (handle.skipped, handle.step) == (len(discarded), 14 - len(discarded))


@pytest.mark.parametrize("start", [0, 2, 4, 100])
@each_filter
def test_start_counts_no_discarded_steps(filter: Filter, start: int) -> None:
    signal, discarded = make_signal(12, 3), frozenset({0, 3, 4})
    kept = signal[[t for t in range(12) if t not in discarded]]
    seen, _, _ = run(filter, signal, discarded=discarded, start=start)
    np.testing.assert_allclose(np.stack(seen)[:start], kept[:start], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.stack(seen)[start:], filtered(filter, kept)[start:], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@each_filter
def test_discarded_steps_in_other_dtypes(filter: Filter, dtype: torch.dtype) -> None:
    signal = torch.tensor(make_signal(10, 3)).to(dtype).double().numpy()
    kept = signal[[0, 1, 3, 4, 5, 7, 8, 9]]
    seen, handle, _ = run(filter, signal, discarded=frozenset({2, 6}), dtype=dtype)
    tolerance = {torch.float32: 1e-5, torch.bfloat16: 0.06, torch.float16: 0.01}[dtype]
    np.testing.assert_allclose(np.stack(seen), filtered(filter, kept), rtol=tolerance, atol=tolerance)
    assert handle.skipped == 2


@each_filter
def test_discarded_steps_of_transposed_gradients(filter: Filter) -> None:
    signal = make_signal(10, 3, 4)
    kept = np.delete(signal, [0, 5], axis=0)
    flip = iter(range(100))

    def prepare(raw: Tensor) -> Tensor:
        return raw.t().contiguous().t() if next(flip) % 2 else raw.clone()

    seen, _, _ = run(filter, signal, discarded=frozenset({0, 5}), prepare=prepare)
    np.testing.assert_allclose(np.stack(seen), filtered(filter, kept), rtol=1e-9, atol=1e-9)


@each_filter
def test_parameters_that_come_and_go_keep_their_own_counts(filter: Filter) -> None:
    always, sometimes = make_params([(3,), (3,)])
    optimizer = Plain([always, sometimes])
    handle = grokfast.attach(optimizer, filter)
    signal, present, discarded = make_signal(14, 3), {0, 2, 3, 6, 7, 8, 11, 13}, {0, 3, 7, 9}
    expected = {
        always: iter(filtered(filter, signal[[t for t in range(14) if t not in discarded]])),
        sometimes: iter(filtered(filter, signal[[t for t in sorted(present) if t not in discarded]])),
    }
    for t in range(14):
        grad = torch.tensor(signal[t]) * 4.0
        always.grad, sometimes.grad = grad.clone(), grad.clone() if t in present else None
        with Reads() as reads, scaled(optimizer, 4.0, t in discarded):
            optimizer.step()
        assert reads.count == 1
        for param in (always, sometimes):
            if param.grad is not None and t not in discarded:
                np.testing.assert_allclose(param.grad, next(expected[param]), rtol=1e-9, atol=1e-9)
    assert (handle.step, handle.skipped) == (10, 4)


@each_filter
def test_saved_counts_do_not_include_discarded_steps(filter: Filter) -> None:
    signal = make_signal(12, 3)
    _, handle, _ = run(filter, signal[:6], discarded=frozenset({0, 4}))
    saved = handle.optimizer.state_dict()
    assert [saved["state"][0][f"grokfast_{key}"] for key in ("count", "step")] == [4, 4]


@each_filter
def test_applying_reads_once_and_leaves_bad_gradients_alone(filter: Filter) -> None:
    (param,) = make_params([(3,)])
    optimizer = Plain([param])
    handle = grokfast.attach(optimizer, filter)
    signal = make_signal(8, 3)
    expected = iter(filtered(filter, np.delete(signal, [0, 4], axis=0)))
    for t in range(8):
        param.grad = torch.tensor(signal[t])
        if t in (0, 4):
            param.grad[1] = torch.nan
        raw = param.grad.clone()
        with Reads() as reads:
            handle.apply()
        assert reads.count == 1 or t == 0  # the first time it also looks for the parameter to name
        if t == 0:
            with pytest.warns(UserWarning, match="inf or NaN in the gradient of parameter 0 of group 0 at step 0"):
                optimizer.step()
        elif t != 4:  # as a GradScaler that finds the NaN does not step
            with NoReads():
                optimizer.step()
        if t in (0, 4):
            torch.testing.assert_close(param.grad, raw, equal_nan=True, rtol=0, atol=0)
        else:
            np.testing.assert_allclose(param.grad, next(expected), rtol=1e-9, atol=1e-9)
    assert (handle.step, handle.skipped) == (6, 2)


@each_filter
def test_one_apply_leaves_the_later_steps_without_reads(filter: Filter) -> None:
    (param,) = make_params([(3,)])
    optimizer = Plain([param])
    handle = grokfast.attach(optimizer, filter)
    param.grad = torch.ones_like(param)
    handle.apply()
    optimizer.step()
    with NoReads():
        for _ in range(3):
            step_with(optimizer, [param], [torch.ones_like(param)])
    assert handle.step == 4
