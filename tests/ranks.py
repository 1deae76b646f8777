"""What tests/test_distributed.py runs on every rank: laws of training on two, laws of checkpoints on two and three.

A rank says "kept LAW" of each law it has seen kept. Everything is in double precision but what says otherwise: sums
over ranks round differently, and what then differs by more than 1e-9 is a fault.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, AdamW, Optimizer

import grokfast

try:
    from torch.distributed.fsdp import fully_shard
except ImportError:  # before torch 2.6: the laws of FSDP2 are skipped
    fully_shard: Any = None
try:
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor
except ImportError:  # before torch 2.5
    from torch.distributed._tensor import DTensor, Shard, distribute_tensor

ROWS = 12  # of the global batch: shares of 1, 2 and 3 ranks are equal
SAVED, END = 6, 12  # steps
FILTERS = (
    grokfast.EMA(alpha=0.9),
    grokfast.MA(window_size=3, lamb=2.0),
    grokfast.FIR([0.5, 0.5]),
    grokfast.IIR([0.1], [1.0, -0.9]),
)
TRAINED = FILTERS[:2]  # in laws on what does not depend on the kind of filter
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


def build(*, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 5, dtype=dtype), nn.Tanh(), nn.Linear(5, 3, dtype=dtype))


def batch(step: int, share: int = 0, shares: int = 1) -> Tensor:
    whole = torch.randn(ROWS, 6, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
    return whole.chunk(shares)[share]


def mean_loss(net: nn.Module, inputs: Tensor) -> Tensor:
    return (net(inputs) - inputs[:, :3]).square().mean()


def train(
    net: nn.Module,
    optimizer: Optimizer,
    steps: Iterable[int],
    *,
    spread: bool = True,
    before_step: Callable[[], object] = lambda: None,
    after_step: Callable[[], object] = lambda: None,
) -> None:
    """Steps on the global batch, or with `spread` on this rank's share of it."""
    dtype = next(net.parameters()).dtype
    for step in steps:
        optimizer.zero_grad()
        inputs = batch(step, dist.get_rank(), dist.get_world_size()) if spread else batch(step)
        mean_loss(net, inputs.to(dtype)).backward()
        before_step()
        optimizer.step()
        after_step()


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def assert_same(net: nn.Module, expected: nn.Module, atol: float = 1e-9) -> None:
    for p, q in zip(net.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(whole(p.detach()), q.detach(), rtol=0, atol=atol)


def adamw(net: nn.Module, filter: grokfast.Filter, **options: Any) -> tuple[Optimizer, grokfast.Attachment]:
    optimizer = AdamW(net.parameters(), lr=0.05)
    return optimizer, grokfast.attach(optimizer, filter, **options)


def one_process(filter: grokfast.Filter, steps: int = 8) -> nn.Module:
    net = build()
    train(net, adamw(net, filter)[0], range(steps), spread=False)
    return net


# Laws of training ---------------------------------------------------------------------------------------------------


def ddp_equals_one_process() -> None:
    for filter in TRAINED:
        expected = one_process(filter)
        for view in (False, True):
            net = DistributedDataParallel(build(), gradient_as_bucket_view=view)
            train(net, adamw(net, filter)[0], range(8))
            assert_same(net, expected)


def ddp_with_accumulation_equals_one_process() -> None:
    for filter in TRAINED:
        expected = one_process(filter)
        for view in (False, True):
            net = DistributedDataParallel(build(), gradient_as_bucket_view=view)
            optimizer, handle = adamw(net, filter)
            for step in range(8):
                optimizer.zero_grad()
                parts = batch(step, dist.get_rank(), dist.get_world_size()).chunk(3)
                for i, part in enumerate(parts):
                    with net.no_sync() if i < len(parts) - 1 else nullcontext():
                        (mean_loss(net, part) / len(parts)).backward()
                optimizer.step()
            assert handle.step == 8
            assert_same(net, expected)


def sharded_equals_one_process() -> None:
    for filter in FILTERS:
        net = fully_shard(build())
        train(net, adamw(net, filter)[0], range(8))
        assert_same(net, one_process(filter))


def functions_of_appendix_c_equal_one_process() -> None:
    """On DTensors, and on a model that mixes them with whole parameters."""
    for function, options in (
        (grokfast.gradfilter_ema, {"alpha": 0.9}),
        (grokfast.gradfilter_ma, {"window_size": 3, "lamb": 2.0}),
    ):
        alone, sharded, mixed = build(), fully_shard(build()), build()
        fully_shard(mixed[0])
        for net in (alone, sharded, mixed):
            optimizer, kept = AdamW(net.parameters(), lr=0.05), None  # type: ignore
            for step in range(8):
                optimizer.zero_grad()
                inputs = batch(step, dist.get_rank(), dist.get_world_size()) if net is sharded else batch(step)
                mean_loss(net, inputs).backward()
                kept = function(net, kept, **options)
                optimizer.step()
        assert_same(sharded, alone)
        assert_same(mixed, alone)


def original_parameters_of_fsdp_version_1_equal_one_process() -> None:
    for filter in TRAINED:
        net = FullyShardedDataParallel(build(), use_orig_params=True, device_id=torch.device("cpu"))
        optimizer, handle = adamw(net, filter)
        train(net, optimizer, range(8))
        assert handle.step == 8
        with FullyShardedDataParallel.summon_full_params(net):
            assert_same(net, one_process(filter))


def parameters_sharded_by_hand_equal_one_process() -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for filter in FILTERS:
        alone = nn.Parameter(torch.zeros(ROWS, 3))
        sharded = nn.Parameter(distribute_tensor(torch.zeros(ROWS, 3), mesh, [Shard(0)]))
        for param in (alone, sharded):
            optimizer = SGD([param], lr=0.1)
            grokfast.attach(optimizer, filter)
            for step in range(8):
                grad = batch(step)[:, :3].float()
                param.grad = grad if param is alone else distribute_tensor(grad, mesh, [Shard(0)])
                optimizer.step()
        torch.testing.assert_close(whole(sharded.detach()), alone.detach())


def state_is_sharded_like_the_parameters() -> None:
    for filter in FILTERS:
        net = fully_shard(build())
        optimizer, handle = adamw(net, filter)
        train(net, optimizer, range(2))
        for p in net.parameters():  # type: ignore
            for t in handle.state[p].values():
                assert isinstance(t, DTensor)
                lead = t.dim() - p.dim()  # an MA keeps a window of gradients
                assert t.shape[lead:] == p.shape
                assert t.to_local().shape[lead:] == p.to_local().shape
                assert [s.dim - lead for s in t.placements] == [s.dim for s in p.placements]  # type: ignore
        everywhere = torch.tensor(handle.memory_bytes)
        dist.all_reduce(everywhere)
        tensors = [t for state in handle.state.values() for t in state.values()]
        assert int(everywhere) == sum(t.numel() * t.element_size() for t in tensors)


def clipping_before_and_after_the_filter_equals_one_process() -> None:
    for filter in TRAINED:
        for apply_first in (False, True):
            alone, net = build(), fully_shard(build())
            for model, spread in ((alone, False), (net, True)):
                optimizer = SGD(model.parameters(), lr=0.2)  # Adam would undo a common factor  # type: ignore
                handle = grokfast.attach(optimizer, filter)

                def clip(
                    model: nn.Module = model, handle: grokfast.Attachment = handle, first: bool = apply_first
                ) -> None:
                    if first:
                        handle.apply()
                    clip_grad_norm_(model.parameters(), 0.3)

                train(model, optimizer, range(8), spread=spread, before_step=clip)
                assert handle.step == 8
                norm = whole(nn.utils.get_total_norm([p.grad for p in model.parameters()]))  # type: ignore
                assert float(norm) <= 0.3 + 1e-6 if apply_first else float(norm) > 0.35
            assert_same(net, alone, atol=1e-6)  # torch 2.8 rounds the factor by which it clips DTensors


def inf_on_one_rank_is_skipped_by_all() -> None:
    for shard in (False, True):
        net = fully_shard(build()) if shard else DistributedDataParallel(build())
        optimizer, handle = adamw(net, grokfast.EMA(alpha=0.9))
        train(net, optimizer, range(3))
        kept = {p: t["slow"].clone() for p, t in handle.state.items()}
        optimizer.zero_grad()
        inputs = batch(99, dist.get_rank(), dist.get_world_size())
        if dist.get_rank() == 1 and not shard:
            inputs = inputs * torch.inf
        mean_loss(net, inputs).backward()
        if dist.get_rank() == 1 and shard:
            next(net.parameters()).grad.to_local()[0, 0] = torch.inf  # type: ignore
        handle.apply()
        assert handle.step == 3
        assert all(torch.equal(whole(t["slow"]), whole(kept[p])) for p, t in handle.state.items())
        train(net, optimizer, range(3, 8))
        assert handle.step == 8
        assert_same(net, one_process(grokfast.EMA(alpha=0.9)))


def inf_on_one_rank_is_reported_by_all() -> None:
    for nonfinite in ("ignore", "skip", "raise"):
        net = fully_shard(build())
        optimizer, handle = adamw(net, grokfast.EMA(), nonfinite=nonfinite)
        mean_loss(net, batch(0)).backward()
        if dist.get_rank() == 1:
            next(net.parameters()).grad.to_local()[0, 0] = torch.nan  # type: ignore
        where = "parameter 0 of group 0" if dist.get_rank() == 1 else "another rank's shard"
        said = ""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                optimizer.step()
        except (UserWarning, FloatingPointError) as error:
            said = str(error)
        assert where in said, said
        assert handle.step == 0


def whole_state_dict_of_rank_0_restores_all() -> None:
    for filter in TRAINED:
        net, other = fully_shard(build()), fully_shard(build(seed=1))
        optimizer, _ = adamw(net, filter)
        train(net, optimizer, range(SAVED))
        weights, state = (
            get_model_state_dict(net, options=WHOLE),
            get_optimizer_state_dict(net, optimizer, options=WHOLE),
        )
        assert bool(state) == (dist.get_rank() == 0)
        restored, handle = adamw(other, filter)
        from_rank_0 = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
        set_model_state_dict(other, weights, options=from_rank_0)
        set_optimizer_state_dict(other, restored, state, options=from_rank_0)
        assert handle.step == SAVED
        train(other, restored, range(SAVED, END))
        assert_same(other, one_process(filter, END))


# Laws of checkpoints: saved by some ranks, continued by any number of them -------------------------------------------


def cases() -> list[tuple[str, grokfast.Filter, bool, StateDictOptions | None]]:
    """Names, filters, whether the start is a trigger, and how the state dict is written."""
    ema, ma = TRAINED
    return [
        ("ema-trigger", ema, True, None),
        ("ema-step", ema, False, FLAT),
        ("ma-trigger", ma, True, FLAT),
        ("ma-step", ma, False, None),
    ]


def make_start(trigger: bool) -> int | grokfast.Saturation:
    # Either is reached after the checkpoint: what was counted before it must be known to be on time.
    return grokfast.Saturation(above=1.0, patience=SAVED + 3) if trigger else SAVED + 3


def observe(handle: grokfast.Attachment) -> Callable[[], object]:
    start = handle.start
    return (lambda: start.observe(1.0)) if isinstance(start, grokfast.Saturation) else (lambda: None)


def state_of(net: nn.Module, optimizer: Optimizer, options: StateDictOptions | None) -> dict[str, Any]:
    return {
        "model": get_model_state_dict(net),
        "optimizer": get_optimizer_state_dict(net, optimizer, options=options),
    }


def load(net: nn.Module, optimizer: Optimizer, path: Path, options: StateDictOptions | None = None) -> None:
    state = state_of(net, optimizer, options)
    dcp.load(state, checkpoint_id=path)
    set_model_state_dict(net, state["model"])
    set_optimizer_state_dict(net, optimizer, state["optimizer"], options=options)


def save_all(folder: Path) -> None:
    for name, filter, trigger, options in cases():
        net = fully_shard(build())
        optimizer, handle = adamw(net, filter, start=make_start(trigger))
        train(net, optimizer, range(SAVED), after_step=observe(handle))
        optimizer.zero_grad()
        dcp.save(state_of(net, optimizer, options), checkpoint_id=folder / name)
    net = fully_shard(build(dtype=torch.bfloat16))
    optimizer, handle = adamw(net, grokfast.EMA())
    train(net, optimizer, range(SAVED))
    slow = [whole(handle.slow(p)) for p in net.parameters()]  # type: ignore
    assert not all(torch.equal(t, t.bfloat16().float()) for t in slow)
    dcp.save(state_of(net, optimizer, None), checkpoint_id=folder / "bf16")
    if dist.get_rank() == 0:
        torch.save(slow, folder / "bf16.pt")


def check_continues_as_uninterrupted(folder: Path, *, shard: bool) -> None:
    for name, filter, trigger, options in cases():
        expected = build()
        optimizer, handle = adamw(expected, filter, start=make_start(trigger))
        train(expected, optimizer, range(END), spread=False, after_step=observe(handle))
        net = fully_shard(build(seed=1)) if shard else build(seed=1)
        optimizer, handle = adamw(net, filter, start=make_start(trigger))
        load(net, optimizer, folder / name, options)
        assert handle.step == SAVED
        assert not handle.active
        train(net, optimizer, range(SAVED, END), spread=shard, after_step=observe(handle))
        assert handle.step == END
        assert handle.active
        assert_same(net, expected)


def check_float32_state_of_bfloat16_parameters(folder: Path, *, shard: bool) -> None:
    net = build(seed=1, dtype=torch.bfloat16)
    net = fully_shard(net) if shard else net
    optimizer, handle = adamw(net, grokfast.EMA())
    load(net, optimizer, folder / "bf16")
    for p, expected in zip(net.parameters(), torch.load(folder / "bf16.pt"), strict=True):  # type: ignore
        slow = handle.slow(p)
        assert slow is not None
        assert slow.dtype == expected.dtype == torch.float32
        assert torch.equal(whole(slow), expected)


# The process --------------------------------------------------------------------------------------------------------

LAWS = (
    ddp_equals_one_process,
    ddp_with_accumulation_equals_one_process,
    original_parameters_of_fsdp_version_1_equal_one_process,
    parameters_sharded_by_hand_equal_one_process,
)
LAWS_OF_FSDP2 = (
    sharded_equals_one_process,
    functions_of_appendix_c_equal_one_process,
    state_is_sharded_like_the_parameters,
    clipping_before_and_after_the_filter_equals_one_process,
    inf_on_one_rank_is_skipped_by_all,
    inf_on_one_rank_is_reported_by_all,
    whole_state_dict_of_rank_0_restores_all,
)


def say(line: str) -> None:
    sys.stdout.write(line + "\n")  # at once: the ranks share their standard output
    sys.stdout.flush()


def main(rank: int, count: int, part: str, folder: Path) -> None:
    store = dist.FileStore(str(folder / f"{part}.store"), count)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count)
    if part == "train":
        for law in LAWS if fully_shard is None else LAWS + LAWS_OF_FSDP2:
            law()
            say(f"kept {law.__name__}")
        if fully_shard is not None:
            save_all(folder)
    else:
        check_continues_as_uninterrupted(folder, shard=True)
        check_float32_state_of_bfloat16_parameters(folder, shard=True)
        say("continued")
    dist.barrier()


def work(rank: int, count: int, part: str, folder: Path) -> None:
    """The life of a rank."""
    try:
        main(rank, count, part, folder)
        code = 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stderr.flush()
    os._exit(code)  # gloo's threads, held by the meshes of the sharded models, may abort an orderly exit
