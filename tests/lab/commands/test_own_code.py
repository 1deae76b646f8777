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
    assert (run.task, run.settings["filter"]) == ("toy.py:Toy", "calm.py:Calm")
    assert (run.settings["chalk"], run.settings["filter_chalk"]) == (4.0, 5.0)
    assert (run.settings["strength"], run.settings["steps"], run.level) == (0.5, 12, 0.9)
    assert run.name.startswith("toy_py_Toy-adamw-calm_py_Calm-a0.98-l2-c5-s0.5-lr0.001-wd0.01-s0-")


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
    monkeypatch.setattr("grokfast.lab.training.loop.Loop.run", lambda loop: False)
    code, _, err = call(*TRAIN)
    (run,) = load_runs()
    again = f"grokfast train --resume {run.name} --task toy.py:Toy --filter calm.py:Calm"
    assert (code, err) == (130, f"grokfast: stopped at step 0 of 12: {again}\n")
    monkeypatch.undo()
    monkeypatch.chdir(own)
    del tasks.TASKS["toy.py:Toy"], filters.FILTERS["calm.py:Calm"]  # as in a new process
    name = ["train", "--resume", run.name]
    assert call(*name) == (1, "", f"grokfast: error: the task of this run is code of your own: {again}\n")
    assert "--task must be that of the run, toy.py:Toy, got modmul" in call(*name, "--task", "modmul")[2]
    assert "--filter calm.py:Calm" in call(*name, "--task", "toy.py:Toy")[2]
    assert run.status == "incomplete"
    assert call(*again.split()[1:], "--quiet") == (0, "", "")
    assert run.status == "complete"


# Errors in the user's own code ----------------------------------------------------------------------------------------

BROKEN = (
    TASK
    + """
    def make(self, *, seed, device, data_dir):
        table = {}
        raise %s
"""
)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ('KeyError("x")', "KeyError: 'x'"),
        ('RuntimeError("no")', "RuntimeError: no"),
        ('ValueError("no")', "ValueError: no"),
        ("AssertionError", "AssertionError"),
    ],
)
def test_an_error_in_the_users_code_says_where(own: Path, call: Call, error: str, line: str) -> None:
    (own / "broken.py").write_text(BROKEN % error)
    number = (BROKEN % error).splitlines().index(f"        raise {error}") + 1
    code, out, err = call("train", "broken.py:Toy")
    assert (code, out) == (1, "")
    assert err.splitlines()[:2] == [f"grokfast: error: broken.py:{number}: {line}", f"    raise {error}"]
    assert "Traceback" not in err
    with pytest.raises(Exception, match=r"no|x|^$"):
        call("train", "broken.py:Toy", "--traceback")
    assert not (own / "runs").exists()


def test_an_error_in_a_file_beside_the_users_says_where(own: Path, call: Call) -> None:
    (own / "helper_of_broken.py").write_text("def read():\n    return {}['x']\n")
    text = BROKEN.replace("table = {}", "import helper_of_broken").replace("raise %s", "helper_of_broken.read()")
    (own / "broken_too.py").write_text("import helper_of_broken\n" + text)
    code, _, err = call("train", "broken_too.py:Toy")
    assert code == 1
    assert err.startswith("grokfast: error: helper_of_broken.py:2: KeyError: 'x'\n    return {}['x']\n")
