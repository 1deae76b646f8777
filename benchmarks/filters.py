"""Time one filter step against the paper's listing, a peer and the memory limit: alternating, in one process.

    python benchmarks/filters.py             the whole table (about three minutes)
    python benchmarks/filters.py --quick     small sets only

Rivals: (a) the out-of-place arithmetic of the paper's appendix C, written out plainly; (b) the functions of the package
pytorch_optimizer 4.1.0; (c) the memory limit: an in-place `b.add_(a)` moves 12 bytes per fp32 element, an EMA step must
move 16 (read g and m, write m and g), so the limit is 16/12 of that time on as many elements.

The cost for a user is (a step of SGD with the filter) - (a step without): `default` and `ignore` for ours attached with
nonfinite="scaler" and "ignore", `peer` for the peer's function called before the step. `function` is the peer's
function and `kernel` our arithmetic, both alone.
"""

from __future__ import annotations

import argparse
import collections
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import torch
from pytorch_optimizer.optimizer.grokfast import gradfilter_ema as peer_ema
from pytorch_optimizer.optimizer.grokfast import gradfilter_ma as peer_ma
from timing import alternate, show, write
from torch import Tensor, nn

import grokfast
from grokfast.filters.kernel import kernel_of

Shapes = list[tuple[int, ...]]


