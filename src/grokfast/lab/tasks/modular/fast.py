"""The same function of the same parameters as `transformer.Decoder`, the logits after x o y =, with less work.

The plain model computes 4 x batch rows. Few of them differ, and fewer are needed:

- attention is causal, so positions 0 and 1 (x, o) depend on x alone: one row per symbol, shared by the batch;
- before the first attention a row depends on one token alone: one row per symbol at positions 0 and 2, one in all
  at positions 1 and 3;
- after the last block's keys and values only position 3 is needed;
- without gradients, two of the first block's products are looked up too (`lookup.py`);
- attention over at most four keys is cheaper written out than by the fused CPU kernel.

All rows of a block are stacked in one matrix, [position 0 | position 1 | position 2 | position 3], so that a linear
layer is one product.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding

from grokfast.lab.tasks.linear import linear, run_layers
from grokfast.lab.tasks.modular.lookup import ROWS, look_up
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
    return linear(model.ln(x), model.head.weight)


def first_block(model: Decoder, xs: Tensor, left: Tensor, right: Tensor, *, last: bool) -> Tensor:
    """The first block, from tokens: what depends on one token and its place is computed once, then looked up."""
    block, heads = model.blocks[0], model.heads
    assert isinstance(block, Block)
    symbols, width = model.tokens.num_embeddings - 2, model.tokens.embedding_dim
    sizes = [len(xs), 1, symbols, 1]
    n = block.ln_1(distinct_rows(model, xs, symbols))
    q, k, v = linear(n, block.attn.in_proj_weight, block.attn.in_proj_bias).split(width, 1)
    (_, q1, q2, q3), (k0, k1, k2, _) = q.split(sizes), k.split(sizes)
    t0, s1, t2, s3 = score(q3, k, heads).split(sizes)
    t2 = torch.cat([t2, score(q2, k1, heads), score(q2, k2, heads), q2], 1)
    s0, k0x = embedding(left, torch.cat([t0, k0], 1)).split([heads, width], 1)  # (batch, heads), (batch, width)
    s2, u1, u2, q2y = embedding(right, t2).split([heads, heads, heads, width], 1)
    w3 = weigh([s0, s1, s2, s3], width)
    w2 = weigh([score(q2y, k0x, heads), u1, u2], width)
    w1 = weigh([score(q1, k0, heads), score(q1, k1, heads)], width)
    if not torch.is_grad_enabled():
        return look_up(block, n, v, [w1, w2, w3], left, right, last=last)
    (n0, n1, n2, n3), (v0, v1, v2, v3) = n.split(sizes), v.split(sizes)
    v0x, (v2y, n2y) = embedding(left, v0), embedding(right, torch.cat([v2, n2], 1)).split(width, 1)
    a3 = average(w3, [v0x, v1, v2y, v3])
    if last:
        return finish(block, n3, a3)
    residual = torch.cat([n0, n1.expand(len(xs), width), n2y, n3.expand(len(left), width)])
    return finish(block, residual, torch.cat([v0, average(w1, [v0, v1]), average(w2, [v0x, v1, v2y]), a3]))


def distinct_rows(model: Decoder, xs: Tensor, symbols: int) -> Tensor:
    """Each token at each place that it can have, once, in the order x, o, y, =: (xs + 1 + symbols + 1, width)."""
    equals, operator = torch.arange(symbols, symbols + 2, device=xs.device).split(1)
    tokens = [xs, operator, torch.arange(symbols, device=xs.device), equals]
    places = [torch.full_like(part, place) for place, part in enumerate(tokens)]
    return model.tokens(torch.cat(tokens)) + model.positions(torch.cat(places))


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
    if torch.is_grad_enabled() or len(left) <= ROWS:
        return last_rows(block, x, size, left, heads)
    shared, *own = x.split([2 * size, len(left), len(left)])
    parts = zip(*(rows.split(ROWS) for rows in (*own, left)), strict=True)
    return torch.cat([last_rows(block, torch.cat([shared, x2, x3]), size, some, heads) for x2, x3, some in parts])


def last_rows(block: nn.Module, x: Tensor, size: int, left: Tensor, heads: int) -> Tensor:
    """The last block of equations that are computed at once."""
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
    return average(weigh([score(query, key, heads) for key in keys], query.shape[1]), values)


def score(query: Tensor, key: Tensor, heads: int) -> Tensor:
    """How well keys match queries, before scaling: (rows, width) each -> (rows, heads)."""
    # Split before the product: the gradient of the sum would else be copied.
    return (query.unflatten(1, (heads, -1)) * key.unflatten(1, (heads, -1))).sum(-1)


def weigh(scores: Sequence[Tensor], width: int) -> Tensor:
    """The weights of attention: (rows, heads) for each key -> (keys, rows, heads)."""
    stacked = torch.stack(torch.broadcast_tensors(*scores))
    return (stacked * (width // stacked.shape[2]) ** -0.5).softmax(0)


def average(weights: Tensor, values: Sequence[Tensor]) -> Tensor:
    """Values by their weights: (keys, rows, heads) and (rows, width) for each key -> (rows, width)."""
    heads = weights.shape[2]
    parts = [w * v.unflatten(1, (heads, -1)) for w, v in zip(weights.unsqueeze(-1).unbind(0), values, strict=True)]
    out = parts[0]
    for part in parts[1:]:  # not addcmul, whose gradient multiplies by its factor of 1
        out = out + part
    return out.flatten(1)


def finish(block: Block, residual: Tensor, attended: Tensor) -> Tensor:
    """What follows attention in a block, row by row."""
    x = residual + linear(attended, block.attn.out_proj.weight, block.attn.out_proj.bias)
    return x + run_layers(block.mlp, block.ln_2(x))
