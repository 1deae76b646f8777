"""Distances between the states A, B and C over seeds (Table 2), published beside measured, as rows of text."""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab.analysis.trajectory import Distances, distances
from grokfast.lab.analysis.weights import Products
from grokfast.lab.compare.arms import published_of
from grokfast.lab.compare.seeds import Mean, make_arms, mean

SIDES = ("AB", "BC", "AC")
HEAD = ["arm", *(f"{side}, {kind}" for kind in ("l2", "1000 x mean square", "paper") for side in SIDES)]


def distance_rows(weights: Sequence[Products]) -> list[list[str]]:
    """The headings and one line for each arm that kept weights; [] where none did."""
    rows = [row for known in weights for row in rows_of_model(known)]
    return [HEAD, *rows] if rows else []


def rows_of_model(known: Products) -> list[list[str]]:
    rows: list[list[str]] = []
    for arm in make_arms(known.runs):
        found = [distances(run, known) for run in arm.runs]
        l2, squares = over_seeds(found, [d[:3] for d in found]), over_seeds(found, [d.mean_squares for d in found])
        paper = published_of(arm).distances
        beside = [""] * len(SIDES) if paper is None else [f"{side.mean:g} ± {side.deviation:g}" for side in paper]
        rows.append([arm.title, *map(text, (*l2, *squares)), *beside])
    return rows


def over_seeds(found: Sequence[Distances], sides: Sequence[tuple[float, float, float]]) -> list[Mean]:
    """AB over all runs, BC and AC over those that have reached a state C."""
    ends = [side for side, of in zip(sides, found, strict=True) if of.generalised]
    return [mean(ab for ab, _, _ in sides), mean(bc for _, bc, _ in ends), mean(ac for _, _, ac in ends)]


def text(value: Mean) -> str:
    return f"{value.text()} (n = {value.count})" if value.count else "-"
