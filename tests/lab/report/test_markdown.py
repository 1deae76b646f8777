"""Markdown: tables without empty cells, links to runs, blocks between marks."""

from __future__ import annotations

from pathlib import Path

import pytest
from made import made_run

from grokfast.lab.compare.seeds import make_arms
from grokfast.lab.report.markdown import MARKS, as_markdown, line_up, provenance, put_between


def test_no_cell_is_empty_and_no_column_either() -> None:
    lines = line_up([{"arm": "a", "steps": "1", "paper": "", "more": ""}, {"arm": "b", "paper": "2"}])
    assert as_markdown(lines).splitlines() == [
        "| arm | steps | paper |",
        "| --- | --- | --- |",
        "| a | 1 | - |",
        "| b | - | 2 |",
    ]


def test_a_block_goes_between_the_marks() -> None:
    page = f"above\n{MARKS[0]}\nold\n{MARKS[1]}\nbelow\n"
    assert put_between(page, "new") == f"above\n{MARKS[0]}\nnew\n{MARKS[1]}\nbelow\n"
    with pytest.raises(ValueError, match="must hold"):
        put_between("no marks", "new")


def test_a_row_says_what_it_rests_on(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / "runs", "Baseline", seed, [9.0] * n) for seed, n in ((0, 105), (1, 131), (2, 105))]
    (arm,) = make_arms(runs)
    found = provenance(arm, tmp_path / "docs")
    links = ", ".join(f"[{seed}](../runs/{run.name})" for seed, run in enumerate(runs))
    assert found == {"seeds": links, "budget": "1,050 and 1,310", "evaluated": "every 10 steps"}
