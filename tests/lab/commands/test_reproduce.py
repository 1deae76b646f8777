"""`grokfast reproduce`: its plan, its list, its exit code, and how it continues."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import SIZES

from forks import Fork, run_code
from grokfast.lab import load_runs, paper
from grokfast.lab.commands import reproduce
from grokfast.lab.commands.reproduce import expected_steps, plan_runs, run_of
from grokfast.lab.paper import ALL, EXPERIMENTS, find_experiments, ours, settings_of_experiment
from grokfast.lab.settings import Settings
from grokfast.lab.training.loop import Loop

Call = Callable[..., tuple[int, str, str]]
QUICK = {"seeds": None, "budget": None, "data_dir": None, "threads": None, "quick": True}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every run on modular arithmetic takes a fraction of a second."""
    original = paper._settings_of_run

    def smaller(*args: Any) -> Settings:
        settings = original(*args)
        return {**settings, **SIZES, "threads": 1} if settings["task"] == "modmul" else settings

    monkeypatch.setattr(paper, "_settings_of_run", smaller)


def flags(folder: Path) -> list[str]:
    return ["--quiet", "--runs-dir", str(folder), "-o", str(folder / "r.html")]


def test_quick_runs_are_short_and_kept_apart(tmp_path: Path) -> None:
    planned, folder = plan_runs(argparse.Namespace(names=["all"], runs_dir=tmp_path, **QUICK))
    assert folder == tmp_path / "quick"
    assert all(settings["steps"] <= 40 and settings["seed"] == 0 for settings in planned)
    assert len(planned) < sum(len(settings_of_experiment(e)) for e in EXPERIMENTS)


def test_a_run_that_stops_is_expected_to_take_the_published_steps() -> None:
    baseline, ma = settings_of_experiment(EXPERIMENTS[0])
    assert (expected_steps(baseline), expected_steps(ma)) == (39_890, 790)
    assert expected_steps({**ma, "steps": 100}) == 100
    (mnist,) = find_experiments(["mnist"])
    assert {expected_steps(settings) for settings in settings_of_experiment(mnist)} == {100_000}  # they do not stop


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
    planned, folder = plan_runs(argparse.Namespace(names=names, runs_dir=tmp_path, **QUICK))
    assert all(run_of(settings, folder).done for settings in planned)
    again = call("reproduce", "fig1", "fig-ema", "--quick", "--runs-dir", tmp_path, "-o", out)[1]
    assert "3 complete already\n" in again
    assert "until all is done" not in again


def test_own_runs_are_printed_beside_the_papers_numbers(tmp_path: Path, call: Call) -> None:
    words = ["reproduce", "fig1", "--seeds", "2", "--budget", "1", "--threads", "1"]
    code, printed, _ = call(*words, "--runs-dir", tmp_path, "-o", tmp_path / "r.html")
    assert code == 0
    lines = [line.split("\t") for line in printed.splitlines() if "\t" in line]
    (head, *rows) = [line for line in lines if line[0] in ("arm", "Baseline", "Grokfast-MA")]
    found = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert {name: row["paper: steps"] for name, row in found.items()} == {"Baseline": "39,890", "Grokfast-MA": "790"}
    assert {row["runs"] for row in found.values()} == {"2"}


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
    def broken(*args: Any) -> None:
        raise RuntimeError("out of luck")

    monkeypatch.setattr(Loop, "run", broken)
    code, _, err = call("reproduce", "fig1", "--quick", *flags(tmp_path))
    assert code == 1
    assert [line.split(": ")[-1] for line in err.splitlines()] == ["out of luck"] * 2
    assert err.startswith("grokfast: failed: modmul-p7-width16-adam-baseline")


def stop(*args: Any) -> None:
    return None


def interrupt(*args: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("how", [stop, interrupt])
def test_after_ctrl_c_one_line_says_how_to_continue(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, how: Callable[..., None]
) -> None:
    monkeypatch.setattr(Loop, "run", how)
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
        "assert not {'vl_convert', 'jinja2'} & set(sys.modules); sys.exit(code)"
    )
    done = Fork(run_code, script)
    assert done.wait() == 0, done.err
    assert all(name in done.out for name in (ALL, *(e.name for e in (*EXPERIMENTS, *ours()))))


def test_the_filters_of_the_figure_are_those_of_the_paper(tmp_path: Path) -> None:
    tables = [part for part in reproduce.results(["fig-filters"], [], tmp_path / "r.html") if not isinstance(part, str)]
    assert [table.title for table in tables] == ["MA, window size 100, lamb 5", "EMA, alpha 0.98, lamb 2"]
    assert [next(iter(table.columns[1].cells)) for table in tables] == ["6.000", "3.000"]  # 1 + lambda
