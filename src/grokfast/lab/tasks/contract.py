"""Test a task of the user's own against the contract of `base.Task`, before a run is made."""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from grokfast.lab.tasks.base import Evaluation
from grokfast.lab.tasks.data import DataError, digest

MEMBERS = ("model", "data", "epoch_steps", "next_batch", "loss", "evaluate", "state_dict", "load_state_dict")


def probe(task: Any) -> dict[str, Any]:
    """What a new task begins with: its first batch, the loss of it, and the first evaluation. The task is used up."""
    batch = task.next_batch()
    measured = task.evaluate("val")
    return {
        "batch": digest(*tensor_bytes(batch)),
        "first_loss": batch_loss(task, batch),
        "first_val_loss": float(measured.loss),
        "first_val_accuracy": measured.accuracy,
    }


def tensor_bytes(batch: Any) -> Iterator[bytes]:
    """The content of all tensors in a batch: itself, or its parts, fields or attributes."""
    if isinstance(batch, Tensor):
        yield batch.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    elif isinstance(batch, Mapping):
        yield from tensor_bytes(list(batch.values()))  # type: ignore[reportUnknown]
    elif isinstance(batch, tuple | list):
        for part in batch:  # type: ignore[reportUnknown]
            yield from tensor_bytes(part)
    elif hasattr(batch, "__dict__"):
        yield from tensor_bytes(list(vars(batch).values()))


def check_same_probe(task: Any, first: dict[str, Any], again: dict[str, Any], promise: str = "") -> None:
    """Raise DataError unless two new tasks of the same settings begin alike, up to rounding."""
    for name, value in first.items():
        other: Any = again.get(name)
        numbers = isinstance(value, float | int) and isinstance(other, float | int)
        if value != other and not (numbers and (math.isclose(value, other, rel_tol=1e-3) or math.isnan(value))):
            what = f"must have {promise}" if promise else "has other data than when this run was begun"
            raise DataError(f"the task {type(task).__name__} {what}: {name} is {value}, then {other}")


def check_contract(task: Any) -> None:
    """Raise ValueError with the first promise that a task breaks. The task is used up: its random stream has moved."""
    check_members(task)
    state = task.state_dict()
    demand(isinstance(state, dict), task, "a state_dict that gives a dict", state)
    demand(can_be_kept(state), task, "a state_dict of tensors and numbers, which a checkpoint can hold", state)
    state = copy.deepcopy(state)
    correct = check_loss(task)
    before = check_continues(task, state)
    check_evaluate(task, correct)
    after = next_loss(task, state)
    promise = "a loss that does not change by an evaluation, for example by model.eval()"
    demand(math.isclose(before, after, rel_tol=1e-4), task, promise, f"a loss of {before:g}, then of {after:g}")


def demand(kept: bool, task: Any, promise: str, got: Any) -> None:
    if not kept:
        name, shown = type(task).__name__, " ".join(repr(got).split())
        raise ValueError(f"the task {name} must have {promise}, got {shown:.80} (see grokfast.lab.tasks.base.Task)")


def check_members(task: Any) -> None:
    missing = [member for member in MEMBERS if not hasattr(task, member)]
    demand(not missing, task, ", ".join(MEMBERS), f"none called {', '.join(missing)}")
    demand(isinstance(task.model, nn.Module), task, "a torch module as its model", task.model)
    known = task.data is None or isinstance(task.data, str)
    demand(known, task, "a checksum as its data, or None if it is made from the seed", task.data)
    demand(isinstance(task.epoch_steps, int) and task.epoch_steps >= 1, task, "epoch_steps >= 1", task.epoch_steps)


def check_loss(task: Any) -> Any:
    """Loss and number of correct answers of a batch; gives the latter."""
    batch = task.next_batch()
    demand(hasattr(batch, "__len__") and len(batch) > 0, task, "batches with a length", batch)
    found = task.loss(batch)
    pair = isinstance(found, tuple) and len(found) == 2
    demand(pair, task, "a loss that gives (loss, number of correct answers)", found)
    loss, correct = found
    demand(isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad, task, "a loss with a gradient", loss)
    demand(bool(loss.isfinite()), task, "a finite loss of its first batch", loss)
    trained = [p for p in task.model.parameters() if p.requires_grad]
    grads: Any = torch.autograd.grad(loss, trained, allow_unused=True) if trained else ()
    demand(any(grad is not None for grad in grads), task, "a loss with a gradient for the weights of its model", loss)
    demand(is_count(correct, len(batch)), task, f"a whole number of correct answers in [0, {len(batch)}]", correct)
    return correct


