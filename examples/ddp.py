"""DDP: every rank filters the same averaged gradients once per step. Run `torchrun --nproc-per-node 2 ddp.py`."""

import os
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import grokfast

if "RANK" in os.environ:
    dist.init_process_group("gloo")  # on GPUs: "nccl"
else:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)

torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.98, lamb=2.0))  # the one line

torch.manual_seed(1 + dist.get_rank())
loss = torch.zeros(())
for micro_batch in range(100):
    last = micro_batch % 2 == 1  # each step has two micro-batches; ranks communicate in the second only
    inputs = torch.randn(32, 20)
    with nullcontext() if last else model.no_sync():
        loss = torch.nn.functional.cross_entropy(model(inputs), (inputs[:, 0] > 0).long())
        (loss / 2).backward()
    if last:
        optimizer.step()
        optimizer.zero_grad()
assert handle.step == 50
if dist.get_rank() == 0:
    print(f"{handle}: loss {loss.item():.3f}", flush=True)
dist.barrier()
os._exit(0)  # gloo's threads may abort a normal exit
