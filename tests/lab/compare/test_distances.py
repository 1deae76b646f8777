"""Distances over seeds: arms, the published beside the measured, and runs that have no state C."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from made import kept_run

from grokfast.lab.analysis.weights import products
from grokfast.lab.compare.distances import distance_rows
from grokfast.lab.paper.published import arms_of
from grokfast.lab.request import resolve
from grokfast.lab.runs.directory import Run

KEPT = {0: [0.0, 0.0], 500: [3.0, 0.0], 900: [3.0, 4.0]}


def arm_run(
    folder: Path, name: str, kept: Any = KEPT, *, seed: int = 0, steps: int = 1000, accuracy: float = 1.0
) -> Run:
    request = next(arm for arm in arms_of("modmul") if arm.name == name).request
    config = resolve(request.having(seed=seed, steps=steps, snapshots=2, threads=1))
    return kept_run(folder, kept, accuracy=accuracy, config=config)


def table_of(runs: list[Run]) -> dict[str, dict[str, str]]:
    head, *rows = distance_rows(runs, [products(runs)])
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_a_run_that_never_generalised_has_no_part_in_the_means_of_c(runs_dir: Path) -> None:
    good = arm_run(runs_dir, "Baseline")
    bad = arm_run(runs_dir, "Baseline", {0: [0, 0], 500: [5, 0], 900: [70, 0]}, seed=1, accuracy=0.2)
    line = table_of([good, bad])["Baseline, 2 seeds"]
    assert [line[f"{side}, l2"] for side in ("AB", "BC", "AC")] == ["4.000 ± 1.414 (n = 2)", "4 (n = 1)", "5 (n = 1)"]
    alone = table_of([bad])["Baseline, seed 1"]
    assert [alone[f"{side}, l2"] for side in ("BC", "AC")] == ["-", "-"]


def test_arms_stand_beside_the_published_as_it_was_published(runs_dir: Path) -> None:
    runs = [arm_run(runs_dir, name, seed=seed) for name in ("Baseline", "Grokfast-MA") for seed in (1, 0)]
    runs.append(kept_run(runs_dir, KEPT))
    found = table_of(runs)
    base, fast, other = found.values()
    assert base["AB, 1000 x mean square"] == "4,500 (n = 2)"
    assert (base["AB, paper"], base["AC, paper"], fast["AC, paper"]) == ("0.97 ± 2.2", "570.7 ± 199.8", "35.8 ± 0.98")
    assert other["AB, paper"] == ""
    assert list(found)[2].startswith("no filter, weight decay 0")


def test_runs_without_weights_make_no_table() -> None:
    assert distance_rows([]) == []
