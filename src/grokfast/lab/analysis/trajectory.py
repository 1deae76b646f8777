"""Paths of the weights w(t) through parameter space: how far, |w(t) - w(0)|, and where to, (w(t) - w(0) - mean) V.

The paper has three states: A, the initial weights; B, after 500 steps, where the training data is learnt; C, the end of
a run, where it generalises. V holds the principal axes of all snapshots of several runs, each run relative to its own
initial weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grokfast.lab.analysis.weights import Products, Vector, products, spans
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import reaches, validation
from grokfast.lab.runs.recording import OVERFIT_STEP

PUBLISHED_SCALE = 1000.0  # of the mean squares in Table 2


class Distances(NamedTuple):
    """How far the three states of a run lie apart, as l2 norms over all parameters.

    `generalised` says whether the weights at C reach the run's level. If not, the run has no state C, and `bc` and `ac`
    only say how far it has come.
    """

    ab: float
    bc: float
    ac: float
    steps: tuple[int, int, int]  # of A, B and C; B is the kept snapshot nearest to the one asked for
    parameters: int
    validation: float | None  # accuracy at C, or loss where the task is judged by it
    generalised: bool

    @property
    def mean_squares(self) -> tuple[float, float, float]:
        """AB, BC, AC as the published table seems to measure them: mean squared differences times 1000."""
        ab, bc, ac = (PUBLISHED_SCALE * side**2 / self.parameters for side in self[:3])
        return ab, bc, ac


class Deviation(NamedTuple):
    """How far a run is from its initial weights over time, as an l2 norm over all parameters."""

    steps: NDArray[np.int64]
    l2: Vector


class Trajectory(NamedTuple):
    """One run on the common axes. Its first point is state A, which is the same one for all runs."""

    run: Run
    steps: NDArray[np.int64]  # (snapshots,)
    points: Vector  # (snapshots, components)


class Projection(NamedTuple):
    """Several runs on common principal axes."""

    explained: Vector  # (components,): part of the variance of the snapshots the axes were made of
    paths: list[Trajectory]


def distances(run: Run, *, overfit_step: int = OVERFIT_STEP, known: Products | None = None) -> Distances:
    """How far the states A, B and C of a run lie apart.

    Args:
        run: with snapshots.
        overfit_step: where to look for B; of two snapshots equally near the earlier one is taken.
        known: products that have been computed, with those of this run among them.
    """
    found = (known or products([run])).of(run)
    steps, inner = found.steps[0], found.inner
    b, c = int(np.abs(steps - overfit_step).argmin()), len(steps) - 1
    # |c - b|^2 by the products; rounding must not make it negative.
    squares = (inner[b, b], max(0.0, inner[c, c] + inner[b, b] - 2 * inner[b, c]), inner[c, c])
    ab, bc, ac = (math.sqrt(square) for square in squares)
    states = (0, int(steps[b]), int(steps[c]))
    return Distances(ab, bc, ac, states, found.parameters, *judge(run, states[2]))


def judge(run: Run, step: int) -> tuple[float | None, bool]:
    """The last validation up to a step, and whether it is at the level of the run."""
    rows = [row for row in run.rows if row.step <= step]
    if not rows:
        return None, False
    return validation(rows, run.measure)[-1], reaches(rows, run.level, run.measure)[-1]


def deviation(run: Run, *, known: Products | None = None) -> Deviation:
    """How far a run is from its initial weights, at each snapshot; `known` may hold its products."""
    found = (known or products([run])).of(run)
    return Deviation(found.steps[0], np.sqrt(found.inner.diagonal()))


def project(
    runs: Sequence[Run], *, axes: Sequence[Run] | None = None, components: int = 2, known: Products | None = None
) -> Projection:
    """Weights of several runs, each less its initial ones, on common principal axes.

    With the snapshots as rows of X, less their mean, X = U S V^T: the points are X V = U S, and U and S^2 are the
    eigenvectors and eigenvalues of X X^T, which is small. So neither X nor V is ever in memory.

    Args:
        runs: with snapshots, of models of the same shapes. On each axis the first run ends at or above where it began.
        axes: those of the runs whose snapshots make the axes and the mean. By default all, as in the paper's appendix;
            its section 5 takes the baseline's.
        components: how many axes.
        known: the products of these runs, where they have been computed.
    """
    found = known or products(runs)
    chosen = choose_rows(runs, runs if axes is None else axes, [len(steps) for steps in found.steps])
    if not 1 <= components <= chosen.sum():
        raise ValueError(f"components must be in [1, {chosen.sum()}], the snapshots that make axes, got {components}")
    explained, points = principal(found.inner, chosen, components)
    parts = [points[rows] for rows in spans(found.steps)]
    sign = np.where(parts[0][-1] < parts[0][0], -1.0, 1.0)  # an axis has none of its own
    paths = zip(runs, found.steps, (part * sign for part in parts), strict=True)
    return Projection(explained, [Trajectory(*path) for path in paths])


def choose_rows(runs: Sequence[Run], axes: Sequence[Run], counts: Sequence[int]) -> NDArray[np.bool_]:
    """Which of all snapshots are those of the runs in `axes`."""
    known, chosen = {run.path for run in runs}, {run.path for run in axes}
    if not chosen or not chosen <= known:
        raise ValueError(f"axes must be one or more of the runs, got {[run.name for run in axes]}")
    return np.repeat([run.path in chosen for run in runs], counts)


def principal(inner: Vector, chosen: NDArray[np.bool_], components: int) -> tuple[Vector, Vector]:
    """Explained parts of the variance, and points of all rows on the axes that the chosen rows make."""
    shift = np.eye(len(inner)) - chosen / chosen.sum()  # takes the mean of the chosen rows off each row
    centred = shift @ inner @ shift.T
    values, vectors = np.linalg.eigh(centred[np.ix_(chosen, chosen)])  # ascending
    values, vectors = values[::-1][:components], vectors[:, ::-1][:, :components]
    total = float(np.trace(centred[np.ix_(chosen, chosen)]))
    real = values > len(inner) * np.finfo(np.float64).eps * total  # the rest is rounding, and no axis
    scale = np.where(real, 1 / np.sqrt(np.where(real, values, 1.0)), 0.0)
    return np.where(real, values, 0.0) / (total or 1.0), centred[:, chosen] @ vectors * scale
