"""The paper's ablations in numbers: the steps our runs took, for each value that it tried.

The paper shows them as curves and states no steps, so nothing published stands beside them.
"""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab import filters
from grokfast.lab.compare.arms import best_text, count_text, whole_runs
from grokfast.lab.compare.results import table_of
from grokfast.lab.compare.seeds import Arm, make_arms
from grokfast.lab.paper.experiments import EXPERIMENTS, Experiment
from grokfast.lab.paper.published import request_key
from grokfast.lab.runs.directory import Run

ABLATIONS = tuple(experiment for experiment in EXPERIMENTS if experiment.is_ablation)


def ablation_rows(runs: Sequence[Run], experiment: Experiment) -> list[list[str]]:
    """The headings and a line for each value that was run; [] where fewer than three were."""
    found = arms_of_experiment(runs, experiment)
    return table_of([ablation_row(arm) for arm in found]) if len(found) > 2 else []


def ablation_runs(runs: Sequence[Run]) -> list[Run]:
    """The runs that these tables are of."""
    return [run for experiment in ABLATIONS for arm in arms_of_experiment(runs, experiment) for run in arm.runs]


def arms_of_experiment(runs: Sequence[Run], experiment: Experiment) -> list[Arm]:
    """The arms of an experiment that have runs; a value that is varied and the same one by default are one arm."""
    known = {arm.key: arm for arm in make_arms(runs)}
    return [known[key] for key in dict.fromkeys(map(request_key, experiment.requests)) if key in known]


def ablation_row(arm: Arm) -> dict[str, str]:
    run = arm.runs[0]
    return {
        "filter": filters.describe_plain(run.settings["filter"]),
        "weight decay": f"{run.weight_decay:g}",
        "runs": count_text(arm),
        "steps to the level": str(arm.steps()),
        "best accuracy": best_text(whole_runs(arm.runs), "accuracy"),
    }
