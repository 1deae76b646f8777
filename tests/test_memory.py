"""Memory, measured: a step in the steady state allocates nothing, and the handle counts what the state holds."""

from collections.abc import Callable

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import grokfast
from cases import ALL_FILTERS, each_filter
from grokfast import EMA, FIR, IIR, MA, Butterworth, Filter


def allocated_bytes(work: Callable[[], object]) -> int:
    """Bytes that torch's CPU allocator hands out while `work` runs, freed again or not."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as measured:
        work()
    events = measured.profiler.kineto_results.events()
    return sum(event.nbytes() for event in events if event.name() == "[memory]" and event.nbytes() > 0)  # type: ignore


def settled(filter: Filter) -> Callable[[], None]:
    grads = [torch.ones(1000, 10), torch.ones(500)]
    states = [filter.new_state(grad) for grad in grads]
    for count in range(10):
        filter.update(grads, states, count)
    return lambda: filter.update(grads, states, 10)


def test_the_measurement_sees_the_allocations_of_the_plain_form() -> None:
    grad, slow = torch.ones(1000, 10), torch.zeros(1000, 10)

    def appendix_c() -> torch.Tensor:
        average = slow * 0.98 + grad * 0.02
        return grad + average * 2.0

    assert allocated_bytes(appendix_c) >= 5 * grad.nbytes


@pytest.mark.parametrize("filter", [f for f in ALL_FILTERS.values() if isinstance(f, EMA | MA)], ids=repr)
def test_steady_state_allocates_nothing(filter: Filter) -> None:
    assert allocated_bytes(settled(filter)) == 0


@pytest.mark.parametrize("filter", [EMA(), MA(window_size=5)], ids=repr)
def test_attached_step_allocates_nothing_that_grows_with_the_model(filter: Filter) -> None:
    def step_bytes(size: int) -> int:
        param = torch.nn.Parameter(torch.zeros(size))
        optimizer = torch.optim.SGD([param], lr=0.1, foreach=True)
        grokfast.attach(optimizer, filter)
        param.grad = torch.ones(size)
        for _ in range(10):
            optimizer.step()
        return allocated_bytes(optimizer.step)

    assert step_bytes(100_000) == step_bytes(10) <= 256


@each_filter
def test_memory_bytes_counts_the_state(filter: Filter) -> None:
    params = [torch.nn.Parameter(torch.zeros(7, 3)), torch.nn.Parameter(torch.zeros(5))]
    optimizer = torch.optim.SGD(params, lr=0.1)
    handle = grokfast.attach(optimizer, filter)
    assert handle.memory_bytes == 0
    for param in params:
        param.grad = torch.ones_like(param)
    optimizer.step()
    expected = sum(t.nbytes for param in params for t in filter.new_state(param).values())
    assert handle.memory_bytes == expected > 0


def test_memory_of_each_filter_in_gradients_is_as_documented() -> None:
    grad = torch.zeros(1000)

    def gradients(filter: Filter) -> float:
        return sum(t.nbytes for t in filter.new_state(grad).values()) / grad.nbytes

    assert gradients(EMA()) == 1
    assert gradients(MA(window_size=100)) == 102
    assert gradients(MA(window_size=100, window_dtype=torch.bfloat16)) == 52
    assert gradients(FIR([0.25] * 4)) == 5
    assert gradients(IIR([0.06, 0.04], [1.0, -1.3, 0.4])) == gradients(Butterworth(2, 0.1)) == 2 * (2 + 1)
