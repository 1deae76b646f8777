from __future__ import annotations

import math
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tiny import tiny

from grokfast.lab import load_runs
from grokfast.lab.runs import writer as writing
from grokfast.lab.runs.directory import Run, RunError, find_run, readable_runs
from grokfast.lab.runs.files import write_atomically
from grokfast.lab.runs.metrics import Row
from grokfast.lab.runs.writer import open_for_writing
from grokfast.lab.settings import Settings, experiment_of, run_id
from grokfast.lab.training.run import resume


def create_run(config: Settings, folder: Path) -> Run:
    return writing.create_run(config, folder, {"torch": torch.__version__})


ROW = Row(10, 1.5, 0.5, 2.5, 0.25, 3.0, 4.0, None, 1e-3, 80, 0.1)


def test_a_new_run_appears_whole(runs_dir: Path) -> None:
    run = create_run(tiny(), runs_dir)
    assert sorted(p.name for p in run.path.iterdir()) == ["checkpoints", "environment.json", "settings.json"]
    assert [p for p in runs_dir.iterdir() if p.name.startswith(".")] == []
    assert run.settings == tiny()
    assert run.experiment == experiment_of(tiny())
    assert run.environment == {"torch": torch.__version__}


def test_a_run_is_never_overwritten(runs_dir: Path) -> None:
    run = create_run(tiny(), runs_dir)
    with pytest.raises(RunError, match=f"{run.name} exists already"):
        create_run(tiny(), runs_dir)


def test_rows_survive_the_file_and_a_cut_last_line_is_ignored(runs_dir: Path) -> None:
    run = create_run(tiny(), runs_dir)
    with open_for_writing(run) as writer:
        writer.append(ROW)
        writer.append(ROW._replace(step=20, val_loss=math.inf))
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(b'{"step": 30, "train_l')
    first, second = run.rows
    assert first == ROW
    assert math.isnan(second.val_loss)


def test_a_run_has_one_writer(runs_dir: Path) -> None:
    run = create_run(tiny(), runs_dir)
    with open_for_writing(run), pytest.raises(RunError, match="another process"), open_for_writing(Run(run.path)):
        pass


def test_only_the_last_two_checkpoints_are_kept(runs_dir: Path) -> None:
    run = create_run(tiny(), runs_dir)
    with open_for_writing(run) as writer:
        for step in (10, 20, 30):
            writer.save_checkpoint(step, {"step": step})
        assert writer.load_checkpoint(pytest.fail) == {"step": 30}
    names = sorted(p.name for p in (run.path / "checkpoints").iterdir())
    assert names == ["000000020.json", "000000020.pt", "000000030.json", "000000030.pt"]


@pytest.mark.parametrize("damage", ["flip a byte", "cut", "empty", "delete", "spoil the seal", "lose metrics"])
def test_a_damaged_checkpoint_is_passed_over_with_one_line(runs_dir: Path, damage: str) -> None:
    run = create_run(tiny(), runs_dir)
    with open_for_writing(run) as writer:
        writer.append(ROW)
        writer.save_checkpoint(10, {"step": 10})
        writer.append(ROW._replace(step=20))
        writer.save_checkpoint(20, {"step": 20})
        writer.append(ROW._replace(step=30))
    newest = run.path / "checkpoints" / "000000020.pt"
    data = newest.read_bytes()
    match damage:
        case "flip a byte":
            newest.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
        case "cut":
            newest.write_bytes(data[:-7])
        case "empty":
            newest.write_bytes(b"")
        case "delete":
            newest.unlink()
        case "spoil the seal":
            newest.with_suffix(".json").write_text("{")
        case _:
            lines = (run.path / "metrics.jsonl").read_bytes().splitlines(keepends=True)
            (run.path / "metrics.jsonl").write_bytes(lines[0])
    said: list[str] = []
    with open_for_writing(run) as writer:
        assert writer.load_checkpoint(said.append) == {"step": 10}
    assert len(said) == 1
    assert "000000020 is damaged" in said[0]
    assert [row.step for row in run.rows] == [10]


