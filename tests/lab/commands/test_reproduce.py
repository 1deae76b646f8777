"""`grokfast reproduce`: its plan, its list, its exit code, and how it continues."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import TINY

from forks import Fork, run_code
from grokfast.lab import load_runs
from grokfast.lab.commands.reproduce import make_plan
from grokfast.lab.commands.response import response_table
from grokfast.lab.config import RunConfig
from grokfast.lab.paper import experiments
from grokfast.lab.paper.experiments import EXPERIMENTS, NAMES, configurations, find_experiments
from grokfast.lab.report.results_pictures import paper_filters
from grokfast.lab.training import train as training
from grokfast.lab.training.plan import expected_steps, what_is_left

Call = Callable[..., tuple[int, str, str]]
QUICK = {"seeds": None, "budget": None, "data_dir": None, "threads": None, "quick": True}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run on modular arithmetic takes a fraction of a second."""
    original = experiments.configuration

    def smaller(*args: Any) -> RunConfig:
        config = original(*args)
        loop = dataclasses.replace(config.loop, threads=1)
        return dataclasses.replace(config, task=TINY, loop=loop) if config.task_name == "modmul" else config

    monkeypatch.setattr(experiments, "configuration", smaller)


def flags(folder: Path) -> list[str]:
    return ["--quiet", "--runs-dir", str(folder), "-o", str(folder / "r.html")]


def test_quick_runs_are_short_and_kept_apart(tmp_path: Path) -> None:
    configs, folder = make_plan(argparse.Namespace(names=["all"], runs_dir=tmp_path, **QUICK))
    assert folder == tmp_path / "quick"
    assert all(config.loop.steps <= 40 and config.loop.seed == 0 for config in configs)
    assert len(configs) < sum(len(configurations(e)) for e in EXPERIMENTS)


def test_a_run_that_stops_is_expected_to_take_the_published_steps() -> None:
    baseline, ma = configurations(EXPERIMENTS[0])
    assert (expected_steps(baseline), expected_steps(ma)) == (39_890, 790)
    assert expected_steps(dataclasses.replace(ma, loop=dataclasses.replace(ma.loop, steps=100))) == 100
    (mnist,) = find_experiments(["mnist"])
    assert {expected_steps(config) for config in configurations(mnist)} == {100_000}  # they do not stop at the level


@pytest.mark.usefixtures("small")
def test_quick_trains_each_run_once_and_leaves_a_page(tmp_path: Path, call: Call) -> None:
    names, out = ["fig1", "fig-ema", "fig-filters"], tmp_path / "r.html"
    code, printed, _ = call("reproduce", *names, "--quick", "--runs-dir", tmp_path, "-o", out)
    assert code == 0
    assert "3 runs in" in printed
    assert "0 complete already, the rest takes about" in printed
    assert [f"[{number} of 3] modmul-" in printed for number in (1, 2, 3)] == [True] * 3
    assert "EMA, alpha 0.98, lamb 2" in printed
    assert "<html" in out.read_text()
    assert (tmp_path / "filters.png").exists()
    assert what_is_left(*make_plan(argparse.Namespace(names=names, runs_dir=tmp_path, **QUICK))) == []
    again = call("reproduce", "fig1", "fig-ema", "--quick", "--runs-dir", tmp_path, "-o", out)[1]
    assert "3 complete already\n" in again
    assert "until all is done" not in again


@pytest.mark.usefixtures("small")
def test_a_task_without_data_is_left_out_at_once_and_fails_at_the_end(tmp_path: Path, call: Call) -> None:
    (tmp_path / "data").mkdir()
    words = ["reproduce", "fig1", "mnist", "--budget", "5", "--data-dir", tmp_path / "data", *flags(tmp_path)]
    code, _, err = call(*words)
    assert code == 1
    first, last = err.splitlines()
    assert first.startswith("grokfast: mnist is left out: missing data")
    assert last.startswith("grokfast: failed: all of mnist: missing data")
    assert [run.task for run in load_runs(tmp_path)] == ["modmul", "modmul"]


def test_a_task_without_data_is_no_failure_of_a_quick_look(tmp_path: Path, call: Call) -> None:
    (tmp_path / "data").mkdir()
    code, _, err = call("reproduce", "mnist", "--quick", "--data-dir", tmp_path / "data", *flags(tmp_path))
    assert code == 0
    assert err.count("\n") == 1


@pytest.mark.usefixtures("small")
def test_a_run_that_fails_is_named_at_the_end(tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> bool:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(training, "run_loop", broken)
    code, _, err = call("reproduce", "fig1", "--quick", *flags(tmp_path))
    assert code == 1
    assert [line.split(": ")[-1] for line in err.splitlines()] == ["out of luck"] * 2
    assert err.startswith("grokfast: failed: modmul-p7-width16-baseline-wd0-s0")


def stop(*args: Any) -> bool:
    return False


def interrupt(*args: Any) -> bool:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("how", [stop, interrupt])
def test_after_ctrl_c_one_line_says_how_to_continue(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, how: Callable[..., bool]
) -> None:
    monkeypatch.setattr(training, "run_loop", how)
    code, out, err = call("reproduce", "fig1", "--quick", *flags(tmp_path))
    assert (code, out, err) == (130, "", "grokfast: stopped: the same command continues from here\n")
    assert len(load_runs(tmp_path / "quick")) == 1


def test_an_unknown_name_gives_one_line(tmp_path: Path, call: Call) -> None:
    code, _, err = call("reproduce", "fig99", "--runs-dir", tmp_path)
    assert code == 1
    assert "fig99" in err
    assert err.count("\n") == 1


def test_the_list_names_every_experiment_and_draws_nothing() -> None:
    script = (
        "import sys; from grokfast.lab.commands.cli import main; code = main(['reproduce', '--list']);"
        "assert not {'matplotlib', 'plotly'} & set(sys.modules); sys.exit(code)"
    )
    done = Fork(run_code, script)
    assert done.wait() == 0, done.err
    assert all(name in done.out for name in NAMES)


def test_the_filters_of_the_figure_are_those_of_the_paper() -> None:
    tables = [response_table(filter) for filter in paper_filters()]
    assert [table.title for table in tables] == ["MA, window size 100, lamb 5", "EMA, alpha 0.98, lamb 2"]
    assert [next(iter(table.columns[1].cells)) for table in tables] == ["6.000", "3.000"]  # 1 + lambda
