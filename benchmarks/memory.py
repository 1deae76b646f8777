"""Measure memory, error and time of an EMA state in bf16 against one in fp32; prints a table.

python benchmarks/memory.py
"""

from __future__ import annotations

import torch
from timing import Table, alternate, show

import grokfast


def error_after(filter: grokfast.EMA, steps: int, size: int = 2000) -> tuple[float, float]:
    """|slow - exact| / |exact| after many steps of noise around a drift, and of a constant."""
    generator = torch.Generator().manual_seed(0)
    errors = []
    for noise in (1.0, 0.0):
        exact, grad = torch.zeros(size, dtype=torch.float64), torch.zeros(size)
        state = filter.new_state(grad)
        for count in range(steps):
            grad = torch.randn(size, generator=generator) * noise + 0.1
            exact = grad.double() if count == 0 else exact.lerp(grad.double(), 1 - filter.alpha)
            filter.update([grad], [state], count)
        errors.append(float((state["slow"].double() - exact).norm() / exact.norm()))
    return errors[0], errors[1]


def stepper(filter: grokfast.EMA, size: int = 1_000_000):
    grad = torch.randn(size) * 1e-20
    state = filter.new_state(grad)
    count = 0

    def step() -> None:
        nonlocal count
        filter.update([grad], [state], count)
        count += 1

    return step


def table(steps: int = 10_000) -> Table:
    filters = {"fp32": grokfast.EMA(), "bf16": grokfast.EMA(state_dtype=torch.bfloat16)}
    quiet = {n: grokfast.EMA(lamb=1e-6, state_dtype=f.state_dtype) for n, f in filters.items()}
    times = alternate({name: stepper(filter) for name, filter in quiet.items()}, 30, warmup=2)
    rows: Table = []
    for name, filter in filters.items():
        noisy, constant = error_after(filter, steps)
        size = filter.new_state(torch.zeros(1))["slow"].element_size()
        rows.append(
            {
                "state": name,
                "bytes per parameter": size,
                f"error after {steps:,} steps, noise": f"{noisy:.1e}",
                "error, constant gradient": f"{constant:.1e}",
                "time of a step": f"{times[name] / times['fp32']:.1f}x",
            }
        )
    return rows


def main() -> None:
    torch.set_num_threads(2)
    show("EMA state", table())


if __name__ == "__main__":
    main()
