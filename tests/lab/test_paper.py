"""The paper as data: its arms, its figures and tables as experiments, and the runs that they share."""

from __future__ import annotations

import math

import pytest

from grokfast.lab.paper import (
    ALL,
    ARMS,
    EMA,
    EXPERIMENTS,
    MA,
    Experiment,
    PaperArm,
    demo_settings,
    find_arm,
    find_experiments,
    ours,
    settings_of_experiment,
    without_filter,
)
from grokfast.lab.settings import experiment_of, resolve, run_id

NAMES = [
    *("fig1", "table-staged", "fig-ma-gain", "fig-ma-window", "fig-ma-decay", "fig-ema", "fig-ema-ablations"),
    *("fig-filters", "fig-slow-only", "mnist", "qm9", "imdb", "trajectories", "costs"),
]


def ids(name: str) -> set[str]:
    return {run_id(settings) for e in find_experiments([name]) for settings in settings_of_experiment(e)}


# Arms -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: f"{arm.task}: {arm.name}")
def test_the_settings_of_an_arm_are_found_to_be_that_arm(arm: PaperArm) -> None:
    assert find_arm(experiment_of(resolve(**arm.given))) is arm
    assert find_arm(experiment_of(resolve(**arm.given, seed=7, steps=30, snapshots=2))) is arm
    assert find_arm(experiment_of(resolve(**{**arm.given, "lr": 0.123}))) is None


def test_published_times_are_published_steps_times_seconds_per_step() -> None:
    timed = [arm for arm in ARMS if arm.seconds is not None]
    assert len(timed) == 5  # Tables 3 and 4
    for arm in timed:
        assert arm.steps is not None
        assert arm.step_seconds is not None
        assert arm.steps * arm.step_seconds == pytest.approx(arm.seconds, rel=0.005)


def test_published_distances_violate_the_triangle_inequality_unless_they_are_squares() -> None:
    found = [arm.distances for arm in ARMS if arm.distances]
    assert len(found) == 2
    for sides in found:
        ab, bc, ac = (mean for mean, _ in sides)
        assert ac > ab + bc
        assert math.sqrt(ac) <= math.sqrt(ab) + math.sqrt(bc)


def test_a_control_is_not_published() -> None:
    controls = [arm for arm in ARMS if not arm.where]
    assert len(controls) == 6
    assert {(arm.steps, arm.accuracy, arm.loss, arm.memory_mb, arm.seconds) for arm in controls} == {(None,) * 5}


def test_the_exchange_keeps_the_drift_of_slow_gradients_and_the_decay() -> None:
    for given in (EMA, MA):
        old, new = resolve(**given), resolve(**without_filter(given))
        assert new["lr"] == pytest.approx((1 + old["lamb"]) * old["lr"])
        assert new["lr"] * new["weight_decay"] == pytest.approx(old["lr"] * old["weight_decay"], rel=1e-5)
        assert new["filter"] is None


# Experiments ----------------------------------------------------------------------------------------------------------


def test_the_names_are_the_fixed_ones() -> None:
    assert [experiment.name for experiment in EXPERIMENTS] == NAMES
    assert [experiment.name for experiment in ours()] == ["controls", "instead", "two-stage"]


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"an experiment must be one of fig1, .*, all, got fig99"):
        find_experiments(["fig1", "fig99"])


def test_all_means_the_papers_experiments() -> None:
    assert find_experiments([ALL]) == list(EXPERIMENTS)
    assert [e.name for e in find_experiments([ALL, "instead"])] == [*NAMES, "instead"]


@pytest.mark.parametrize("experiment", [*EXPERIMENTS, *ours()], ids=lambda e: e.name)
def test_an_experiment_has_a_run_for_each_setting_and_seed(experiment: Experiment) -> None:
    found = settings_of_experiment(experiment)
    assert len(found) == experiment.seeds * len(experiment.runs)
    assert {settings["seed"] for settings in found} == (set(range(experiment.seeds)) if found else set())
    assert any(word in experiment.where for word in ("Figure", "Table", "ours"))


def test_experiments_share_the_runs_that_mean_the_same() -> None:
    assert ids("fig1") | ids("fig-ema") < ids("costs")
    assert ids("fig1") < ids("fig-ma-decay")
    assert ids("fig-ema") < ids("fig-ema-ablations")
    assert len(ids("table-staged") & ids("fig-slow-only")) == 2
    for name in ("fig-ma-gain", "fig-ma-window", "fig-ma-decay"):
        assert len(ids("table-staged") & ids(name)) == 2  # the baseline, and MA without decay
    for name in ("mnist", "qm9", "imdb"):
        assert len(ids("costs") & ids(name)) == 2  # all but our controls


def test_trajectories_keep_weights_of_five_seeds() -> None:
    (experiment,) = find_experiments(["trajectories"])
    assert experiment.seeds == 5
    assert all(settings["snapshots"] for settings in settings_of_experiment(experiment))


def test_the_papers_arms_keep_its_weight_decays() -> None:
    decays = {
        name: [s["weight_decay"] for e in find_experiments([name]) for s in settings_of_experiment(e)]
        for name in ("fig1", "fig-ema")
    }
    assert decays == {"fig1": [0.0, 0.01], "fig-ema": [0.0, 0.005]}


def test_seeds_and_budget_are_those_asked_for() -> None:
    found = settings_of_experiment(EXPERIMENTS[0], seeds=3, steps=70, threads=None)
    assert [settings["seed"] for settings in found] == [0, 0, 1, 1, 2, 2]
    assert {settings["steps"] for settings in found} == {70}
    with pytest.raises(ValueError, match="seeds must be >= 1, got 0"):
        settings_of_experiment(EXPERIMENTS[0], seeds=0)


def test_the_demo_trains_both_filters_and_the_baseline_for_longer() -> None:
    ema, ma, baseline = demo_settings()
    assert baseline["filter"] is None
    assert baseline["steps"] > max(ema["steps"], ma["steps"])
    assert {settings["steps"] for settings in demo_settings(quick=True)} == {30}
