"""Numbers about the inside of a network: for `grokfast inside`, and recorded at each evaluation with `--measures`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from grokfast.lab.tasks.modular.circle import (
    Circle,
    effective_rank,
    excluded,
    gini,
    key_frequencies,
    logit_power,
    power,
    restricted,
)
from grokfast.lab.tasks.modular.fast import last_logits

if TYPE_CHECKING:
    from grokfast.lab.tasks.modular.task import ModularTask

RECORDED = {  # whether a network that generalises has more of it
    "embedding_gini": True,
    "logits_gini": True,
    "restricted_loss": False,
    "excluded_loss": True,
    "zero_loss": True,
    "effective_rank": False,
}


class _View(NamedTuple):
    """A network looked at over all pairs of symbols that have a place on the circle."""

    circle: Circle
    table: Tensor  # (places, width): the embedding
    logits: Tensor  # (pairs, vocabulary)
    target: Tensor  # (pairs,)
    train: Tensor  # (pairs,): which of them are trained on

    @property
    def losses(self) -> Tensor:
        return cross_entropy(self.logits, self.target, reduction="none")

    @property
    def zero_loss(self) -> float:
        """The share of training pairs whose loss is 0 in single precision."""
        return float((self.losses[self.train] == 0).float().mean())

    def restricted_loss(self, key: Sequence[int]) -> float:
        """The loss over all pairs, with these frequencies alone."""
        return float(cross_entropy(restricted(self.logits, self.circle, key), self.target))

    def excluded_loss(self, frequency: int) -> float:
        """The loss over the training pairs, without this frequency."""
        part = excluded(self.logits, self.circle, frequency)
        return float(cross_entropy(part[self.train], self.target[self.train]))

    def logit_power(self) -> Tensor:
        return logit_power(self.logits[:, self.circle.symbols], self.circle)


@torch.no_grad()
def view(task: ModularTask, circle: Circle) -> _View:
    """The network of a task as it is now."""
    left, right = (circle.symbols[places].to(task.device) for places in circle.pairs())
    table = task.model.state_dict()["tokens.weight"].cpu()[circle.symbols]
    logits = last_logits(task.model, left, right).cpu()
    return _View(circle, table, logits, circle.symbols[circle.answers()], training_pairs(task, circle))


def measure(task: ModularTask, circle: Circle) -> dict[str, float]:
    """The numbers that are recorded; means over the key frequencies, and over the matrices."""
    seen, ranks = view(task, circle), [effective_rank(matrix) for _, matrix in matrices(task.model.state_dict())]
    shares = power(seen.table)
    key = key_frequencies(shares)
    values = {
        "embedding_gini": gini(shares),
        "logits_gini": gini(seen.logit_power()),
        "restricted_loss": seen.restricted_loss(key),
        "excluded_loss": sum(map(seen.excluded_loss, key)) / len(key),
        "zero_loss": seen.zero_loss,
        "effective_rank": sum(ranks) / len(ranks),
    }
    assert values.keys() == RECORDED.keys()
    return values


def training_pairs(task: ModularTask, circle: Circle) -> Tensor:
    """Which of all pairs of places are trained on."""
    place = torch.full((task.symbols,), -1)
    place[circle.symbols] = torch.arange(circle.size)
    left, right = (place[part.cpu()] for part in task.splits["train"][:2])
    known = (left >= 0) & (right >= 0)
    found = torch.zeros(circle.size**2, dtype=torch.bool)
    found[(left * circle.size + right)[known]] = True
    return found


def matrices(weights: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    return ((name, tensor.cpu()) for name, tensor in weights.items() if tensor.dim() == 2)
