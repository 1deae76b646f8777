"""y = x W' + b, and its gradients, by oneDNN: on AMD's CPUs with AVX-512 twice as fast as by MKL, elsewhere as fast.

torch gives products of float32 matrices to MKL, which uses AVX-512 on Intel's CPUs only. Results differ by rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear as plain_linear

ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """What `torch.nn.functional.linear` gives, for rows: (rows, in), (out, in), (out,) -> (rows, out).

    >>> rows, weight, bias = torch.randn(5, 3), torch.randn(2, 3), torch.randn(2)
    >>> torch.allclose(linear(rows, weight, bias), rows @ weight.T + bias, atol=1e-6)
    True
    """
    if not (is_offered(x) and is_offered(weight)):
        return plain_linear(x, weight, bias)
    product: Any = compiled_product if torch.compiler.is_compiling() else _Product.apply
    return product(x, weight, bias)


def run_layers(layers: nn.Module, x: Tensor) -> Tensor:
    """A sequence of layers, its linear ones as above: (rows, in) -> (rows, out)."""
    for layer in layers.children():
        x = linear(x, layer.weight, layer.bias) if isinstance(layer, nn.Linear) else layer(x)
    return x


def is_offered(tensor: Tensor) -> bool:
    """Whether oneDNN takes a tensor as it is."""
    plain = tensor.device.type == "cpu" and tensor.dtype == torch.float32 and tensor.dim() == 2
    return ONEDNN and plain and len(tensor) > 0


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def keep_for_backward(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor | None], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients of rows, weight and bias, where they are wanted."""
    x, weight = ctx.saved_tensors
    product = compiled_product if torch.compiler.is_compiling() else multiply
    return (
        product(grad, weight.T, None) if ctx.needs_input_grad[0] else None,
        product(grad.T, x.T, None) if ctx.needs_input_grad[1] else None,
        grad.sum(0) if ctx.needs_input_grad[2] else None,
    )


class _Product(torch.autograd.Function):
    """The product with its gradients, which oneDNN's operator lacks."""

    forward = staticmethod(multiply)
    setup_context = staticmethod(keep_for_backward)
    backward = staticmethod(differentiate)  # pyright: ignore[reportAssignmentType]


# The compiler takes oneDNN's operator with constant weights only, so it is hidden in one of our own, a slower call.
compiled_product = torch.library.custom_op("grokfast::multiply", multiply, mutates_args=())
compiled_product.register_autograd(differentiate, setup_context=keep_for_backward)


@compiled_product.register_fake
def _(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return x.new_empty(len(x), len(weight))
