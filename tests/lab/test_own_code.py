"""A task and a filter of a user's own, one file each, do everything that ours do."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from tiny import comparable

from forks import FORKS, Fork, run_cli, run_code
from grokfast.lab import Run, load_runs
from grokfast.lab.commands.cli import main
from grokfast.lab.settings import resolve
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.run import train

OWN = Path(__file__).parent / "own"
TASK, FILTER = f"{OWN / 'toy_task.py'}:Sides", f"{OWN / 'toy_filter.py'}:Pair"
FLAGS = ["--filter", FILTER, "--threads", "1", "--quiet"]


@pytest.fixture
def run(runs_dir: Path) -> Run:
    assert main(["train", TASK, *FLAGS, "--share", "0.25", "--points", "30", "--runs-dir", str(runs_dir)]) == 0
    (found,) = load_runs(runs_dir)
    return found


def test_it_trains_with_flags_of_its_own(run: Run) -> None:
    assert run.name.startswith("toy_task_py_Sides-adamw-toy_filter_py_Pair-l1-s0.25-lr0.03-wd0.01-s0-")
    assert (run.task, run.settings["filter"], run.settings["points"]) == (TASK, FILTER, 30)
    assert run.settings["share"] == 0.25
    assert run.rows[-1].slow_norm is not None


def test_its_flags_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", TASK, "--help"])
    assert "size of the hidden layer" in capsys.readouterr().out


def test_it_resumes_under_its_name_when_the_code_is_named_again(runs_dir: Path, tmp_path: Path) -> None:
    config = resolve(TASK, filter=FILTER, threads=1)
    whole = train(config, tmp_path / "whole")
    stopped = train(config, runs_dir, Watcher(should_stop=lambda: True))
    assert not stopped.done
    words = ["train", "--resume", stopped.name, "--runs-dir", str(runs_dir)]
    refused = Fork(run_cli, words)
    assert refused.wait() == 1
    assert "--task" in refused.err
    assert refused.err.count("\n") == 1
    done = Fork(run_cli, [*words, "--task", TASK, "--filter", FILTER])
    assert done.wait() == 0, done.err
    assert comparable(Run(stopped.path).rows) == comparable(whole.rows)


def test_looking_at_it_imports_none_of_it(run: Run, runs_dir: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from grokfast.lab.commands.cli import main\n"
        f"where = ['--runs-dir', {str(runs_dir)!r}]\n"
        f"page = {str(tmp_path / 'page.html')!r}\n"
        f"for words in (['runs'], ['runs', {run.name!r}], ['report', '-o', page]):\n"
        "    assert main([*words, *where]) == 0, words\n"
        "assert not [name for name in sys.modules if 'toy_' in name]\n"
    )
    done = Fork(run_code, script)
    assert done.wait() == 0, done.err
    assert run.name in done.out
    page = (tmp_path / "page.html").read_text()
    assert "Sides" in page
    assert "share" in page


def test_it_sweeps_in_worker_processes_and_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: FORKS)
    words = ["sweep", TASK, "--filter", FILTER, "--grid", "share=0.1,0.3,0.5", "--until", "0.7", "--steps", "20"]
    where = ["--sweep-dir", str(tmp_path / "sweep"), "--workers", "2", "--threads", "1", "--json"]
    assert main([*words, *where]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert sorted(standing["setting"]["share"] for standing in found["settings"]) == [0.1, 0.3, 0.5]
    assert main(["report", str(tmp_path / "sweep" / "runs"), "-o", str(tmp_path / "page.html")]) == 0
    assert "Sweep over share" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.py:Sides", "must name a file that exists"),
        (f"{OWN / 'toy_task.py'}:Nothing", "cannot be loaded"),
        (f"{OWN / 'toy_filter.py'}:Pair", "must name a subclass of"),
        ("no_such_package:Sides", "cannot be loaded"),
        ("modmull", "a task must be one of modmul, "),
    ],
)
def test_a_task_that_is_none_is_refused_in_one_line(
    name: str, message: str, capsys: pytest.CaptureFixture[str], runs_dir: Path
) -> None:
    assert main(["train", name, "--runs-dir", str(runs_dir)]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not runs_dir.exists()
