from __future__ import annotations

import dataclasses
from typing import Any

from grokfast.lab.config import FilterConfig, LoopConfig, OptimConfig, RunConfig, resolve
from grokfast.lab.runs.metrics import Row
from grokfast.lab.tasks.modular.task import ModularConfig

TINY = ModularConfig(p=7, width=16, depth=1, heads=2, batch_size=8)
TINY_FLAGS = ["--p", "7", "--width", "16", "--depth", "1", "--heads", "2", "--batch-size", "8", "--threads", "1"]


def tiny(**changes: Any) -> RunConfig:
    """A run of a fraction of a second; keyword arguments go to whichever part has them."""
    parts = {"task": TINY, "filter": FilterConfig(), "optim": OptimConfig(), "loop": LoopConfig(steps=30, threads=1)}
    for name, part in parts.items():
        mine = {f.name: changes.pop(f.name) for f in dataclasses.fields(part) if f.name in changes}
        parts[name] = dataclasses.replace(part, **mine)
    assert not changes
    return resolve(RunConfig(**parts))  # type: ignore[arg-type]


def comparable(rows: list[Row]) -> list[Row]:
    """All but the clock."""
    return [row._replace(seconds=0.0) for row in rows]
