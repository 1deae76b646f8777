"""Runs as tables: what is written is read back, a changed file is refused, and rounding moves no crossing."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path
from typing import Any

import pytest
from made import row, write_run
from tiny import tiny

from grokfast.lab import Run, load_runs
from grokfast.lab.runs.archive import DIGITS, merge_columns, read_tables, write_csv, write_tables
from grokfast.lab.runs.directory import RunError, find_run
from grokfast.lab.runs.metrics import Row, shorten

ROWS = [row(10, 2 / 3, 0.25), row(20, 1e-9, 0.96), row(30, 0.1, 0.97)]
TABLES: dict[str, dict[str, Any]] = {
    "weights": {
        "parameters": 12,
        "bc": 1.5,
        "steps": [0, 500, 900],
        "moved": [0.0, 2.5, 3.0],
        "axes_of": "base",
        "points": [[0.0, 0.0], [1.0, -1.0], [2.0, 0.5]],
    },
    "spectra": {
        "phases": {
            "whole run": {"start": 0, "stop": 64, "segment": 8, "before": [1.0, 2.0], "after": [3.0, 4.0]},
            "after grokking": {"start": 32, "stop": 64, "segment": 4, "before": [1.0], "after": [3.0]},
        },
        "gain": {"frequency": [0.1, 0.2], "measured": [1.0, 2.0], "theory": [1.0, 1.5]},
    },
}


def rounded(rows: list[Row]) -> list[Row]:
    return [Row(*(shorten(value, DIGITS) for value in each)) for each in rows]


def test_kept_runs_read_like_the_runs(tmp_path: Path) -> None:
    plain = write_run(tmp_path / "runs", tiny(until=0.95), ROWS)
    filtered = write_run(tmp_path / "runs", tiny(filter="ma", seed=1, betas=(0.5, 0.9), two_stage="auto"), ROWS)
    filtered.tables |= TABLES
    write_tables([plain, filtered], tmp_path / "kept")
    kept = {run.name: run for run in load_runs(tmp_path / "kept")}
    assert sorted(kept) == sorted([plain.name, filtered.name])
    for run in (plain, filtered):
        found = kept[run.name]
        assert list(found.settings.items()) == list(run.settings.items())  # in the same order
        assert (found.experiment, found.summary, found.status) == (run.experiment, run.summary, "complete")
        assert (found.rows, found.tables) == (rounded(run.rows), run.tables)
        assert {k: found.crossing(k) for k in ("first", "stable", "train")} == {
            k: run.crossing(k) for k in ("first", "stable", "train")
        }
    assert find_run(plain.name[-8:], tmp_path / "kept").seed == 0


def test_what_is_missing_or_not_finite_is_kept(tmp_path: Path) -> None:
    rows = [
        row(10, math.nan, None)._replace(more={"batch_loss": 2 / 3}),
        row(25, 1.0, None)._replace(slow_norm=0.1, samples=77),
    ]
    write_tables([write_run(tmp_path / "runs", tiny(), rows)], tmp_path)
    (run,) = read_tables(tmp_path)
    assert math.isnan(run.rows[0].train_loss)
    assert (run.rows[0].val_accuracy, run.rows[0].more) == (None, {"batch_loss": 0.66667})
    assert (run.rows[1].slow_norm, run.rows[1].samples, run.rows[1].more) == (0.1, 77, None)


def test_rounding_never_moves_a_crossing(tmp_path: Path) -> None:
    rows = [row(10, 1.0, 0.949999), row(20, 1.0, 0.96), row(30, 1.0, 0.97)]
    write_tables([write_run(tmp_path / "runs", tiny(until=0.95), rows)], tmp_path)
    (run,) = read_tables(tmp_path)
    assert run.crossing().step == 20
    assert run.rows[0].val_accuracy == 0.949999


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = [write_run(tmp_path / "runs", tiny(seed=seed), ROWS) for seed in (0, 1)]
    write_tables(runs, tmp_path / "a")
    write_tables(runs[::-1], tmp_path / "b")
    write_tables(read_tables(tmp_path / "a"), tmp_path / "c")
    for other in ("b", "c"):
        assert all(
            (tmp_path / other / path.name).read_bytes() == path.read_bytes() for path in (tmp_path / "a").iterdir()
        )


@pytest.mark.parametrize("name", ["runs.csv", "curves.parquet", "weights.csv", "spectra.parquet", "gains.parquet"])
def test_a_changed_file_is_named_and_refused(tmp_path: Path, name: str) -> None:
    run = write_run(tmp_path / "runs", tiny(), ROWS)
    run.tables |= TABLES
    write_tables([run], tmp_path / "kept")
    content = bytearray((tmp_path / "kept" / name).read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "kept" / name).write_bytes(content)
    with pytest.raises(RunError, match=rf"{name} was changed: it does not fit its digest in .*SHA256SUMS"):
        load_runs(tmp_path / "kept")


def test_a_file_without_a_digest_is_refused(tmp_path: Path) -> None:
    write_tables([write_run(tmp_path / "runs", tiny(), ROWS)], tmp_path / "kept")
    (tmp_path / "kept" / "SHA256SUMS").unlink()
    with pytest.raises(RunError, match="must have its digest in"):
        load_runs(tmp_path / "kept")


def test_the_digests_are_those_of_sha256sum(tmp_path: Path) -> None:
    write_tables([write_run(tmp_path / "runs", tiny(), ROWS)], tmp_path)
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_an_unfinished_run_is_not_kept(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", tiny(), ROWS, finish=False)
    with pytest.raises(RunError, match="must be complete to be kept"):
        write_tables([run], tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_a_table_knows_no_directory_of_the_machine(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", tiny(data_dir=str(tmp_path)), ROWS)
    run.environment["command"] = ["grokfast", "train", "--runs-dir", str(tmp_path), f"--data-dir={tmp_path}"]
    write_tables([run], tmp_path / "kept")
    assert str(tmp_path) not in (tmp_path / "kept" / "runs.csv").read_text()


@pytest.mark.parametrize("value", ["adam", "12", "null", "", 'a "b", c', None, True, 1, 0.1, [0.9, [1]], {"lr": 0.1}])
def test_every_value_is_read_back_from_a_cell(tmp_path: Path, value: Any) -> None:
    from grokfast.lab.runs.archive import read_csv, seal

    write_csv(tmp_path / "t.csv", [{"a": value, "b": 1}, {"b": 2}])
    seal(tmp_path)
    assert read_csv(tmp_path / "t.csv") == [{"a": value, "b": 1}, {"b": 2}]


def test_columns_keep_the_order_of_each_row() -> None:
    lines = [{"a": 1, "z": 1}, {"a": 1, "b": 1, "c": 1, "z": 1}, {"a": 1, "d": 1, "c": 1, "z": 1}]
    columns = merge_columns(lines)
    assert all([name for name in columns if name in line] == list(line) for line in lines)


def test_curves_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    write_tables([write_run(tmp_path / "runs", tiny(), ROWS)], tmp_path / "kept")
    (run,) = load_runs(tmp_path / "kept")
    assert isinstance(run, Run)
    assert run.rows is run.rows