def check_evaluate(task: Any, correct: Any) -> None:
    """An evaluation measures, and changes nothing."""
    weights, state = (copy.deepcopy(each.state_dict()) for each in (task.model, task))
    measured = task.evaluate("val")
    check_evaluation(task, measured)
    alike = (correct is None) == (measured.accuracy is None)
    demand(alike, task, "correct answers where it has an accuracy, and only there", (correct, measured.accuracy))
    finite = math.isfinite(measured.loss) and math.isfinite(measured.accuracy or 0.0)
    demand(finite, task, "a finite loss and accuracy in its first evaluation", measured)
    kept = is_same(weights, task.model.state_dict())
    demand(kept, task, "an evaluate that leaves the weights and buffers as they are", "other values")
    demand(is_same(state, task.state_dict()), task, "an evaluate that leaves state_dict as it is", "other values")


def check_evaluation(task: Any, measured: Any) -> None:
    """Raise ValueError unless this is what an evaluation of a task may give."""
    demand(isinstance(measured, Evaluation), task, "an evaluate that gives an Evaluation", measured)
    loss, accuracy, more = measured.loss, measured.accuracy, measured.more
    demand(is_number(loss), task, "a plain number as the loss of an evaluation", loss)
    share = accuracy is None or (is_number(accuracy) and not (accuracy < 0 or accuracy > 1))
    demand(share, task, "a plain number in [0, 1] as the accuracy of an evaluation", accuracy)
    plain = more is None or (isinstance(more, Mapping) and all(map(is_number, more.values())))  # type: ignore[reportUnknown]
    demand(plain, task, "a dict of plain numbers as the more of an evaluation", more)


def is_number(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool)


def is_same(one: Any, other: Any) -> bool:
    """Whether two states hold the same."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and torch.equal(one, other)
    if isinstance(one, Mapping):
        return isinstance(other, Mapping) and is_same([*one.items()], [*other.items()])  # type: ignore[reportUnknown]
    if isinstance(one, tuple | list):
        alike = isinstance(other, tuple | list) and len(one) == len(other)  # type: ignore[reportUnknown]
        return alike and all(is_same(a, b) for a, b in zip(one, other, strict=True))  # type: ignore[reportUnknown]
    return repr(one) == repr(other)


def can_be_kept(state: dict[str, Any]) -> bool:
    """Whether a checkpoint can hold a state, and a resume read it without running code."""
    kept = io.BytesIO()
    try:
        torch.save(state, kept)
        kept.seek(0)
        return is_same(state, torch.load(kept, weights_only=True))
    except Exception:  # pickle has many
        return False


def is_count(correct: Any, most: int) -> bool:
    """Whether this is the number of correct answers in a batch; None if the task has no accuracy."""
    if correct is None:
        return True
    whole = isinstance(correct, float | int | Tensor) and getattr(correct, "ndim", 0) == 0
    return whole and 0 <= float(correct) <= most and float(correct).is_integer()


def check_continues(task: Any, state: dict[str, Any]) -> float:
    """Whether a state decides which batch is next, as a run that was killed must have the same; gives its loss."""
    first, again = (next_loss(task, state) for _ in range(2))
    same = math.isclose(first, again, rel_tol=1e-4)
    demand(same, task, "the same next batch after load_state_dict", f"a loss of {first:g}, then of {again:g}")
    return first


def next_loss(task: Any, state: dict[str, Any]) -> float:
    """The loss of the batch after a state."""
    task.load_state_dict(state)
    return batch_loss(task, task.next_batch())


def batch_loss(task: Any, batch: Any) -> float:
    """The loss of a batch. What a model draws from the global stream, for dropout say, is the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return float(task.loss(batch)[0].detach())
