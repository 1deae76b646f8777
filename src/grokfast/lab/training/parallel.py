"""Many processes, one run: g = sum_r (n_r / n) g_r, where rank r has taken n_r of the n examples of a batch.

Under torchrun rank 0 does what the command says, alone, until it trains. Then all ranks train together: each draws the
same batches from the same seed and takes its share of every one, and the gradients are summed. So the result is that of
one process up to rounding, for any number of ranks. Rank 0 alone writes and prints.

Why not DistributedDataParallel: the fast paths of the tasks use the parameters of a model without its `forward`, and
without that it does nothing. It would also weight unequal shares alike. One sum over one flat bucket is exact and fast
enough for models of this size; it goes over the CPU by gloo, whatever the device.

Without torchrun nothing here does anything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from grokfast.lab.tasks.base import Batch

AnyBatch = TypeVar("AnyBatch", bound=Batch)
Value = TypeVar("Value")

_joined = False  # not `dist.is_initialized`: a script may have a process group for purposes of its own


@contextmanager
def joined() -> Generator[int]:
    """Join the other processes of torchrun; gives the rank. When rank 0 leaves, it dismisses all."""
    global _joined
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    # The others wait while rank 0 works alone; that a rank has died they see by its closed connection.
    dist.init_process_group("gloo", timeout=timedelta(days=7))
    _joined = True
    try:
        yield dist.get_rank()
    finally:
        if _joined and dist.get_rank() == 0:
            from_leader(lambda: None)
        leave()


def leave() -> None:
    global _joined
    if _joined:
        _joined = False
        dist.destroy_process_group()


def end(code: int) -> NoReturn:
    """Exit at once: gloo's threads outlive the group and may abort an orderly exit."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@contextmanager
def leading(word: Any) -> Generator[None]:
    """What rank 0 does here all ranks do: the others get the word by `from_leader(None)`, and None at the end.

    After an error they are lost: nobody knows which of them waits for what.
    """
    from_leader(lambda: word)
    try:
        yield
    except BaseException:
        leave()
        raise


def ranks() -> int:
    """How many processes train together."""
    return dist.get_world_size() if _joined else 1


def from_leader(make: Callable[[], Value] | None) -> Value:
    """What rank 0 makes, on all ranks; the others need not know how."""
    if not _joined:
        assert make is not None
        return make()
    leader = dist.get_rank() == 0
    assert make is not None or not leader
    box = [make() if leader and make is not None else None]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]  # type: ignore[return-value]


def any_rank(flag: bool) -> bool:
    """Whether any rank says so."""
    return bool(total(torch.tensor(float(flag))))


def share(batch: AnyBatch) -> AnyBatch:
    """This rank's part of a batch: parts are contiguous and differ by one example at most; one may be empty."""
    if not _joined:
        return batch
    first, last = (len(batch) * i // ranks() for i in (dist.get_rank(), dist.get_rank() + 1))
    return batch[first:last]


def sum_gradients(params: Sequence[Tensor], weight: float) -> None:
    """Replace the gradients by the sum of those of all ranks, each times its weight. Every rank gets the same bits."""
    if not _joined:
        return
    # A rank whose share is empty has no gradients. Else all parameters of a task take part in every loss.
    assert weight == 0 or all(p.grad is not None for p in params)
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
    bucket = torch.cat([grad.flatten() for grad in grads]).mul_(weight).cpu()
    dist.all_reduce(bucket)
    for p, part in zip(params, bucket.split([p.numel() for p in params]), strict=True):
        p.grad = part.view_as(p).to(p.device)


def total(value: Tensor) -> Tensor:
    """The sum of a number over all ranks."""
    if not _joined:
        return value
    value = value.cpu()
    dist.all_reduce(value)
    return value
