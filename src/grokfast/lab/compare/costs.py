"""Time and memory of the paper's arms (Appendix D), from runs made for that with nothing else on the machine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from grokfast.lab.compare.arms import run_costs
from grokfast.lab.compare.results import table_of
from grokfast.lab.compare.seeds import Arm, make_arms, mean
from grokfast.lab.paper.published import Costs, published_of
from grokfast.lab.runs.directory import Run


def quiet_cost_rows(costs: Mapping[str, Sequence[Run]], tasks: Mapping[str, Sequence[Run]]) -> list[list[str]]:
    """The headings and a line for each arm; the steps to the level are those of other runs, in `tasks`."""
    known = {arm.key: arm for runs in tasks.values() for arm in make_arms(runs)}
    arms = [arm for runs in costs.values() for arm in make_arms(runs)]
    return table_of([quiet_cost_row(arm, known.get(arm.key)) for arm in arms])


def quiet_cost_row(arm: Arm, judged: Arm | None) -> dict[str, str]:
    run = arm.runs[0]
    _, latency, memory, state = run_costs(run)
    paper = published_of(run.settings).costs or Costs(0, 0)
    steps = None if judged is None else judged.steps().median
    seconds = None if steps is None or latency is None else steps.value * latency / 1e3
    more = "" if steps is None or steps.exact else "> "
    return {
        "task": run.task,
        "arm": arm.name,
        "ms per step": mean([latency]).text(3),
        "paper: ms per step": mean([1e3 * paper.step_seconds or None]).text(3),
        "seconds to the level": more + mean([seconds]).text(3) if seconds else "",
        "paper: seconds": mean([paper.seconds]).text(3),
        "peak memory, MB": mean([memory]).text(3),
        "paper: memory, MB": mean([paper.memory_mb or None]).text(3),
        "filter's state, MB": mean([state or None]).text(3),
    }
