"""Param groups with their own lamb, one without a filter, and a lamb that grows during training."""

import torch

import grokfast

torch.manual_seed(0)
embedding, body, norm = torch.nn.Embedding(10, 8), torch.nn.Linear(8, 10), torch.nn.LayerNorm(8)
optimizer = torch.optim.AdamW(
    [
        {"params": body.parameters()},
        {"params": embedding.parameters(), "grokfast_alpha": 0.9, "grokfast_lamb": 0.5},
        {"params": norm.parameters(), "grokfast": False},
    ],
    lr=1e-2,
)
ramp = grokfast.Ramp({0: 0.0, 50: 2.0})  # overridden by the value of a group
handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.98), lamb=ramp)

tokens = torch.arange(10)
for _ in range(100):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(body(norm(embedding(tokens))), (tokens + 1) % 10)
    loss.backward()
    optimizer.step()
print(f"loss {loss.item():.4f}; the state has {handle.memory_bytes} bytes")
assert norm.weight not in handle.state
