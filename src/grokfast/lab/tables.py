"""All runs as one table: a row per run with its settings and results. Arms are runs that differ only in their seed.

An arm is an experiment repeated: its runs share all settings but seed, length, recordings and machine. One run of each
seed counts: a complete one before one that is not, then the one with the larger budget, then the one with more
evaluations. A run that never crossed its level and is shorter than half of the longest run of its arm is left out.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grokfast.lab.runs.directory import Run, load_runs
from grokfast.lab.runs.metrics import Kind, best, finite
from grokfast.lab.stats import Spread, Steps, spread_of, steps_to

if TYPE_CHECKING:
    import polars as pl

    from grokfast.lab.paper import PaperArm
    from grokfast.lab.settings import Settings

KINDS: tuple[Kind, ...] = ("first", "held", "stable", "train")


# The table ------------------------------------------------------------------------------------------------------------


def table(folder: str | Path = "runs") -> pl.DataFrame:
    """All runs of a directory as a data frame; see `frame`.

    Examples:
        >>> from grokfast import lab
        >>> runs = lab.table("runs")
        >>> runs.height  # no run yet
        0
    """
    return frame(load_runs(folder))


def frame(runs: Iterable[Run]) -> pl.DataFrame:
    """A row per run: name, experiment, status, settings and results.

    `first`, `held`, `stable` and `train` are the steps at which the run reached its level for the first time, reached
    and held it, reached it until its end, and reached it on the training data; null if it did not. The true step is
    after `first_after`, a lower bound also for a run that did not reach the level; `censored` marks such runs.
    """
    import polars as pl

    return pl.DataFrame([row_of(run) for run in runs], infer_schema_length=None, strict=False)


def row_of(run: Run) -> dict[str, Any]:
    """A run as one row: its settings and results. A crossing is between `first_after` and `first`."""
    rows = run.rows
    last, lowest, highest = rows[-1] if rows else None, best(rows, "loss"), best(rows, "accuracy")
    row: dict[str, Any] = {"name": run.name, "experiment": run.experiment, "status": run.status}
    row |= {name: value for name, value in run.settings.items() if name not in ("measure", "level")}
    row |= {"measure": run.measure, "level": run.level, "step": last.step if last else 0}
    for kind in KINDS:
        crossing = run.crossing(kind)
        row |= {kind: crossing.step, f"{kind}_after": crossing.after}
    return {
        **row,
        "censored": row["first"] is None,
        "final_train_accuracy": last and last.train_accuracy,
        "final_val_accuracy": last and last.val_accuracy,
        "final_train_loss": last and finite(last.train_loss),
        "final_val_loss": last and finite(last.val_loss),
        "best_val_accuracy": highest and highest.value,
        "best_val_loss": lowest and lowest.value,
        "seconds": last.seconds if last else 0.0,
    }


def curves(runs: Iterable[Run]) -> pl.DataFrame:
    """A row per evaluation of each run, with the name of the run; measures of single tasks are columns too."""
    import polars as pl

    rows: list[dict[str, Any]] = []
    for run in runs:
        for row in run.rows:
            plain = row._asdict()
            more = plain.pop("more")
            rows.append({"name": run.name, **plain, **(more or {})})
    return pl.DataFrame(rows, infer_schema_length=None, strict=False)


# Arms -----------------------------------------------------------------------------------------------------------------


class Arm(NamedTuple):
    """One experiment over seeds."""

    key: str
    name: str  # unique among the arms made together
    paper: PaperArm | None
    runs: list[Run]  # those that count, by seed
    left_out: list[tuple[Run, str]]  # the others, with the reason

    @property
    def title(self) -> str:
        """The name with its seeds."""
        open = sum(not run.done for run in self.runs)
        if len(self.runs) == 1:
            return f"{self.name}, seed {self.runs[0].seed}" + (", unfinished" if open else "")
        return f"{self.name}, {len(self.runs)} seeds" + (f" ({open} unfinished)" if open else "")

    @property
    def settings(self) -> Settings:
        """Those of its first run: seed, length, recordings and machine may differ between runs."""
        return self.runs[0].settings

    def steps(self, kind: Kind = "first") -> Spread:
        """How many steps its runs take to the level."""
        return spread_of([steps_of(run, kind) for run in self.runs])


def arms(runs: Iterable[Run]) -> list[Arm]:
    """The arms among runs of one task, in the order of their first run; runs without an evaluation make none.

    Examples:
        >>> from grokfast.lab import load_runs
        >>> for arm in arms(load_runs("runs")):
        ...     print(arm.title, arm.steps())  # the median over seeds, and its range
    """
    from grokfast.lab.paper import find_arm

    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.experiment, []).append(run)
    chosen = {key: choose_runs(members) for key, members in found.items()}
    kept = {key: pair for key, pair in chosen.items() if pair[0]}
    names = disambiguate([counting[0] for counting, _ in kept.values()])
    return [
        Arm(key, name, find_arm(key), counting, rest)
        for name, (key, (counting, rest)) in zip(names, kept.items(), strict=True)
    ]


def choose_runs(runs: Iterable[Run]) -> tuple[list[Run], list[tuple[Run, str]]]:
    """The runs of one experiment that count, in the order of the seeds, and the others with the reason."""
    chosen: dict[int, Run] = {}
    rest: list[tuple[Run, str]] = []
    for run in sorted((run for run in runs if run.rows), key=preference, reverse=True):
        if run.seed in chosen:
            rest.append((run, f"another run of seed {run.seed} counts"))
        else:
            chosen[run.seed] = run
    ordered = [run for _, run in sorted(chosen.items())]
    longest = max((run.rows[-1].step for run in ordered), default=0)
    rest += [(run, "too short") for run in ordered if not is_informative(run, longest)]
    return [run for run in ordered if is_informative(run, longest)], rest


def is_informative(run: Run, longest: int) -> bool:
    """Whether a run crossed, diverged, or is at least half as long as the longest."""
    return run.crossing().step is not None or run.status == "diverged" or 2 * run.rows[-1].step >= longest


def preference(run: Run) -> tuple[bool, int, int]:
    """A complete run before one that is not; then the larger budget, however early it stopped at its level."""
    length = run.settings["steps"] if run.done else run.rows[-1].step
    return run.done, length, len(run.rows)


def by_task(runs: Iterable[Run], level: float | None = None) -> dict[str, list[Run]]:
    """Runs of each task, all judged at one level."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.task, []).append(run)
    if level is not None:
        check_level(level, {run.measure for members in found.values() for run in members})
    return {task: at_one_level(members, level) for task, members in found.items()}


