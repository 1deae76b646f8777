"""The released decoder, written plainly: x <- LN1(x);  x <- x + Attn(x);  x <- x + MLP(LN2(x)), causal, all positions.

The residual starts from the *normalised* input, and the order in which parameters are created is part of the
random stream behind the published numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Block(nn.Module):
    """Causal self-attention and an MLP four times as wide."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.ln_2 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:  # (positions, batch, width)
        future = torch.full((len(x), len(x)), -torch.inf, device=x.device, dtype=x.dtype).triu(1)
        x = self.ln_1(x)
        x = x + self.attn(x, x, x, attn_mask=future, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class Decoder(nn.Module):
    """Decoder-only transformer; `width` is a multiple of `heads`, and `positions` the length of the position table."""

    def __init__(self, *, width: int, depth: int, heads: int, vocabulary: int, positions: int = 5) -> None:
        super().__init__()
        self.heads = heads
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(positions, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:  # (positions, batch)
        places = torch.arange(len(tokens), device=tokens.device)
        x = self.tokens(tokens) + self.positions(places).unsqueeze(1)  # (positions, batch, width)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x))  # (positions, batch, vocabulary)
