"""Try the filter on every optimizer of other packages; writes docs/optimizers.md.

    python benchmarks/optimizers.py [PACKAGE...]

"works" means: training with the filter attached gives the parameters that `gradfilter_ema` gives when it is called by
hand before each step, and these differ from training without a filter; the filter has seen every step; its state is in
`state_dict()` and comes back by `load_state_dict`. With names of packages the page is printed, not written.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import inspect
import io
import signal
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import grokfast

PAGE = Path("docs/optimizers.md")
STEPS = 24  # some begin like SGD and change later
SECONDS = 60  # per optimizer
FILTER = grokfast.EMA(alpha=0.9, lamb=2.0)
PACKAGES = {  # what to import: what to install
    "pytorch_optimizer": "pytorch-optimizer",
    "timm.optim": "timm",
    "bitsandbytes.optim": "bitsandbytes",
    "torchao.optim": "torchao",
    "heavyball": "heavyball",
    "schedulefree": "schedulefree",
    "lion_pytorch": "lion-pytorch",
    "came_pytorch": "came-pytorch",
    "prodigyopt": "prodigyopt",
}
INTRO = """# Optimizers

Written by `python benchmarks/optimizers.py`. It trains a small model on a CPU with each optimizer of other packages.

- **Works**: with the filter attached, the parameters are those of `gradfilter_ema` called by hand before each step, and
  differ from training without a filter. The filter sees every step, and its state survives saving and loading.
- **Refused**: `attach` raises an error, or the first step does.
- **Not tried**: the optimizer itself does not train here.

