"""Paths of the weights w(t) through parameter space: how far, |w(t) - w(0)|, and where to, (w(t) - w(0) - mean) V.

The paper has three states: A, the initial weights; B, after 500 steps, where the training data is learnt; C, the end of
a run, where it generalises. V holds the principal axes of all snapshots of several runs, each run relative to its own
initial weights.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grokfast.lab.analysis.weights import Products, Vector, spans
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import reaches
from grokfast.lab.runs.recording import OVERFIT_STEP


class Distances(NamedTuple):
    """How far the three states of a run lie apart, as l2 norms over all parameters.

    `generalised` says whether the weights at C reach the run's level. If not, the run has no state C, and `bc` and `ac`
    only say how far it has come.
    """

    ab: float
    bc: float
    ac: float
    steps: tuple[int, int, int]  # of A, B and C; B is the snapshot nearest to 500 steps
    parameters: int
    generalised: bool

    @property
    def mean_squares(self) -> tuple[float, float, float]:
        """AB, BC, AC as the published table seems to measure them: mean squared differences times 1000."""
        ab, bc, ac = (1000 * side**2 / self.parameters for side in self[:3])
        return ab, bc, ac


class Trajectory(NamedTuple):
    """One run on the principal axes. Its first point is state A, which is the same one for all runs."""

    run: Run
    steps: NDArray[np.int64]  # (snapshots,)
    points: Vector  # (snapshots, 2)
    moved: Vector  # (snapshots,): the l2 norm of w(t) - w(0)


def distances(run: Run, known: Products) -> Distances:
    """How far the states A, B and C of a run lie apart, from the products of this run and maybe others."""
    found = known.of(run)
    steps, inner = found.steps[0], found.inner
    b, c = int(np.abs(steps - OVERFIT_STEP).argmin()), len(steps) - 1
    # |c - b|^2 by the products; rounding must not make it negative.
    squares = (inner[b, b], max(0.0, inner[c, c] + inner[b, b] - 2 * inner[b, c]), inner[c, c])
    ab, bc, ac = (math.sqrt(square) for square in squares)
    rows = [row for row in run.rows if row.step <= steps[c]]
    generalised = bool(rows) and reaches(rows, run.level, run.measure)[-1]
    return Distances(ab, bc, ac, (0, int(steps[b]), int(steps[c])), found.parameters, generalised)


def project(known: Products) -> list[Trajectory]:
    """Weights of several runs, each less its initial ones, on the two principal axes of all their snapshots.

    With the snapshots as rows of X, less their mean, X = U S V^T: the points are X V = U S, and U and S^2 are the
    eigenvectors and eigenvalues of X X^T, which is small. So neither X nor V is ever in memory.

    On each axis the first run ends at or above where it began: an axis has no sign of its own.
    """
    count = len(known.inner)
    if count < 2:
        raise ValueError(f"two axes need two snapshots or more, got {count}")
    shift = np.eye(count) - 1 / count  # takes the mean off each row
    centred = shift @ known.inner @ shift
    values, vectors = (part[..., :-3:-1] for part in np.linalg.eigh(centred))  # eigh ascends
    real = values > count * np.finfo(np.float64).eps * np.trace(centred)  # the rest is rounding, and no axis
    points = vectors * np.sqrt(np.where(real, values, 0.0))
    rows = spans(known.steps)
    first = points[rows[0]]
    points *= np.where(first[-1] < first[0], -1.0, 1.0)
    moved = np.sqrt(known.inner.diagonal())
    parts = [(points[mine], moved[mine]) for mine in rows]
    return [Trajectory(run, steps, *part) for run, steps, part in zip(known.runs, known.steps, parts, strict=True)]
