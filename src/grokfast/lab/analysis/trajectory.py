"""Paths of the weights w(t) through parameter space: how far, |w(t) - w(0)|, and where to, (w(t) - w(0) - mean) V.

The paper has three states: A, the initial weights; B, after 500 steps, where the training data is learnt; C, the end of
a run, where it generalises. V holds the two principal axes of the snapshots of one run, the baseline's in the paper, or
of all; each run counts relative to its own initial weights.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from grokfast.lab.analysis.weights import Products, few_digits, group, has_weights, products, spans
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import reaches
from grokfast.lab.runs.recording import OVERFIT_STEP


class Distances(NamedTuple):
    """Distances between the three states of a run, as l2 norms over all parameters.

    `generalised` says whether the run has reached its level by C. If not, it has no state C, and `bc` and `ac` are
    distances to its last snapshot.
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
    points: NDArray[np.float64]  # (snapshots, 2)
    moved: NDArray[np.float64]  # (snapshots,): the l2 norm of w(t) - w(0)


def distances(run: Run, known: Products) -> Distances:
    """Distances between the states A, B and C of a run, from the products of this run and maybe others."""
    found = known.of(run)
    steps, inner = found.steps[0], found.inner
    b, c = state_b(steps), len(steps) - 1
    # |c - b|^2 by the products; rounding must not make it negative.
    squares = (inner[b, b], max(0.0, inner[c, c] + inner[b, b] - 2 * inner[b, c]), inner[c, c])
    ab, bc, ac = (math.sqrt(square) for square in squares)
    return Distances(ab, bc, ac, (0, int(steps[b]), int(steps[c])), found.parameters, generalised(run, int(steps[c])))


def state_b(steps: NDArray[np.int64]) -> int:
    """Which snapshot is the state B: the one nearest to 500 steps."""
    return int(np.abs(steps - OVERFIT_STEP).argmin())


def generalised(run: Run, step: int) -> bool:
    """Whether a run has reached its level by a step."""
    return any(reaches([row for row in run.rows if row.step <= step], run.level, run.measure))


def project(known: Products, base: Run | None = None) -> list[Trajectory]:
    """Weights of several runs, each less its initial ones, on the two principal axes of the snapshots of `base`.

    Without a base the axes are those of all snapshots. With the snapshots of the base as rows of X, less their mean,
    X = U S V^T: the points of rows Y are Y V = Y X^T U / S, and U and S^2 are the eigenvectors and eigenvalues of
    X X^T, which is small. So neither X nor V is ever in memory.

    On each axis the base, or else the first run, ends at or above where it began: an axis has no sign of its own.
    """
    rows = spans(known.steps)
    lead = rows[0 if base is None else [run.path for run in known.runs].index(base.path)]
    mine = slice(0, len(known.inner)) if base is None else lead
    count = mine.stop - mine.start
    if count < 2:
        raise ValueError(f"two axes need two snapshots or more, got {count}")
    # All rows lose the mean of the rows that make the axes.
    right = known.inner - known.inner[:, mine].mean(1, keepdims=True)
    centred = right - right[mine].mean(0)
    values, vectors = (part[..., :-3:-1] for part in np.linalg.eigh(centred[mine, mine]))  # eigh ascends
    real = values > count * np.finfo(np.float64).eps * np.trace(centred[mine, mine])  # the rest is rounding, no axis
    points = centred[:, mine] @ vectors / np.sqrt(np.where(real, values, np.inf))
    points *= np.where(points[lead][-1] < points[lead][0], -1.0, 1.0)
    moved = np.sqrt(known.inner.diagonal())
    parts = [(points[span], moved[span]) for span in rows]
    return [Trajectory(run, steps, *part) for run, steps, part in zip(known.runs, known.steps, parts, strict=True)]


# Many runs ------------------------------------------------------------------------------------------------------------
#
# From the weights themselves or from the tables in results/. Runs of one model and one seed begin at the same
# weights and are drawn on the same axes: the principal axes of the run without a filter, as in the paper, else of all.


def find_base(run: Run, runs: Sequence[Run]) -> Run | None:
    """The run without a filter whose axes a run is drawn on."""
    plain = [other for other in runs if other.settings["filter"] is None and group(other) == group(run)]
    return next((other for other in plain if other.path == run.path), plain[0] if plain else None)


def paths_by_seed(runs: Sequence[Run], weights: Sequence[Products]) -> list[list[Trajectory]]:
    """The paths of the runs of each model and seed, in the order of the seeds; `weights` are those that runs kept."""
    found: dict[tuple[str, int], list[Trajectory]] = {}
    for known in weights:
        for key in dict.fromkeys(map(group, known.runs)):
            alike = [run for run in known.runs if group(run) == key]
            with contextlib.suppress(ValueError):  # one snapshot makes no plane
                found[key] = project(known.of(*alike), find_base(alike[0], alike))
    for run in runs:
        table = None if has_weights(run) else run.tables.get("weights")
        if table is not None and "points" in table:
            values = (np.array(table[name]) for name in ("steps", "points", "moved"))
            found.setdefault(group(run), []).append(Trajectory(run, *values))
    return [paths for _, paths in sorted(found.items())]


def known_distances(runs: Sequence[Run], weights: Sequence[Products]) -> list[tuple[Run, Distances]]:
    """Distances between the states of each run that has `weights` or a table."""
    found = [(run, distances(run, known)) for known in weights for run in known.runs]
    tables = [(run, run.tables.get("weights")) for run in runs if not has_weights(run)]
    return found + [(run, read_distances(run, table)) for run, table in tables if table is not None]


def read_distances(run: Run, table: dict[str, Any]) -> Distances:
    steps, moved = np.array(table["steps"]), table["moved"]
    b, last = state_b(steps), int(steps[-1])
    states = (0, int(steps[b]), last)
    return Distances(moved[b], table["bc"], moved[-1], states, table["parameters"], generalised(run, last))


def weight_table(run: Run, base: Run | None) -> dict[str, Any]:
    """The table that results/ keeps of the weights of a run: its path on the axes of `base`, distances of its states.

    AB and AC are the distances at the steps of B and C from the initial weights: entries of `moved`.
    """
    known = products([run] if base is None or base.path == run.path else [run, base])
    path = project(known, base)[0]
    table = {"parameters": known.parameters, "bc": few_digits([distances(run, known).bc])[0]}
    table |= {"steps": path.steps.tolist(), "moved": few_digits(path.moved.tolist())}
    on_axes = {} if base is None else {"axes_of": base.name, "points": few_digits(path.points.tolist())}
    return {**table, **on_axes}
