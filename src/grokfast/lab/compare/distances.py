"""Distances between the states A, B and C over seeds (Table 2), published beside measured, as rows of text."""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab.analysis.trajectory import Distances, distances
from grokfast.lab.analysis.weights import Products
from grokfast.lab.compare.results import table_of
from grokfast.lab.compare.seeds import Arm, make_arms, mean
from grokfast.lab.paper.published import published_of

SIDES = ("AB", "BC", "AC")


def distance_rows(weights: Sequence[Products]) -> list[list[str]]:
    """The headings and one line for each arm that kept weights; [] where none did."""
    return table_of([distance_row(arm, known) for known in weights for arm in make_arms(known.runs)])


def distance_row(arm: Arm, known: Products) -> dict[str, str]:
    found = [distances(run, known) for run in arm.runs]
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
