"""A loop with Accelerate and a filter: accumulate gradients, filter, clip, save_state and load_state."""

import tempfile

import torch
from accelerate import Accelerator

import grokfast

inputs, answers = torch.randn(256, 8), torch.randint(0, 3, (256,))
dataset = torch.utils.data.TensorDataset(inputs, answers)

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
loader = torch.utils.data.DataLoader(dataset, batch_size=32)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.98, lamb=2.0))  # the one line, before prepare or after


def train(epochs: int) -> float:
    for _ in range(epochs):
        for x, y in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    handle.apply()  # filter, then clip; without this line: clip, then filter
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
    return loss.item()


print(f"loss {train(5):.4f} after {handle.step} optimizer steps of two batches each")
folder = tempfile.mkdtemp()
accelerator.save_state(folder)
once = train(5)
accelerator.load_state(folder)
again = train(5)
print(f"loss {once:.6f}; from the saved state again: {again:.6f}, equal: {once == again}")
assert once == again
