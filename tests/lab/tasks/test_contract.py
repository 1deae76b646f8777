"""A task of a user's own that breaks a promise is refused before there is a run, or when its run is continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from grokfast.lab import load_runs
from grokfast.lab.commands.cli import main
from grokfast.lab.settings import resolve
from grokfast.lab.tasks.data import DataError
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.run import resume, train

GOOD = (Path(__file__).parents[1] / "own" / "toy_task.py").read_text()
NUMBER = 0


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write the good task with a change; gives its name."""
    monkeypatch.chdir(tmp_path)

    def write(old: str, new: str) -> str:
        global NUMBER
        NUMBER += 1  # modules are imported once
        assert old in GOOD
        (tmp_path / f"task{NUMBER}.py").write_text(GOOD.replace(old, new))
        return f"task{NUMBER}.py:Sides"

    return write


POINTS = "torch.randn(2, config.points, 2, generator=self.generator)"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (POINTS, "torch.randn(2, config.points, 2)", "must have a seed that decides everything random: first_"),
        ("draw(seed, lambda: build(config.width).to(device))", "(build(config.width), torch.Generator())", "a seed"),
        (
            "        x, y = self.splits[split]\n",
            "        x, y = self.splits[split]\n        next(self.model.parameters()).mul_(0.5)\n",
            "must have an evaluate that leaves the weights as they are",
        ),
        ("    epoch_steps = 1\n", "    epoch_steps = 0\n", "must have epoch_steps >= 1, got 0"),
        ("(logits.argmax(1) == y).sum()\n", "(logits.argmax(1) == y).float().mean()\n", "a whole number of correct"),
        ('{"generator": self.generator.get_state()}', "{}", "KeyError: 'generator'"),
        (
            'self.generator.set_state(state["generator"])',
            "pass",
            "must have the same next batch after load_state_dict",
        ),
        ("    def state_dict", "    def state", "none called state_dict"),
    ],
)
def test_a_broken_promise_is_refused_by_name(
    broken: Any, tmp_path: Path, old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", broken(old, new), "--threads", "1"]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert not (tmp_path / "runs").exists()


def test_the_good_task_is_accepted(broken: Any) -> None:
    assert main(["train", broken("", ""), "--threads", "1", "--quiet"]) == 0
    (run,) = load_runs()
    assert set(run.environment["data"]) == {"batch", "first_loss", "first_val_loss", "first_val_accuracy"}


def test_a_run_is_not_continued_on_other_data(broken: Any, tmp_path: Path) -> None:
    text = POINTS.replace("torch.randn(", "offset + torch.randn(")
    name = broken(POINTS, f"(lambda offset: {text})(float(Path('offset').read_text()))")
    (tmp_path / "offset").write_text("0")
    run = train(resolve(name, threads=1), tmp_path / "runs", Watcher(should_stop=lambda: True))
    assert not run.done
    (tmp_path / "offset").write_text("0.5")
    with pytest.raises(DataError, match="the task SidesTask has other data than when this run was begun: first_"):
        resume(run)
    (tmp_path / "offset").write_text("0")
    assert resume(run).done
