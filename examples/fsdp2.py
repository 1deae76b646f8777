"""FSDP2: the filter's state is sharded and saved with the optimizer's. Run `torchrun --nproc-per-node 2 fsdp2.py`."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import grokfast


def build() -> tuple[torch.nn.Module, torch.optim.Optimizer, grokfast.Attachment]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, optimizer, grokfast.attach(optimizer, grokfast.EMA(alpha=0.98, lamb=2.0))


def step(model: torch.nn.Module, optimizer: torch.optim.Optimizer, handle: grokfast.Attachment) -> float:
    inputs = torch.randn(32, 20)  # this rank's part of the batch
    loss = torch.nn.functional.cross_entropy(model(inputs), (inputs[:, 0] > 0).long())
    optimizer.zero_grad()
    loss.backward()
    handle.apply()  # filter, then clip
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()


if "RANK" in os.environ:
    dist.init_process_group("gloo")  # on GPUs: "nccl"
else:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
folder = [tempfile.mkdtemp()]
dist.broadcast_object_list(folder)

model, optimizer, handle = build()
torch.manual_seed(dist.get_rank())
for _ in range(50):
    step(model, optimizer, handle)
weights, state = get_state_dict(model, optimizer)
dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder[0])

# Later, on any number of ranks: attach, then load.
model, optimizer, handle = build()
weights, state = get_state_dict(model, optimizer)
dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder[0])
set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
assert handle.step == 50
loss = step(model, optimizer, handle)
if dist.get_rank() == 0:
    print(f"{handle}: loss {loss:.3f} after the checkpoint, {handle.memory_bytes:,} bytes of state", flush=True)
dist.barrier()
os._exit(0)  # gloo's threads may abort a normal exit
