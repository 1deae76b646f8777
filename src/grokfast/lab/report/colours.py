"""Which colour is whose: an arm has one number, so one colour, in all pictures of a page and in those of the docs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
OF_FILTER = {None: 0, "ma": 1, "ema": 2}  # the colour of a filter, where none of the paper's arms has it
MOST = 2 * len(COLOURS)  # curves that can be told apart; beyond that the rest is grey
FIRST_FREE = 3  # the colours before it are kept for the three arms that everything is about


def rank(arm: Arm) -> tuple[bool, tuple[bool, float, float]]:
    """Sorts baselines and the paper's arms first, then the fastest."""
    return arm.paper is None and arm.runs[0].filter is not None, arm.steps().order


def number_arms(arms: Sequence[Arm]) -> dict[str, int]:
    """A number for each arm of one task, by its key; the first ranks get those that can be told apart."""
    wanted: dict[str, int | None] = {}
    for arm in sorted(arms, key=lambda arm: (arm.paper is None, rank(arm))):
        wanted[arm.key] = OF_FILTER.get(arm.runs[0].filter) if arm.paper is None else PAPER.get(arm.paper.name)
    return assign(wanted)


def number_names(names: Sequence[str]) -> dict[str, int]:
    """The same for the arms of a duel, by their names.

    >>> number_names(["adamw", "adamw+ema", "muon", "muon+ema"])
    {'adamw': 0, 'adamw+ema': 2, 'muon': 3, 'muon+ema': 4}
    """
    wanted: dict[str, int | None] = {}
    for name in names:
        _, *added = name.split("+")
        wanted[name] = next((OF_FILTER[word] for word in added if word in OF_FILTER), None if added else 0)
    return assign(wanted)


def assign(wanted: Mapping[str, int | None]) -> dict[str, int]:
    """Different numbers: the first to want one gets it, the others get free ones, at first none that one could want."""
    found: dict[str, int] = {}
    for key, number in wanted.items():
        if number is not None and number not in found.values():
            found[key] = number
    order = [*range(FIRST_FREE, MOST), *range(FIRST_FREE), *range(MOST, MOST + len(wanted))]
    free = iter([number for number in order if number not in found.values()])
    return {key: found[key] if key in found else next(free) for key in wanted}


def number_runs(runs: Sequence[Run]) -> dict[str, int]:
    """The same for the runs of all tasks, by the key of their experiment."""
    tasks: dict[str, list[Run]] = {}
    for run in runs:
        tasks.setdefault(run.task, []).append(run)
    return {key: number for members in tasks.values() for key, number in number_arms(make_arms(members)).items()}


def number_of(run: Run, numbers: dict[str, int]) -> int:
    """The number of a run's arm; a run without an evaluation has none of its own and takes the first."""
    return numbers.get(experiment_key(run.settings), 0)
