"""Runs and arms as rows of text for the page, with the paper's numbers; the headings come first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from grokfast.lab.analysis.trajectory import Distances, known_distances
from grokfast.lab.analysis.weights import Products
from grokfast.lab.paper import PaperArm
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import best
from grokfast.lab.stats import spread_of
from grokfast.lab.tables import Arm, arms, by_task, label, mean_text, seconds_of, steps_of
from grokfast.lab.tasks import TASKS
from grokfast.lab.tasks.base import Headline, Measure

SIDES = ("AB", "BC", "AC")


def as_lines(rows: Sequence[dict[str, str]]) -> list[list[str]]:
    """Rows by heading as lines of text, the headings first; [] without any."""
    return [list(rows[0]), *(list(row.values()) for row in rows)] if rows else []


def arm_rows(shown: Sequence[Arm]) -> list[list[str]]:
    """A line for each arm of one task: steps to the level over seeds, values of runs that trained on, the paper's."""
    return as_lines([arm_row(arm) for arm in shown])


def arm_row(arm: Arm) -> dict[str, str]:
    run, whole, headlines = arm.runs[0], whole_runs(arm.runs), headlines_of(arm.runs[0].task)
    elsewhere = {headline.published for headline in headlines}
    level = f"{run.level:g}"
    row = {
        "arm": arm.name,
        "weight decay": f"{run.settings['weight_decay']:g}",
        "runs": count_text(arm),
        f"steps to {level}": str(arm.steps()),
        "paper: steps": arm.paper.steps_text if arm.paper else "",
        "held from": str(spread_of([steps_of(run, "held") for run in watched_runs(arm.runs)])),
        "final accuracy": mean_text((run.rows[-1].val_accuracy for run in whole), 3),
        "best accuracy": best_text(whole, "accuracy"),
        "paper: accuracy": "" if "accuracy" in elsewhere else published(arm.paper, "accuracy"),
        "best loss": best_text(whole, "loss"),
        "paper: loss": "" if "loss" in elsewhere else published(arm.paper, "loss"),
    }
    for headline in headlines:
        row |= {headline.words: headline_text(whole, headline)}
        row |= {f"paper: {headline.words}": published(arm.paper, headline.published)}
    return row


def published(paper: PaperArm | None, name: str) -> str:
    value = getattr(paper, name, None)
    return "" if value is None else f"{value:g}"


def headlines_of(task: str) -> list[Headline]:
    """Further columns of a task; none if the task is not known here."""
    known = TASKS.get(task)
    return [] if known is None else [h for h in (known.headline, *known.further) if h is not None]


def count_text(arm: Arm) -> str:
    open = sum(not run.done for run in arm.runs)
    if not open:
        return str(len(arm.runs))
    return f"{len(arm.runs)} (unfinished)" if open == len(arm.runs) else f"{len(arm.runs)} ({open} unfinished)"


def whole_runs(runs: Sequence[Run]) -> list[Run]:
    """Complete runs that did not stop at a level: the others have no final values."""
    return [run for run in runs if run.done and not run.stopped_at_level]


def watched_runs(runs: Sequence[Run]) -> list[Run]:
    """Complete runs that were trained beyond the level, if they reached it."""
    return [
        run
        for run in runs
        if run.done and (run.settings["extra_steps"] or run.settings["hold"] or not run.stopped_at_level)
    ]


def best_text(runs: Sequence[Run], measure: Measure) -> str:
    found = [best(run.rows, measure) for run in runs]
    return mean_text((value and value.value for value in found), 3)


def headline_text(runs: Sequence[Run], headline: Headline) -> str:
    """The best value of a measure of this task, over seeds."""
    pick = max if headline.published == "accuracy" else min
    values = ([(row.more or {}).get(headline.column) for row in run.rows] for run in runs)
    return mean_text((pick((v for v in known if v is not None), default=None) for known in values), 3)


# Runs -----------------------------------------------------------------------------------------------------------------


def run_rows(runs: Sequence[Run], shown: Sequence[Arm]) -> list[list[str]]:
    """A line for each run; the last column says whether it counts over seeds."""
    counts = {run.name: "yes" for arm in shown for run in arm.runs}
    counts |= {run.name: f"no: {reason}" for arm in shown for run, reason in arm.left_out}
    return as_lines([{**run_line(run), "counts": counts.get(run.name, "no: not evaluated yet")} for run in runs])


