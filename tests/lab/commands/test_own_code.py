"""A task and a filter of the user's own on the command line: their flags and help, and how their runs are resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grokfast.lab import filters, load_runs, tasks

Call = Callable[..., tuple[int, str, str]]

TASK = '''
from dataclasses import dataclass
from grokfast.lab.tasks.base import TaskDefaults, setting
from grokfast.lab.tasks.modular.task import ModularConfig

@dataclass(frozen=True)
class Toy(ModularConfig):
    """Sums of a toy."""
    chalk: float = setting(1.5, "the length of the chalk")
    p: int = 7
    width: int = 16
    depth: int = 1
    heads: int = 2
    batch_size: int = 8

    def defaults(self):
        return TaskDefaults(level=0.9, steps=12, filters={"ema": {"lamb": 3.0}})
'''
FILTER = '''
from dataclasses import dataclass
import grokfast

@dataclass(frozen=True, kw_only=True)
class Calm(grokfast.EMA):
    """A calm average.

    Args:
        chalk: nothing; the task has a field of that name.
        strength: does nothing either.
    """
    chalk: float = 2.5
    strength: float = 0.25
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a task and a filter in it, where the user is."""
    (tmp_path / "toy.py").write_text(TASK)
    (tmp_path / "calm.py").write_text(FILTER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


TRAIN = ["train", "toy.py:Toy", "--filter", "calm.py:Calm", "--threads", "1", "--quiet"]


@pytest.mark.usefixtures("own")
def test_fields_of_the_users_own_classes_are_flags(call: Call) -> None:
    assert call(*TRAIN, "--chalk", "4", "--filter-chalk", "5", "--strength", "0.5") == (0, "", "")
    (run,) = load_runs()
    assert (run.task, run.filter) == ("toy.py:Toy", "calm.py:Calm")
    assert (run.settings["task"]["chalk"], run.settings["filter"]["chalk"]) == (4.0, 5.0)
    assert (run.settings["filter"]["strength"], run.loop["steps"], run.level) == (0.5, 12, 0.9)
    assert run.name.startswith("toy_py_Toy-calm_py_Calm-a0.98-l2-c5-s0.5-wd0.01-s0-")


@pytest.mark.usefixtures("own")
def test_help_shows_the_users_own_fields(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, call: Call
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        call("train", "toy.py:Toy", "--filter", "calm.py:Calm", "--help")
    out = capsys.readouterr().out
    assert "Sums of a toy:" in out
    assert "the length of the chalk (default: 1.5)" in out
    assert "does nothing either [calm.py:Calm] (default: 0.25 for calm.py:Calm)" in out
    assert "3 for ema" in out


def test_resume_needs_the_names_of_the_users_own_code(own: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grokfast.lab.training.train.run_loop", lambda *args: False)
    code, _, err = call(*TRAIN)
    (run,) = load_runs()
    again = f"grokfast resume {run.name} --task toy.py:Toy --filter calm.py:Calm"
    assert (code, err) == (130, f"grokfast: stopped at step 0 of 12: {again}\n")
    assert again in call(*TRAIN)[2]
    monkeypatch.undo()
    monkeypatch.chdir(own)
    del tasks.TASKS["toy.py:Toy"], filters.FILTERS["calm.py:Calm"]  # as in a new process
    message = "the task of this run is code of your own: name it again with --task toy.py:Toy"
    assert call("resume", run.name) == (1, "", f"grokfast: error: {message}\n")
    assert "--task must be that of the run, toy.py:Toy, got modmul" in call("resume", run.name, "--task", "modmul")[2]
    assert "--filter calm.py:Calm" in call("resume", run.name, "--task", "toy.py:Toy")[2]
    assert run.status == "incomplete"
    assert call(*again.split()[1:], "--quiet") == (0, "", "")
    assert run.status == "complete"
