"""The paper's arms over seeds, published beside measured, as rows of text: steps and values, ablations, costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from grokfast.lab import filters
from grokfast.lab.compare.results import table_of
from grokfast.lab.compare.seeds import Arm, Mean, held, make_arms, mean, seconds_of, spread_of, steps_of
from grokfast.lab.config import to_json
from grokfast.lab.paper.evidence import INSTEAD, TWO_STAGES
from grokfast.lab.paper.experiments import ABLATIONS, SLOW_ONLY, Experiment
from grokfast.lab.paper.published import PaperArm, Published, arms_of, published_of, request_key
from grokfast.lab.request import Request, resolve
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import best
from grokfast.lab.tasks import TASKS
from grokfast.lab.tasks.base import Headline, Measure

NOT_RUN = "not run"
VALUES = ("for good", "final accuracy", "best accuracy", "best loss")  # of runs that continued


def paper_arms(runs: Iterable[Run]) -> list[Arm]:
    """The paper's arms among runs of one task, in the paper's order."""
    found = [arm for arm in make_arms(runs) if arm.paper is not None]
    order = {arm.name: i for i, arm in enumerate(arms_of(found[0].runs[0].task))} if found else {}
    return sorted(found, key=lambda arm: order[arm.name])


def arm_rows(arms: Sequence[Arm]) -> list[list[str]]:
    """The headings and one line for each arm of one task, without empty columns; [] without arms."""
    if not arms:
        return []
    columns = [arm_columns(arm, arms) for arm in arms]
    kept = [name for name in columns[0] if any(line[name] for line in columns)]
    lines = zip(columns, map(stopped_text, arms), strict=True)
    return [kept, *([line[name] or (stop if name in VALUES else "") for name in kept] for line, stop in lines)]


def stopped_text(arm: Arm) -> str:
    """Why an arm has no final values: all of its runs ended at the level."""
    complete = [run for run in arm.runs if run.status == "complete"]
    ended = complete and all(run.stopped_at_level for run in complete)
    return f"stopped at {arm.runs[0].level:g}" if ended else ""


def arm_columns(arm: Arm, arms: Sequence[Arm]) -> dict[str, str]:
    run, whole, headlines = arm.runs[0], whole_runs(arm.runs), headlines_of(arm.runs[0].task)
    paper = published_columns(published_of(run.settings), headlines)
    found = {
        "arm": arm.name,
        "weight decay": f"{run.weight_decay:g}",
        "runs": count_text(arm),
        f"steps to {run.level:g}": str(arm.steps()),
        "paper: steps": paper["paper: steps"],
        "there in the next 500 steps": held_text(arm.runs),
        "for good": str(spread_of([steps_of(run, "stable") for run in watched_runs(arm.runs)])),
        "final accuracy": mean(run.rows[-1].val_accuracy for run in whole).text(3),
        "best accuracy": best_text(whole, "accuracy"),
        "paper: accuracy": paper["paper: accuracy"],
        "best loss": best_text(whole, "loss"),
        "paper: loss": paper["paper: loss"],
        f"steps to the baseline's best {run.measure}": steps_to_best_of(arm, arms),
    }
    for headline in headlines:
        name = f"paper: {headline.words}"
        found |= {headline.words: headline_text(whole, headline), name: paper[name]}
    return found


def columns_not_run(arm: PaperArm, level: float) -> dict[str, str]:
    """The columns of an arm that has no runs: what the paper says of it."""
    paper = published_columns(arm.published or Published(""), headlines_of(arm.task))
    decay = f"{resolve(arm.request).optim.weight_decay:g}"
    return {"arm": arm.name, "weight decay": decay, f"steps to {level:g}": NOT_RUN, **paper}


def published_columns(published: Published, headlines: Sequence[Headline]) -> dict[str, str]:
    """The paper's numbers, each named after what it can be compared with."""
    elsewhere = {headline.published for headline in headlines}
    plain = {f"paper: {n}": "" if n in elsewhere else number(getattr(published, n)) for n in ("accuracy", "loss")}
    further = {f"paper: {h.words}": number(getattr(published, h.published)) for h in headlines}
    return {"paper: steps": published.steps_text, **plain, **further}


