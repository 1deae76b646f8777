"""Shared by the benchmarks: functions timed in turns, tables, a file of results."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

Step = Callable[[], None]
Table = list[dict[str, object]]


def alternate(steps: dict[str, Step], turns: int, *, steps_per_turn: int = 1, warmup: int = 1) -> dict[str, float]:
    """Median seconds of a step of each function, taken in turns so that noise affects all of them alike.

    With several steps per turn, most steps find their own data in the cache, not that of another function.
    """
    times: dict[str, list[float]] = {name: [] for name in steps}
    for step in steps.values():
        for _ in range(warmup):
            step()
    for _ in range(turns):
        for name, step in steps.items():
            for _ in range(steps_per_turn):
                begin = time.perf_counter()
                step()
                times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values) for name, values in times.items()}


def show(title: str, rows: Table) -> None:
    keys = list(dict.fromkeys(key for row in rows for key in row))
    cells = [keys, *([str(row.get(key, "")) for key in keys] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(keys))]
    print(f"\n{title}")
    for line in cells:
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)), flush=True)


def write(result: dict[str, Table], out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"torch": torch.__version__, "threads": torch.get_num_threads(), **result}, indent=1))
    print(f"\nwritten to {out}")