def test_checkpoints_run_no_code(runs_dir: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, ("exit 1",)

    run = create_run(tiny(), runs_dir)
    with open_for_writing(run) as writer:
        writer.save_checkpoint(10, {"step": Evil()})
        with pytest.raises(Exception, match=r"weights_only|Weights only"):
            writer.load_checkpoint(pytest.fail)


def test_a_failed_write_leaves_the_earlier_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    write_atomically(path, b"old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_finished_runs_hold_weights_and_summary_and_no_checkpoint(runs_dir: Path) -> None:
    run = create_run(tiny(), runs_dir)
    with open_for_writing(run) as writer:
        writer.save_checkpoint(10, {})
        writer.finish({"w": torch.ones(2)}, {"steps": 10, "diverged": False})
    assert run.status == "complete"
    assert run.summary == {"steps": 10, "diverged": False}
    assert torch.equal(run.weights()["w"], torch.ones(2))
    assert not (run.path / "checkpoints").exists()


def test_runs_are_found_by_name_prefix_and_path(runs_dir: Path) -> None:
    a, b = create_run(tiny(), runs_dir), create_run(tiny(filter="ema"), runs_dir)
    assert [run.name for run in load_runs(runs_dir)] == [a.name, b.name]
    for name in (a.name, "modmul-p7-width16-adam-b", str(a.path), run_id(tiny()), run_id(tiny())[:5]):
        assert find_run(name, runs_dir).path == a.path
    with pytest.raises(RunError, match="2 runs start with 'modmul'"):
        find_run("modmul", runs_dir)
    with pytest.raises(RunError, match="there is no run 'mnist'"):
        find_run("mnist", runs_dir)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_an_unwritable_directory_is_an_os_error(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    with pytest.raises(OSError, match=r"[Pp]ermission"):
        create_run(tiny(), tmp_path / "runs")


@pytest.mark.parametrize(
    "damage",
    ["{", "[]", "{}", '{"version": 1}', '{"version": 3}', '{"version": 1, "experiment": "x", "settings": {}}'],
)
def test_a_damaged_configuration_is_an_error_that_names_the_file(runs_dir: Path, damage: str) -> None:
    run = create_run(tiny(), runs_dir)
    (run.path / "settings.json").write_text(damage)
    with pytest.raises(RunError, match=r"settings\.json: "):
        _ = Run(run.path).settings


def test_a_run_is_judged_where_it_was_told_to_stop(runs_dir: Path) -> None:
    assert create_run(tiny(), runs_dir).level == 0.95
    run = create_run(tiny(until=0.6), runs_dir)
    assert (run.level, run.settings["level"], run.judged_at(0.7).level) == (0.6, 0.95, 0.7)
    with open_for_writing(run) as writer:
        for step, accuracy in ((10, 0.5), (20, 0.65), (30, 0.9)):
            writer.append(ROW._replace(step=step, val_accuracy=accuracy))
    assert [run.judged_at(level).crossing().step for level in (0.5, 0.6, 0.7, 0.95)] == [10, 20, 30, None]


def test_looking_at_a_run_of_unknown_code_imports_nothing(runs_dir: Path) -> None:
    run = create_run(tiny(filter="ema"), runs_dir)
    text = (run.path / "settings.json").read_text()
    own = text.replace('"task": "modmul"', '"task": "evil.py:Task"').replace('"filter": "ema"', '"filter": "evil.py:F"')
    (run.path / "settings.json").write_text(own)
    found = Run(run.path)
    assert (found.task, found.settings["filter"], found.level, found.measure) == (
        "evil.py:Task",
        "evil.py:F",
        0.95,
        "accuracy",
    )
    with pytest.raises(ValueError, match=r"the task evil.py:Task is not known here: name it with --task evil.py:Task"):
        resume(found)


def test_a_run_can_come_from_a_table(runs_dir: Path) -> None:
    rows = [ROW._replace(step=step, val_accuracy=step / 100) for step in (60, 97, 98)]
    kept = {"experiment": "0123abcd", "summary": {"diverged": False}, "environment": {"torch": "2"}}
    run = Run.from_table(runs_dir / "mine", settings=tiny(seed=4), rows=lambda: rows, tables={}, **kept)
    assert (run.name, run.seed, run.status, run.experiment) == ("mine", 4, "complete", "0123abcd")
    assert (run.crossing().step, run.up_to(60).crossing().step, run.judged_at(0.5).crossing().step) == (97, None, 60)
    assert run.environment == {"torch": "2"}


# A complete run is sealed ---------------------------------------------------------------------------------------------


def complete_run(runs_dir: Path) -> Run:
    run = create_run(tiny(), runs_dir)
    with open_for_writing(run) as writer:
        writer.append(ROW)
        writer.finish({"w": torch.ones(50)}, {"steps": 10, "diverged": False, "best_val_loss": 2.5})
    return Run(run.path)


def flip(path: Path, old: bytes, new: bytes) -> None:
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


ONES = torch.ones(50).numpy().tobytes()


@pytest.mark.parametrize(
    ("name", "old", "new", "look"),
    [
        ("metrics.jsonl", b'"val_loss": 2.5', b'"val_loss": 0.5', lambda run: run.rows),
        ("settings.json", b'"lr": 0.001', b'"lr": 0.002', lambda run: run.settings),
        ("model.pt", ONES, bytes(len(ONES)), lambda run: run.weights()),
        ("summary.json", b'"best_val_loss": 2.5', b'"best_val_loss": 0.5', lambda run: run.summary),
        ("environment.json", b"torch", b"porch", lambda run: run.environment),
    ],
)
def test_a_file_that_was_changed_after_the_end_is_refused_by_name(
    runs_dir: Path, name: str, old: bytes, new: bytes, look: Callable[[Run], object]
) -> None:
    run = complete_run(runs_dir)
    look(Run(run.path))
    flip(run.path / name, old, new)
    with pytest.raises(RunError, match=rf"{name}.* changed after"):
        look(Run(run.path))


def test_runs_that_swapped_their_evaluations_are_left_out(runs_dir: Path) -> None:
    whole, broken = complete_run(runs_dir), complete_run(runs_dir / "other")
    flip(broken.path / "metrics.jsonl", b'"train_loss": 1.5', b'"train_loss": 1.4')
    kept, lost = readable_runs([whole, Run(broken.path)])
    assert kept == [whole]
    assert len(lost) == 1
    assert broken.name in lost[0]
