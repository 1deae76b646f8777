"""The paper's figures and tables as experiments: their names, their runs, and the runs that they share."""

from __future__ import annotations

import pytest

from grokfast.lab.paper.experiments import (
    EXPERIMENTS,
    NAMES,
    Experiment,
    configurations,
    demo_configs,
    find_experiments,
)
from grokfast.lab.runs.names import fingerprint

FIXED = [
    *("fig1", "table-staged", "fig-ma-gain", "fig-ma-window", "fig-ma-decay", "fig-ema", "fig-ema-ablations"),
    *("fig-filters", "fig-slow-only", "mnist", "qm9", "imdb", "trajectories", "costs", "all"),
]


def fingerprints(name: str) -> set[str]:
    return {fingerprint(config) for e in find_experiments([name]) for config in configurations(e)}


def test_the_names_are_the_fixed_ones() -> None:
    assert list(NAMES) == FIXED


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"an experiment must be one of fig1, .*, got fig99"):
        find_experiments(["fig1", "fig99"])


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_an_experiment_has_a_run_for_each_request_and_seed(experiment: Experiment) -> None:
    configs = configurations(experiment)
    assert len(configs) == experiment.seeds * len(experiment.requests)
    assert {config.loop.seed for config in configs} == (set(range(experiment.seeds)) if configs else set())
    assert ("Figure" in experiment.where) or ("Table" in experiment.where)


def test_experiments_share_the_runs_that_mean_the_same() -> None:
    assert fingerprints("fig1") | fingerprints("fig-ema") < fingerprints("costs")
    assert fingerprints("fig1") < fingerprints("fig-ma-decay")
    assert fingerprints("fig-ema") < fingerprints("fig-ema-ablations")
    assert len(fingerprints("table-staged") & fingerprints("fig-slow-only")) == 2
    for name in ("fig-ma-gain", "fig-ma-window", "fig-ma-decay"):
        assert len(fingerprints("table-staged") & fingerprints(name)) == 2  # the baseline, and MA without decay
    for name in ("mnist", "qm9", "imdb"):
        assert len(fingerprints("costs") & fingerprints(name)) == 2  # all but our controls


def test_trajectories_keep_weights_of_five_seeds() -> None:
    (experiment,) = find_experiments(["trajectories"])
    assert experiment.seeds == 5
    assert all(config.loop.snapshots for config in configurations(experiment))


def test_the_papers_arms_keep_its_weight_decays() -> None:
    decays = {
        name: [config.optim.weight_decay for e in find_experiments([name]) for config in configurations(e)]
        for name in ("fig1", "fig-ema")
    }
    assert decays == {"fig1": [0.0, 0.01], "fig-ema": [0.0, 0.005]}


def test_seeds_and_budget_are_those_asked_for() -> None:
    configs = configurations(EXPERIMENTS[0], seeds=3, steps=70, threads=None)
    assert [config.loop.seed for config in configs] == [0, 0, 1, 1, 2, 2]
    assert {config.loop.steps for config in configs} == {70}
    with pytest.raises(ValueError, match="seeds must be >= 1, got 0"):
        configurations(EXPERIMENTS[0], seeds=0)


def test_the_demo_trains_both_filters_and_the_baseline_for_longer() -> None:
    ema, ma, baseline = demo_configs()
    assert baseline.filter is None
    assert baseline.loop.steps > max(ema.loop.steps, ma.loop.steps)
    assert {config.loop.steps for config in demo_configs(quick=True)} == {30}
