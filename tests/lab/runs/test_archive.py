from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
from made import row, write_run
from tiny import tiny

from grokfast.lab import Run, load_runs
from grokfast.lab.commands.cli import main
from grokfast.lab.runs.archive import DIGITS, archive_run, read_table
from grokfast.lab.runs.directory import RunError
from grokfast.lab.runs.metrics import Row, pack_rows, shorten, unpack_rows
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.train import train


def test_an_archived_run_reads_like_the_run(tmp_path: Path) -> None:
    config = tiny(filter="ema", data_dir=str(tmp_path))
    run, _ = train(config, tmp_path / "runs", command=["grokfast", "train", "--runs-dir", str(tmp_path)])
    assert archive_run(run, tmp_path / "results") == "archived"
    slim = Run(tmp_path / "results" / run.name)
    assert (slim.name, slim.summary, slim.status) == (run.name, run.summary, "complete")
    assert slim.rows == [Row(*(shorten(value, DIGITS) for value in row)) for row in run.rows]
    assert slim.crossing() == run.crossing()
    assert sorted(path.name for path in slim.path.iterdir()) == [
        "config.json",
        "environment.json",
        "metrics.xz",
        "summary.json",
    ]
    assert [found.name for found in load_runs(tmp_path / "results")] == [run.name]
    assert not any(str(tmp_path) in path.read_text() for path in slim.path.glob("*.json"))


def test_rounding_never_moves_a_crossing(tmp_path: Path) -> None:
    config = tiny(until=0.95, steps=30, eval_every=10)
    run = write_run(tmp_path, config, [row(10, 1.0, 0.949999), row(20, 1.0, 0.96), row(30, 1.0, 0.97)])
    archive_run(run, tmp_path / "results")
    slim = Run(tmp_path / "results" / run.name)
    assert slim.crossing().step == run.crossing().step == 20
    assert slim.rows[0].val_accuracy == 0.949999


def test_archiving_twice_gives_the_same_bytes_and_overwrites_nothing(tmp_path: Path) -> None:
    run, _ = train(tiny(), tmp_path / "runs")
    first, second, third = (tmp_path / name / run.name for name in "abc")
    outcomes = [archive_run(run, first.parent), archive_run(run, second.parent), archive_run(Run(first), third.parent)]
    assert outcomes == ["archived"] * 3
    for copy in (second, third):
        assert all((copy / path.name).read_bytes() == path.read_bytes() for path in first.iterdir())
    (first / "summary.json").write_text("{}")
    assert archive_run(run, first.parent) == "there already"
    assert (first / "summary.json").read_text() == "{}"


def test_a_copy_gets_the_tables_it_lacks_and_nothing_else(tmp_path: Path) -> None:
    run, _ = train(tiny(), tmp_path / "runs")
    archive_run(run, tmp_path)
    copy = Run(tmp_path / run.name)
    before = (copy.path / "metrics.xz").stat().st_mtime_ns
    assert archive_run(run, tmp_path, {"weights.json": {"moved": [0.0, 1.5]}}) == "completed"
    assert read_table(copy, "weights.json") == {"moved": [0.0, 1.5]}
    assert archive_run(run, tmp_path, {"weights.json": {"moved": [0.0, 1.5]}}) == "there already"
    assert (copy.path / "metrics.xz").stat().st_mtime_ns == before


def test_another_run_of_the_same_name_is_refused(tmp_path: Path) -> None:
    run, other = (write_run(tmp_path / name, tiny(), [row(10, loss, 0.5)]) for name, loss in (("a", 1.0), ("b", 2.0)))
    slow = write_run(tmp_path / "c", tiny(), [row(10, 1.0, 0.5)._replace(seconds=99.0)])
    archive_run(run, tmp_path / "results")
    assert archive_run(slow, tmp_path / "results") == "there already"  # only the time differs
    with pytest.raises(RunError, match=r"is of a run with other results than .*: remove it to archive this one"):
        archive_run(other, tmp_path / "results")


def test_packed_rows_keep_what_is_missing_or_not_finite() -> None:
    rows = [
        row(10, math.nan, None)._replace(more={"batch_loss": 2 / 3}),
        row(25, 1e-9, 0.5)._replace(slow_norm=0.1, samples=77),
    ]
    found = unpack_rows(pack_rows(rows, 3))
    assert math.isnan(found[0].train_loss)
    assert (found[0].val_accuracy, found[0].more, found[0].step) == (None, {"batch_loss": 0.667}, 10)
    assert (found[1].train_loss, found[1].slow_norm, found[1].samples, found[1].step) == (1e-9, 0.1, 77, 25)
    assert unpack_rows(pack_rows([], 3)) == []


def test_long_runs_are_small(tmp_path: Path) -> None:
    rng = random.Random(0)
    rows = [row(10 * i, rng.lognormvariate(0, 1), i / 6_000) for i in range(1, 5_501)]
    assert len(pack_rows(rows, DIGITS)) < 60_000


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
    archive_run(run, tmp_path / "results")
    slim = tmp_path / "results" / run.name
    (slim / "metrics.xz").write_bytes(b"nonsense")
    with pytest.raises(RunError, match=r"metrics.xz is damaged"):
        _ = Run(slim).rows