None does silently nothing. Every first-order optimizer of `torch.optim` is in the test suite.
"""


# How optimizers are made and driven ---------------------------------------------------------------------------------


class Candidate(NamedTuple):
    name: str
    make: Callable[[nn.Module], Any]


def make_model() -> nn.Module:
    torch.manual_seed(0)
    # A matrix of 4096 elements: 8-bit optimizers keep smaller ones in 32 bits.
    return nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 4))


def make(kind: Any, model: nn.Module) -> torch.optim.Optimizer:
    """An optimizer with the fewest arguments that it accepts."""
    params = list(model.parameters())
    matrices, rest = [p for p in params if p.dim() == 2], [p for p in params if p.dim() != 2]
    muon = [{"params": matrices, "use_muon": True}, {"params": rest, "use_muon": False}]
    split = [
        {"params": part, "optimizer": getattr(sys.modules.get("heavyball"), "SGD", None)} for part in (matrices, rest)
    ]
    attempts = [
        lambda: kind(params, lr=1e-2),
        lambda: kind(params),
        lambda: kind(model, lr=1e-2),
        lambda: kind(model),
        lambda: kind(params, lr=1e-2, num_iterations=10),
        lambda: kind(params, base_optimizer=torch.optim.SGD, lr=1e-2),
        lambda: kind(params, torch.optim.SGD, lr=1e-2),
        lambda: kind(torch.optim.SGD(params, lr=1e-2)),
        lambda: kind(muon, lr=1e-2),
        lambda: kind(muon),
        lambda: kind(split),
        lambda: kind(params, num_data=32),
        lambda: kind(params, lr=1e-2, momentum=0.9),
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


Drive = Callable[[Any, Callable[[], torch.Tensor]], Any]  # takes one step, given what makes loss and gradients


def plainly(optimizer: Any, closure: Callable[[], torch.Tensor]) -> None:
    closure()
    optimizer.step()


def with_closure(optimizer: Any, closure: Callable[[], torch.Tensor]) -> None:
    optimizer.step(closure)


def with_loss(optimizer: Any, closure: Callable[[], torch.Tensor]) -> None:
    loss = closure()
    optimizer.step(lambda: loss.detach())


def find_drive(candidate: Candidate) -> Drive:
    """How this optimizer takes a step: after the backward pass, or with a closure where it asks for one."""
    try:
        train(candidate, plainly, steps=1)
    except NotImplementedError:
        raise
    except Exception as error:
        said = str(error).lower()
        if "closure" not in said:
            raise
        return with_loss if "loss" in said else with_closure
    return plainly


class Trained(NamedTuple):
    params: list[torch.Tensor]
    handle: grokfast.Attachment | None
    optimizer: Any


def train(
    candidate: Candidate, drive: Drive, *, attached: bool = False, by_hand: bool = False, steps: int = STEPS
) -> Trained:
    model = make_model()
    optimizer = candidate.make(model)
    handle = grokfast.attach(optimizer, FILTER) if attached else None
    if callable(getattr(optimizer, "train", None)):
        optimizer.train()
    second_order = "sophiah" in candidate.name.lower() or "adahessian" in candidate.name.lower()
    averages: Any = None

    def closure(batch: torch.Tensor) -> torch.Tensor:
        nonlocal averages
        with torch.enable_grad():
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward(create_graph=second_order)
        if by_hand:
            averages = grokfast.gradfilter_ema(model, averages, alpha=FILTER.alpha, lamb=FILTER.lamb)
        return loss

    for step in range(steps):
        batch = torch.randn(32, 64, generator=torch.Generator().manual_seed(step))
        drive(optimizer, partial(closure, batch))
    return Trained([p.detach().clone() for p in model.parameters()], handle, optimizer)


# The verdict --------------------------------------------------------------------------------------------------------


def judge(candidate: Candidate) -> str:
    """`works`, or why not."""
    try:
        optimizer = candidate.make(make_model())
    except Exception as error:
        return f"not tried: it cannot be made here ({brief(error)})"
    try:
        grokfast.attach(optimizer, FILTER)
    except Exception as error:
        return f"refused: {brief(error)}"
    try:
        drive = find_drive(candidate)
        plain = train(candidate, drive)
    except Exception as error:
        return f"not tried: it does not train by backward() and step() with default arguments ({brief(error)})"
    if same(plain.params, list(make_model().parameters())):
        return "not tried: with default arguments it does not train this model"
    try:
        return judge_training(candidate, drive, plain)
    except (TypeError, ValueError, RuntimeError) as error:
        ours = "grokfast" in str(error) or isinstance(error, (TypeError, ValueError))
        return f"refused: {brief(error)}" if ours else f"WRONG: {brief(error)}"


def judge_training(candidate: Candidate, drive: Drive, plain: Trained) -> str:
    filtered, by_hand = train(candidate, drive, attached=True), train(candidate, drive, by_hand=True)
    handle = filtered.handle
    assert handle is not None
    if handle.step != STEPS:
        return f"WRONG: the filter saw {handle.step} of {STEPS} steps"
    if same(plain.params, filtered.params):
        return "WRONG: the filter changes nothing"
    if not same(by_hand.params, filtered.params, rtol=1e-3, atol=1e-4):
        repeated = same(plain.params, train(candidate, drive).params)
        return "WRONG: not what the function gives" if repeated else "works, as far as one can see: it draws at random"
    return judge_saving(candidate, filtered, handle)


def judge_saving(candidate: Candidate, filtered: Trained, handle: grokfast.Attachment) -> str:
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.save(filtered.optimizer.state_dict(), file := io.BytesIO())
    if any("filter" in str(warning.message) for warning in said):
        return "works, but state_dict() leaves out the filter's state, with a warning"
    model = make_model()
    optimizer = candidate.make(model)
    restored = grokfast.attach(optimizer, FILTER)
    try:
        file.seek(0)
        optimizer.load_state_dict(torch.load(file, weights_only=False))
    except Exception as error:
        return f"works, but its own load_state_dict fails ({brief(error)})"
    if restored.step != STEPS:
        return f"WRONG: after load_state_dict the filter counts {restored.step} of {STEPS} steps"
    before, after = ([state["slow"] for state in h.state.values()] for h in (handle, restored))
    return "works" if same(before, after) else "WRONG: load_state_dict changes the filter's state"


def same(some: list[torch.Tensor], others: list[torch.Tensor], *, rtol: float = 0.0, atol: float = 0.0) -> bool:
    pairs = zip(some, others, strict=True)
    return all(torch.allclose(p.detach(), q.detach(), rtol=rtol, atol=atol, equal_nan=True) for p, q in pairs)


def brief(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()] or [type(error).__name__]
    return lines[0][:140].replace("|", "/")


# The packages -------------------------------------------------------------------------------------------------------


def load(name: str) -> Any:
    """Import a package; timm's optimizers need no torchvision, which the rest of timm imports."""
    if name == "timm.optim" and importlib.util.find_spec("torchvision") is None:
        spec = importlib.util.find_spec("timm")
        if spec is not None:
            root, models = types.ModuleType("timm"), types.ModuleType("timm.models")
            root.__path__ = list(spec.submodule_search_locations or [])
            models.group_parameters = None  # type: ignore[attr-defined]
            sys.modules.update({"timm": root, "timm.models": models})
    return importlib.import_module(name)


