"""What can be wrong with gradients before they reach a filter: sparse, shared, expanded, not finite, not real."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.state import local


def own_gradient(param: Tensor, taken: set[int]) -> Tensor:
    """The gradient of a parameter, in memory that can be written and that no other gradient uses.

    It is copied if need be: `taken` holds the addresses of the gradients before it.
    """
    grad = param.grad
    assert grad is not None
    if is_lazy(grad):
        grad = param.grad = grad.resolve_conj().resolve_neg()
    address = address_of(grad)
    if (address in taken and grad.numel()) or is_expanded(grad):
        grad = param.grad = grad.clone(memory_format=torch.contiguous_format)
        address = address_of(grad)
    taken.add(address)
    return grad


def is_lazy(grad: Tensor) -> bool:
    """Whether this is a conjugated or negated view, as from p.conj() in the loss: kernels for lists refuse them."""
    return grad.is_conj() or grad.is_neg()


def address_of(grad: Tensor) -> int:
    return local(grad).data_ptr()


def is_expanded(grad: Tensor) -> bool:
    """Whether several elements share memory, as after `expand`."""
    return any(stride == 0 and size > 1 for stride, size in zip(grad.stride(), grad.shape, strict=True))


def find_nonfinite(optimizer: Optimizer) -> str:
    """The name of a parameter whose gradient is not finite."""
    for index, group in enumerate(optimizer.param_groups):
        for place, param in enumerate(group["params"]):
            grad = param.grad
            if grad is not None and grad.layout is torch.strided and not local(grad).isfinite().all():
                return param_name(optimizer, index, place)
    return "another rank's shard"


def refuse_sparse(optimizer: Optimizer, index: int, place: int) -> None:
    name = param_name(optimizer, index, place)
    remedy = "make its layer with sparse=False or set grokfast=False in its param group"
    raise TypeError(f"gradients must be dense, got a sparse one in {name}: {remedy}")


def param_name(optimizer: Optimizer, index: int, place: int) -> str:
    """A parameter's name for a message; its place if the optimizer knows no names."""
    names = optimizer.param_groups[index].get("param_names")
    return f"parameter {names[place]!r}" if names else f"parameter {place} of group {index}"


def is_probe(optimizer: Optimizer, kwargs: dict[str, Any]) -> bool:
    """Whether this is the dry step of torch.distributed.checkpoint: all learning rates and gradients are zero.

    It makes the state exist, so that a checkpoint can be loaded into it, and must not change it. That step is called
    as `step(closure=None)`, which is asked first: it spares ordinary steps a look at their tensors.
    """
    if "closure" not in kwargs or kwargs["closure"] is not None:
        return False
    if any(float(group.get("lr", 1.0)) != 0 for group in optimizer.param_groups):
        return False
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    return not any(bool(grad.any()) for grad in grads if grad.layout is torch.strided)
