"""What a resume trusts: nothing that was changed since it was written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import TINY_FLAGS, comparable, tiny

from forks import Fork, run_cli
from grokfast.lab.commands.cli import main
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.settings import name_of
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.run import resume, train


def begin(folder: Path, rows: int = 4) -> Run:
    """A run stopped after so many evaluations, with a checkpoint at each."""
    seen = 0

    def enough() -> bool:
        nonlocal seen
        seen += 1
        return seen == rows

    return train(tiny(filter="ema", checkpoint_seconds=0.0), folder, Watcher(should_stop=enough))


def edit(run: Run, **values: Any) -> Run:
    path = run.path / "settings.json"
    data = json.loads(path.read_text())
    data["settings"].update(values)
    path.write_text(json.dumps(data))
    return Run(run.path)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"lr": 0.1}, r"lr = 0.1 \(was 0.001\)"),
        ({"seed": 3}, r"seed = 3 \(was 0\)"),
        ({"steps": 60}, r"steps = 60 \(was 30\)"),
        ({"lamb": 5.0}, r"lamb = 5.0 \(was 2.0\)"),
        ({"width": 32}, r"width = 32 \(was 16\)"),
    ],
)
def test_an_edited_setting_is_refused_by_name(runs_dir: Path, values: dict[str, Any], named: str) -> None:
    run = edit(begin(runs_dir), **values)
    with pytest.raises(RunError, match=rf"settings.json was edited: {named} differ from those the run was begun with"):
        resume(run)


def test_an_edited_setting_is_refused_without_a_checkpoint_too(runs_dir: Path) -> None:
    run = begin(runs_dir)
    shutil.rmtree(run.path / "checkpoints")
    with pytest.raises(RunError, match="its settings are not those the run was begun with"):
        resume(edit(run, lr=0.1))


def test_training_the_same_configuration_sees_the_edit(runs_dir: Path) -> None:
    edit(begin(runs_dir), lr=0.1)
    with pytest.raises(RunError, match=r"was edited: lr"):
        train(tiny(filter="ema", checkpoint_seconds=0.0), runs_dir)


@pytest.mark.parametrize("filter", ['"xyz"', '{"name": "xyz"}', "7", "[]"])
def test_a_filter_that_is_none_is_refused(runs_dir: Path, filter: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = begin(runs_dir)
    edit(run, filter=json.loads(filter))
    assert main(["train", "--resume", run.name, "--runs-dir", str(runs_dir)]) == 1
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "filter" in err


def test_what_does_not_influence_the_result_may_be_edited(runs_dir: Path) -> None:
    assert resume(edit(begin(runs_dir), checkpoint_seconds=99.0)).done


def test_a_renamed_run_is_resumed(runs_dir: Path) -> None:
    run = begin(runs_dir)
    assert resume(Run(run.path.rename(runs_dir / "mine"))).done


def flip_digit(line: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        lines = content.split(b"\n")
        place = lines[line].index(b'"val_loss": ') + 15
        digit = b"7" if lines[line][place : place + 1] != b"7" else b"3"
        lines[line] = lines[line][:place] + digit + lines[line][place + 1 :]
        return b"\n".join(lines)

    return flip


@pytest.mark.parametrize(("line", "lost"), [(0, 2), (3, 1)])
def test_a_flipped_digit_in_the_metrics_is_noticed_and_trained_again(tmp_path: Path, line: int, lost: int) -> None:
    whole = train(tiny(filter="ema"), tmp_path / "whole")
    run, warnings = begin(tmp_path / "parts"), list[str]()
    path = run.path / "metrics.jsonl"
    path.write_bytes(flip_digit(line)(path.read_bytes()))
    assert resume(run, Watcher(on_warning=warnings.append)).done
    assert len(warnings) == lost
    assert all("metrics.jsonl was changed since" in warning for warning in warnings)
    assert comparable(run.rows) == comparable(whole.rows)


def test_a_run_without_its_folder_of_checkpoints_begins_anew(tmp_path: Path) -> None:
    whole = train(tiny(filter="ema"), tmp_path / "whole")
    run = begin(tmp_path / "parts")
    shutil.rmtree(run.path / "checkpoints")
    assert resume(run).done
    assert comparable(run.rows) == comparable(whole.rows)


def test_of_four_trainings_at_once_one_wins_and_the_others_name_the_run(tmp_path: Path) -> None:
    words = ["train", "modmul", *TINY_FLAGS, "--steps", "1000", "--eval-every", "100", "--quiet"]
    made = [Fork(run_cli, [*words, "--runs-dir", str(tmp_path)]) for _ in range(4)]
    ended = [(fork.wait(), fork.err) for fork in made]
    (run,) = tmp_path.iterdir()
    assert Run(run).status == "complete"
    for code, err in ended:
        if code == 0:
            continue
        assert run.name in err
        assert ".new-" not in err
        assert err.count("\n") == 1


def test_the_loser_of_a_race_for_a_directory_names_the_run(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grokfast.lab.runs import writer

    real = writer.write_json

    def race(path: Path, data: dict[str, Any]) -> None:
        """Another process is faster, between our look and our rename."""
        real(path, data)
        rival = runs_dir / name_of(tiny())
        rival.mkdir(exist_ok=True)
        real(rival / "settings.json", data)

    monkeypatch.setattr(writer, "write_json", race)
    with pytest.raises(RunError, match=rf"^{runs_dir / name_of(tiny())} was begun by another process at"):
        writer.create_run(tiny(), runs_dir, {})
    assert [path.name[0] for path in runs_dir.iterdir()] == ["m"]
