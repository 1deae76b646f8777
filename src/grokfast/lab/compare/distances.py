"""Distances between the states A, B and C over seeds (Table 2): published beside measured, and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from grokfast.lab.analysis.paths import known_distances, paths_by_seed
from grokfast.lab.analysis.trajectory import Distances
from grokfast.lab.analysis.weights import Products
from grokfast.lab.compare.names import enumerate_words
from grokfast.lab.compare.results import table_of
from grokfast.lab.compare.seeds import Arm, by_task, make_arms, mean
from grokfast.lab.compare.verdicts import Finding, judge_means
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


# In words -------------------------------------------------------------------------------------------------------------


def nearer(runs: Sequence[Run]) -> Finding | None:
    """Table 2: Grokfast ends nearer to where it began than the baseline."""
    found = {arm.name: mean(d.ac for d in known if d.generalised) for arm, known in distances_by_arm(runs)}
    base, fast = found.get("Baseline"), {name: found[name] for name in ("Grokfast-MA", "Grokfast-EMA") if name in found}
    if base is None or base.mean is None or not fast or any(far.mean is None for far in fast.values()):
        return None
    holds = all(judge_means(far, base, high=False) == "better" for far in fast.values())
    words = "Grokfast ends nearer to its initial weights than the baseline" + (", as the paper says" if holds else "")
    words = words if holds else f"It is not clear that {words}"
    texts = [f"{far.text(3)} for {name} ({far.count} seeds)" for name, far in fast.items()]
    far = f"The l2 distance AC is {enumerate_words(texts)}, {base.text(3)} for the baseline ({base.count})."
    shares = shares_on_axes(runs)
    if not shares:
        return Finding(words, far)
    span = " to ".join(dict.fromkeys(f"{share:.0%}" for share in (min(shares), max(shares))))
    along = f"Along the two main directions of the baseline's path Grokfast goes only {span} of it."
    return Finding(words, f"{far} {along}")


def shares_on_axes(runs: Sequence[Run]) -> list[float]:
    """How much of its way from A to C each run with a filter goes along the principal axes of the baseline."""
    groups = [paths for paths in paths_by_seed(runs, ()) if any(path.run.filter is None for path in paths)]
    filtered = [path for paths in groups for path in paths if path.run.filter is not None]
    return [math.dist(path.points[0], path.points[-1]) / path.moved[-1] for path in filtered]
