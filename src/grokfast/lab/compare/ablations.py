"""The paper's ablations in numbers: the steps our runs took, for each value that it tried.

The paper shows them as curves and states no steps, so nothing published stands beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab.config import RunConfig, make_filter, resolve
from grokfast.lab.paper.experiments import EXPERIMENTS, Experiment, Point
from grokfast.lab.runs.metrics import best
from grokfast.lab.paper.published import repeats
from grokfast.lab.compare.results import crossing, filter_name
from grokfast.lab.runs.directory import Run
from grokfast.lab.compare.arms import by_seed, mean, spread, value_of, whole
from grokfast.lab.tasks import TASKS

HEAD = ["filter", "weight decay", "runs", "steps to the level", "best accuracy"]


def ablations() -> list[Experiment]:
    """The experiments that try several values of one thing: those with a budget of their own."""
    return [experiment for experiment in EXPERIMENTS if experiment.budget is not None]


def ablation_rows(runs: Sequence[Run], experiment: Experiment) -> list[list[str]]:
    """The headings and a line for each point that has a complete run; [] where fewer than three have."""
    found = {point: by_seed([run for run in runs if is_of(run, point)]) for point in dict.fromkeys(experiment.points)}
    # A value that is varied and the same one by default are two points and one line.
    lines = dict.fromkeys(tuple(row(point, known)) for point, known in found.items() if known)
    return [HEAD, *map(list, lines)] if len(lines) > 2 else []


def ablation_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs that these tables are of."""
    points = dict.fromkeys(point for experiment in ablations() for point in experiment.points)
    return [run for point in points for run in by_seed([run for run in runs if is_of(run, point)])]


def is_of(run: Run, point: Point) -> bool:
    return run.config.task_name == point.task and repeats(run.config, point.filter, point.weight_decay)


def row(point: Point, runs: Sequence[Run]) -> list[str]:
    filter = make_filter(resolve(RunConfig(TASKS[point.task](), point.filter)).filter)
    return [
        "none" if filter is None else filter_name(filter),
        f"{point.weight_decay:g}",
        str(len(runs)),
        spread([crossing(run) for run in runs]),
        mean([value_of(best(run.rows, "accuracy")) for run in whole(runs)], ".3f"),
    ]
