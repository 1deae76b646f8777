"""The leaderboard: which runs count, what makes an entry, and that one command adds one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made import row, write_run

from grokfast.lab import Run, load_runs
from grokfast.lab.commands.cli import main
from grokfast.lab.config import OPTIMIZERS
from grokfast.lab.report.leaderboard import OPERATIONS, SEEDS, counts, find_entries, leaderboard_page
from grokfast.lab.request import ask, resolve

LION = "pytorch_optimizer:Lion"


def made(folder: Path, crossing: int, seed: int, operation: str = "multiply", **settings: Any) -> Run:
    """A run that reaches the level after so many steps."""
    config = resolve(ask("modmul", seed=seed, operation=operation, steps=1000, threads=1, **settings))
    rows = [row(step, 1.0, 0.99 if step >= crossing else 0.1) for step in sorted({10, min(crossing, 990), 1000})]
    return write_run(folder, config, rows)


def entry(folder: Path, crossing: int, operations: tuple[str, ...] = OPERATIONS, **settings: Any) -> None:
    for operation in operations:
        for seed in range(1, SEEDS + 1):
            made(folder, crossing + seed, seed, operation, **settings)


def page_of(folder: Path) -> str:
    return leaderboard_page(load_runs(folder))


def test_entries_are_ordered_by_their_median_and_have_an_interval_and_a_command(tmp_path: Path) -> None:
    entry(tmp_path, 500, optimizer="adamw", lr=3e-3)
    entry(tmp_path, 200, filter="ema", row_norm=2.0)
    made(tmp_path, 700, 1, "s5", filter="ema", row_norm=2.0)
    lines = [line for line in page_of(tmp_path).splitlines() if line.startswith("| ")]
    assert lines[2].startswith(
        "| 1 | adam, lr 0.001, decay 0.005, EMA, alpha 0.98, lamb 2, row clip 2 | **206** | 203 to 208 |"
    )
    assert lines[2].endswith("| s5 700 (1 seed) |")
    assert lines[3].startswith("| 2 | adamw, lr 0.003, decay 0 | **506** |")
    assert "grokfast train modmul --filter ema" in page_of(tmp_path)
    assert "--row-norm 2.0" in page_of(tmp_path)


def test_the_rules_stand_on_top() -> None:
    page = leaderboard_page([])
    assert page.startswith("# Leaderboard")
    assert "Seed 0 is for tuning and never counts." in page
    assert "None yet." in page


def test_an_entry_needs_ten_seeds_of_all_four_operations_with_one_setting(tmp_path: Path) -> None:
    entry(tmp_path, 200, operations=OPERATIONS[:3])
    for seed in range(1, SEEDS):
        made(tmp_path, 200, seed, "divide")
    made(tmp_path, 200, SEEDS, "divide", lr=2e-3)  # another setting
    page = page_of(tmp_path)
    assert "None yet." in page
    assert "206 steps on multiply, 10 seeds; it needs 1 more of divide" in page


def test_what_has_too_few_seeds_stands_below_and_a_control_of_multiply_alone_does_not(tmp_path: Path) -> None:
    made(tmp_path, 200, 1)
    assert "## Not complete" not in page_of(tmp_path)
    made(tmp_path, 200, 1, "add")
    assert "200 steps on multiply, 1 seed; it needs 9 more of multiply, 9 more of add, 10 more of" in page_of(tmp_path)


def test_what_others_report_is_said_to_be_reported_only() -> None:
    text = leaderboard_page([]).split("## Reported by others")[1]
    assert text.startswith("\n\nNot run here.")
    assert (
        "| clip to grok: Lion, rows of matrices clipped to a norm | 535 | 570 | 775 | 730 | 1,348 | by its auth" in text
    )


def test_what_does_not_count(tmp_path: Path) -> None:
    assert counts(made(tmp_path, 200, 1))
    assert counts(made(tmp_path, 200, 1, loss="stablemax"))
    assert counts(made(tmp_path, 200, 1, fast=False))
    for changes in ({"p": 31}, {"train_fraction": 0.6}, {"batch_size": 64}, {"width": 64}, {"with_zero": True}):
        assert not counts(made(tmp_path, 200, 1, **changes))
    assert not counts(made(tmp_path, 200, 0))  # the tuning seed
    (found,) = [e for e in find_entries(load_runs(tmp_path)) if "stablemax" not in e.name]
    assert len(found.runs["multiply"]) == 1  # fast or not is the same entry, and one run of a seed counts


def test_runs_that_never_get_there_are_censored(tmp_path: Path) -> None:
    for operation in OPERATIONS:
        for seed in range(1, SEEDS + 1):
            made(tmp_path, 2000 if operation == "divide" else 100, seed, operation)
    assert "| > 1,000 |" in page_of(tmp_path)


def test_one_command_adds_an_entry_and_code_is_loaded_only_if_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs, results, page = tmp_path / "runs", tmp_path / "results", tmp_path / "docs" / "leaderboard.md"
    entry(runs, 100, optimizer=LION, lr=1e-3)
    made(runs, 100, 0, optimizer=LION, lr=1e-3)
    del OPTIMIZERS[LION]  # as in a new process
    where = ["--results", str(results), "-o", str(page)]
    assert main(["leaderboard", str(runs), *where]) == 1
    assert f"name it with --optimizer {LION}" in capsys.readouterr().err
    assert main(["leaderboard", str(runs), *where, "--optimizer", LION]) == 0
    assert "archived: 40 runs" in capsys.readouterr().out
    assert "| 1 | Lion, lr 0.001, decay 0 | **106** |" in page.read_text()
    assert len(load_runs(results)) == 40
    assert main(["leaderboard", str(tmp_path / "nowhere"), *where]) == 1