def count_text(arm: Arm) -> str:
    open = sum(run.status != "complete" for run in arm.runs)
    if not open:
        return str(len(arm.runs))
    return f"{len(arm.runs)} (unfinished)" if open == len(arm.runs) else f"{len(arm.runs)} ({open} unfinished)"


def headlines_of(name: str) -> list[Headline]:
    """What else the tables show of a task; nothing of one that is not known here."""
    task = TASKS.get(name)
    return [] if task is None else [h for h in (task.headline, *task.further) if h is not None]


def whole_runs(runs: Sequence[Run]) -> list[Run]:
    """Complete runs that did not stop at a level: the others do not show final values, nor whether they would stay."""
    return [run for run in runs if run.status == "complete" and not run.stopped_at_level]


def watched_runs(runs: Sequence[Run]) -> list[Run]:
    """Complete runs that were trained beyond the level, if they reached it."""
    return [run for run in runs if run.status == "complete" and (run.loop["extra_steps"] or not run.stopped_at_level)]


def held_text(runs: Sequence[Run]) -> str:
    """How much of the 500 steps after the first crossing runs are at their level."""
    found = mean(held(run) for run in runs)
    return "" if found.mean is None else f"{found.mean:.0%}"


def best_text(runs: Sequence[Run], measure: Measure) -> str:
    return best_mean(runs, measure).text(3)


def best_mean(runs: Sequence[Run], measure: Measure) -> Mean:
    """The best of each run over seeds."""
    found = [best(run.rows, measure) for run in runs]
    return mean(None if value is None else value.value for value in found)


def headline_text(runs: Sequence[Run], headline: Headline) -> str:
    """The best value of what only this task measures, over seeds."""
    pick = max if headline.published == "accuracy" else min
    values = ([(row.more or {}).get(headline.column) for row in run.rows] for run in runs)
    return mean(pick((v for v in known if v is not None), default=None) for known in values).text(3)


def steps_to_best_of(arm: Arm, arms: Sequence[Arm]) -> str:
    """When the runs are as good as the baseline of the same seed ever was; says how many have such a baseline."""
    base = next((other for other in arms if other.name == "Baseline"), None)
    if base is None or base.key == arm.key:
        return ""
    best_of_seed = {run.loop["seed"]: best(run.rows, run.measure) for run in whole_runs(base.runs)}
    targets = [(run, best_of_seed.get(run.loop["seed"])) for run in arm.runs]
    found = [steps_of(run.judged_at(target.value)) for run, target in targets if target is not None]
    few = f" [{len(found)} of {len(arm.runs)} runs]" if 0 < len(found) < len(arm.runs) else ""
    return str(spread_of(found)) + few


# The short table ----------------------------------------------------------------------------------------------------

SUMMARY = ["task", "arm", "weight decay", "runs", "number", "measured", "paper"]


def summary_row(arm: Arm) -> list[str]:
    """An arm by the number that the paper gives of its task."""
    run, headlines = arm.runs[0], headlines_of(arm.runs[0].task)
    what, paper = published_number(run.task, run.level, published_of(run.settings))
    measured = headline_text(whole_runs(arm.runs), headlines[0]) if headlines else str(arm.steps())
    return [run.task, arm.name, f"{run.weight_decay:g}", count_text(arm), what, measured, paper]


def summary_not_run(arm: PaperArm) -> list[str]:
    config = resolve(arm.request)
    what, paper = published_number(arm.task, config.level, arm.published or Published(""))
    return [arm.task, arm.name, f"{config.optim.weight_decay:g}", "0", what, NOT_RUN, paper]


def published_number(task: str, level: float, published: Published) -> tuple[str, str]:
    """What the paper judges a task by, in words, and its value."""
    for headline in headlines_of(task):
        return headline.words, number(getattr(published, headline.published))
    return f"steps to {level:g}", published.steps_text


def number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


# Ablations ------------------------------------------------------------------------------------------------------------

TABLES = (INSTEAD, *ABLATIONS, SLOW_ONLY, TWO_STAGES)  # nothing published stands beside them


def arms_of_experiment(runs: Sequence[Run], experiment: Experiment) -> list[Arm]:
    """The arms of an experiment that have runs; a setting and the same setting by default are one arm."""
    known = {arm.key: arm for arm in make_arms(runs)}
    return [known[key] for key in dict.fromkeys(map(request_key, experiment.requests)) if key in known]