def check_level(level: float, measures: set[str]) -> None:
    if len(measures) > 1:
        raise ValueError(f"a level needs runs that are all judged by accuracy or all by loss, got both and {level:g}")
    highest = math.inf if "loss" in measures else 1.0
    if not 0 < level <= highest:
        raise ValueError(f"level must be in (0, {highest:g}], got {level:g}")


def at_one_level(runs: Sequence[Run], level: float | None = None) -> list[Run]:
    """The same runs of one task, all judged at one level: the given one, else their own, else their task's."""
    if level is None and len({run.level for run in runs}) > 1:
        level = runs[0].settings["level"]
    return list(runs) if level is None else [run.judged_at(level) for run in runs]


# Numbers of a run ----------------------------------------------------------------------------------------------------


def steps_of(run: Run, kind: Kind = "first") -> Steps:
    """How many steps a run takes to its level; one that diverged never reaches it."""
    return steps_to(run.crossing(kind), diverged=run.status == "diverged")


def seconds_of(run: Run, kind: Kind = "first") -> Steps:
    """How many seconds a run takes to its level, up to the evaluation that shows it."""
    step, rows = run.crossing(kind).step, run.rows
    if step is None:
        return Steps(math.inf if run.status == "diverged" else rows[-1].seconds, False)
    return Steps(next(row.seconds for row in rows if row.step == step))


def samples_of(run: Run, kind: Kind = "first") -> Steps:
    """How many training examples a run has seen when it reaches its level."""
    steps = steps_of(run, kind)
    if math.isinf(steps.value):
        return steps
    return Steps(max(row.samples for row in run.rows if row.step <= steps.value), steps.exact)


