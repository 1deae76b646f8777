"""FSDP2 on two gloo processes: sharded parameters train as whole ones do, and the state is sharded like them."""

import subprocess
import sys
from pathlib import Path

WORKER = """
import os, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
import grokfast

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))

def train(net, poison=None):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    handle = grokfast.attach(optimizer, filter)
    for step in range(8):
        torch.manual_seed(step)
        optimizer.zero_grad()
        net(torch.randn(4, 6)).square().sum().backward()
        optimizer.step()
    return handle

dist.init_process_group("gloo")
filters = grokfast.EMA(), grokfast.MA(window_size=3), grokfast.FIR([0.5, 0.5]), grokfast.Butterworth(2, 0.1)
for filter in filters:
    whole, sharded = model(), model()
    train(whole)
    handle = train(fully_shard(sharded))
    for p, q in zip(whole.parameters(), sharded.parameters(), strict=True):
        torch.testing.assert_close(q.full_tensor(), p, rtol=0, atol=1e-6)
        assert all(isinstance(t, DTensor) for t in handle.state[q].values())
    assert handle.memory_bytes > 0
print("equal", flush=True)
dist.barrier()
os._exit(0)  # gloo's threads, held by the meshes of the sharded models, may abort an orderly exit
"""


def test_sharded_parameters_train_as_whole_ones(tmp_path: Path) -> None:
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("equal") == 2
