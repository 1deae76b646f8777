"""The same function of the same parameters as `transformer.Decoder`, the logits after x o y =, without the waste.

Of the 4 x batch rows that the plain model computes, few differ and fewer matter:

- attention is causal, so positions 0 and 1 (x, o) depend on x alone: one row per symbol, shared by the batch;
- before the first attention a row depends on one token alone: one row per symbol at positions 0 and 2, one in all
  at positions 1 and 3;
- after the last block's keys and values only position 3 is needed;
- attention over at most four keys is cheaper written out than by the fused CPU kernel.

All rows of a block are stacked in one matrix, [position 0 | position 1 | position 2 | position 3], so that a linear
layer is one product.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, linear

from grokfast.lab.tasks.modular.transformer import Block, Decoder


def last_logits(model: Decoder, left: Tensor, right: Tensor) -> Tensor:
    """Logits at `=` after each equation `left o right =`: (batch,), (batch,) -> (batch, vocabulary)."""
    symbols = model.tokens.num_embeddings - 2
    alphabet = torch.arange(symbols, device=left.device)
    # Few equations over many symbols: a row per equation is less than a row per symbol.
    xs, left = (alphabet, left) if symbols <= len(left) else (left, torch.arange(len(left), device=left.device))
    blocks = list(model.blocks)
    x = first_block(model, xs, left, right, last=len(blocks) == 1)
    for block in blocks[1:-1]:
        x = middle_block(block, x, len(xs), left, model.heads)
    if len(blocks) > 1:
        x = last_block(blocks[-1], x, len(xs), left, model.heads)
    return model.head(model.ln(x))


def first_block(model: Decoder, xs: Tensor, left: Tensor, right: Tensor, *, last: bool) -> Tensor:
    """The first block, from tokens: q, k, v are computed once per distinct token and place, then looked up."""
    block, table, place = model.blocks[0], model.tokens.weight, model.positions.weight
    assert isinstance(block, Block)
    symbols, width, size = len(table) - 2, table.shape[1], len(xs)
    rows = torch.cat(
        [table[xs] + place[0], table[-1:] + place[1], table[:symbols] + place[2], table[-2:-1] + place[3]]
    )  # (size + 1 + symbols + 1, width)
    n = block.ln_1(rows)
    qkv = linear(n, block.attn.in_proj_weight, block.attn.in_proj_bias)
    r0, r1, r2, r3 = torch.cat([n, qkv], 1).split([size, 1, symbols, 1])
    _, _, k0, v0 = r0.split(width, 1)
    n1, q1, k1, v1 = r1.split(width, 1)
    n3, q3, k3, v3 = r3.split(width, 1)
    k0x, v0x = embedding(left, r0[:, 2 * width :]).split(width, 1)  # (batch, width) each
    n2, q2, k2, v2 = embedding(right, r2).split(width, 1)
    a3 = attend(q3, [k0x, k1, k2, k3], [v0x, v1, v2, v3], model.heads)
    if last:
        return finish(block, n3, a3)
    a1 = attend(q1, [k0, k1], [v0, v1], model.heads)
    a2 = attend(q2, [k0x, k1, k2], [v0x, v1, v2], model.heads)
    residual = torch.cat([n[:size], n1.expand(size, width), n2, n3.expand(len(left), width)])
    return finish(block, residual, torch.cat([v0, a1, a2, a3]))


def middle_block(block: nn.Module, x: Tensor, size: int, left: Tensor, heads: int) -> Tensor:
    """A block that needs all four positions: (2 size + 2 batch, width) -> the same."""
    assert isinstance(block, Block)
    width, batch = x.shape[1], len(left)
    n = block.ln_1(x)
    r0, r1, r2, r3 = linear(n, block.attn.in_proj_weight, block.attn.in_proj_bias).split([size, size, batch, batch])
    _, k0, v0 = r0.split(width, 1)
    q1, k1, v1 = r1.split(width, 1)
    q2, k2, v2 = r2.split(width, 1)
    q3, k3, v3 = r3.split(width, 1)
    k0x, v0x, k1x, v1x = embedding(left, torch.cat([k0, v0, k1, v1], 1)).split(width, 1)
    a1 = attend(q1, [k0, k1], [v0, v1], heads)
    a2 = attend(q2, [k0x, k1x, k2], [v0x, v1x, v2], heads)
    a3 = attend(q3, [k0x, k1x, k2, k3], [v0x, v1x, v2, v3], heads)
    return finish(block, n, torch.cat([v0, a1, a2, a3]))


def last_block(block: nn.Module, x: Tensor, size: int, left: Tensor, heads: int) -> Tensor:
    """The last block: keys and values of all positions, all else for position 3: -> (batch, width)."""
    assert isinstance(block, Block)
    width, batch = x.shape[1], len(left)
    n = block.ln_1(x)
    query_weight, rest_weight = block.attn.in_proj_weight.split([width, 2 * width])
    query_bias, rest_bias = block.attn.in_proj_bias.split([width, 2 * width])
    n3 = n[-batch:]
    kv0, kv1, kv2, kv3 = linear(n, rest_weight, rest_bias).split([size, size, batch, batch])
    k0, v0, k1, v1 = embedding(left, torch.cat([kv0, kv1], 1)).split(width, 1)
    k2, v2 = kv2.split(width, 1)
    k3, v3 = kv3.split(width, 1)
    query = linear(n3, query_weight, query_bias)
    return finish(block, n3, attend(query, [k0, k1, k2, k3], [v0, v1, v2, v3], heads))


def attend(query: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], heads: int) -> Tensor:
    """Attention of one position over a few: (rows, width) each, where a single row stands for all."""

    def split(x: Tensor) -> Tensor:
        return x.view(len(x), heads, -1)  # (rows, heads, width / heads)

    q = split(query) * (query.shape[1] // heads) ** -0.5
    scores = torch.broadcast_tensors(*[(q * split(k)).sum(-1) for k in keys])  # (rows, heads) each
    weights = torch.stack(scores).softmax(0).unsqueeze(-1).unbind(0)
    out = weights[0] * split(values[0])
    for weight, value in zip(weights[1:], values[1:], strict=True):
        out = torch.addcmul(out, weight, split(value))
    return out.flatten(1)


def finish(block: Block, residual: Tensor, attended: Tensor) -> Tensor:
    """What follows attention in a block, row by row."""
    x = residual + block.attn.out_proj(attended)
    return x + block.mlp(block.ln_2(x))
