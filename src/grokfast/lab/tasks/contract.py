"""Does a task of a user's own keep the contract of `base.Task`? Each promise is tried once, before there is a run."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from grokfast.lab.tasks.base import Evaluation

MEMBERS = ("model", "data", "epoch_steps", "next_batch", "loss", "evaluate", "state_dict", "load_state_dict")


def check_contract(task: Any) -> None:
    """Raise ValueError with the first promise that a task breaks. The task is used up: its random stream has moved."""
    name = type(task).__name__

    def demand(kept: bool, promise: str, got: Any) -> None:
        if not kept:
            raise ValueError(f"the task {name} must have {promise}, got {got!r:.80} (see grokfast.lab.tasks.base.Task)")

    missing = [member for member in MEMBERS if not hasattr(task, member)]
    demand(not missing, ", ".join(MEMBERS), f"none called {', '.join(missing)}")
    demand(isinstance(task.model, nn.Module), "a torch module as its model", task.model)
    demand(isinstance(task.epoch_steps, int) and task.epoch_steps >= 1, "epoch_steps >= 1", task.epoch_steps)
    batch = task.next_batch()
    demand(hasattr(batch, "__len__") and len(batch) > 0, "batches with a length", batch)
    found = task.loss(batch)
    demand(isinstance(found, tuple) and len(found) == 2, "a loss that gives (loss, number of correct answers)", found)
    loss, correct = found
    demand(isinstance(loss, Tensor) and loss.ndim == 0 and loss.requires_grad, "a loss with a gradient", loss)
    measured = task.evaluate("val")
    demand(isinstance(measured, Evaluation), "an evaluate that gives an Evaluation", measured)
    alike = (correct is None) == (measured.accuracy is None)
    demand(alike, "correct answers where it has an accuracy, and only there", (correct, measured.accuracy))
    state = task.state_dict()
    demand(isinstance(state, dict), "a state_dict that gives a dict", state)
    task.load_state_dict(state)
