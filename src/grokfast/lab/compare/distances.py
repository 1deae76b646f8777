"""Distances between the states A, B and C over seeds (Table 2), published beside measured, as rows of text."""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab.analysis.paths import known_distances
from grokfast.lab.analysis.trajectory import Distances
from grokfast.lab.analysis.weights import Products
from grokfast.lab.compare.results import table_of
from grokfast.lab.compare.seeds import Arm, by_task, make_arms, mean
from grokfast.lab.paper.published import published_of
from grokfast.lab.runs.directory import Run

SIDES = ("AB", "BC", "AC")


def distance_rows(runs: Sequence[Run], weights: Sequence[Products] = ()) -> list[list[str]]:
    """The headings and one line for each arm that kept weights; [] where none did."""
    return table_of([distance_row(arm, found) for arm, found in distances_by_arm(runs, weights)])


def distances_by_arm(runs: Sequence[Run], weights: Sequence[Products] = ()) -> list[tuple[Arm, list[Distances]]]:
    """The arms among the runs that kept weights, with the distances of each run."""
    known = known_distances(runs, weights)
    by_path = {run.path: found for run, found in known}
    arms = [arm for members in by_task(run for run, _ in known).values() for arm in make_arms(members)]
    return [(arm, [by_path[run.path] for run in arm.runs]) for arm in arms]


def distance_row(arm: Arm, found: Sequence[Distances]) -> dict[str, str]:
    paper = published_of(arm.runs[0].settings).distances
    kinds = {
        "l2": over_seeds(found, [d[:3] for d in found]),
        "1000 x mean square": over_seeds(found, [d.mean_squares for d in found]),
        "paper": [""] * 3 if paper is None else [f"{side.mean:g} ± {side.deviation:g}" for side in paper],
    }
    cells = {f"{side}, {kind}": text for kind, row in kinds.items() for side, text in zip(SIDES, row, strict=True)}
    return {"arm": arm.title, **cells}


def over_seeds(found: Sequence[Distances], sides: Sequence[tuple[float, float, float]]) -> list[str]:
    """AB over all runs, BC and AC over those that have reached a state C."""
    ends = [side for side, of in zip(sides, found, strict=True) if of.generalised]
    means = [mean(ab for ab, _, _ in sides), mean(bc for _, bc, _ in ends), mean(ac for _, _, ac in ends)]
    return [f"{value.text()} (n = {value.count})" if value.count else "-" for value in means]
