"""Paths of the weights of many runs, from the weights themselves or from the tables of recorded evidence.

Runs of one model and one seed begin at the same weights and are drawn on the same axes: the principal axes of the run
without a filter, as in the paper, else those of all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from grokfast.lab.analysis.trajectory import Distances, Trajectory, distances, generalised, project, state_b
from grokfast.lab.analysis.weights import Products, few_digits, group, has_weights, products
from grokfast.lab.runs.directory import Run


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
    """How far the states of each run lie apart, where there are `weights` of it or a table."""
    found = [(run, distances(run, known)) for known in weights for run in known.runs]
    tables = [(run, run.tables.get("weights")) for run in runs if not has_weights(run)]
    return found + [(run, read_distances(run, table)) for run, table in tables if table is not None]


def read_distances(run: Run, table: dict[str, Any]) -> Distances:
    steps, moved = np.array(table["steps"]), table["moved"]
    b, last = state_b(steps), int(steps[-1])
    states = (0, int(steps[b]), last)
    return Distances(moved[b], table["bc"], moved[-1], states, table["parameters"], generalised(run, last))


def weight_table(run: Run, base: Run | None) -> dict[str, Any]:
    """The table that evidence keeps of the weights of a run: its path on the axes of `base`, distances of its states.

    AB and AC are the distances at the steps of B and C from the initial weights: entries of `moved`.
    """
    known = products([run] if base is None or base.path == run.path else [run, base])
    path = project(known, base)[0]
    table = {"parameters": known.parameters, "bc": few_digits([distances(run, known).bc])[0]}
    table |= {"steps": path.steps.tolist(), "moved": few_digits(path.moved.tolist())}
    on_axes = {} if base is None else {"axes_of": base.name, "points": few_digits(path.points.tolist())}
    return {**table, **on_axes}
