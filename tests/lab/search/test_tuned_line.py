"""The README's line on a tuned optimizer: what tools/tuned_line.py adds to a finished duel, and what is kept of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from searches import quiet, train_here
from tiny import SIZES

from grokfast.lab import duel
from grokfast.lab.runs.archive import read_csv, read_parquet

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))

from keep import keep_outcome
from tuned_line import run_line

GIVEN = {**SIZES, "steps": 20, "eval_every": 2, "until": 0.2, "hold": 1, "threads": 1}


def test_each_best_setting_is_run_again_with_the_line_on_the_same_fresh_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train_here(monkeypatch)
    folder, kept = tmp_path / "mine", tmp_path / "kept"
    sizes = {"tunings": 2, "trials": 2, "seeds": 2, "workers": 1}
    outcome = duel("modmul", ["adamw", "adamw+ema"], folder, **sizes, tell=quiet, **GIVEN)
    run_line(folder)
    arms, rows = read_csv(folder / "line_arms.csv"), read_csv(folder / "line.csv")
    best = [row["setting"] for row in outcome.settings if (row["arm"], row["settings_of"]) == ("adamw", None)]
    line, _, larger = [[row["setting"] for row in arms if row["arm"] == name] for name in dict.fromkeys(names(arms))]
    assert line == [{**b, "filter": "ema", "alpha": 0.96, "lamb": 2.0, "two_stage": 150} for b in best]
    assert [row["lr"] for row in larger] == [3 * b["lr"] for b in best]
    seeds = [row["seed"] for row in outcome.runs if (row["arm"], row["settings_of"]) == ("adamw", None)]
    assert [row["seed"] for row in rows] == 3 * seeds
    before = (folder / "line.csv").read_text()
    run_line(folder)  # complete runs are left alone
    assert (folder / "line.csv").read_text() == before
    kept.mkdir()
    keep_outcome(folder, kept)
    assert names(read_csv(kept / "duels.csv"))[-12:] == names(rows)
    curves = read_parquet(kept / "duel_curves.parquet")
    assert {row["run"] for row in rows} <= set(curves["run"])


def names(rows: list[dict[str, str]]) -> list[str]:
    return [row["arm"] for row in rows]
