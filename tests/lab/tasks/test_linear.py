"""The linear layer by oneDNN is torch's own: same rows, same gradients, for every shape and layout."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from grokfast.lab.tasks import linear as room
from grokfast.lab.tasks.linear import linear, run_layers

SIZES = st.integers(1, 70)


def with_gradients(layer, *inputs: Tensor) -> list[Tensor]:
    """The rows that leave a layer, and the gradients of a sum in which no two of them weigh the same."""
    given = [each.detach().requires_grad_() for each in inputs]
    rows = layer(*given)
    weights = torch.linspace(-1, 1, rows.numel(), dtype=rows.dtype).reshape(rows.shape)
    return [rows, *torch.autograd.grad((rows * weights).sum(), given)]


@given(rows=SIZES, width=SIZES, out=SIZES, biased=st.booleans(), turned=st.booleans())
def test_rows_and_gradients_are_those_of_torch(rows: int, width: int, out: int, biased: bool, turned: bool) -> None:
    draw = torch.Generator().manual_seed(rows * width + out)
    x = torch.randn(width, rows, generator=draw).T if turned else torch.randn(rows, width, generator=draw)
    inputs = [x, torch.randn(out, width, generator=draw), torch.randn(out, generator=draw)][: 3 if biased else 2]
    for found, expected in zip(
        with_gradients(linear, *inputs), with_gradients(nn.functional.linear, *inputs), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes_go_to_torch_bit_for_bit(dtype: torch.dtype) -> None:
    x, weight = torch.randn(4, 3).to(dtype), torch.randn(2, 3).to(dtype)
    assert linear(x, weight).equal(nn.functional.linear(x, weight))


def test_no_rows_are_no_error() -> None:
    assert linear(torch.zeros(0, 3), torch.zeros(2, 3)).shape == (0, 2)


def test_a_sequence_of_layers_is_run_as_it_stands() -> None:
    layers = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 3))
    x = torch.randn(11, 5)
    torch.testing.assert_close(run_layers(layers, x), layers(x))


def test_a_compiled_layer_gives_the_same_gradients() -> None:
    inputs = torch.randn(6, 5), torch.randn(4, 5), torch.randn(4)
    compiled = torch.compile(linear, backend="aot_eager", fullgraph=True)
    for found, expected in zip(with_gradients(compiled, *inputs), with_gradients(linear, *inputs), strict=True):
        torch.testing.assert_close(found, expected)


def test_without_onednn_torch_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "is_offered", lambda tensor: False)
    x, weight = torch.randn(4, 3), torch.randn(2, 3)
    assert linear(x, weight).equal(nn.functional.linear(x, weight))