def modmul_shapes(d: int = 128) -> Shapes:
    block: Shapes = [(d,)] * 4 + [(3 * d, d), (3 * d,), (d, d), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    return [(99, d), (5, d), *block, *block, (d,), (d,), (99, d)]


def resnet50_shapes() -> Shapes:
    shapes: Shapes = [(64, 3, 7, 7), (64,), (64,)]
    inner = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for index in range(blocks):
            kernels = [(width, inner, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)]
            kernels += [(4 * width, inner, 1, 1)] if index == 0 else []
            for kernel in kernels:
                shapes += [kernel, (kernel[0],), (kernel[0],)]
            inner = 4 * width
    return [*shapes, (1000, 2048), (1000,)]


def gpt2_shapes(d: int = 768) -> Shapes:
    block: Shapes = [(d,), (d,), (3 * d, d), (3 * d,), (d, d), (d,), (d,), (d,), (4 * d, d), (4 * d,), (d, 4 * d), (d,)]
    return [(50257, d), (1024, d), *block * 12, (d,), (d,)]


class Bag(nn.Module):
    """Parameters of given shapes with constant gradients: small, so that repeated filtering never overflows."""

    def __init__(self, shapes: Shapes) -> None:
        super().__init__()
        self.items = nn.ParameterList(nn.Parameter(torch.empty(s)) for s in shapes)
        for p in self.items:
            p.grad = torch.randn_like(p) * 1e-20

    def grads(self) -> list[Tensor]:
        return [p.grad for p in self.items if p.grad is not None]


# The rivals: each returns a function that takes one step ------------------------------------------------------------


def plain_ema(bag: Bag) -> Callable[[], None]:
    average = {n: p.grad.clone() for n, p in bag.named_parameters()}

    def step() -> None:
        for n, p in bag.named_parameters():
            average[n] = average[n] * 0.98 + p.grad.detach() * 0.02
            p.grad = p.grad + average[n] * LAMB

    return step


def plain_ma(bag: Bag, window: int) -> Callable[[], None]:
    queues = {n: collections.deque([p.grad.clone() for _ in range(window)], window) for n, p in bag.named_parameters()}

    def step() -> None:
        for n, p in bag.named_parameters():
            queues[n].append(p.grad.clone())
            p.grad = p.grad + sum(queues[n]) / window * LAMB

    return step


def peer(bag: Bag, function: Callable, **options: float) -> Callable[[], None]:
    state = None

    def step() -> None:
        nonlocal state
        state = function(bag, state, lamb=LAMB, **options)

    for _ in range(int(options.get("window_size", 1))):
        step()
    return step


def ours(bag: Bag, filter: grokfast.Filter) -> Callable[[], None]:
    """The arithmetic alone, the counterpart of (a) and (b)."""
    groups: dict[str, list[Tensor]] = {}
    for grad in bag.grads():
        groups.setdefault(kernel_of(grad), []).append(grad)
    calls = [(grads, [filter.new_state(g) for g in grads]) for grads in groups.values()]
    count = 0

    def step() -> None:
        nonlocal count
        for grads, states in calls:
            filter.update(grads, states, count, uniform=True)
        count += 1

    for _ in range(getattr(filter, "window_size", 2) if isinstance(filter, grokfast.MA) else 2):
        step()
    return step


def sgd_step(shapes: Shapes, filter: grokfast.Filter | None = None, **options: str) -> Callable[[], None]:
    """A step of SGD with a filter attached, or without: the difference is the cost of the filter."""
    bag = Bag(shapes)
    optimizer = torch.optim.SGD(bag.parameters(), lr=1e-30)
    if filter is not None:
        grokfast.attach(optimizer, filter, **options)
    for _ in range(filter.window_size if isinstance(filter, grokfast.MA) else 3):
        optimizer.step()
    return optimizer.step


def peer_step(shapes: Shapes, function: Callable, **options: float) -> Callable[[], None]:
    """A step of SGD after the peer's function."""
    bag = Bag(shapes)
    optimizer = torch.optim.SGD(bag.parameters(), lr=1e-30)
    filter = peer(bag, function, **options)

    def step() -> None:
        filter()
        optimizer.step()

    return step


def limit(count: int) -> Callable[[], None]:
    a, b = torch.randn(count), torch.randn(count)

    def step() -> None:
        b.add_(a)

    return step


LAMB = 1e-6  # keeps the gradients bounded while the same ones are filtered again and again


def ema_table(sets: dict[str, Shapes]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for name, shapes in sets.items():
        count = sum(torch.Size(shape).numel() for shape in shapes)
        steps = {
            "plain": plain_ema(Bag(shapes)),
            "function": peer(Bag(shapes), peer_ema, alpha=0.98),
            "add_": limit(count),
            "kernel": ours(Bag(shapes), grokfast.EMA(lamb=LAMB)),
            "sgd": sgd_step(shapes),
            "sgd+peer": peer_step(shapes, peer_ema, alpha=0.98),
            "sgd+default": sgd_step(shapes, grokfast.EMA(lamb=LAMB)),
            "sgd+ignore": sgd_step(shapes, grokfast.EMA(lamb=LAMB), nonfinite="ignore"),
        }
        # What fits no cache needs no turns of several steps, and takes turns more often for it.
        turns = 100 if len(shapes) < 1000 else 20
        t = alternate(steps, turns, steps_per_turn=5) if count < 1e6 else alternate(steps, 25)
        t |= {kind: t[f"sgd+{kind}"] - t["sgd"] for kind in ("peer", "default", "ignore")}
        row: dict[str, object] = {"set": name, "tensors": len(shapes), "parameters": count}
        row |= {f"{key}_ms": round(value * 1e3, 4) for key, value in t.items()}
        for kind in ("kernel", "default", "ignore"):
            row[f"{kind}_over_peer"] = round(t["function" if kind == "kernel" else "peer"] / t[kind], 2)
            row[f"{kind}_of_limit"] = round(t[kind] / (t["add_"] * 16 / 12), 2)
        rows.append(row)
    return rows


def ma_table(windows: list[int], rival_window: int = 100) -> list[dict[str, object]]:
    shapes = modmul_shapes()
    rivals = {
        "plain": plain_ma(Bag(shapes), rival_window),
        "peer": peer_step(shapes, peer_ma, window_size=rival_window),
    }
    steps = {f"w={w}": ours(Bag(shapes), grokfast.MA(window_size=w, lamb=LAMB)) for w in windows}
    steps["bf16"] = ours(Bag(shapes), grokfast.MA(window_size=rival_window, lamb=LAMB, window_dtype=torch.bfloat16))
    attached = {f"attached w={w}": sgd_step(shapes, grokfast.MA(window_size=w, lamb=LAMB)) for w in windows}
    times = alternate(rivals | steps | {"sgd": sgd_step(shapes)} | attached, 20, steps_per_turn=5)
    times |= {name: times[name] - times["sgd"] for name in ("peer", *attached)}
    base = times[f"w={rival_window}"]
    rows: list[dict[str, object]] = []
    for name in (*steps, *attached):
        seconds = times[name]
        row: dict[str, object] = {"step": name, "ms": round(seconds * 1e3, 4), "of_w100": round(seconds / base, 2)}
        if name in (f"w={rival_window}", f"attached w={rival_window}", "bf16"):
            row |= {f"over_{rival}": round(times[rival] / seconds, 1) for rival in rivals}
        rows.append(row)
    rows += [{"step": f"{rival} w={rival_window}", "ms": round(times[rival] * 1e3, 3)} for rival in rivals]
    return rows


def bf16_error(window: int = 100, steps: int = 1000) -> dict[str, object]:
    """Error of a window stored in bf16, and the memory it saves."""
    torch.manual_seed(0)
    exact, half = grokfast.MA(window_size=window), grokfast.MA(window_size=window, window_dtype=torch.bfloat16)
    grad = torch.zeros(10_000)
    states = [exact.new_state(grad), half.new_state(grad)]
    worst = 0.0
    for count in range(steps):
        g = torch.randn_like(grad)
        for filter, state in zip((exact, half), states, strict=True):
            filter.update([g.clone()], [state], count)
        a, b = exact.slow(states[0], count + 1), half.slow(states[1], count + 1)
        worst = max(worst, float((a - b).norm() / a.norm()))
    size = [sum(t.nbytes for t in state.values()) for state in states]
    return {"relative_error_of_mean": worst, "bytes_fp32": size[0], "bytes_bf16": size[1]}


def growth_table() -> list[dict[str, object]]:
    """Cost of one EMA step over parameters (4 tensors) and over tensors (1M parameters)."""
    sets = {f"{n:.0e} in 4": [(int(n) // 4,)] * 4 for n in (1e4, 1e5, 1e6, 1e7, 1e8)}
    sets |= {f"1e+06 in {k}": [(1_000_000 // k,)] * k for k in (1, 10, 100, 1000)}
    rows: list[dict[str, object]] = []
    for name, shapes in sets.items():
        bag = Bag(shapes)
        t = alternate(
            {"kernel": ours(bag, grokfast.EMA(lamb=LAMB)), "peer": peer(bag, peer_ema, alpha=0.98)},
            12,
            steps_per_turn=5,
        )
        rows.append({"parameters in tensors": name, **{f"{k}_ms": round(v * 1e3, 4) for k, v in t.items()}})
    return rows


def allocations(step: Callable[[], None]) -> int:
    """Bytes that torch allocates and Python keeps over 200 steady steps."""
    with torch.profiler.profile(profile_memory=True) as profile:
        for _ in range(200):
            step()
    taken = sum(max(0, event.self_cpu_memory_usage) for event in profile.key_averages())
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(200):
        step()
    kept = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return taken + (kept if kept > 10_000 else 0)


def transpose(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    names = [str(row["set"]) for row in rows]
    return [{"": key, **{n: row[key] for n, row in zip(names, rows, strict=True)}} for key in rows[0] if key != "set"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sets only")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/filters.json"))
    args = parser.parse_args()
    torch.set_num_threads(2)
    sets = {"modmul 423k": modmul_shapes(), "300 small": [(100,)] * 300}
    if not args.quick:
        sets["3000 small"] = [(100,)] * 3000
        sets |= {"resnet50-like": resnet50_shapes(), "gpt2-124M-like": gpt2_shapes()}
    result: dict[str, list[dict[str, object]]] = {"ema": ema_table(sets)}
    show("EMA, one step", transpose(result["ema"]))
    result["ma"] = ma_table([10, 100] if args.quick else [10, 100, 1000])
    show("MA on modmul 423k, one step", result["ma"])
    result["bf16_window"] = [bf16_error()]
    show("MA window in bf16", result["bf16_window"])
    result["growth"] = [] if args.quick else growth_table()
    if result["growth"]:
        show("EMA, growth", result["growth"])
    filters = {"EMA": grokfast.EMA(lamb=LAMB), "MA": grokfast.MA(lamb=LAMB)}
    steady = {n: ours(Bag(modmul_shapes()), f) for n, f in filters.items()}
    steady |= {f"{n}, attached": sgd_step(modmul_shapes(), f) for n, f in filters.items()}
    result["allocations"] = [{"filter": n, "bytes over 200 steady steps": allocations(s)} for n, s in steady.items()]
    show("Steady state", result["allocations"])
    write(result, args.out)


if __name__ == "__main__":
    main()
