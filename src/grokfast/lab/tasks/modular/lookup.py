"""The first block for evaluation, looked up: many equations, few tokens, no gradients.

After attention, a row of the first block is n + b + sum of w V over keys and heads, where V = W_out v belongs to one
token, place and head. The MLP's first layer is linear in that row, but for one number: the deviation that LayerNorm
divides by. So both products are computed once per token, place and head. Each equation then adds up the results by its
attention weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, gelu

from grokfast.lab.tasks.linear import linear
from grokfast.lab.tasks.modular.transformer import Block

ROWS = 1024  # computed at once: what is between two layers stays in the cache


def look_up(
    block: Block, n: Tensor, v: Tensor, weights: Sequence[Tensor], left: Tensor, right: Tensor, *, last: bool
) -> Tensor:
    """The rows that leave the block, position by position; only those of position 3 if it is the last block.

    Args:
        block: the first one.
        n: normalised input of the distinct rows x, o, y, =: (size + 1 + symbols + 1, width).
        v: their values, of the same shape.
        weights: of attention at positions 1, 2, 3: (keys, rows, heads) each.
        left: row of x in each equation, (batch,).
        right: y in each equation, (batch,).
    """
    table, count, size = make_lookup(block, n, v), len(n), weights[0].shape[1]
    x, o, y, equals = torch.arange(count, device=n.device).split([size, 1, count - size - 2, 1])
    y = y[right]
    keys = [[x], [x, o], [left, o, y], [left, o, y, equals]]
    found = [bags(count, each, w) for each, w in zip(keys, [torch.ones_like(weights[0][:1]), *weights], strict=True)]
    sums = (
        embedding_bag(rows, table, mode="sum", per_sample_weights=shares)
        for index, share in (found[-1:] if last else found)
        for rows, shares in zip(index.split(ROWS), share.split(ROWS), strict=True)
    )
    return torch.cat([finish_sums(block, some) for some in sums])


def make_lookup(block: Block, n: Tensor, v: Tensor) -> Tensor:
    """What each head of each row, then each row itself, adds to the residual and to the MLP's first layer."""
    heads = block.attn.num_heads
    out, (first, _) = block.attn.out_proj, mlp_layers(block)
    moved = torch.einsum("rhd,whd->rhw", v.unflatten(1, (heads, -1)), out.weight.unflatten(1, (heads, -1)))
    rows = torch.cat([moved.flatten(0, 1), n + out.bias])  # (rows heads + rows, width)
    return torch.cat([rows, linear(rows - rows.mean(1, keepdim=True), first.weight * block.ln_2.weight)], 1)


def bags(count: int, keys: Sequence[Tensor], weights: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the table to add up, the heads of all keys and the last key itself, and their weights."""
    heads = weights.shape[2]
    index = torch.stack(torch.broadcast_tensors(*keys), 1)  # (rows, keys)
    parts = (index.unsqueeze(2) * heads + torch.arange(heads, device=index.device)).flatten(1)
    shares = weights.transpose(0, 1).flatten(1)
    own = count * heads + index[:, -1:]
    return torch.cat([parts, own], 1), torch.cat([shares, torch.ones_like(shares[:, :1])], 1)


def finish_sums(block: Block, sums: Tensor) -> Tensor:
    """The rest of the block: (rows, 5 width) -> (rows, width)."""
    norm, (first, second) = block.ln_2, mlp_layers(block)
    x, hidden = sums.split([second.out_features, first.out_features], 1)
    scale = torch.native_layer_norm(x, norm.normalized_shape, None, None, norm.eps)[2]  # 1 / deviation, (rows, 1)
    shift = first(norm.bias)
    return x + linear(gelu(torch.addcmul(shift, hidden, scale)), second.weight, second.bias)


def mlp_layers(block: Block) -> tuple[nn.Linear, nn.Linear]:
    first, _, second = block.mlp
    assert isinstance(first, nn.Linear)
    assert isinstance(second, nn.Linear)
    return first, second
