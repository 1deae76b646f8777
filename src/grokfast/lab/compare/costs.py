"""What arms took on this machine, the mean over seeds, beside the paper's, as rows of text."""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab.compare.arms import published_of
from grokfast.lab.compare.seeds import Arm, mean
from grokfast.lab.runs.directory import Run

HEAD = [
    "arm",
    "steps to the level",
    "seconds to it",
    "ms per step, evaluations included",
    "peak memory, MB",
    "filter's state, MB",
    "paper: seconds",
    "paper: ms per step",
    "paper: memory, MB",
]


def cost_rows(arms: Sequence[Arm]) -> list[list[str]]:
    return [HEAD, *([arm.title, *measured_costs(arm), *published_costs(arm)] for arm in arms)]


def measured_costs(arm: Arm) -> list[str]:
    measured = zip(*(run_costs(run) for run in arm.runs), strict=True)
    return [str(arm.steps()), *(mean(values).text(3) for values in measured)]


def run_costs(run: Run) -> tuple[float | None, ...]:
    """Seconds to the level, milliseconds per step, memory in megabytes: of the process and of the filter."""
    rows, summary, step = run.rows, run.summary or {}, run.crossing().step
    seconds = next((row.seconds for row in rows if row.step == step), None)
    latency = 1e3 * rows[-1].seconds / rows[-1].step
    sizes = (summary.get(key) for key in ("peak_memory_bytes", "filter_bytes"))
    return seconds, latency, *(None if size is None else size / 2**20 for size in sizes)


def published_costs(arm: Arm) -> list[str]:
    found = published_of(arm).costs
    if found is None:
        return ["", "", ""]
    return [mean([value]).text(3) for value in (found.seconds, 1e3 * found.step_seconds, found.memory_mb)]
