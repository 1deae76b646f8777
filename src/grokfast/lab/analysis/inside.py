"""Measure the inside of a network of modular arithmetic at each snapshot; kept as inside.json in the run."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.files import read_json, write_json
from grokfast.lab.runs.recording import load_snapshots
from grokfast.lab.settings import short_hash, task_of
from grokfast.lab.tasks.modular.circle import Circle, circle_of, effective_rank, gini, key_frequencies, plane, power
from grokfast.lab.tasks.modular.measures import matrices, view
from grokfast.lab.tasks.modular.task import ModularConfig, ModularTask

FILE = "inside.json"
MOST = 24  # snapshots that are looked at


@dataclass(frozen=True)
class Moment:
    """The inside of a network after some steps; losses are means over pairs of symbols that are on the circle."""

    step: int
    train_loss: float
    val_loss: float
    restricted_loss: float  # of all pairs, with the key frequencies alone
    excluded_loss: list[float]  # of the training pairs, without each of the key frequencies
    zero_loss: float  # the share of training pairs whose loss is 0 in single precision
    embedding: list[float]  # share of the power by frequency, from 1
    logits: list[float]
    embedding_gini: float
    logits_gini: float
    points: list[list[float]]  # the embeddings on the plane of the first key frequency
    norms: dict[str, float]  # by matrix
    ranks: dict[str, float]


@dataclass(frozen=True)
class Inside:
    """All snapshots of one run; key frequencies are the strongest of its last embedding."""

    symbols: list[int]
    key: list[int]
    moments: list[Moment]


def look_inside(run: Run) -> Inside:
    """Measure the inside of the network at each snapshot of a run.

    RunError if the run kept no snapshots, ValueError if its operation has no circle.

    Examples:
        >>> import tempfile
        >>> from grokfast import lab
        >>> sizes = {"p": 5, "width": 8, "heads": 2, "depth": 1}
        >>> found = look_inside(lab.train("modmul", tempfile.mkdtemp(), steps=4, snapshots=2, **sizes))
        >>> found.moments[-1].step, len(found.symbols)  # the numbers from 1 to 4, in the order of their logarithms
        (4, 4)
    """
    config = task_of(run.settings) if run.task == "modmul" else None
    if not isinstance(config, ModularConfig):
        raise RunError(f"grokfast inside needs a run of modmul, got one of {run.task}")
    circle = circle_of(config.operation, config.p)
    task = ModularTask(dataclasses.replace(config, compile=False), seed=run.seed)
    kept = chosen(list(load_snapshots(run)))
    for step, weights in kept:
        check_weights(run, task, step, weights)
    key = key_frequencies(power(kept[-1][1]["tokens.weight"][circle.symbols]))
    moments = [look(task, circle, key, step, weights) for step, weights in kept]
    return Inside(circle.symbols.tolist(), key, moments)


def check_weights(run: Run, task: ModularTask, step: int, weights: dict[str, Tensor]) -> None:
    """Raise RunError for weights that are not those of the run's network, or not finite."""
    expected = {name: tensor.shape for name, tensor in task.model.state_dict().items()}
    if {name: tensor.shape for name, tensor in weights.items()} != expected:
        raise RunError(f"{run.name} is damaged: its weights of step {step:,} are not those of its network")
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise RunError(f"{run.name} has no finite weights at step {step:,}")


def chosen(kept: list[tuple[int, dict[str, Tensor]]]) -> list[tuple[int, dict[str, Tensor]]]:
    """Some of many snapshots, the last always."""
    places = torch.linspace(0, len(kept) - 1, min(MOST, len(kept))).round().int().tolist()
    return [kept[place] for place in places]


def look(task: ModularTask, circle: Circle, key: list[int], step: int, weights: dict[str, Tensor]) -> Moment:
    task.model.load_state_dict(weights)
    seen = view(task, circle)
    losses, shares, answers = seen.losses, power(seen.table), seen.logit_power()
    return Moment(
        step=step,
        train_loss=float(losses[seen.train].mean()),
        val_loss=float(losses[~seen.train].mean()),
        restricted_loss=seen.restricted_loss(key),
        excluded_loss=[seen.excluded_loss(frequency) for frequency in key],
        zero_loss=seen.zero_loss,
        embedding=[round(share, 5) for share in shares.tolist()],
        logits=[round(share, 5) for share in answers.tolist()],
        embedding_gini=gini(shares),
        logits_gini=gini(answers),
        points=[[round(x, 4) for x in point] for point in plane(seen.table, key[0]).tolist()],
        norms={name: float(matrix.norm()) for name, matrix in matrices(weights)},
        ranks={name: effective_rank(matrix) for name, matrix in matrices(weights)},
    )


def save_inside(run: Run, found: Inside) -> None:
    data = dataclasses.asdict(found)
    write_json(run.path / FILE, {**data, "digest": short_hash(data)})


def read_inside(run: Run) -> Inside | None:
    """The result of `grokfast inside`; None if it was not called, or its file is damaged or was changed."""
    try:
        values: dict[str, Any] = read_json(run.path / FILE)
        if values.pop("digest") != short_hash(values):
            return None
        found = Inside(values["symbols"], values["key"], [Moment(**moment) for moment in values["moments"]])
        check_found(found)
        return found
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def check_found(found: Inside) -> None:
    """Raise ValueError or TypeError unless everything has the size and the type that pictures need."""
    if not (found.symbols and found.key and found.moments):
        raise ValueError("nothing was found")
    names = set(found.moments[-1].norms)
    for moment in found.moments:
        numbers = [moment.step, moment.train_loss, moment.val_loss, moment.restricted_loss, moment.zero_loss]
        numbers += [moment.embedding_gini, moment.logits_gini, *moment.excluded_loss, *moment.embedding, *moment.logits]
        numbers += [*found.symbols, *found.key, *moment.norms.values(), *moment.ranks.values()]
        numbers += [part for point in moment.points for part in point]
        if not all(math.isfinite(number) for number in numbers):
            raise ValueError("numbers must be finite")
        sizes = len(moment.points), {len(point) for point in moment.points}, len(moment.excluded_loss)
        if sizes != (len(found.symbols), {2}, len(found.key)) or not (moment.embedding and moment.logits):
            raise ValueError("a list has another length than it should")
        if set(moment.norms) != names or set(moment.ranks) != names:
            raise ValueError("each moment must have the same matrices")
