"""Design filters by their frequency response: three kinds with the same cutoff."""

import math

import torch

import grokfast

filters = {
    "EMA": grokfast.EMA.from_cutoff(0.01, lamb=2.0),
    "MA": grokfast.MA.from_cutoff(0.01, lamb=2.0),
    "Butterworth": grokfast.Butterworth(order=2, cutoff=0.01, lamb=2.0),
}
periods = [1000, 100, 30, 10, 3]
print("gain |1 + H| at a period of".ljust(28), *(f"{p:>6} steps" for p in periods))
for name, filter in filters.items():
    gains = filter.frequency_response([2 * math.pi / p for p in periods], of="1+h").abs()
    print(name.ljust(28), *(f"{gain:12.3f}" for gain in gains.tolist()))

weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.1)
grokfast.attach(optimizer, filters["Butterworth"])
weight.grad = torch.ones(1)
optimizer.step()
assert torch.isclose(weight.detach(), torch.tensor(0.7)).item()  # a constant gradient counts 1 + lamb times
