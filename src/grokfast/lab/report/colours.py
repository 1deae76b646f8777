"""Which colour is whose: an arm has one number, so one colour, in all pictures of a page and in those of the docs."""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab.compare.seeds import Arm, make_arms
from grokfast.lab.config import experiment_key
from grokfast.lab.report.pictures import COLOURS
from grokfast.lab.runs.directory import Run

# The paper's arms by name; those of different tasks stand in different pictures.
PAPER = {
    "Baseline": 0,
    "Grokfast-MA": 1,
    "Grokfast-EMA": 2,
    "Grokfast": 2,
    "1-stage MA": 3,
    "Baseline, decay of Grokfast": 3,
    "2-stage MA": 4,
    "Grokfast, decay of the baseline": 4,
    "2-stage MA, slow only": 5,
}
MOST = 2 * len(COLOURS)  # curves that can be told apart; beyond that the rest is grey
FIRST_FREE = 3  # the colours before it are kept for the three arms that everything is about


def rank(arm: Arm) -> tuple[bool, tuple[bool, float, float]]:
    """Sorts baselines and the paper's arms first, then the fastest."""
    return arm.paper is None and arm.runs[0].filter is not None, arm.steps().order


def number_arms(arms: Sequence[Arm]) -> dict[str, int]:
    """A number for each arm of one task, by its key; the first ranks get those that can be told apart."""
    fixed = {arm.key: PAPER[arm.paper.name] for arm in arms if arm.paper is not None and arm.paper.name in PAPER}
    order = [*range(FIRST_FREE, MOST), *range(FIRST_FREE), *range(MOST, MOST + len(arms))]
    free = iter(number for number in order if number not in fixed.values())
    return {arm.key: fixed[arm.key] if arm.key in fixed else next(free) for arm in sorted(arms, key=rank)}


def number_runs(runs: Sequence[Run]) -> dict[str, int]:
    """The same for the runs of all tasks, by the key of their experiment."""
    tasks: dict[str, list[Run]] = {}
    for run in runs:
        tasks.setdefault(run.task, []).append(run)
    return {key: number for members in tasks.values() for key, number in number_arms(make_arms(members)).items()}


def number_of(run: Run, numbers: dict[str, int]) -> int:
    """The number of a run's arm; a run without an evaluation has none of its own and takes the first."""
    return numbers.get(experiment_key(run.settings), 0)
