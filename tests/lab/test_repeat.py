"""tools/repeat.py: kept experiments on more seeds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from made import made_run

from grokfast.lab.runs.archive import write_tables

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import repeat


def test_only_the_seed_and_what_is_typed_differ_from_the_kept_run(tmp_path: Path) -> None:
    run = made_run(tmp_path / "runs", "Baseline", 2, [0.5, 0.1], task="mnist")
    write_tables([run], tmp_path)
    again = repeat.repeated(run.experiment, 7, {"steps": 40}, tmp_path)
    differ = {name for name in again if again[name] != run.settings[name]}
    assert differ - {"threads", "device"} == {"seed", "steps"}
    assert (again["seed"], again["steps"], again["threads"]) == (7, 40, 1)
    with pytest.raises(SystemExit, match=r"KEY must be an experiment of .*, got nothing"):
        repeat.repeated("nothing", 7, {}, tmp_path)


def test_values_are_read_as_json_or_text() -> None:
    pairs = [repeat.setting(text) for text in ("steps=1200", "operation=add", "gradients=null")]
    assert pairs == [("steps", 1200), ("operation", "add"), ("gradients", None)]
