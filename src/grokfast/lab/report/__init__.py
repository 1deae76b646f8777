"""Pictures and pages of runs, from their directories only: nothing here trains."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from grokfast.lab.report.figures import draw_curves as draw_curves
from grokfast.lab.report.page import write_page
from grokfast.lab.runs import Run, RunError


def write_report(runs: Sequence[Run], out: Path) -> tuple[Path, Path]:
    """Write the page to `out` and the curves to a PNG beside it; runs that cannot be read are named on the page."""
    readable, unreadable = sort_out(runs)
    page = write_page(readable, out, unreadable=unreadable)
    picture = out.with_name("curves.png" if out.stem == "index" else f"{out.stem}.png")
    draft = picture.with_name(f".{picture.name}.new.png")
    draw_curves(readable, draft)
    os.replace(draft, picture)
    return page, picture


def sort_out(runs: Sequence[Run]) -> tuple[list[Run], list[str]]:
    """Runs that can be shown, and a line on each that cannot: of another version, or damaged."""
    readable: list[Run] = []
    unreadable: list[str] = []
    for run in runs:
        try:
            _ = run.config, run.rows, run.summary
            readable.append(run)
        except (RunError, ValueError, TypeError, OSError) as error:
            unreadable.append(f"{run.name}: {error}")
    return readable, unreadable
