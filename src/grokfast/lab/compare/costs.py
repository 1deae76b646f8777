"""What arms took on this machine, the mean over seeds, beside the paper's, as rows of text."""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab.compare.results import table_of
from grokfast.lab.compare.seeds import Arm, mean
from grokfast.lab.paper.published import published_of
from grokfast.lab.runs.directory import Run

MEASURED = ("seconds to it", "ms per step, evaluations included", "peak memory, MB", "filter's state, MB")
PUBLISHED = ("paper: seconds", "paper: ms per step", "paper: memory, MB")


def cost_rows(arms: Sequence[Arm]) -> list[list[str]]:
    return table_of([cost_row(arm) for arm in arms])


def cost_row(arm: Arm) -> dict[str, str]:
    measured = zip(*map(run_costs, arm.runs), strict=True)
    found = published_of(arm.runs[0].settings).costs
    paper = (None, None, None) if found is None else (found.seconds, 1e3 * found.step_seconds, found.memory_mb)
    return {
        "arm": arm.title,
        "steps to the level": str(arm.steps()),
        **{name: mean(values).text(3) for name, values in zip(MEASURED, measured, strict=True)},
        **{name: mean([value]).text(3) for name, value in zip(PUBLISHED, paper, strict=True)},
    }


def run_costs(run: Run) -> tuple[float | None, ...]:
    """Seconds to the level, milliseconds per step, memory in megabytes: of the process and of the filter."""
    rows, summary, step = run.rows, run.summary or {}, run.crossing().step
    seconds = next((row.seconds for row in rows if row.step == step), None)
    latency = 1e3 * rows[-1].seconds / rows[-1].step
    sizes = (summary.get(key) for key in ("peak_memory_bytes", "filter_bytes"))
    return seconds, latency, *(None if size is None else size / 2**20 for size in sizes)
