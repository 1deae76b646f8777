"""Try the filter on every optimizer of other packages; writes docs/optimizers.md.

    python benchmarks/optimizers.py [PACKAGE...]

"works" means: training with the filter attached gives the parameters that `gradfilter_ema` gives when it is called by
hand before each step, and these differ from training without a filter; the filter has seen every step; its state is in
`state_dict()` and comes back by `load_state_dict`. With names of packages the page is printed, not written.
"""

from __future__ import annotations

import importlib.metadata
import io
import signal
import sys
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from candidates import PACKAGES, Candidate, candidates_in, make_model

import grokfast

PAGE = Path("docs/optimizers.md")
STEPS = 24  # some begin like SGD and change later
SECONDS = 60  # per optimizer
FILTER = grokfast.EMA(alpha=0.9, lamb=2.0)
INTRO = """# Optimizers

The tests cover every first-order optimizer of `torch.optim`. `python benchmarks/optimizers.py` tries the optimizers of
other packages on a small model on a CPU, and writes this page.

- **Works**: training with the filter attached gives the same parameters as `gradfilter_ema` called before each step,
  and the filter's state survives saving and loading.
- **Refused**: `attach` or the first step raises an error.
- **Not tried**: the script could not create the optimizer or train with it, even without the filter.
"""


# How optimizers are driven ------------------------------------------------------------------------------------------


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
    """How this optimizer takes a step: after the backward pass, or with a closure if it needs one."""
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
        return f"not tried: it cannot be created here ({brief(error)})"
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
        package = PACKAGES[name]
        rows.append(f"| {package} | {version_of(package)} | {len(verdicts)} | {' | '.join(map(str, counts))} |")
    return rows


def exceptions(found: dict[str, dict[str, str]]) -> list[str]:
    """A table of the optimizers that do not work, grouped by package and reason."""
    rows = ["| package | optimizers | why not |", "|---|---|---|"]
    for name, verdicts in found.items():
        kinds_by_reason = dict[str, list[str]]()
        for kind, verdict in verdicts.items():
            if verdict != "works":
                kinds_by_reason.setdefault(reason(verdict), []).append(kind)
        rows += [f"| {PACKAGES[name]} | {', '.join(kinds)} | {why} |" for why, kinds in sorted(kinds_by_reason.items())]
    return rows


def reason(verdict: str) -> str:
    """A verdict without the names of a refused optimizer and of the one inside it."""
    kind, _, rest = verdict.partition(": ")
    return f"{kind}: {rest.partition(':')[0]}" if kind == "refused" else verdict


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
    wrong = [f"{name}.{kind}" for name in found for kind, verdict in found[name].items() if verdict.startswith("WRONG")]
    lines += ["", f"Attached with wrong results: {', '.join(wrong) or 'none'}. All others than these work:", ""]
    lines += exceptions(found)
    page = "\n".join(lines) + "\n"
    if sys.argv[1:]:
        print(page)
    else:
        PAGE.write_text(page)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
