"""Run directories that version 0.1.0 wrote are read, shown, compared, reported and resumed."""

from __future__ import annotations

import json
import math
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from frozen import read_metrics, select_columns

from grokfast.lab import Run
from grokfast.lab.commands.cli import main
from grokfast.lab.request import command_line
from grokfast.lab.runs.recording import load_gradients, load_snapshots

OLD = Path(__file__).parent / "old_runs"
COMPLETE = sorted(path.parent.name for path in OLD.glob("*/summary.json"))
INTERRUPTED = sorted(path.stem for path in OLD.glob("expected/*.jsonl"))
DIVERGED = "modmul-baseline-wd0-s8-95c96657"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return shutil.copytree(OLD, tmp_path / "runs")


def printed_json(capsys: pytest.CaptureFixture[str], runs: Path, *words: str) -> Any:
    assert main([*words, "--json", "--runs-dir", str(runs)]) == 0
    return json.loads(capsys.readouterr().out)


def stored(name: str, file: str) -> Any:
    return json.loads((OLD / name / file).read_text())


def test_all_old_runs_are_listed(capsys: pytest.CaptureFixture[str], runs: Path) -> None:
    listed = {run["name"]: run["status"] for run in printed_json(capsys, runs, "runs")}
    expected = dict.fromkeys(COMPLETE, "complete") | dict.fromkeys(INTERRUPTED, "incomplete") | {DIVERGED: "diverged"}
    assert listed == expected
    assert (len(COMPLETE), len(INTERRUPTED)) == (20, 2)
    assert main(["runs", "--runs-dir", str(runs)]) == 0


@pytest.mark.parametrize("name", COMPLETE)
def test_old_configuration_and_summary_are_shown_as_written(
    capsys: pytest.CaptureFixture[str], runs: Path, name: str
) -> None:
    shown, config = printed_json(capsys, runs, "show", name), stored(name, "config.json")
    old = config["filter"] | config["optim"] | config["loop"] | config["task"] | {"name": config["task_name"]}
    old |= {"clip_norm": old["clip_norm"] or 0.0, "threads": 1}  # gaps are filled
    for part in ("task", "optim", "loop"):
        kept = {key: value for key, value in shown["config"][part].items() if key in old}
        assert kept == {key: old[key] for key in kept}
    filter = shown["config"]["filter"] or {"name": None}
    assert filter.pop("name") == config["filter"]["filter"]
    assert filter.pop("warmup", None) in (None, not old["partial_window"])
    assert filter == {key: old[key] for key in filter}
    assert shown["summary"] == stored(name, "summary.json")
    assert main(["show", name, "--runs-dir", str(runs)]) == 0


@pytest.mark.parametrize("name", COMPLETE)
def test_old_rows_are_read_as_written(runs: Path, name: str) -> None:
    rows = [row._asdict() for row in Run(runs / name).rows]
    plain = [{k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()} for row in rows]
    written = read_metrics(OLD / name / "metrics.jsonl")
    assert select_columns(plain, written) == written


def test_old_runs_are_compared(capsys: pytest.CaptureFixture[str], runs: Path) -> None:
    compared = printed_json(capsys, runs, "compare", *COMPLETE)
    assert [run["name"] for run in compared] == COMPLETE
    assert main(["compare", *COMPLETE, "--runs-dir", str(runs)]) == 0


def test_old_runs_are_reported(runs: Path, tmp_path: Path) -> None:
    assert main(["report", "--runs-dir", str(runs), "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert [name for name in COMPLETE + INTERRUPTED if name not in page] == []


@pytest.mark.parametrize("name", [name for name in COMPLETE if name.startswith("modmul")])
def test_the_same_command_finds_the_old_run(runs: Path, name: str) -> None:
    before = sorted(runs.iterdir())
    words = shlex.split(command_line(Run(runs / name).config))
    assert main([*words[1:], "--quiet", "--runs-dir", str(runs)]) == (3 if name == DIVERGED else 0)
    assert sorted(runs.iterdir()) == before


def test_old_recordings_are_read(runs: Path) -> None:
    (folder,) = (path.parent for path in runs.glob("*/snapshots"))
    run = Run(folder)
    assert [step for step, _ in load_snapshots(run)] == [0, 1, 2, 3, 6, 10, 16]
    sampled = load_gradients(run)
    assert sampled.before.shape == sampled.after.shape == (16, len(sampled.names))
    assert run.weights()


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_old_run_resumed_equals_uninterrupted(runs: Path, name: str) -> None:
    assert main(["resume", name, "--quiet", "--runs-dir", str(runs)]) == 0
    assert Run(runs / name).status == "complete"
    expected = read_metrics(OLD / "expected" / f"{name}.jsonl")
    rows = select_columns(read_metrics(runs / name / "metrics.jsonl"), expected)
    # Filters and tasks round differently now: the kernels have changed.
    for row, old in zip(rows, expected, strict=True):
        numbers = {name: value for name, value in old.items() if value is not None}
        assert {name: row[name] for name in numbers} == pytest.approx(numbers, rel=1e-3)