def ablation_columns(arm: Arm) -> dict[str, str]:
    return {
        **setting_columns(arm.runs[0].settings),
        "runs": count_text(arm),
        "steps to the level": str(arm.steps()),
        "best accuracy": best_text(whole_runs(arm.runs), "accuracy"),
    }


def ablation_not_run(request: Request) -> dict[str, str]:
    return {**setting_columns(to_json(resolve(request))), "steps to the level": NOT_RUN}


def setting_columns(settings: dict[str, Any]) -> dict[str, str]:
    optim = settings["optim"]
    rates = {"weight decay": f"{optim['weight_decay']:g}", "learning rate": f"{optim['lr']:g}"}
    return {"filter": filter_text(settings), **rates}


def filter_text(settings: dict[str, Any]) -> str:
    """The filter of a run, and from when it filters."""
    start = settings["two_stage"]
    when = "" if start is None else ", once saturated" if start == "auto" else f", from step {start:,}"
    return filters.describe_plain(settings["filter"]) + when


# Costs ----------------------------------------------------------------------------------------------------------------

MEASURED = ("seconds to it", "ms per step, evaluations included", "peak memory, MB", "filter's state, MB")
PUBLISHED = ("paper: seconds", "paper: ms per step", "paper: memory, MB")


def cost_rows(arms: Sequence[Arm]) -> list[list[str]]:
    return table_of([cost_row(arm) for arm in arms])


def cost_row(arm: Arm) -> dict[str, str]:
    measured = zip(MEASURED, zip(*map(run_costs, arm.runs), strict=True), strict=True)
    texts = {name: mean(values).text(3) for name, values in measured}
    return {"arm": arm.title, "steps to the level": str(arm.steps()), **texts, **published_costs(arm)}


def published_costs(arm: Arm) -> dict[str, str]:
    """The paper's time and memory of an arm, as text."""
    found = published_of(arm.runs[0].settings).costs
    paper = (None, None, None) if found is None else (found.seconds, 1e3 * found.step_seconds, found.memory_mb)
    return {name: mean([value]).text(3) for name, value in zip(PUBLISHED, paper, strict=True)}


def run_costs(run: Run) -> tuple[float | None, ...]:
    """Seconds to the level, milliseconds per step, memory in megabytes: of the process and of the filter."""
    rows, summary, taken = run.rows, run.summary or {}, seconds_of(run)
    seconds = taken.value if taken.exact else None
    latency = 1e3 * rows[-1].seconds / rows[-1].step
    sizes = (summary.get(key) for key in ("peak_memory_bytes", "filter_bytes"))
    return seconds, latency, *(None if size is None else size / 2**20 for size in sizes)


def quiet_cost_rows(costs: Mapping[str, Sequence[Run]], tasks: Mapping[str, Sequence[Run]]) -> list[list[str]]:
    """Time and memory (Appendix D) from runs with nothing else on the machine: the headings, and a line for each arm.

    Other runs, in `tasks`, give the steps to the level.
    """
    known = {arm.key: arm for runs in tasks.values() for arm in make_arms(runs)}
    arms = [arm for runs in costs.values() for arm in make_arms(runs)]
    return table_of([quiet_cost_row(arm, known.get(arm.key)) for arm in arms])


def quiet_cost_row(arm: Arm, judged: Arm | None) -> dict[str, str]:
    _, latency, memory, state = run_costs(arm.runs[0])
    paper = published_costs(arm)
    steps = None if judged is None else judged.steps().median
    seconds = None if steps is None or latency is None else steps.value * latency / 1e3
    more = "" if steps is None or steps.exact else "> "
    return {
        "task": arm.runs[0].task,
        "arm": arm.name,
        "ms per step": mean([latency]).text(3),
        "paper: ms per step": paper["paper: ms per step"],
        "seconds to the level": more + mean([seconds]).text(3) if seconds else "",
        "paper: seconds": paper["paper: seconds"],
        "peak memory, MB": mean([memory]).text(3),
        "paper: memory, MB": paper["paper: memory, MB"],
        "filter's state, MB": mean([state or None]).text(3),
    }
