"""The tables of our pages, from the runs in results/: selections of the lab's arms as rows of text."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from grokfast.lab import paper
from grokfast.lab.report.rows import headline_text, headlines_of, watched_runs, whole_runs
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Kind, best, reaches
from grokfast.lab.settings import experiment_of
from grokfast.lab.stats import Spread, interval_text, median_interval, spread_of, verdict
from grokfast.lab.tables import Arm, arms, enumerate_words, mean_text, samples_of, steps_of
from grokfast.lab.tables import filter_text as describe

AFTER = 500  # steps after the first crossing: how often a run is still at the level
COMPARED_AT = {"imdb": 3_000}  # runs of this task have different lengths; it has overfitted by 2,000
Columns = dict[str, str]  # a row of a table by heading


# Markdown -----------------------------------------------------------------------------------------------------------


def markdown(rows: Sequence[Columns]) -> str:
    """A table without empty columns; a cell that is empty says so."""
    names = dict.fromkeys(name for row in rows for name in row if any(other.get(name) for other in rows))
    lines = [list(names), ["---"] * len(names), *([row.get(name) or "-" for name in names] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None) -> str:
    return "" if value is None else f"{value:g}"


def short_mean(values: Iterable[float | None]) -> str:
    return mean_text(values, 3)


# Runs ---------------------------------------------------------------------------------------------------------------


def cut(run: Run) -> Run:
    """A run up to the step at which its task is compared."""
    end = COMPARED_AT.get(run.task, run.settings["steps"])
    return run.up_to(end) if run.settings["steps"] > end else run


def best_values(runs: Sequence[Run], measure: str) -> list[float]:
    """The best validation accuracy or loss of each run that did not stop at the level."""
    return [found.value for run in whole_runs(runs) if (found := best(run.rows, measure)) is not None]


def share_held(run: Run) -> float | None:
    """The part of the evaluations in the 500 steps after the first crossing that are at the level; None without any."""
    first = run.crossing().step
    later = [] if first is None else [row for row in run.rows if first < row.step <= first + AFTER]
    return statistics.fmean(reaches(later, run.level, run.measure)) if later else None


def held_text(runs: Sequence[Run]) -> str:
    known = [share for run in runs if (share := share_held(run)) is not None]
    return f"{statistics.fmean(known):.0%}" if known else ""


def provenance(arm: Arm) -> Columns:
    """How many seeds, and how many steps they were given. results/runs.csv has the rest."""
    budgets = sorted({min(run.settings["steps"], run.end or run.settings["steps"]) for run in arm.runs})
    return {"seeds": str(len(arm.runs)), "budget": enumerate_words(f"{n:,}" for n in budgets)}


# Arms beside the paper ------------------------------------------------------------------------------------------------


def paper_arms(runs: Iterable[Run], task: str) -> list[Arm]:
    """The paper's arms of a task and our controls of them, in the paper's order; each must have runs."""
    found = {arm.paper.name: arm for arm in arms(runs) if arm.paper is not None}
    missing = [arm.name for arm in paper.arms_of(task) if arm.name not in found]
    if missing:
        raise ValueError(f"{task} has no run of {enumerate_words(missing)}")
    return [found[arm.name] for arm in paper.arms_of(task)]


def arm_rows(found: Sequence[Arm]) -> list[Columns]:
    """The columns of arms of one task, the baseline among them."""
    return [{**arm_columns(arm, found), **provenance(arm)} for arm in found]


def arm_columns(arm: Arm, others: Sequence[Arm]) -> Columns:
    run, whole, published = arm.runs[0], whole_runs(arm.runs), arm.paper
    own = headlines_of(run.task)
    elsewhere = {headline.published for headline in own}  # the paper's number is next to the task's own
    columns = {
        "arm": published.name,
        "weight decay": f"{run.settings['weight_decay']:g}",
        f"steps to {run.level:g}": str(arm.steps()),
        "paper: steps": published.steps_text if published.where else "",
        "still at the target": held_text(arm.runs),
        "stable from": str(spread_of([steps_of(run, "stable") for run in watched_runs(arm.runs)])),
        "final accuracy": short_mean(run.rows[-1].val_accuracy for run in whole),
        "best accuracy": short_mean(best_values(arm.runs, "accuracy")),
        "paper: accuracy": "" if "accuracy" in elsewhere else number(published.accuracy),
        "best loss": short_mean(best_values(arm.runs, "loss")),
        "paper: loss": "" if "loss" in elsewhere else number(published.loss),
        f"steps to the baseline's best {run.measure}": steps_to_best_of(arm, others),
    }
    for headline in own:
        columns[headline.words] = headline_text(whole, headline)
        columns[f"paper: {headline.words}"] = number(getattr(published, headline.published))
    return columns


def steps_to_best_of(arm: Arm, others: Sequence[Arm]) -> str:
    """When the runs are as good as the baseline of the same seed ever was; says how many have such a baseline."""
    base = next(other for other in others if other.paper.name == "Baseline")
    if base.key == arm.key:
        return ""
    targets = {run.seed: best(run.rows, run.measure) for run in whole_runs(base.runs)}
    pairs = [(run, targets.get(run.seed)) for run in arm.runs]
    found = [steps_of(run.judged_at(target.value)) for run, target in pairs if target is not None]
    few = f" [{len(found)} of {len(arm.runs)} runs]" if 0 < len(found) < len(arm.runs) else ""
    return str(spread_of(found)) + few


# Controls and ablations -----------------------------------------------------------------------------------------------


def control_row(optimizer: Mapping[str, Any], found: Mapping[str, Arm]) -> Columns:
    """One setting of the optimizer: without a filter and with both of the paper's."""
    budgets = sorted({run.settings["steps"] for arm in found.values() for run in arm.runs})
    return {
        "optimizer": {"adam": "Adam", "adamw": "AdamW"}[optimizer["optimizer"]],
        "weight decay": f"{optimizer['weight_decay']:g}",
        "learning rate": f"{optimizer['lr']:g}",
        **{name: control_cell(arm) for name, arm in found.items()},
        "budget": enumerate_words(f"{steps:,}" for steps in budgets),
    }


