"""Test a task of the user's own against the contract of `base.Task`, before a run is made."""

from __future__ import annotations

import copy
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
    state = copy.deepcopy(state)
    check_loss(task)
    check_continues(task, state)


def demand(kept: bool, task: Any, promise: str, got: Any) -> None:
    if not kept:
        name = type(task).__name__
        raise ValueError(f"the task {name} must have {promise}, got {got!r:.80} (see grokfast.lab.tasks.base.Task)")


def check_members(task: Any) -> None:
    missing = [member for member in MEMBERS if not hasattr(task, member)]
    demand(not missing, task, ", ".join(MEMBERS), f"none called {', '.join(missing)}")
    demand(isinstance(task.model, nn.Module), task, "a torch module as its model", task.model)
    demand(isinstance(task.epoch_steps, int) and task.epoch_steps >= 1, task, "epoch_steps >= 1", task.epoch_steps)


def check_loss(task: Any) -> None:
    """Loss and number of correct answers of a batch, and the same as shares of a split."""
    batch = task.next_batch()
    demand(hasattr(batch, "__len__") and len(batch) > 0, task, "batches with a length", batch)
    found = task.loss(batch)
    pair = isinstance(found, tuple) and len(found) == 2
    demand(pair, task, "a loss that gives (loss, number of correct answers)", found)
    loss, correct = found
    demand(isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad, task, "a loss with a gradient", loss)
    demand(is_count(correct, len(batch)), task, f"a whole number of correct answers in [0, {len(batch)}]", correct)
    before = [p.detach().clone() for p in task.model.parameters()]
    measured = task.evaluate("val")
    same = all(map(torch.equal, before, task.model.parameters()))
    demand(same, task, "an evaluate that leaves the weights as they are", "other weights")
    demand(isinstance(measured, Evaluation), task, "an evaluate that gives an Evaluation", measured)
    demand(isinstance(measured.loss, float | int), task, "a plain number as the loss of an evaluation", measured.loss)
    share = measured.accuracy is None or (isinstance(measured.accuracy, float | int) and 0 <= measured.accuracy <= 1)
    demand(share, task, "a plain number in [0, 1] as the accuracy of an evaluation", measured.accuracy)
    alike = (correct is None) == (measured.accuracy is None)
    demand(alike, task, "correct answers where it has an accuracy, and only there", (correct, measured.accuracy))


def is_count(correct: Any, most: int) -> bool:
    """Whether this is the number of correct answers in a batch; None if the task has no accuracy."""
    if correct is None:
        return True
    return getattr(correct, "ndim", 0) == 0 and 0 <= float(correct) <= most and float(correct).is_integer()


def check_continues(task: Any, state: dict[str, Any]) -> None:
    """Whether a state decides which batch is next: a run that was killed has those that it would have had."""
    first, again = (next_loss(task, state) for _ in range(2))
    same = math.isclose(first, again, rel_tol=1e-4) or math.isnan(first)
    demand(same, task, "the same next batch after load_state_dict", f"a loss of {first:g}, then of {again:g}")


def next_loss(task: Any, state: dict[str, Any]) -> float:
    """The loss of the batch after a state."""
    task.load_state_dict(state)
    return batch_loss(task, task.next_batch())


def batch_loss(task: Any, batch: Any) -> float:
    """The loss of a batch. What a model draws from the global stream, for dropout say, is the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return float(task.loss(batch)[0].detach())
