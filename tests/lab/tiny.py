from __future__ import annotations

from typing import Any

from grokfast.lab.runs.metrics import Row
from grokfast.lab.settings import Settings, resolve
from grokfast.lab.tasks.modular.task import ModularConfig

SIZES: dict[str, Any] = {"p": 7, "width": 16, "depth": 1, "heads": 2, "batch_size": 8}
TINY = ModularConfig(**SIZES)
TINY_FLAGS = ["--p", "7", "--width", "16", "--depth", "1", "--heads", "2", "--batch-size", "8", "--threads", "1"]


def tiny(**settings: Any) -> Settings:
    """A run of a fraction of a second; settings by the names of their flags."""
    return resolve("modmul", **{**SIZES, "steps": 30, "threads": 1, **settings})


def comparable(rows: list[Row]) -> list[Row]:
    """All but the clock."""
    return [row._replace(seconds=0.0) for row in rows]
