"""A task of a user's own that breaks a promise is refused before there is a run, or when its run is continued."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import comparable

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


EVALUATE = "        x, y = self.splits[split]\n"
LOSS = "cross_entropy(logits, y), ("
POINTS = "torch.randn(2, config.points, 2, generator=self.generator)"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (POINTS, "torch.randn(2, config.points, 2)", "must have a seed that decides everything random: first_"),
        ("draw(seed, lambda: build(config.width).to(device))", "(build(config.width), torch.Generator())", "a seed"),
        (
            "        x, y = self.splits[split]\n",
            "        x, y = self.splits[split]\n        next(self.model.parameters()).mul_(0.5)\n",
            "must have an evaluate that leaves the weights and buffers as they are",
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
        ("nn.ReLU()", "nn.BatchNorm1d(width)", "must have an evaluate that leaves the weights and buffers as they are"),
        (
            EVALUATE,
            EVALUATE + "        torch.rand(1, generator=self.generator)\n",
            "an evaluate that leaves state_dict",
        ),
        (LOSS, "torch.zeros((), requires_grad=True), (", "a loss with a gradient for the weights of its model"),
        (LOSS, "cross_entropy(logits, y) / 0, (", "a finite loss of its first batch, got tensor(inf"),
        ("(logits.argmax(1) == y).sum()\n", "'many'\n", "a whole number of correct answers in [0, 16], got 'many'"),
        (
            "Evaluation(float(cross_entropy(logits, y)),",
            "Evaluation(float('nan'),",
            "a finite loss and accuracy in its",
        ),
        (
            "Evaluation(float(cross_entropy(logits, y)),",
            "Evaluation(loss=1.0, more={'x': y}, accuracy=",
            "a dict of plain numbers as the more of an evaluation",
        ),
        ("{'generator': ".replace("'", '"'), "{'path': Path(), 'generator': ", "a state_dict of tensors and numbers"),
        ("    data = None ", "    data = [1] ", "a checksum as its data, or None if it is made from the seed, got [1]"),
        ("    points: int", "    measure = 'f1'\n    points: int", "measure must be one of accuracy, loss, got 'f1'"),
        ("lr=3e-2", "lr='big'", "lr must be a number, got 'big'"),
        ("level=0.9", "level='high'", "level must be in (0, 1], got high"),
        ("    def defaults(", "    def size(self): return 5\n\n    def defaults(", "must give a Size, got 5"),
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


def test_a_complete_run_of_other_data_is_no_answer(broken: Any, tmp_path: Path) -> None:
    text = POINTS.replace("torch.randn(", "offset + torch.randn(")
    name = broken(POINTS, f"(lambda offset: {text})(float(Path('offset').read_text()))")
    (tmp_path / "offset").write_text("0")
    settings = resolve(name, threads=1)
    assert train(settings, tmp_path / "runs").done
    (tmp_path / "offset").write_text("0.5")
    with pytest.raises(DataError, match="the task SidesTask has other data than when this run was begun: first_"):
        train(settings, tmp_path / "runs")


def test_an_evaluation_in_the_middle_of_a_run_is_checked_too(broken: Any, capsys: pytest.CaptureFixture[str]) -> None:
    later = EVALUATE + "        self.count = getattr(self, 'count', 0) + 1\n"
    later += "        if self.count > 2:\n            return Evaluation(0.5, 97.5)\n"
    assert main(["train", broken(EVALUATE, later), "--threads", "1", "--eval-every", "5"]) == 1
    assert "a plain number in [0, 1] as the accuracy of an evaluation, got 97.5" in capsys.readouterr().err


def test_an_evaluation_that_leaves_another_mode_behind_is_refused(
    broken: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    name = broken("nn.ReLU()", "nn.Dropout(0.5)")
    path = Path(name.partition(":")[0])
    path.write_text(path.read_text().replace(EVALUATE, EVALUATE + "        self.model.eval()\n"))
    assert main(["train", name, "--threads", "1"]) == 1
    assert (
        "must have a loss that does not change by an evaluation, for example by model.eval()" in capsys.readouterr().err
    )


def test_a_task_without_an_accuracy_must_be_judged_by_its_loss(broken: Any, capsys: pytest.CaptureFixture[str]) -> None:
    name = broken("(logits.argmax(1) == y).sum()\n", "None\n")
    path = Path(name.partition(":")[0])
    path.write_text(path.read_text().replace("float((logits.argmax(1) == y).float().mean())", "None"))
    assert main(["train", name, "--threads", "1"]) == 1
    assert 'must be loss, as it has no accuracy: write measure = "loss"' in capsys.readouterr().err


@pytest.mark.parametrize("seed", [0, 1])
def test_dropout_is_decided_by_the_seed_also_after_a_resume(broken: Any, tmp_path: Path, seed: int) -> None:
    name = broken("nn.ReLU()", "nn.Dropout(0.5)")
    path = Path(name.partition(":")[0])
    path.write_text(
        path.read_text()
        .replace(EVALUATE, EVALUATE + "        self.model.eval()\n")
        .replace(
            "logits = self.model(x)\n        return cross",
            "self.model.train()\n        logits = self.model(x)\n        return cross",
        )
    )
    settings = resolve(name, threads=1, seed=seed, eval_every=5)
    state = torch.get_rng_state()
    whole = train(settings, tmp_path / "whole")
    assert torch.equal(torch.get_rng_state(), state)  # the library leaves the global stream alone
    torch.manual_seed(123)  # whatever was drawn before
    seen: list[int] = []
    stop = Watcher(on_row=lambda row: seen.append(row.step), should_stop=lambda: seen[-1] >= 15)
    assert not train(settings, tmp_path / "parts", stop).done
    torch.manual_seed(456)
    parts = train(settings, tmp_path / "parts")
    assert comparable(parts.rows) == comparable(whole.rows)


def test_an_error_while_a_file_is_imported_names_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "kit").mkdir()
    cases = {
        "1 / 0": "ZeroDivisionError: division by zero",
        "{}['x']": "KeyError: 'x'",
        "import no_such_module": "ModuleNotFoundError: No module named 'no_such_module'",
        "def f(:": "SyntaxError: invalid syntax",
        "raise SystemExit(0)": "SystemExit: 0",
        "raise RuntimeError": "RuntimeError",
    }
    for place, (line, message) in enumerate(cases.items()):
        (tmp_path / f"bad{place}.py").write_text(f"\n{line}\n")
        (tmp_path / "kit" / f"bad{place}.py").write_text(f"\n{line}\n")
        for name, shown in ((f"bad{place}.py:T", f"bad{place}.py"), (f"kit.bad{place}:T", f"kit/bad{place}.py")):
            assert main(["train", name]) == 1
            first, second, *_ = capsys.readouterr().err.splitlines()
            assert (first, second) == (f"grokfast: error: {shown}:2: {message}", f"    {line}")
