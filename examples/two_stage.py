"""Start later: leave gradients unchanged until the training set is learnt, then amplify their slow part."""

import torch

import grokfast

torch.manual_seed(0)
inputs, labels = torch.randn(64, 20), torch.randint(0, 2, (64,))
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
saturated = grokfast.Saturation(above=0.99, patience=3)
handle = grokfast.attach(optimizer, grokfast.MA(window_size=20, lamb=5.0), start=saturated)

for step in range(200):
    optimizer.zero_grad()
    logits = model(inputs)
    torch.nn.functional.cross_entropy(logits, labels).backward()
    optimizer.step()
    accuracy = (logits.argmax(1) == labels).float().mean().item()
    if not saturated.fired and saturated.observe(accuracy):
        print(f"training accuracy {accuracy:.2f} at step {step}: the filter starts")
assert handle.active
