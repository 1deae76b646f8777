from __future__ import annotations

from pathlib import Path

import pytest
from tiny import tiny

from grokfast.lab import Run, load_runs
from grokfast.lab.commands.cli import main
from grokfast.lab.runs.archive import archive_run
from grokfast.lab.runs.directory import RunError
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.train import train


def test_an_archived_run_reads_like_the_run(tmp_path: Path) -> None:
    config = tiny(filter="ema", data_dir=str(tmp_path))
    run, _ = train(config, tmp_path / "runs", command=["grokfast", "train", "--runs-dir", str(tmp_path)])
    slim = Run(archive_run(run, tmp_path / "results"))
    assert (slim.name, slim.rows, slim.summary, slim.status) == (run.name, run.rows, run.summary, "complete")
    assert slim.crossing() == run.crossing()
    assert sorted(path.name for path in slim.path.iterdir()) == [
        "config.json",
        "environment.json",
        "metrics.jsonl.xz",
        "summary.json",
    ]
    assert [found.name for found in load_runs(tmp_path / "results")] == [run.name]
    assert not any(str(tmp_path) in path.read_text() for path in slim.path.glob("*.json"))


def test_archiving_twice_gives_the_same_bytes_and_overwrites_nothing(tmp_path: Path) -> None:
    run, _ = train(tiny(), tmp_path / "runs")
    first, second = archive_run(run, tmp_path / "a"), archive_run(run, tmp_path / "b")
    assert all((second / path.name).read_bytes() == path.read_bytes() for path in first.iterdir())
    again = Run(archive_run(Run(first), tmp_path / "c"))
    assert all((again.path / path.name).read_bytes() == path.read_bytes() for path in first.iterdir())
    (first / "summary.json").write_text("{}")
    assert archive_run(run, tmp_path / "a") == first
    assert (first / "summary.json").read_text() == "{}"


def test_an_unfinished_run_is_no_evidence(tmp_path: Path) -> None:
    run, _ = train(tiny(), tmp_path / "runs", Watcher(should_stop=lambda: True))
    with pytest.raises(RunError, match="must be complete to be archived: grokfast resume"):
        archive_run(run, tmp_path / "results")
    assert not (tmp_path / "results").exists()


def test_the_command_archives_complete_runs_and_names_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done, _ = train(tiny(), tmp_path / "runs")
    begun, _ = train(tiny(seed=1), tmp_path / "runs", Watcher(should_stop=lambda: True))
    assert main(["archive", "--runs-dir", str(tmp_path / "runs"), "-o", str(tmp_path / "kept")]) == 0
    assert [run.name for run in load_runs(tmp_path / "kept")] == [done.name]
    assert f"{begun.name} is left out: it is not complete" in capsys.readouterr().err


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    run, _ = train(tiny(), tmp_path / "runs")
    slim = archive_run(run, tmp_path / "results")
    (slim / "metrics.jsonl.xz").write_bytes(b"nonsense")
    with pytest.raises(RunError, match=r"metrics.jsonl.xz is damaged"):
        _ = Run(slim).rows
