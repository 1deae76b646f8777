from __future__ import annotations

import dataclasses
import math
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tiny import TINY, comparable, tiny

from grokfast.lab import experiments, load_runs, reproduce, terminal
from grokfast.lab.commands.cli import main
from grokfast.lab.config import RunConfig, fingerprint
from grokfast.lab.tasks.data import DataError
from grokfast.lab.paper.experiments import EXPERIMENTS, NAMES, Experiment, configurations, find_experiments
from grokfast.lab.training.plan import Plan, carry_out, estimate, expected_steps, make_plan
from grokfast.lab.runs.directory import Run, create_run, run_path
from grokfast.lab.training.loop import Watcher, train

FIXED = [
    *("fig1", "table-staged", "fig-ma-gain", "fig-ma-window", "fig-ma-decay", "fig-ema", "fig-ema-ablations"),
    *("fig-filters", "fig-slow-only", "mnist", "qm9", "imdb", "trajectories", "costs", "all"),
]


def plan_of(folder: Path, *configs: RunConfig, quick: bool = False) -> Plan:
    return Plan(["fig1"], list(configs), folder, quick)


def go(plan: Plan) -> tuple[reproduce.Outcome, list[str]]:
    lines: list[str] = []
    return carry_out(plan, lines.append, quiet=True), lines


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that were trained."""
    names: list[str] = []

    def counting(run: Run, watcher: Watcher, **more: Any) -> bool:
        names.append(run.name)
        return train(run, watcher, **more)

    monkeypatch.setattr(terminal, "train", counting)
    return names


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run is one of a fraction of a second."""
    original = experiments.configuration

    def smaller(*args: Any) -> RunConfig:
        config = original(*args)
        loop = dataclasses.replace(config.loop, threads=1)
        return dataclasses.replace(config, task=TINY, loop=loop) if config.task_name == "modmul" else config

    monkeypatch.setattr(experiments, "configuration", smaller)


# The experiments ----------------------------------------------------------------------------------------------------


def test_the_names_are_the_fixed_ones() -> None:
    assert list(NAMES) == FIXED


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda e: e.name)
def test_every_configuration_resolves_and_is_one_of_the_papers_tasks(experiment: Experiment) -> None:
    configs = configurations(experiment)
    assert len(configs) == experiment.seeds * len(experiment.points)
    assert all(config.loop.steps and config.optim.weight_decay is not None for config in configs)
    assert {config.loop.seed for config in configs} == (set(range(experiment.seeds)) if configs else set())
    assert ("Figure" in experiment.where) or ("Table" in experiment.where)


def prints(name: str) -> set[str]:
    return {fingerprint(config) for e in find_experiments([name]) for config in configurations(e)}


def test_experiments_share_the_runs_that_mean_the_same() -> None:
    assert prints("fig1") | prints("fig-ema") < prints("costs")
    assert prints("fig1") < prints("fig-ma-decay")
    assert prints("fig-ema") < prints("fig-ema-ablations")
    assert len(prints("table-staged") & prints("fig-slow-only")) == 2
    for name in ("fig-ma-gain", "fig-ma-window", "fig-ma-decay"):
        assert len(prints("table-staged") & prints(name)) == 2  # the baseline, and MA without decay
    for name in ("mnist", "qm9", "imdb"):
        assert len(prints("costs") & prints(name)) == 2  # all but our controls


def test_trajectories_keep_weights_of_five_seeds() -> None:
    (experiment,) = find_experiments(["trajectories"])
    assert experiment.seeds == 5
    assert all(config.loop.snapshots for config in configurations(experiment))


def test_the_papers_arms_keep_its_weight_decays() -> None:
    decays = {
        name: [p.weight_decay for e in find_experiments([name]) for p in e.points] for name in ("fig1", "fig-ema")
    }
    assert decays == {"fig1": [0.0, 0.01], "fig-ema": [0.0, 0.005]}