def candidates_in(name: str) -> Iterator[Candidate]:
    module = load(name)
    if name == "timm.optim":
        for kind in module.list_optimizers():
            yield Candidate(kind, partial(module.create_optimizer_v2, opt=kind, lr=1e-2))
        return
    for value in sorted({v for v in vars(module).values() if inspect.isclass(v)}, key=lambda v: v.__name__):
        ours = value.__module__.split(".")[0] == name.split(".")[0]
        if ours and hasattr(value, "step") and hasattr(value, "zero_grad"):
            yield Candidate(value.__name__, partial(make, value))


def try_all(name: str) -> dict[str, str]:
    """The verdict on each optimizer of a package."""
    found = {}
    for candidate in candidates_in(name):
        signal.alarm(SECONDS)
        try:
            found[candidate.name] = judge(candidate)
        except TimeoutError as error:
            found[candidate.name] = f"not tried: {error}"
        except Exception as error:
            found[candidate.name] = f"WRONG: {type(error).__name__}: {brief(error)}"
        finally:
            signal.alarm(0)
        if found[candidate.name] != "works":
            print("   ", candidate.name, found[candidate.name], flush=True)
    return found


# The page -----------------------------------------------------------------------------------------------------------


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def summary(found: dict[str, dict[str, str]]) -> list[str]:
    rows = ["| package | version | optimizers | work | refused | not tried |", "|---|---|---|---|---|---|"]
    for name, verdicts in found.items():
        counts = [sum(v.startswith(kind) for v in verdicts.values()) for kind in ("works", "refused", "not tried")]
        link = name.split(".")[0]
        package = PACKAGES[name]
        rows.append(
            f"| [{package}](#{link}) | {version_of(package)} | {len(verdicts)} | " + " | ".join(map(str, counts)) + " |"
        )
    return rows


def section(name: str, verdicts: dict[str, str]) -> list[str]:
    works = [kind for kind, verdict in verdicts.items() if verdict == "works"]
    rest = {kind: verdict for kind, verdict in verdicts.items() if verdict != "works"}
    lines = ["", f"## {name.split('.')[0]}", "", f"{len(works)} of {len(verdicts)} work: {', '.join(works)}."]
    if rest:
        lines += ["", "| optimizer | the others |", "|---|---|", *(f"| {kind} | {rest[kind]} |" for kind in rest)]
    return lines


def main() -> None:
    torch.set_num_threads(1)
    torch.compiler.set_stance("force_eager")  # some compile their steps, which takes minutes each
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError(f"takes more than {SECONDS} seconds")))
    found, missing = dict[str, dict[str, str]](), list[str]()
    for name in sys.argv[1:] or PACKAGES:
        try:
            found[name] = try_all(name)
        except ImportError as error:
            missing.append(f"{PACKAGES[name]} ({brief(error)})")
            continue
        print(name, sum(v == "works" for v in found[name].values()), "of", len(found[name]), "work", flush=True)
    lines = [INTRO, *summary(found)]
    if missing:
        lines += ["", f"Not tried because they could not be imported: {', '.join(missing)}."]
    for name, verdicts in found.items():
        lines += section(name, verdicts)
    page = "\n".join(lines) + "\n"
    PAGE.write_text(page) if not sys.argv[1:] else print(page)


if __name__ == "__main__":
    main()
