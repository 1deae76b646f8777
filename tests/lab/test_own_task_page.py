"""The example of docs/own-task.md is short, and every command of the page works on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from searches import train_here
from tiny import TINY

from grokfast.lab import load_runs
from grokfast.lab.commands.cli import main
from grokfast.lab.tasks.base import Evaluation
from grokfast.lab.tasks.contract import check_contract
from grokfast.lab.tasks.modular.task import ModularTask

PAGE = (Path(__file__).parents[2] / "docs" / "own-task.md").read_text()
EXAMPLE, SCRIPT = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
SHORT = ["--steps", "20", "--threads", "1", "--quiet"]


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "circle.py").write_text(EXAMPLE)
    monkeypatch.chdir(tmp_path)
    train_here(monkeypatch)


def test_the_example_is_short() -> None:
    assert len([line for line in EXAMPLE.splitlines() if line.strip()]) <= 40
    assert "ab(train_fn, space" in SCRIPT


def test_the_commands_of_the_page_work() -> None:
    commands = re.search(r"Save it as `circle.py`. Then:\n\n```sh\n(.*?)```", PAGE, flags=re.DOTALL)
    assert commands is not None
    train, sweep, duel, report = [line.split()[1:] for line in commands[1].splitlines()]
    assert main([*train, *SHORT]) == 0
    assert main([*sweep, *SHORT, "--workers", "1"]) == 0
    assert main([*duel, *SHORT, "--tunings", "2", "--trials", "2", "--seeds", "1"]) == 0
    assert main(report) == 0
    (run,) = load_runs()
    assert (run.task, run.settings["points"]) == ("circle.py:Circle", 300)
    assert len(list(Path("duels").glob("*/verdicts.json"))) == 1


def test_the_script_runs_by_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert "tunings=8, trials=8, seeds=3" in SCRIPT
    exec(SCRIPT.replace("tunings=8, trials=8, seeds=3", "tunings=2, trials=2, seeds=1"), {})
    printed = capsys.readouterr().out
    assert "adamw+ema: tunes lr from 0.001 to 0.1 (log), lamb from 0.1 to 10 (log); fixed is nothing" in printed
    assert "Undecided" in printed


def test_it_learns() -> None:
    assert main(["train", "circle.py:Circle", "--threads", "1", "--quiet", "--until", "0.9"]) == 0
    assert load_runs()[0].crossing().step is not None


# Broken promises ----------------------------------------------------------------------------------------------------


BROKEN: list[tuple[str, str, str]] = [
    ("def evaluate(self, split)", "def evaluated(self, split)", "got 'none called evaluate'"),
    ("return Evaluation(float(loss),", "return (float(loss),", "an evaluate that gives an Evaluation"),
    ("return cross_entropy(logits, batch.y), (", "return cross_entropy(logits, batch.y) + 0 * (", "a loss that gives"),
    (
        "return cross_entropy(logits, batch.y),",
        "return cross_entropy(logits, batch.y).item(),",
        "a loss with a gradient",
    ),
    ('return self.splits["train"].take(index)', "return 7", "batches with a length, got 7"),
    ("(logits.argmax(1) == batch.y).sum()", "(logits.argmax(1) == batch.y)", "a whole number of correct answers in"),
    ("(logits.argmax(1) == batch.y).sum()", "0.5", "a whole number of correct answers in [0, 32], got 0.5"),
    ("float(correct) / len", "100 * float(correct) / len", "a plain number in [0, 1] as the accuracy"),
    ("Evaluation(float(loss),", "Evaluation(loss,", "a plain number as the loss of an evaluation"),
    ("@dataclass(frozen=True)\nclass Circle(", "class Circle(", "must be a dataclass: write @dataclass(frozen=True)"),
    ("return CircleTask(self, seed, device)", "pass", "the task NoneType must have model"),
    ("return TaskDefaults(", "TaskDefaults(", "defaults of the task Circle must give TaskDefaults, got None"),
    ("level=0.95", "level=95", "level must be in (0, 1], got 95"),
    (
        "    def batch_of",
        "    def shuffle(self):\n        return torch.randperm(len(self.order))\n\n    def batch_of",
        "the same next batch after load_state_dict",
    ),
    (
        "    def batch_of",
        "    def load_state_dict(self, state):\n        pass\n\n    def batch_of",
        "the same next batch after load_state_dict, got 'a loss of",
    ),
]


@pytest.mark.parametrize(("good", "bad", "message"), BROKEN, ids=[message for *_, message in BROKEN])
def test_a_broken_promise_is_named_in_one_line_and_leaves_no_run(
    good: str, bad: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert EXAMPLE.count(good) == 1
    Path("broken.py").write_text(EXAMPLE.replace(good, bad))
    assert main(["train", "broken.py:Circle", *SHORT]) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model", 3, "a torch module as its model, got 3"),
        ("epoch_steps", 0, "epoch_steps >= 1, got 0"),
        ("state_dict", lambda: [1], r"a state_dict that gives a dict, got \[1\]"),
        ("evaluate", lambda split: Evaluation(1.0, None), "correct answers where it has an accuracy"),
    ],
)
def test_each_promise_is_tried(name: str, value: Any, message: str) -> None:
    class Changed:
        """A good task with one member replaced."""

        def __init__(self) -> None:
            self.task = ModularTask(TINY)

        def __getattr__(self, wanted: str) -> Any:
            return value if wanted == name else getattr(self.task, wanted)

    with pytest.raises(ValueError, match=message):
        check_contract(Changed())


def test_our_own_task_keeps_the_contract() -> None:
    check_contract(ModularTask(TINY))
