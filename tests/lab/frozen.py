"""Numbers to be kept, and the machine that gave them."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

import torch

GOLDEN = Path(__file__).parent / "golden"


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a metrics.jsonl, all but the clock."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def select_columns(rows: list[dict[str, Any]], golden: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The columns that version 0.1.0 wrote: others may be added, none may change."""
    return [{name: row.get(name) for name in old} for row, old in zip(rows, golden, strict=True)]


def describe_rounding() -> dict[str, Any]:
    """What the last bits of a result depend on: library, processor, instruction set, threads."""
    return {
        "torch": torch.__version__,
        "processor": processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": 1,
    }


def processor() -> str:
    """Name, family and model: generations that share a name may round differently."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    return "{}, family {}, model {}".format(*(fields.get(key) for key in ("model name", "cpu family", "model")))


def rounds_as_recorded() -> bool:
    """Whether this machine gives the frozen numbers bit for bit."""
    return describe_rounding() == json.loads((GOLDEN / "machine.json").read_text())