def test_seeds_and_budget_are_those_asked_for() -> None:
    configs = configurations(EXPERIMENTS[0], seeds=3, budget=70)
    assert [config.loop.seed for config in configs] == [0, 0, 1, 1, 2, 2]
    assert {config.loop.steps for config in configs} == {70}
    with pytest.raises(ValueError, match="seeds must be >= 1, got 0"):
        configurations(EXPERIMENTS[0], seeds=0)


# Planning -----------------------------------------------------------------------------------------------------------


def test_equal_configurations_are_planned_once(tmp_path: Path) -> None:
    plan = make_plan(["all"], tmp_path)
    keys = [fingerprint(config) for config in plan.configs]
    assert len(keys) == len(set(keys))
    assert set(keys) == prints("all")
    assert len(keys) < sum(len(configurations(e)) for e in EXPERIMENTS)


def test_quick_runs_are_short_and_lie_apart(tmp_path: Path) -> None:
    plan = make_plan(["all"], tmp_path, quick=True)
    assert plan.folder == tmp_path / "quick"
    assert all((config.loop.steps or 0) <= 40 and config.loop.seed == 0 for config in plan.configs)


def test_the_estimate_is_finite_and_shrinks_with_what_is_done(tmp_path: Path) -> None:
    configs = make_plan(["all"], tmp_path).configs
    whole = estimate(configs, tmp_path)
    assert 3600 < whole < math.inf
    assert estimate(configs[1:], tmp_path) < whole
    assert estimate([], tmp_path) == 0


def test_a_run_that_stops_is_expected_to_take_the_published_steps() -> None:
    baseline, ma = configurations(EXPERIMENTS[0])
    assert (expected_steps(baseline), expected_steps(ma)) == (39_890, 790)
    assert expected_steps(dataclasses.replace(ma, loop=dataclasses.replace(ma.loop, steps=100))) == 100
    (mnist,) = find_experiments(["mnist"])
    assert {expected_steps(config) for config in configurations(mnist)} == {100_000}  # they do not stop at the level


def test_measured_speed_replaces_the_table(tmp_path: Path) -> None:
    config = tiny(steps=120)
    before = estimate([config], tmp_path / "none")
    train(create_run(tiny(steps=120, seed=1, eval_every=60), tmp_path))
    (run,) = load_runs(tmp_path)
    assert estimate([config], tmp_path) == pytest.approx(120 / (run.summary or {})["steps_per_second"])
    assert before == pytest.approx(120 * 0.027)


# Doing it -----------------------------------------------------------------------------------------------------------


def test_a_complete_run_is_not_run_again(tmp_path: Path, trained: list[str]) -> None:
    plan = plan_of(tmp_path, tiny(), tiny(seed=1))
    assert go(plan)[0] == reproduce.Outcome([])
    assert len(trained) == 2
    assert go(plan)[0] == reproduce.Outcome([])
    assert len(trained) == 2


def test_an_incomplete_run_is_resumed(tmp_path: Path, trained: list[str]) -> None:
    config = tiny(checkpoint_seconds=0.0)
    run = create_run(config, tmp_path)
    rows: list[int] = []
    assert not train(run, Watcher(on_row=lambda row: rows.append(row.step), should_stop=lambda: len(rows) == 3))
    before = run.rows
    assert go(plan_of(tmp_path, config))[0] == reproduce.Outcome([])
    whole = create_run(config, tmp_path / "whole")
    train(whole)
    assert trained == [run.name]
    assert run.status == "complete"
    assert run.rows[:3] == before  # the clock too: they were not computed again
    assert comparable(run.rows) == comparable(whole.rows)


def test_a_failure_does_not_stop_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(run: Run, watcher: Watcher, **more: Any) -> bool:
        if run.config.loop.seed == 0:
            raise RuntimeError("out of luck")
        return train(run, watcher, **more)

    monkeypatch.setattr(terminal, "train", broken)
    plan = plan_of(tmp_path, tiny(), tiny(seed=1))
    outcome, _ = go(plan)
    assert outcome.failed == [f"{run_path(plan.configs[0], tmp_path).name}: out of luck"]
    assert [run.config.loop.seed for run in plan.complete] == [1]


