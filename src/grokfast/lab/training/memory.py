"""How much memory a run will need, and whether it is free: checked before any of it is used."""

from __future__ import annotations

import contextlib
import math
import os
from pathlib import Path

import torch

import grokfast
from grokfast.lab.config import RunConfig
from grokfast.lab.filters import describe
from grokfast.lab.tasks.base import Size

GIGABYTE = 1e9
COPIES = 4  # of the weights: themselves, their gradients, and the two averages of the Adam family
WORD = 4  # bytes of a weight


def check_memory(config: RunConfig, size: Size) -> None:
    """Raise ValueError where a run of this size needs more memory than there is, or than it was allowed."""
    weights, state = COPIES * WORD * size.weights, state_bytes(config.filter, size.weights)
    needed, limit = weights + state + size.data_bytes, config.loop.memory_limit
    allowed = available_bytes(config.loop.device) if limit is None else limit * GIGABYTE
    if needed <= allowed:
        return
    name = "" if config.filter is None else describe(config.filter)
    parts = {f"the filter {name}": state, "weights and optimizer": weights, "data": size.data_bytes}
    listed = "; ".join(f"{part}: {gigabytes(value)}" for part, value in parts.items() if value >= 0.01 * needed)
    why = f"memory_limit is {gigabytes(allowed)}" if limit is not None else f"{gigabytes(allowed)} are free"
    flag = "" if math.isinf(needed) else f": --memory-limit {math.ceil(needed / GIGABYTE)} tries it all the same"
    raise ValueError(f"this run needs about {gigabytes(needed)} of memory ({listed}), and {why}{flag}")


def state_bytes(filter: grokfast.Filter | None, weights: int) -> float:
    """The state of a filter for this many weights, without making it; inf where no tensor could be that large."""
    if filter is None or weights == 0:
        return 0
    try:
        made = filter.new_state(torch.empty(weights, device="meta"))
    except (RuntimeError, TypeError, OverflowError) as error:
        if "overflow" in str(error).lower():
            return math.inf
        return 0  # a filter of the user's own may know real tensors only
    return sum(tensor.numel() * tensor.element_size() for tensor in made.values())


def available_bytes(device: str) -> float:
    """The free memory of a device; inf where it is unknown."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(torch.device(device))[0]
    found = [math.inf]
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")))
    with contextlib.suppress(OSError, ValueError):  # a container may have less than its machine; ValueError: "max"
        group = Path("/sys/fs/cgroup")
        found.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    if found == [math.inf]:
        with contextlib.suppress(AttributeError, ValueError, OSError):
            found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found)


def gigabytes(size: float) -> str:
    """A size in words.

    >>> gigabytes(171.2e9), gigabytes(1.5e9), gigabytes(3e6)
    ('171 GB', '1.5 GB', '0.003 GB')
    """
    return f"{size / GIGABYTE:,.0f} GB" if size >= 100 * GIGABYTE else f"{size / GIGABYTE:.2g} GB"