def control_cell(arm: Arm) -> str:
    held = held_text(arm.runs)
    return f"{arm.steps()}{f', then {held}' if held else ''}; {count_text(len(arm.runs), 'seed')}"


def held_row(arm: Arm) -> Columns:
    """An arm by the steps until the target accuracy is held, and until it is first reached."""
    settings, held = arm.runs[0].settings, arm.steps("held")
    average = settings["average"]
    return {
        "operation": settings["operation"],
        "arm": filter_text(settings) if average is None else f"no filter, averaged weights ({average:g})",
        "weight decay": number(settings["weight_decay"]),
        "gradient norm": "clipped at 1" if settings["clip_norm"] else "not clipped",
        "runs that hold": f"{held.count - held.censored} of {held.count}",
        "held": str(held),
        "first reached": str(arm.steps("first")),
    }


def judged_row(challenger: Arm, reference: Arm) -> Columns:
    """The verdicts on two arms: by the steps until the target is held, and until it is first reached."""
    return {
        name: judged_text(challenger, reference, kind) for name, kind in (("held", "held"), ("first reached", "first"))
    }


def judged_text(challenger: Arm, reference: Arm, kind: Kind) -> str:
    sides = ([[steps_of(run, kind) for run in arm.runs]] for arm in (challenger, reference))
    found = verdict(*sides)
    return f"{found.word} ({interval_text(found)})"


def ablation_rows(found: Sequence[Arm]) -> list[Columns]:
    """Arms that differ in filter, weight decay or learning rate; the learning rate only if it varies."""
    rows = [
        {
            "filter": filter_text(arm.runs[0].settings),
            "weight decay": f"{arm.runs[0].settings['weight_decay']:g}",
            "learning rate": f"{arm.runs[0].settings['lr']:g}",
            "steps to 0.95": str(arm.steps()),
            "best accuracy": short_mean(best_values(arm.runs, "accuracy")),
            **provenance(arm),
        }
        for arm in found
    ]
    if len({row["learning rate"] for row in rows}) == 1:
        for row in rows:
            del row["learning rate"]
    return rows


