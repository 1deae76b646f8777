"""Try the filter on every optimizer of other packages; writes docs/optimizers.md.

    python benchmarks/optimizers.py

"works" means: with a filter attached, training differs from training without, the filter has seen every step, and its
state is in `state_dict()`.
"""

from __future__ import annotations

import importlib
import inspect
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

import grokfast

PAGE = Path("docs/optimizers.md")
STEPS = 24  # some begin like SGD and change later


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def make(kind: Any, model: nn.Module) -> torch.optim.Optimizer:
    """An optimizer with the fewest arguments that it accepts."""
    params = list(model.parameters())
    matrices, rest = [p for p in params if p.dim() == 2], [p for p in params if p.dim() != 2]
    muon = [{"params": matrices, "use_muon": True}, {"params": rest, "use_muon": False}]
    attempts = [
        lambda: kind(params, lr=1e-2),
        lambda: kind(params),
        lambda: kind(model, lr=1e-2),
        lambda: kind(model),
        lambda: kind(params, lr=1e-2, num_iterations=10),
        lambda: kind(params, base_optimizer=torch.optim.SGD, lr=1e-2),
        lambda: kind(torch.optim.SGD(params, lr=1e-2)),
        lambda: kind(muon, lr=1e-2),
        lambda: kind(muon),
        lambda: kind(params, num_data=32),
        lambda: kind(matrices, lr=1e-2),
        lambda: kind(model, params, torch.optim.SGD, lr=1e-2),
    ]
    error: Exception = ValueError("no arguments")
    for attempt in attempts:
        try:
            return attempt()
        except Exception as raised:
            error = error if isinstance(error, (TypeError, AssertionError)) else raised
    raise error


def train(kind: Any, filter: grokfast.Filter | None) -> tuple[list[torch.Tensor], grokfast.Attachment | None, Any]:
    model = make_model()
    optimizer = make(kind, model)
    handle = None if filter is None else grokfast.attach(optimizer, filter)
    for method in (getattr(optimizer, "train", None),):
        if callable(method):
            method()
    for step in range(STEPS):
        batch = torch.randn(32, 8, generator=torch.Generator().manual_seed(step))
        step_with(optimizer, model, batch, kind.__name__ == "SophiaH")
    return [p.detach().clone() for p in model.parameters()], handle, optimizer


def step_with(optimizer: Any, model: nn.Module, batch: torch.Tensor, second_order: bool) -> None:
    """backward() and step(), or step() with a closure where an optimizer asks for one."""

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward(create_graph=second_order)
        return loss

    loss = closure()
    try:
        optimizer.step()
    except NotImplementedError:
        raise
    except Exception as error:
        if "closure" not in str(error).lower():
            raise
        wants_loss = "loss" in str(error).lower()
        optimizer.step(lambda: loss.detach() if wants_loss else closure())


def judge(kind: Any) -> str:
    """`works`, or why not."""
    try:
        grokfast.attach(make(kind, make_model()), grokfast.EMA())
    except TypeError as error:
        if str(error).startswith("optimizer must"):
            return f"refused: {brief(error)}"
    except Exception:
        pass
    try:
        plain, _, _ = train(kind, None)
    except Exception as error:
        return f"not tried: it does not train by backward() and step() with default arguments ({brief(error)})"
    if all(torch.equal(p, q) for p, q in zip(plain, make_model().parameters(), strict=True)):
        return "not tried: with default arguments it does not train this model"
    try:
        filtered, handle, optimizer = train(kind, grokfast.EMA(alpha=0.9, lamb=2.0))
    except (TypeError, ValueError) as error:
        return f"refused: {brief(error)}"
    except Exception as error:
        return f"fails: {brief(error)}"
    if handle is None or handle.step != STEPS:
        return f"WRONG: the filter saw {handle.step if handle else 0} of {STEPS} steps"
    if all(torch.equal(p, q) for p, q in zip(plain, filtered, strict=True)):
        return "WRONG: the filter changes nothing"
    saved = optimizer.state_dict().get("state", {})
    if not any(isinstance(entry, dict) and "grokfast_count" in entry for entry in saved.values()):
        return "works, but state_dict() leaves out the filter's state (there is a warning)"
    return "works"


def brief(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:140].replace("|", "/")


def kinds_in(name: str) -> Iterator[Any]:
    try:
        module = importlib.import_module(name)
    except Exception:
        return
    for value in sorted({v for v in vars(module).values() if inspect.isclass(v)}, key=lambda v: v.__name__):
        if issubclass(value, torch.optim.Optimizer) and value.__module__.split(".")[0] == name.split(".")[0]:
            yield value


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("takes more than 20 seconds")))
    lines = [
        "# Optimizers",
        "",
        "Written by `python benchmarks/optimizers.py`: a small model, some steps, with and without ",
    ]
    lines[-1] += "the filter. Every first-order\noptimizer of `torch.optim` is in the test suite."
    for package in ("pytorch_optimizer", "timm.optim", "schedulefree", "lion_pytorch", "prodigyopt", "came_pytorch"):
        found = {}
        for kind in kinds_in(package):
            signal.alarm(20)
            found[kind.__name__] = judge(kind)
            signal.alarm(0)
        if not found:
            continue
        works = [name for name, verdict in found.items() if verdict == "works"]
        lines += ["", f"## {package}", "", f"{len(works)} of {len(found)} work: {', '.join(works)}."]
        rest = {name: verdict for name, verdict in found.items() if verdict != "works"}
        if rest:
            lines += [
                "",
                "| optimizer | |",
                "|---|---|",
                *(f"| {name} | {verdict} |" for name, verdict in rest.items()),
            ]
        print(package, len(works), "of", len(found), "work")
        for name, verdict in rest.items():
            print("   ", name, verdict)
    PAGE.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
