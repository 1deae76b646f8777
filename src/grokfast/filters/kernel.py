"""One pass over memory for a whole filter step: b <- keep b + take g;  g <- g + gain b, by torch's fused SGD.

The kernel is as fast as memory allows, under two conditions. It reads memory in the order of the gradient, so state and
gradient must have the same layout. On a CPU it starts all threads for every tensor, so small tensors must use one.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor

Kernel = Literal["foreach", "fused", "fused in one thread"]

FUSED_DTYPES = (torch.float32, torch.float64)  # in bf16 torch's fused SGD reads memory in another order
FUSED_DEVICES = ("cpu", "cuda")
SMALL = 32768  # elements; the size up to which torch's other operations use one thread


def fused_step(
    grads: list[Tensor],
    buffers: list[Tensor],
    *,
    keep: float,
    take: float,
    gain: float,
    first: bool = False,
) -> None:
    """b <- keep b + take g (b <- g at the first step);  g <- g + gain b, in one pass over memory.

    torch's fused SGD does this to a momentum buffer if the gradients are its parameters too. Gradients and buffers must
    be uniform, and should be all small or all large. The kernel's `grad_scale` must not be used: it would read the
    parameters before it unscales the gradients, which are the same memory here.
    """
    limit = thread_limit() if is_small(grads[0]) else None
    threads = torch.get_num_threads()
    if limit is not None:
        limit(1)
    try:
        torch._fused_sgd_(
            grads, grads, buffers,
            weight_decay=0.0, momentum=keep, lr=-gain, dampening=1 - take, nesterov=False, maximize=False,
            is_first_step=first, grad_scale=None, found_inf=None,
        )  # fmt: skip
    finally:
        if limit is not None:
            limit(threads)


def kernel_of(grad: Tensor) -> Kernel:
    """The fastest kernel for a gradient. Gradients in one call of a filter should have the same one."""
    if grad.dtype not in FUSED_DTYPES or grad.device.type not in FUSED_DEVICES:
        return "foreach"
    if not is_small(grad):
        return "fused"
    return "fused in one thread" if thread_limit() is not None else "foreach"


def is_small(grad: Tensor) -> bool:
    """Whether starting all threads of a CPU takes longer than the work."""
    return grad.device.type == "cpu" and grad.numel() <= SMALL and torch.get_num_threads() > 1


@functools.cache
def thread_limit() -> Callable[[int], None] | None:
    """OpenMP's function that sets how many threads the kernels of the calling thread use; None if torch ignores it.

    `torch.set_num_threads` does more: it changes the whole process and empties oneDNN's caches.
    """
    try:
        limit = ctypes.PyDLL(None).omp_set_num_threads
    except (AttributeError, OSError, TypeError):
        return None
    limit.argtypes, limit.restype = [ctypes.c_int], None
    before = torch.get_num_threads()
    limit(before + 1)
    followed = torch.get_num_threads() == before + 1
    limit(before)
    return limit if followed else None


def is_uniform(grads: Sequence[Tensor], buffers: Sequence[Tensor]) -> bool:
    """Whether `fused_step` can take them: gradient and buffer are dense and share dtype, device and strides."""
    return all(kernel_of(grad) != "foreach" for grad in grads) and all(map(has_same_layout, grads, buffers))


def has_same_layout(grad: Tensor, buffer: Tensor) -> bool:
    if grad.dtype is not buffer.dtype or grad.device != buffer.device or grad.shape != buffer.shape:
        return False
    if grad.is_contiguous() and buffer.is_contiguous():
        return True
    return strides(grad) == strides(buffer) and is_dense(grad)


def strides(tensor: Tensor) -> list[tuple[int, int]]:
    """(stride, size) of each dimension that has more than one element."""
    return [(s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1]


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements are contiguous in memory, in any order of the dimensions."""
    step = 1
    for stride, size in sorted(strides(tensor)):
        if stride != step:
            return False
        step *= size
    return True