def filter_text(settings: Mapping[str, Any]) -> str:
    """The filter of a run, and from when it filters."""
    start = settings["two_stage"]
    when = "" if start is None else ", once saturated" if start == "auto" else f", from step {start:,}"
    return describe(dict(settings)) + when


# Costs and distances --------------------------------------------------------------------------------------------------


def cost_row(arm: Arm, judged: Arm) -> Columns:
    """Time and memory of a run with nothing else on the machine; the steps to the level are those of `judged`."""
    run, published = arm.runs[0], arm.paper
    latency = 1e3 * run.rows[-1].seconds / run.rows[-1].step
    steps = judged.steps().median
    memory, state = (run.summary[key] / 2**20 for key in ("peak_memory_bytes", "filter_bytes"))
    return {
        "task": run.task,
        "arm": published.name,
        "ms per step": short_mean([latency]),
        "paper: ms per step": short_mean([1e3 * published.step_seconds]),
        "seconds to the target": ("" if steps.exact else "> ") + short_mean([steps.value * latency / 1e3]),
        "paper: seconds": short_mean([published.seconds]),
        "peak memory, MB": short_mean([memory]),
        "paper: memory, MB": short_mean([published.memory_mb]),
        "filter's state, MB": short_mean([state or None]),
    }


class Distances(NamedTuple):
    """How far three states of a run are apart, as l2 norms: A initial, B after 500 steps, C the end."""

    ab: float
    bc: float
    ac: float
    parameters: int

    @property
    def mean_squares(self) -> tuple[float, ...]:
        """As the published table seems to measure them: mean squared differences times 1000."""
        return tuple(1000 * side**2 / self.parameters for side in self[:3])


def distances_of(run: Run) -> Distances:
    table = run.tables["weights"]
    b = min(range(len(table["steps"])), key=lambda i: abs(table["steps"][i] - 500))
    moved = table["moved"]
    return Distances(moved[b], table["bc"], moved[-1], table["parameters"])


def distance_row(arm: Arm) -> Columns:
    found = [distances_of(run) for run in arm.runs]
    sides = "AB", "BC", "AC"
    columns = {"arm": f"{arm.paper.name}, {len(found)} seeds"}
    for i, side in enumerate(sides):
        columns[f"{side}, l2"] = f"{mean_text([each[i] for each in found])} (n = {len(found)})"
    for i, side in enumerate(sides):
        squares = [each.mean_squares[i] for each in found]
        columns[f"{side}, 1000 x mean square"] = f"{mean_text(squares)} (n = {len(found)})"
    for side, (mean, deviation) in zip(sides, arm.paper.distances, strict=False):
        columns[f"{side}, paper"] = f"{mean:g} ± {deviation:g}"
    return columns


# Leaderboard ----------------------------------------------------------------------------------------------------------

OPERATIONS = ("multiply", "add", "subtract", "divide")
FEWEST = 10  # seeds of each operation
TUNING_SEED = 0
# The setup of the leaderboard; operation, loss, optimizer and filter are free.
SETUP = {
    "variant": "released", "p": 97, "with_zero": None, "train_fraction": 0.5, "label_noise": 0.0, "width": 128,
    "depth": 2, "heads": 4, "batch_size": 512,
}  # fmt: skip

# Three entries, run again on fresh seeds until they hold the target (docs/plan.md, L).
_MILD = {"optimizer": "adamw", "lr": 0.0028, "weight_decay": 1.2, "betas": (0.5, 0.98)}
FOUR: dict[str, dict[str, Any]] = {
    "EMA": {**_MILD, "filter": "ema", "alpha": 0.69, "lamb": 0.72},
    "without EMA": _MILD,
    "tuned AdamW": {"optimizer": "adamw", "lr": 0.0038, "weight_decay": 0.73, "betas": (0.5, 0.9)},
}


class Entry(NamedTuple):
    """One setting on the leaderboard: an arm for each operation."""

    arms: dict[str, Arm]

    @property
    def name(self) -> str:
        return entry_name(self.settings)

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.arms["multiply"].runs[0].settings

    @property
    def complete(self) -> bool:
        return all(o in self.arms and len(self.arms[o].runs) >= FEWEST for o in OPERATIONS)

    @property
    def begun(self) -> bool:
        """Whether it is meant as an entry; a control of the paper's table has few seeds of multiply alone."""
        return len(self.arms) > 1 or len(self.arms["multiply"].runs) >= FEWEST