def mean_text(values: Iterable[float | None], digits: int = 4) -> str:
    """Mean and standard deviation (n - 1) of the values that are known, the deviation to as many places as the mean.

    >>> mean_text([563.7, 363.7, 763.7]), mean_text([999.7], 3), mean_text([0.5]), mean_text([None])
    ('563.7 ± 200.0', '1,000', '0.5', '')
    """
    known = [value for value in values if value is not None]
    if not known:
        return ""
    mean = statistics.fmean(known)
    deviation = statistics.stdev(known) if len(known) > 1 else 0.0
    size = max(abs(mean), deviation)
    if not math.isfinite(size) or size < 1e-6:
        return f"{mean:.{digits}g}"
    places = max(0, digits - 1 - math.floor(math.log10(size)))
    if not deviation:
        plain = f"{mean:,.{places}f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    places = max(places, -math.floor(math.log10(deviation)))  # so that the deviation has a digit
    return f"{mean:,.{places}f} ± {deviation:,.{places}f}"


# Names ----------------------------------------------------------------------------------------------------------------

WORDS = {"lr": "learning rate"}


def words(name: str) -> str:
    """The name of a setting in words."""
    return WORDS.get(name, name.replace("_", " "))


def enumerate_words(texts: Sequence[str]) -> str:
    """
    >>> enumerate_words(["lamb", "alpha", "weight decay"])
    'lamb, alpha and weight decay'
    """
    *most, last = texts
    return f"{', '.join(most)} and {last}" if most else last


def label(run: Run) -> str:
    """The label of a run: its name in the paper and its seed, or its own name."""
    from grokfast.lab.paper import find_arm

    arm = find_arm(run.experiment)
    return run.name if arm is None else f"{arm.name}, seed {run.seed}"


def experiment_name(run: Run) -> str:
    """The name of all runs that repeat this one: the paper's name, or filter and weight decay."""
    from grokfast.lab.paper import find_arm

    arm = find_arm(run.experiment)
    return f"{filter_text(run.settings)}, weight decay {run.settings['weight_decay']:g}" if arm is None else arm.name


def filter_text(settings: Settings) -> str:
    """The filter of a run with its values; its class need not be known here."""
    from grokfast.lab.filters import FILTERS, describe, describe_plain
    from grokfast.lab.settings import filter_of, filter_values

    name = settings["filter"]
    if name is None:
        return "no filter"
    if name not in FILTERS:
        return describe_plain(name, filter_values(settings))
    filter = filter_of(settings)
    assert filter is not None
    return describe(filter)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def disambiguate(runs: Sequence[Run]) -> list[str]:
    """A name for the experiment of each run, all different: equal ones are followed by the settings that differ."""
    names = [experiment_name(run) for run in runs]
    counts = Counter(names)
    for name in (name for name, count in counts.items() if count > 1):
        places = [i for i, known in enumerate(names) if known == name]
        for i, settings in zip(places, differences([runs[i] for i in places]), strict=True):
            names[i] = ", ".join([name, *settings])
    return names


def differences(runs: Sequence[Run]) -> list[list[str]]:
    """The fewest settings that distinguish experiments, as text, for each."""
    found = [experiment_settings(run) for run in runs]
    keys, named = dict.fromkeys(key for settings in found for key in settings), list[str]()

    def distinct(*chosen: str) -> int:
        return len({repr([settings.get(key) for key in chosen]) for settings in found})

    while distinct(*named) < distinct(*keys):
        named.append(max(keys, key=lambda key: distinct(*named, key)))
    return [[setting_text(key, settings.get(key)) for key in named] for settings in found]


def experiment_settings(run: Run) -> dict[str, Any]:
    """The settings that runs of one experiment share."""
    from grokfast.lab.settings import JUDGED, SAME_RESULT, LoopConfig

    left_out = {*LoopConfig.__dataclass_fields__, *SAME_RESULT, *JUDGED}
    return {name: value for name, value in run.settings.items() if name not in left_out}


def setting_text(name: str, value: Any) -> str:
    """
    >>> setting_text("lr", 0.01), setting_text("fast", False), setting_text("two_stage", None)
    ('learning rate 0.01', 'no fast', 'no two stage')
    """
    if value is None or isinstance(value, bool):
        return words(name) if value else f"no {words(name)}"
    if isinstance(value, list):
        return f"{words(name)} {' '.join(map(str, value))}"  # type: ignore[reportUnknownArgumentType]
    return f"{words(name)} {value:g}" if isinstance(value, float) else f"{words(name)} {value}"
