"""Bad input: each an error of the right kind that names the argument, the range and the value; nothing changes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

import grokfast
from grokfast import EMA, FIR, IIR, MA, Butterworth, Saturation

NAN, INF = float("nan"), float("inf")


class Bad(NamedTuple):
    """One call that must fail, and what its message must say."""

    call: Callable[[], Any]
    error: type[Exception]
    message: str


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([nn.Parameter(torch.zeros(2))], lr=0.1)


def empty_optimizer() -> torch.optim.Optimizer:
    made = optimizer()
    made.param_groups[0]["params"].clear()
    return made


def attach(filter: Any = None, **options: Any) -> Any:
    return grokfast.attach(optimizer(), EMA() if filter is None else filter, **options)


UNIT, POSITIVE, COUNT = r"\[0, 1\)", r"\[0, inf\)", "an integer >= 1"
TABLE: list[Bad] = [
    # alpha
    *[
        Bad(lambda v=v: EMA(alpha=v), ValueError, rf"alpha must be in {UNIT}, got {v}")
        for v in (1.0, 2.0, -0.1, NAN, INF, 1)
    ],
    *[
        Bad(lambda v=v: EMA(alpha=v), TypeError, rf"alpha must be a number in {UNIT}, got {v!r}")
        for v in (None, "0.9", True)
    ],
    Bad(lambda: EMA(alpha=1j), TypeError, rf"alpha must be a number in {UNIT}, got 1j"),
    # What makes a filter and lamb may be positional, everything else is by keyword.
    Bad(lambda: EMA(0.9, 2.0, True), TypeError, "positional"),
    Bad(lambda: MA(10, 5.0, True), TypeError, "positional"),
    Bad(lambda: FIR([1.0], 2.0, True), TypeError, "positional"),
    Bad(lambda: IIR([1.0], [1.0], 2.0, True), TypeError, "positional"),
    Bad(lambda: Butterworth(2, 0.1, 2.0, True), TypeError, "positional"),
    Bad(lambda: EMA(2.0, 0.98), ValueError, rf"alpha must be in {UNIT}, got 2.0"),
    # lamb, for every filter
    *[
        Bad(lambda v=v, make=make: make(v), ValueError, rf"lamb must be in {POSITIVE}, got {v}")
        for v in (-1.0, INF, NAN)
        for make in (
            lambda v: EMA(lamb=v),
            lambda v: MA(lamb=v),
            lambda v: FIR([1.0], v),
            lambda v: IIR([1.0], [1.0], v),
            lambda v: Butterworth(2, 0.1, v),
        )
    ],
    *[Bad(lambda v=v: MA(lamb=v), TypeError, f"lamb must be a number in .*got {v!r}") for v in (None, "2", False)],
    # choices and flags
    Bad(lambda: EMA(init="last"), ValueError, "init must be one of 'first', 'zero', got 'last'"),
    Bad(lambda: FIR([1.0], init=None), ValueError, "init must be one of 'first', 'zero', got None"),
    Bad(lambda: IIR([1.0], [1.0], init="last"), ValueError, "init must be one of 'first', 'zero', got 'last'"),
    Bad(lambda: Butterworth(2, 0.1, init=0), ValueError, "init must be one of 'first', 'zero', got 0"),
    Bad(lambda: EMA(slow_only=1), TypeError, "slow_only must be True or False, got 1"),
    Bad(lambda: MA(warmup=0), TypeError, "warmup must be True or False, got 0"),
    Bad(lambda: MA(reduction="max"), ValueError, "reduction must be one of 'mean', 'sum', got 'max'"),
    Bad(lambda: MA(window_dtype=torch.int8), ValueError, "window_dtype must be one of None, .*got torch.int8"),
    Bad(lambda: EMA().frequency_response(0.0, of="H"), ValueError, r"of must be one of 'h', '1\+h', got 'H'"),
    # window_size
    *[Bad(lambda v=v: MA(window_size=v), ValueError, f"window_size must be {COUNT}, got {v}") for v in (0, -1)],
    *[
        Bad(lambda v=v: MA(window_size=v), TypeError, f"window_size must be {COUNT}, got {v!r}")
        for v in (2.5, 100.0, True, None, "100", NAN)
    ],
    # taps and coefficients
    Bad(lambda: FIR([]), ValueError, r"taps must be a non-empty sequence of finite numbers, got \[\]"),
    Bad(lambda: FIR([0.5, NAN]), ValueError, r"taps must be .*finite numbers, got \[0.5, nan\]"),
    Bad(lambda: FIR([INF]), ValueError, r"taps must be .*finite numbers, got \[inf\]"),
    *[
        Bad(lambda v=v: FIR(v), TypeError, "taps must be a sequence of finite numbers, got ")
        for v in (0.5, None, "12", [None])
    ],
    Bad(lambda: FIR(np.ones((2, 2))), TypeError, "taps must be a sequence of finite numbers"),
    Bad(lambda: IIR([], [1.0]), ValueError, r"b must be a non-empty sequence of finite numbers, got \[\]"),
    Bad(lambda: IIR([1.0], []), ValueError, r"a must be a non-empty sequence of finite numbers, got \[\]"),
    Bad(lambda: IIR([1.0], [1.0, NAN]), ValueError, r"a must be .*finite numbers, got \[1.0, nan\]"),
    Bad(lambda: IIR([1.0], [0.0, 1.0]), ValueError, r"a\[0\] must not be 0, got a = \[0.0, 1.0\]"),
    Bad(lambda: IIR([1.0], [1.0, -1.0]), ValueError, r"\(b, a\) must be stable.* got a pole of magnitude 1"),
    Bad(lambda: IIR([1.0], [1.0, -2.0, 2.0]), ValueError, r"\(b, a\) must be stable.* got a pole of magnitude 1.41421"),
    Bad(lambda: IIR([1.0], [1.0, 0.0, 1.0]), ValueError, r"\(b, a\) must be stable.* got a pole of magnitude 1"),
    # Butterworth
    *[
        Bad(lambda v=v: Butterworth(2, v), ValueError, rf"cutoff must be in .*0\.5\), got {v}")
        for v in (0.0, 0.5, 1.0, -0.1, NAN, INF)
    ],
    *[
        Bad(lambda v=v: Butterworth(2, v), TypeError, f"cutoff must be a number .*got {v!r}")
        for v in (None, "0.1", True)
    ],
    Bad(lambda: Butterworth(2, 1e-9), ValueError, "cutoff must .*1e-09"),
    *[Bad(lambda v=v: Butterworth(v, 0.1), ValueError, f"order must be {COUNT}, got {v}") for v in (0, -1)],
    *[Bad(lambda v=v: Butterworth(v, 0.1), TypeError, f"order must be {COUNT}, got {v!r}") for v in (1.5, True, None)],
    # conversions
    *[
        Bad(lambda v=v: EMA.from_window(v), ValueError, rf"window_size must be in \[1, inf\), got {v}")
        for v in (0, -1, 0.5, INF)
    ],
    *[Bad(lambda v=v: EMA.from_speedup(v), ValueError, rf"speedup must be in \[1, inf\), got {v}") for v in (0, NAN)],
    *[Bad(lambda v=v: MA.from_speedup(v), ValueError, rf"speedup must be in \[1, inf\), got {v}") for v in (0, INF)],
    *[
        Bad(lambda v=v: EMA.from_cutoff(v), ValueError, rf"cutoff must be in .*0\.5\), got {v}")
        for v in (0.0, 0.5, NAN)
    ],
    *[
        Bad(lambda v=v: MA.from_cutoff(v), ValueError, rf"cutoff must be in .*0\.5\), got {v}")
        for v in (0.0, 0.5, -1.0)
    ],
    *[Bad(lambda v=v: MA.from_alpha(v), ValueError, rf"alpha must be in .*1\), got {v}") for v in (0.0, 1.0, NAN)],
    Bad(lambda: MA.from_alpha("0.9"), TypeError, "alpha must be a number .*got '0.9'"),
    # attach
    Bad(
        lambda: grokfast.attach(nn.Linear(1, 1), EMA()),
        TypeError,
        "optimizer must be a torch.optim.Optimizer, got Linear",
    ),
    Bad(lambda: grokfast.attach(None, EMA()), TypeError, "optimizer must be a torch.optim.Optimizer, got NoneType"),
    Bad(
        lambda: grokfast.attach(torch.optim.SGD, EMA()),
        TypeError,
        "optimizer must be a torch.optim.Optimizer, got type",
    ),
    Bad(
        lambda: grokfast.attach(empty_optimizer(), EMA()),
        ValueError,
        "optimizer must have at least one parameter, got none",
    ),
    Bad(lambda: attach("ema"), TypeError, "filter must be a grokfast filter .*got 'ema'"),
    Bad(lambda: attach(EMA), TypeError, "filter must be a grokfast filter .*got <class"),
    Bad(lambda: attach(start=-1), ValueError, "start must be an integer >= 0, got -1"),
    *[
        Bad(lambda v=v: attach(start=v), TypeError, f"start must be an integer >= 0, got {v!r}")
        for v in (1.5, True, None, "5")
    ],
    Bad(lambda: attach(start=Saturation), TypeError, "start must be an integer >= 0, got <class"),
    Bad(
        lambda: attach(nonfinite="stop"),
        ValueError,
        "nonfinite must be one of 'scaler', 'ignore', 'skip', 'raise', got 'stop'",
    ),
    Bad(lambda: attach(nonfinite=None), ValueError, "nonfinite must be one of 'scaler', .*'raise', got None"),
    # Saturation
    Bad(lambda: Saturation(), ValueError, "exactly one of above and below, got above=None, below=None"),
    Bad(
        lambda: Saturation(above=1.0, below=0.0), ValueError, "exactly one of above and below, got above=1.0, below=0.0"
    ),
    Bad(lambda: Saturation(0.9), TypeError, "positional"),
    *[
        Bad(lambda v=v: Saturation(above=v), ValueError, f"above must be a finite number, got {v!r}")
        for v in (NAN, "1", True)
    ],
    Bad(lambda: Saturation(below=INF), ValueError, "below must be a finite number, got inf"),
    *[
        Bad(lambda v=v: Saturation(above=1.0, patience=v), ValueError, f"patience must be {COUNT}, got {v!r}")
        for v in (0, -1, 1.5, True, None)
    ],
    # functions of appendix C
    Bad(lambda: grokfast.gradfilter_ema(nn.Linear(1, 1), alpha=1.0), ValueError, rf"alpha must be in {UNIT}, got 1.0"),
    Bad(
        lambda: grokfast.gradfilter_ma(nn.Linear(1, 1), window_size=0),
        ValueError,
        f"window_size must be {COUNT}, got 0",
    ),
    Bad(lambda: grokfast.gradfilter_ma(nn.Linear(1, 1), filter_type="max"), ValueError, "'mean', 'sum', got 'max'"),
]


@pytest.mark.parametrize("bad", TABLE, ids=[f"{i}-{bad.message[:40]}" for i, bad in enumerate(TABLE)])
def test_bad_input_is_refused_with_argument_range_and_value(bad: Bad) -> None:
    with pytest.raises(bad.error, match=bad.message):
        bad.call()


@pytest.mark.parametrize(
    "options", [{"start": -1}, {"start": 1.5}, {"nonfinite": "stop"}, {"filter": "ema"}, {"filter": None}], ids=str
)
def test_refused_attachment_leaves_the_optimizer_as_it_was(options: dict[str, Any]) -> None:
    target = optimizer()
    before = {key: repr(value) for key, value in vars(target).items()}
    with pytest.raises((TypeError, ValueError)):
        grokfast.attach(target, **{"filter": EMA(), **options})
    assert {key: repr(value) for key, value in vars(target).items()} == before
    assert grokfast.attach(target, EMA()).step == 0


def test_numbers_may_be_integers_and_come_from_numpy() -> None:
    assert EMA(alpha=0, lamb=2) == EMA(alpha=0.0, lamb=2.0)
    assert EMA(alpha=np.float64(0.5)) == EMA(alpha=np.float32(0.5)) == EMA(alpha=0.5)  # type: ignore[arg-type]
    assert MA(window_size=np.int64(5)) == MA(window_size=5)  # type: ignore[arg-type]
    assert FIR(np.array([0.5, 0.5])) == FIR([0.5, 0.5]) == FIR(torch.tensor([0.5, 0.5]))
    assert not grokfast.attach(optimizer(), EMA(), start=np.int64(3)).active  # type: ignore[arg-type]


def test_an_optimizer_that_never_runs_its_hooks_is_refused() -> None:
    class Bare(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            # No optimizer among its attributes: such a wrapper is refused for that.
            self.run, self.param_groups, self.state = inner.step, inner.param_groups, inner.state

        def step(self, closure: None = None) -> None:  # type: ignore[override]
            self.run()

    inner = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    with pytest.raises(TypeError, match=r"Bare.step\(\) does not"):
        grokfast.attach(Bare(inner), grokfast.EMA())


def test_flat_parameters_of_fsdp_1_are_refused() -> None:
    param = torch.nn.Parameter(torch.ones(2))
    param._is_flat_param = True  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="FSDP version 1"):
        grokfast.attach(torch.optim.SGD([param], lr=0.1), grokfast.EMA())