def find_entries(runs: Iterable[Run]) -> list[Entry]:
    """The settings among fresh runs of the setup, the fastest on multiply first."""
    found: dict[str, dict[str, Arm]] = {}
    for arm in arms([run.judged_at(0.95) for run in runs if counts(run)]):
        settings = arm.runs[0].settings
        key = experiment_of({**settings, "operation": "multiply", "fast": True})
        found.setdefault(key, {})[settings["operation"]] = arm
    entries = [Entry(each) for each in found.values() if "multiply" in each]
    return sorted(entries, key=lambda entry: entry.arms["multiply"].steps().order)


def counts(run: Run) -> bool:
    setup = run.task == "modmul" and all(run.settings[name] == value for name, value in SETUP.items())
    return setup and run.seed != TUNING_SEED


def entry_name(settings: Mapping[str, Any]) -> str:
    """An entry in a few words: optimizer, filter, rivals, loss."""
    name = settings["optimizer"].rpartition(":")[2]
    parts = [name, f"lr {settings['lr']:.3g}", f"decay {settings['weight_decay']:.3g}"]
    parts += [filter_text(settings)] if settings["filter"] is not None else []
    numbers = {"row_norm": "row clip", "late_decay": "late decay"}
    parts += [f"{words} {settings[key]:.3g}" for key, words in numbers.items() if settings[key] is not None]
    parts += [key.replace("_", " ") for key in ("perp_grad", "equal_grad") if settings[key]]
    parts += [settings["loss"]] if settings["loss"] != "cross-entropy" else []
    return ", ".join(parts)


def entry_row(place: int, entry: Entry, held: Arm | None) -> Columns:
    """An entry; `held` are its runs on other seeds, which go on until they hold the target."""
    runs = entry.arms["multiply"].runs
    interval = median_interval([steps_of(run) for run in runs])
    medians = {operation: arm.steps().median for operation, arm in entry.arms.items()}
    others = [
        f"{o} {medians[o]} ({count_text(len(entry.arms[o].runs), 'seed')})"
        for o in sorted(medians)
        if o not in OPERATIONS
    ]
    return {
        "place": str(place),
        "entry": entry.name,
        "multiply": f"**{medians['multiply']}**",
        "95% interval": " to ".join(map(str, interval)),
        **{operation: str(medians[operation]) for operation in OPERATIONS[1:]},
        "seeds": str(min(len(entry.arms[operation].runs) for operation in OPERATIONS)),
        "multiply, held": "" if held is None else held_cell(held.steps("held")),
        "samples": str(spread_of([samples_of(run) for run in runs]).median),
        "others": ", ".join(others),
    }


def held_cell(held: Spread) -> str:
    return f"{held.median} ({held.count - held.censored} of {held.count} hold)"


def four_row(operation: str, found: Mapping[str, Arm]) -> Columns:
    """One operation: when each of the three settings first reaches the target, and the verdicts on EMA."""
    cells = {name: str(arm.steps("first")) for name, arm in found.items()}
    others = list(found)[1:]
    verdicts = {f"EMA against {name}": judged_text(found["EMA"], found[name], "first") for name in others}
    return {"operation": operation, **cells, **verdicts}


def missing_text(entry: Entry) -> str:
    counts = {o: len(entry.arms[o].runs) if o in entry.arms else 0 for o in OPERATIONS}
    wanted = ", ".join(f"{FEWEST - count} more of {o}" for o, count in counts.items() if count < FEWEST)
    steps = entry.arms["multiply"].steps()
    return f"{steps.median} steps on multiply, {count_text(steps.count, 'seed')}; it needs {wanted}"


def reported_rows() -> list[Columns]:
    """What others report on the same task."""
    operations = [
        *OPERATIONS,
        *dict.fromkeys(o for _, steps, _ in paper.REPORTED for o in steps if o not in OPERATIONS),
    ]
    return [
        {"method": method, **{o: f"{steps[o]:,}" if o in steps else "" for o in operations}, "reported": note}
        for method, steps, note in paper.REPORTED
    ]


def count_text(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