def run_line(run: Run) -> dict[str, str]:
    """The row of one run by heading; an incomplete run says so."""
    rows, first = run.rows, run.crossing()
    last, lowest = rows[-1] if rows else None, best(rows, "loss")
    stopped_there = last is not None and run.stopped_at_level and first.step == last.step
    return {
        "run": label(run),
        "steps to level": str(steps_of(run)) if rows else "",
        "between evaluations": "" if first.step is None else f"{first.after:,} and {first.step:,}",
        "stable from": "stopped there" if stopped_there else str(steps_of(run, "stable")) if rows else "",
        "accuracy": "" if last is None or last.val_accuracy is None else f"{last.val_accuracy:.4f}",
        "best loss": "" if lowest is None else f"{lowest.value:.4g}",
        "seconds": "" if last is None else f"{last.seconds:.1f}",
        "steps/s": f"{last.step / last.seconds:.0f}" if last is not None and last.seconds else "",
        "status": run.status,
    }


def setting_rows(runs: Sequence[Run]) -> list[list[str]]:
    """A line for each run, a column for each setting in which they differ."""
    keys = dict.fromkeys(key for run in runs for key in run.settings)
    differ = [key for key in keys if len({repr(run.settings.get(key)) for run in runs}) > 1]
    return [["run", *differ], *([label(run), *(setting_cell(run.settings.get(key)) for key in differ)] for run in runs)]


def setting_cell(value: Any) -> str:
    """A value of a setting.

    >>> setting_cell(None), setting_cell(0.0001), setting_cell([0.9, 0.98])
    ('-', '0.0001', '0.9 0.98')
    """
    if isinstance(value, list):
        return " ".join(setting_cell(part) for part in value)  # type: ignore[reportUnknownVariableType]
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


# Costs and distances --------------------------------------------------------------------------------------------------


def cost_rows(shown: Iterable[Arm]) -> list[list[str]]:
    """Time and memory of each arm, beside the paper's (Appendix D)."""
    return as_lines([cost_row(arm) for arm in shown])


def cost_row(arm: Arm) -> dict[str, str]:
    seconds = [seconds_of(run) for run in arm.runs]
    pace = [1e3 * run.rows[-1].seconds / run.rows[-1].step for run in arm.runs]
    sizes = {key: [megabytes(run, key) for run in arm.runs] for key in ("peak_memory_bytes", "filter_bytes")}
    paper = arm.paper
    step = None if paper is None or paper.step_seconds is None else 1e3 * paper.step_seconds
    return {
        "arm": arm.title,
        "steps to the level": str(arm.steps()),
        "seconds to it": mean_text((s.value if s.exact else None for s in seconds), 3),
        "paper: seconds": mean_text([paper and paper.seconds], 3),
        "ms per step, with evaluations": mean_text(pace, 3),
        "paper: ms per step": mean_text([step], 3),
        "peak memory, MB": mean_text(sizes["peak_memory_bytes"], 3),
        "paper: memory, MB": mean_text([paper and paper.memory_mb], 3),
        "filter's state, MB": mean_text(sizes["filter_bytes"], 3),
    }


def megabytes(run: Run, key: str) -> float | None:
    size = (run.summary or {}).get(key)
    return None if size is None else size / 2**20


def distance_rows(runs: Sequence[Run], weights: Sequence[Products] = ()) -> list[list[str]]:
    """Distances between the states A, B and C of the weights, a line for each arm that kept weights (Table 2)."""
    known = known_distances(runs, weights)
    by_name = {run.name: found for run, found in known}
    shown = [arm for members in by_task(run for run, _ in known).values() for arm in arms(members)]
    return as_lines([distance_row(arm, [by_name[run.name] for run in arm.runs]) for arm in shown])


def distance_row(arm: Arm, found: Sequence[Distances]) -> dict[str, str]:
    paper = arm.paper.distances if arm.paper else ()
    kinds = {
        "l2": over_seeds(found, [d[:3] for d in found]),
        "1000 x mean square": over_seeds(found, [d.mean_squares for d in found]),
        "paper": [f"{mean:g} ± {deviation:g}" for mean, deviation in paper] or [""] * 3,
    }
    cells = {f"{side}, {kind}": text for kind, row in kinds.items() for side, text in zip(SIDES, row, strict=True)}
    return {"arm": arm.title, **cells}


def over_seeds(found: Sequence[Distances], sides: Sequence[tuple[float, float, float]]) -> list[str]:
    """AB over all runs, BC and AC over those that have reached a state C."""
    ends = [side for side, of in zip(sides, found, strict=True) if of.generalised]
    columns = [[ab for ab, _, _ in sides], [bc for _, bc, _ in ends], [ac for _, _, ac in ends]]
    return [f"{mean_text(values)} (n = {len(values)})" if values else "-" for values in columns]
