"""Tables, links and commands as Markdown, and how they get into a page."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from grokfast.lab.compare.names import enumerate_words
from grokfast.lab.compare.seeds import Arm
from grokfast.lab.runs.directory import Run

MARKS = "<!-- results -->", "<!-- end of results -->"
NOTHING = "-"  # in a cell


def as_markdown(lines: Sequence[Sequence[str]]) -> str:
    """A table whose first line is its head; no cell is empty."""
    ruled = [lines[0], ["---"] * len(lines[0]), *lines[1:]]
    return "\n".join("| " + " | ".join(cell or NOTHING for cell in line) + " |" for line in ruled)


def line_up(rows: Sequence[Mapping[str, str]]) -> list[list[str]]:
    """Rows by heading as lines, the headings first, without columns that are empty."""
    names = dict.fromkeys(name for row in rows for name in row if any(other.get(name) for other in rows))
    return [list(names), *([row.get(name, "") for name in names] for row in rows)]


def put_between(text: str, block: str) -> str:
    """A page with this block where its two marks are; ValueError where they are not."""
    before, opening, rest = text.partition(MARKS[0])
    _, closing, after = rest.partition(MARKS[1])
    if not closing:
        raise ValueError(f"the page must hold {MARKS[0]} and after it {MARKS[1]}, got neither or one")
    return f"{before}{opening}\n{block}\n{closing}{after}"


def in_shell(commands: Sequence[str]) -> str:
    return "\n".join(["```sh", *commands, "```"])


# What a row rests on ------------------------------------------------------------------------------------------------


def provenance(arm: Arm, place: Path) -> dict[str, str]:
    """Which seeds, with links from a page in `place` to their runs, which budget, how often evaluated."""
    budgets = [f"{steps:,}" for steps in sorted({budget(run) for run in arm.runs})]
    grids = sorted({grid_text(run) for run in arm.runs})
    return {"seeds": links(arm, place), "budget": enumerate_words(budgets), "evaluated": enumerate_words(grids)}


def links(arm: Arm, place: Path) -> str:
    """The seeds of an arm, each a link to its run."""
    return ", ".join(f"[{run.loop['seed']}]({relative(run.path, place)})" + unfinished(run) for run in arm.runs)


def relative(path: Path, place: Path) -> str:
    return Path(os.path.relpath(path, place)).as_posix()


def unfinished(run: Run) -> str:
    return "" if run.status == "complete" else " (unfinished)"


def budget(run: Run) -> int:
    """The steps that a run was given, or that it is looked at for."""
    return min(run.loop["steps"], run.end or run.loop["steps"])


def grid_text(run: Run) -> str:
    if run.loop["eval_log"] is not None:
        return f"{run.loop['eval_log']} times per decade"
    every = run.loop["eval_every"]
    return f"every epoch ({run.rows[0].step:,} steps)" if every is None else f"every {every:,} steps"
