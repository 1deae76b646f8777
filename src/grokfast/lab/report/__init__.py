"""Pictures and pages of runs. Nothing here trains a task."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from grokfast.lab.analysis.weights import products_by_model
from grokfast.lab.report.curves import curves_picture
from grokfast.lab.report.demo import demo_story
from grokfast.lab.report.depth import (
    gradient_pictures,
    known_filters,
    response_picture,
    theorem_picture,
    weight_pictures,
)
from grokfast.lab.report.page import page, report_values
from grokfast.lab.report.page import showable_runs as showable_runs
from grokfast.lab.report.pictures import Picture, write_picture
from grokfast.lab.report.sweeps import sweep_pictures
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.files import write_atomically
from grokfast.lab.search.outcome import Outcome
from grokfast.lab.tables import arms, by_task

THEOREMS = 3  # filters in the picture of the theorem: each takes a second of training


def write_report(
    runs: Sequence[Run],
    out: Path,
    *,
    unreadable: Sequence[str] = (),
    level: float | None = None,
    duels: Sequence[Outcome] = (),
) -> Path:
    """Write the page to `out`; `unreadable` has a line on each run that cannot be shown.

    All runs are judged at `level`; by default at the one they stopped at, or that of their task.
    """
    tasks = by_task(runs, level)
    if not tasks and not duels:
        raise ValueError("a report needs at least one run that can be read, or a duel, got none")
    count = sum(map(len, tasks.values()))
    title = "1 run" if count == 1 else f"{count} runs"
    if duels:
        title = duels[0].title if len(duels) == 1 else f"{len(duels)} duels"
    text = page("report.html.j2", f"Grokfast: {title}", report_values(tasks, unreadable, duels))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, text.encode())
    return out


def write_demo(runs: Sequence[Run], out: Path, *, playground: str | None = None) -> tuple[Path, Path]:
    """Write the demo's page and its picture: the story first, everything else folded.

    `playground` is the address of the playground's page.
    """
    story = demo_story(runs)
    values = {**report_values(by_task(runs)), "story": story, "playground": playground}
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, page("demo.html.j2", "Grokfast: the demo", values).encode())
    return out, write_picture(
        [story["picture"]], out.with_name("curves.png" if out.stem == "index" else f"{out.stem}.png")
    )


def all_pictures(runs: Sequence[Run], *, level: float | None = None) -> list[Picture]:
    """Every picture of the page, and that of the theorem."""
    tasks = by_task(runs, level)
    everything = [run for members in tasks.values() for run in members]
    curves = [curves_picture(arms(members), task) for task, members in tasks.items()]
    found = [picture for picture in curves if picture is not None]
    found += [picture for members in tasks.values() for picture in sweep_pictures(members)]
    filters = known_filters(everything)
    if filters:
        found += [response_picture(filters), theorem_picture(dict(list(filters.items())[:THEOREMS]))]
    return [*found, *gradient_pictures(everything), *weight_pictures(everything, products_by_model(everything))]


def write_figures(runs: Sequence[Run], folder: Path, ending: str, *, level: float | None = None) -> list[Path]:
    """Write every picture to a file of its own, for papers: png, svg or pdf."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        write_picture([picture], folder / f"{picture.name}.{ending}") for picture in all_pictures(runs, level=level)
    ]
