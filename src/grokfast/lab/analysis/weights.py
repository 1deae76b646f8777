"""Weights as points: G = X X^T, where a row of X is w(t) - w(0), holds all distances and principal axes.

G is small, (snapshots, snapshots), and its sums run over parameters. So X is read in blocks of columns, as wide as
memory allows, and every snapshot once for each block: once or twice for hundreds of the paper's Transformer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.recording import load_snapshots

Vector = NDArray[np.float64]
MEMORY = 512 << 20  # bytes of weights to hold at once


class Products(NamedTuple):
    """Displacements of several runs by what is needed of them: products of all pairs. Rows are in order of the runs."""

    runs: list[Run]
    steps: list[NDArray[np.int64]]  # of the snapshots of each run; the first are the initial weights
    inner: Vector  # (snapshots, snapshots)
    parameters: int

    def of(self, run: Run) -> Products:
        """The part of one run."""
        i = [known.path for known in self.runs].index(run.path)
        mine = spans(self.steps)[i]
        return Products([run], [self.steps[i]], self.inner[mine, mine], self.parameters)


def flatten_weights(weights: dict[str, Tensor]) -> Vector:
    """All floating-point weights in one vector, in the order of their names; in float64, for the sums to come."""
    kept = [weights[name] for name in sorted(weights) if weights[name].is_floating_point()]
    return np.concatenate([tensor.detach().cpu().double().flatten().numpy() for tensor in kept])


def load_vectors(run: Run) -> Iterator[tuple[int, Vector]]:
    """The weights a run kept, one vector after another, the initial ones first; RunError where one is not finite."""
    for i, (step, weights) in enumerate(load_snapshots(run)):
        if i == 0 and step != 0:
            raise RunError(f"{run.name} must have kept its initial weights, the first are those of step {step:,}")
        vector = flatten_weights(weights)
        if not np.isfinite(vector).all():
            raise RunError(f"{run.name} has diverged: its weights of step {step:,} are not finite")
        yield step, vector


def products_by_model(runs: Sequence[Run]) -> list[Products]:
    """The products of the complete runs that kept weights, those of one model together."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        if count_files(run) > 1 and run.summary is not None and not run.summary.get("diverged"):
            alike.setdefault(repr(run.settings["task"]), []).append(run)
    found: list[Products] = []
    for members in alike.values():
        with contextlib.suppress(RunError):  # damaged files cost a picture, not the page
            found.append(products(members))
    return found


def products(runs: Sequence[Run]) -> Products:
    """Products of all pairs of displacements of runs of one model.

    It holds MEMORY bytes of weights at once, though never less than a dozen vectors of all parameters.
    """
    most = sum(count_files(run) for run in runs)
    width = max(1, MEMORY // (8 * most))  # half of the memory for the block, the other for vectors on their way
    steps, block, parameters = read_columns(runs, slice(0, width), most)
    inner = np.zeros((len(block), len(block)))
    for start in range(0, parameters, width):
        if start:
            _, block, _ = read_columns(runs, slice(start, start + width), most)
        for moved in displacements(block, spans(steps), max(1, MEMORY // (64 * most))):
            inner += moved @ moved.T
        block = block[:0].copy()  # its memory is the next one's
    return Products(list(runs), steps, inner, parameters)


def read_columns(
    runs: Sequence[Run], columns: slice, most: int
) -> tuple[list[NDArray[np.int64]], NDArray[np.float32], int]:
    """Steps and some columns of all snapshots, at most so many, and how many columns there are."""
    steps = [list[int]() for _ in runs]
    block, filled, size = np.empty((0, 0), np.float32), 0, 0
    for known, run in zip(steps, runs, strict=True):
        for step, vector in load_vectors(run):
            if not filled:
                size = len(vector)
                block = np.empty((most, len(vector[columns])), np.float32)  # as models are: nothing is lost
            if len(vector) != size:
                raise RunError(f"{runs[0].name} and {run.name} have different numbers of parameters: no common axes")
            block[filled] = vector[columns]
            known.append(step)
            filled += 1
    return [np.array(known) for known in steps], block[:filled], size


def displacements(block: NDArray[np.float32], rows: Sequence[slice], width: int) -> Iterator[Vector]:
    """The block less the first row of each run, some columns at a time."""
    for start in range(0, block.shape[1], width):
        part = block[:, start : start + width].astype(np.float64)
        for mine in rows:
            part[mine] -= part[mine.start].copy()
        yield part


def spans(steps: Sequence[NDArray[np.int64]]) -> list[slice]:
    """Which rows are those of each run."""
    ends = np.cumsum([len(known) for known in steps]).tolist()
    return [slice(end - len(known), end) for end, known in zip(ends, steps, strict=True)]


def count_files(run: Run) -> int:
    """How many snapshots a run has at most: its files, and its end where none was kept of it."""
    return len(list((run.path / "snapshots").glob("*.pt"))) + 1
