"""Weights as points: G = X X^T, where a row of X is w(t) - w(0), holds all distances and principal axes.

G is small, (snapshots, snapshots), but X may be hundreds of Transformers: it is put into a temporary file, and the sums
over parameters are taken over some columns at a time.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.metrics import shorten
from grokfast.lab.runs.recording import load_snapshots

MEMORY = 512 << 20  # bytes to hold at once


class Products(NamedTuple):
    """Displacements of several runs, as the products of all pairs. Rows are in the order of the runs."""

    runs: list[Run]
    steps: list[NDArray[np.int64]]  # of the snapshots of each run; the first are the initial weights
    inner: NDArray[np.float64]  # (snapshots, snapshots)
    parameters: int

    def of(self, *runs: Run) -> Products:
        """The part of some runs."""
        places = [[known.path for known in self.runs].index(run.path) for run in runs]
        rows = np.concatenate([np.r_[spans(self.steps)[i]] for i in places])
        return Products(list(runs), [self.steps[i] for i in places], self.inner[np.ix_(rows, rows)], self.parameters)


def flatten_weights(weights: dict[str, Tensor]) -> NDArray[np.float64]:
    """All floating-point weights in one vector, in the order of their names; in float64, for the sums to come."""
    kept = [weights[name] for name in sorted(weights) if weights[name].is_floating_point()]
    return np.concatenate([tensor.detach().cpu().double().flatten().numpy() for tensor in kept])


def load_vectors(run: Run) -> Iterator[tuple[int, NDArray[np.float64]]]:
    """The weights a run kept, one vector after another, the initial ones first; RunError if one is not finite."""
    for i, (step, weights) in enumerate(load_snapshots(run)):
        if i == 0 and step != 0:
            raise RunError(f"{run.name} must have kept its initial weights, the first are those of step {step:,}")
        vector = flatten_weights(weights)
        if not np.isfinite(vector).all():
            raise RunError(f"{run.name} has diverged: its weights of step {step:,} are not finite")
        yield step, vector


def group(run: Run) -> tuple[str, int]:
    """The key of runs that begin at the same weights: the task with its settings, and the seed."""
    names = list(run.settings)
    return repr([run.settings[name] for name in names[: names.index("filter")]]), run.seed


def few_digits(values: Any) -> list[Any]:
    """Numbers for a table, of any shape, to five digits."""
    return [few_digits(value) if isinstance(value, list) else shorten(float(value), 5) for value in values]


def has_weights(run: Run) -> bool:
    return any((run.path / "snapshots").glob("*.pt"))


def products_by_model(runs: Sequence[Run]) -> list[Products]:
    """The products of the complete runs that kept weights; those of one model and seed, which share axes, together."""
    alike: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        if has_weights(run) and run.status == "complete":
            alike.setdefault(group(run), []).append(run)
    found: list[Products] = []
    for members in alike.values():
        with contextlib.suppress(RunError, ValueError, OSError):  # damaged files cost a picture, not the page
            found.append(products(members))
    return found


def products(runs: Sequence[Run]) -> Products:
    """Products of all pairs of displacements of runs of one model; each snapshot is read once."""
    steps, size = [list[int]() for _ in runs], 0
    with tempfile.TemporaryFile() as file:
        for known, run in zip(steps, runs, strict=True):
            for step, vector in load_vectors(run):
                size = size or len(vector)
                if len(vector) != size:
                    raise RunError(f"{runs[0].name} and {run.name} have different numbers of parameters")
                known.append(step)
                file.write(vector.astype(np.float32).tobytes())  # as models are: nothing is lost
        file.flush()
        count = sum(map(len, steps))
        inner = gram_matrix(np.memmap(file, np.float32, "r", shape=(count, size)), spans(steps))
    return Products(list(runs), [np.array(known) for known in steps], inner, size)


def gram_matrix(weights: NDArray[np.float32], rows: Sequence[slice]) -> NDArray[np.float64]:
    """G of the weights less the first row of each run, summed over as many columns at a time as MEMORY allows."""
    inner = np.zeros((len(weights), len(weights)))
    width = max(1, MEMORY // (16 * len(weights)))
    for start in range(0, weights.shape[1], width):
        part = weights[:, start : start + width].astype(np.float64)
        for mine in rows:
            part[mine] -= part[mine.start].copy()
        inner += part @ part.T
    return inner


def spans(steps: Sequence[Sized]) -> list[slice]:
    """The rows of each run."""
    ends = np.cumsum([len(known) for known in steps]).tolist()
    return [slice(end - len(known), end) for end, known in zip(ends, steps, strict=True)]
