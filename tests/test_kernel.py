"""The fused kernel in one thread for small tensors: same numbers, and the number of threads stays as it was."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from grokfast import EMA
from grokfast.filters import kernel
from grokfast.filters.base import MANY, all_finite

SIZES = (3, 1000, kernel.SMALL, kernel.SMALL + 1)


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def tensors(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(size, dtype=dtype) for size in SIZES]


@pytest.mark.parametrize("dtype", kernel.FUSED_DTYPES)
@pytest.mark.parametrize("size", SIZES)
def test_fused_step_equals_the_equation_at_every_size(size: int, dtype: torch.dtype) -> None:
    grad, buffer = torch.randn(size, dtype=dtype), torch.randn(size, dtype=dtype)
    slow = 0.9 * buffer + 0.3 * grad
    expected = grad + 2.0 * slow
    kernel.fused_step([grad], [buffer], keep=0.9, take=0.3, gain=2.0)
    assert_close(buffer, slow)
    assert_close(grad, expected)


def test_threads_are_as_many_after_a_fused_step_as_before() -> None:
    for grad in tensors():
        kernel.fused_step([grad], [grad.clone()], keep=0.9, take=0.1, gain=2.0)
        assert torch.get_num_threads() == 2


def test_threads_are_as_many_after_a_fused_step_that_failed() -> None:
    with pytest.raises(RuntimeError):
        kernel.fused_step([torch.ones(3)], [torch.ones(3, dtype=torch.float64)], keep=0.9, take=0.1, gain=2.0)
    assert torch.get_num_threads() == 2


def test_small_tensors_run_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = torch._fused_sgd_
    monkeypatch.setattr(torch, "_fused_sgd_", lambda *a, **k: (seen.append(torch.get_num_threads()), real(*a, **k)))
    for grad in tensors():
        kernel.fused_step([grad], [grad.clone()], keep=0.9, take=0.1, gain=2.0)
    assert seen == [1, 1, 1, 2]


def test_small_tensors_are_left_to_foreach_where_threads_cannot_be_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "thread_limit", lambda: None)
    assert [kernel.kernel_of(grad) for grad in tensors()] == ["foreach", "foreach", "foreach", "fused"]
    grad, ema = torch.ones(3), EMA(alpha=0.5, lamb=2.0)
    state = ema.new_state(grad)
    ema.update([grad], [state], 0)
    assert_close(grad, torch.full((3,), 3.0))


def test_one_thread_is_never_limited_further() -> None:
    torch.set_num_threads(1)
    assert [kernel.kernel_of(grad) for grad in tensors()] == ["fused"] * 4


@pytest.mark.parametrize("bad", [float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("size", [3, kernel.SMALL + 1, MANY])
def test_one_bad_number_is_found_at_every_size(size: int, bad: float) -> None:
    grads = [torch.randn(size), torch.randn(size)]
    assert all_finite([grads])
    grads[1][size // 2] = bad
    assert not all_finite([grads])


def test_large_finite_numbers_whose_sum_overflows_are_finite() -> None:
    assert all_finite([[torch.full((MANY,), 3e38)]])


def test_infinities_that_cancel_are_found() -> None:
    grad = torch.zeros(MANY)
    grad[0], grad[-1] = float("inf"), -float("inf")
    assert not all_finite([[grad], [torch.ones(3)]])