def lack(monkeypatch: pytest.MonkeyPatch, lacking: str) -> None:
    original = reproduce.task_of

    def task_of(config: RunConfig) -> Any:
        if config.task_name == lacking:
            raise DataError("missing data: put x into y")
        return original(config)

    monkeypatch.setattr(reproduce, "task_of", task_of)


def test_missing_data_is_a_failure_of_the_task_and_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lack(monkeypatch, "qm9")
    absent = configurations(find_experiments(["qm9"])[0])
    outcome, _ = go(plan_of(tmp_path, *absent, tiny()))
    assert outcome.failed == ["all of qm9: missing data: put x into y"]
    assert [run.config.task_name for run in load_runs(tmp_path)] == ["modmul"]
    assert capsys.readouterr().err.count("\n") == 1
    assert go(plan_of(tmp_path, *absent, quick=True))[0] == reproduce.Outcome([])
    assert capsys.readouterr().err == "grokfast: qm9 is left out: missing data: put x into y\n"


def test_ctrl_c_leaves_a_checkpoint_and_the_rest_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(run: Run, watcher: Watcher, **more: Any) -> bool:
        signal.raise_signal(signal.SIGINT)
        return train(run, watcher, **more)

    monkeypatch.setattr(terminal, "train", interrupted)
    outcome, lines = go(plan_of(tmp_path, tiny(), tiny(seed=1)))
    assert outcome.interrupted
    (run,) = load_runs(tmp_path)
    assert run.status == "incomplete"
    assert list((run.path / "checkpoints").iterdir())
    assert len(lines) == 1


def test_the_way_to_go_on_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(run: Run, watcher: Watcher, **more: Any) -> bool:
        return False

    monkeypatch.setattr(terminal, "train", stopped)
    words = ["reproduce", "fig1", "--quick", "--quiet", "--runs-dir", str(tmp_path), "-o", str(tmp_path / "r.html")]
    assert main(words) == 130
    assert capsys.readouterr().err == "grokfast: stopped: the same command goes on from here\n"


def test_progress_says_which_of_how_many_and_the_time_left(tmp_path: Path) -> None:
    _, lines = go(plan_of(tmp_path, tiny(), tiny(seed=1)))
    assert lines[0].startswith("[1 of 2] modmul-baseline-wd0-s0")
    assert "until all is done" in lines[0]
    assert lines[2].startswith("[2 of 2]")


# The command --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
def test_quick_trains_each_run_once_and_leaves_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trained: list[str]
) -> None:
    out = tmp_path / "r.html"
    words = ["reproduce", "fig1", "fig-ema", "fig-filters", "--quick", "--runs-dir", str(tmp_path), "-o", str(out)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "0 complete already, the rest takes about" in printed
    assert "EMA" in printed
    assert len(trained) == 3
    assert "<html" in out.read_text()
    plan = make_plan(["fig1", "fig-ema"], tmp_path, quick=True)
    assert plan.left == []
    assert reproduce.summary(plan).endswith("3 complete already")


@pytest.mark.usefixtures("small")
def test_a_failed_run_gives_exit_code_1_and_is_named_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lack(monkeypatch, "qm9")
    words = ["fig1", "qm9", "--budget", "5", "--quiet", "--runs-dir", str(tmp_path), "-o", str(tmp_path / "r.html")]
    assert main(["reproduce", *words]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "grokfast: failed: all of qm9: missing data: put x into y"
    assert len(load_runs(tmp_path)) == 2


def test_an_unknown_name_gives_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "fig99", "--runs-dir", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert "fig99" in err
    assert err.count("\n") == 1


def test_the_list_needs_no_pictures() -> None:
    script = (
        "import sys; from grokfast.lab.commands.cli import main; code = main(['reproduce', '--list']);"
        "assert not {'matplotlib', 'plotly'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in FIXED)


def test_the_filters_of_the_figure_are_those_of_the_paper() -> None:
    tables = reproduce.responses()
    assert [table.title for table in tables] == ["MA, window size 100, lamb 5", "EMA, alpha 0.98, lamb 2"]
    assert [next(iter(table.columns[1].cells)) for table in tables] == ["6.000", "3.000"]  # 1 + lambda
