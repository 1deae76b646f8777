"""Train, save and resume with a filter. The model learns to multiply modulo 7 from half of the table."""

import tempfile
from pathlib import Path

import torch

import grokfast


def build() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(14, 64), torch.nn.ReLU(), torch.nn.Linear(64, 7))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    grokfast.attach(optimizer, grokfast.EMA(alpha=0.98, lamb=2.0))  # the one line
    return model, optimizer


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> float:
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), answers)
        loss.backward()
        optimizer.step()
    return loss.item()


x, y = torch.cartesian_prod(torch.arange(7), torch.arange(7)).T
inputs = torch.cat([torch.nn.functional.one_hot(x, 7), torch.nn.functional.one_hot(y, 7)], 1).float()
answers = x * y % 7

model, optimizer = build()
print(f"loss after 100 steps: {train(model, optimizer, 100):.4f}")
checkpoint = Path(tempfile.mkdtemp()) / "checkpoint.pt"
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint)
uninterrupted = train(model, optimizer, 100)

model, optimizer = build()  # as in a new process
saved = torch.load(checkpoint)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
resumed = train(model, optimizer, 100)
print(f"loss after 200 steps: {uninterrupted:.6f}, resumed: {resumed:.6f}, equal: {resumed == uninterrupted}")
assert resumed == uninterrupted
