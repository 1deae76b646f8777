"""EMA(compile=True): the same numbers, no compilation per step, and one warning where no compiler works."""

import dataclasses
import functools
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import grokfast
from cases import make_params, make_signal, run_filter, sgd, step_with
from grokfast import EMA
from grokfast.filters import ema as module

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch.compile warns about torch.jit, by itself
COMPILED = EMA(alpha=0.9, lamb=2.0, compile=True)


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Count what torch.compile compiles, without generating code."""
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append(graph)
        return graph.forward

    yield from with_backend(monkeypatch, backend, seen)


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """torch.compile as on a machine without a C++ compiler: it fails at the first call."""
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        seen.append(graph)
        raise FileNotFoundError("no C++ compiler found")

    yield from with_backend(monkeypatch, backend, seen)


def with_backend(monkeypatch: pytest.MonkeyPatch, backend: Any, seen: list[Any]) -> Iterator[list[Any]]:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    module._fused.cache_clear()
    torch._dynamo.reset()
    yield seen
    module._fused.cache_clear()
    torch._dynamo.reset()


@pytest.mark.parametrize("slow_only", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_compiled_kernel_gives_the_numbers_of_the_plain_one(
    compilations: list[Any], dtype: torch.dtype, slow_only: bool
) -> None:
    signal = torch.tensor(make_signal(20, 7)).to(dtype)
    compiled = dataclasses.replace(COMPILED, slow_only=slow_only)
    plain = dataclasses.replace(compiled, compile=False)
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.02}[dtype]
    torch.testing.assert_close(run_filter(compiled, signal), run_filter(plain, signal), rtol=tolerance, atol=tolerance)
    assert compilations


def test_scheduled_values_do_not_compile_again(compilations: list[Any]) -> None:
    params = make_params([(3,), (4, 2)], torch.float32)
    optimizer = sgd(*params)
    handle = grokfast.attach(optimizer, COMPILED)
    for t in range(10):
        optimizer.param_groups[0].update({"grokfast_lamb": t / 2, "grokfast_alpha": 0.5 + t / 50})
        step_with(optimizer, params, [torch.ones_like(p) for p in params])
    assert len(compilations) == 1
    for param in params:
        torch.testing.assert_close(param.grad, torch.full_like(param, 1 + 4.5))
    assert handle.step == 10


def test_without_a_compiler_the_plain_kernel_runs_with_one_warning(no_compiler: list[Any]) -> None:
    signal = torch.tensor(make_signal(20, 7)).float()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        output = run_filter(COMPILED, signal)
    ours = [str(w.message) for w in caught if "EMA" in str(w.message)]
    assert len(ours) == 1
    assert ours[0].startswith("torch.compile failed, using the plain EMA kernel: ")
    assert "no C++ compiler found" in ours[0]
    assert len(no_compiler) == 1
    torch.testing.assert_close(output, run_filter(EMA(alpha=0.9, lamb=2.0), signal), rtol=1e-5, atol=1e-5)
