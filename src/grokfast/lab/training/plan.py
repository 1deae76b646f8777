"""The paper's experiments, run: what is left to do, how long it may take, and doing it run by run.

A plan is a list of distinct configurations. What is complete is left alone, what was broken off is resumed, so the
same command again always goes on where the last one stopped.
"""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from rich.table import Table

import grokfast
from grokfast.lab.commands.terminal import complain, one_line, train_watched
from grokfast.lab.compare.results import response_table, result
from grokfast.lab.config import RunConfig, fingerprint, make_filter, resolve
from grokfast.lab.paper.experiments import ALL, EXPERIMENTS, FILTERS, Experiment, configurations, find_experiments
from grokfast.lab.paper.published import EMA, MA, find_arm
from grokfast.lab.runs.directory import Run, RunError, create_run, load_runs, run_path
from grokfast.lab.tasks import TASKS
from grokfast.lab.tasks.data import DataError, data_directory
from grokfast.lab.training.loop import data_of, task_of
from grokfast.lab.training.machine import forget_peak_memory

STEP_SECONDS = {"modmul": 0.027, "mnist": 0.0035, "qm9": 0.0022, "imdb": 0.34}  # on two cores, evaluations included
QUICK_STEPS = {"modmul": 20, "mnist": 40, "qm9": 40, "imdb": 5}
TIMED_STEPS = 100  # shorter runs say more about the start of a run than about its speed


class Plan(NamedTuple):
    """What to train, each configuration once, and where."""

    names: list[str]
    configs: list[RunConfig]
    folder: Path
    quick: bool = False

    @property
    def complete(self) -> list[Run]:
        """The runs that are done."""
        runs = [Run(run_path(config, self.folder)) for config in self.configs]
        return [run for run in runs if run.status == "complete"]

    @property
    def left(self) -> list[RunConfig]:
        """What is still to be trained, wholly or in part."""
        done = {run.path for run in self.complete}
        return [config for config in self.configs if run_path(config, self.folder) not in done]


class Outcome(NamedTuple):
    """How the carrying out of a plan ended."""

    failed: list[str]  # a line on each run that failed
    interrupted: bool = False


# Planning -----------------------------------------------------------------------------------------------------------


def make_plan(
    names: list[str],
    folder: Path,
    *,
    seeds: int | None = None,
    budget: int | None = None,
    quick: bool = False,
    data_dir: str | None = None,
    threads: int | None = None,
) -> Plan:
    """The runs of the named experiments; `quick` shortens them, and keeps them apart from those that mean something."""
    if quick:
        seeds = 1 if seeds is None else seeds
        data_dir = str(data_directory(data_dir)[0])  # a named directory is never downloaded into
    options = {"seeds": seeds, "budget": budget, "data_dir": data_dir, "threads": threads}
    chosen = [configurations(e, **options) for e in find_experiments(names)]  # type: ignore[arg-type]
    if quick and budget is None:
        chosen = [[shorten(config) for config in configs] for configs in chosen]
    return Plan(names, distinct(chosen), folder / "quick" if quick else folder, quick)


def distinct(groups: Iterable[list[RunConfig]]) -> list[RunConfig]:
    """Each configuration once, in the order of its first appearance."""
    found: dict[str, RunConfig] = {}
    for config in (config for group in groups for config in group):
        found.setdefault(fingerprint(config), config)
    return list(found.values())


def shorten(config: RunConfig) -> RunConfig:
    return dataclasses.replace(config, loop=dataclasses.replace(config.loop, steps=QUICK_STEPS[config.task_name]))


# Time ---------------------------------------------------------------------------------------------------------------


def estimate(configs: Iterable[RunConfig], folder: Path) -> float:
    """Seconds that these runs may still take, by the speed of earlier runs in the folder where there are any."""
    speed = step_seconds(load_runs(folder))
    return sum(max(expected_steps(c) - steps_done(c, folder), 0) * speed[c.task_name] for c in configs)


def expected_steps(config: RunConfig) -> int:
    """The steps that the paper reports where the run stops there, else all of the budget."""
    loop, arm = config.loop, find_arm(config)
    assert loop.steps is not None
    published = arm.published.steps if arm is not None and arm.published is not None else None
    if published is None or loop.until is None:
        return loop.steps
    return min(loop.steps, published + loop.extra_steps)


def steps_done(config: RunConfig, folder: Path) -> int:
    with contextlib.suppress(ValueError, TypeError):  # damaged: training it will say so
        rows = Run(run_path(config, folder)).rows
        return rows[-1].step if rows else 0
    return 0


def step_seconds(runs: Iterable[Run]) -> dict[str, float]:
    """Seconds per step of each task: the median of complete runs, else as measured on two cores."""
    found: dict[str, list[float]] = {task: [] for task in TASKS}
    for run in runs:
        with contextlib.suppress(RunError, ValueError, KeyError, TypeError):  # a damaged run tells nothing
            summary = run.summary or {}
            if summary.get("steps", 0) >= TIMED_STEPS and summary["steps_per_second"]:
                found[run.config.task_name].append(1 / summary["steps_per_second"])
    return {task: statistics.median(known) if known else STEP_SECONDS[task] for task, known in found.items()}


def duration(seconds: float) -> str:
    """A time to plan a day by.

    >>> [duration(seconds) for seconds in (8, 100, 5000, 30000)]
    ['8 s', '2 min', '83 min', '8.3 h']
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


# Doing it -----------------------------------------------------------------------------------------------------------


def carry_out(
    plan: Plan, tell: Callable[[str], None], *, quiet: bool = False, command: list[str] | None = None
) -> Outcome:
    """Train what is left of a plan; a run that fails does not stop the others.

    Args:
        plan: what to train.
        tell: takes a line on each run before and after, with the time that all may still take.
        quiet: no progress within a run.
        command: what the user typed, for the record.
    """
    failed: list[str] = []
    try:
        left = with_data(plan, failed)
        for index, config in enumerate(left):
            label = f"[{index + 1} of {len(left)}] {run_path(config, plan.folder).name}"
            tell(f"{label}, about {duration(estimate(left[index:], plan.folder))} until all is done")
            try:
                found = result(train_one(config, plan.folder, label, quiet=quiet, command=command))
                tell(f"{found.status} after {found.seconds} s, steps to the level: {found.first}")
            except Exception as error:  # whatever it is: the runs after it may take all night and need not know
                failed.append(f"{run_path(config, plan.folder).name}: {one_line(error)}")
    except KeyboardInterrupt:
        return Outcome(failed, interrupted=True)
    return Outcome(failed)


def with_data(plan: Plan, failed: list[str]) -> list[RunConfig]:
    """What is left of a plan and can be trained: better to know at once than in the middle of the night."""
    lacking: dict[str, str] = {}
    for task, config in {config.task_name: config for config in plan.left}.items():
        try:
            task_of(config)
        except (DataError, OSError) as error:
            lacking[task] = one_line(error)
            complain(f"{task} is left out: {lacking[task]}")
    failed += [] if plan.quick else [f"all of {task}: {reason}" for task, reason in lacking.items()]
    return [config for config in plan.left if config.task_name not in lacking]


def train_one(config: RunConfig, folder: Path, label: str, *, quiet: bool, command: list[str] | None) -> Run:
    """Train a run from where it stands to its end; Ctrl-C leaves a checkpoint and raises KeyboardInterrupt."""
    task = task_of(config)  # by our configuration: the data may have moved since the run was begun
    path = run_path(config, folder)
    run = Run(path) if path.exists() else create_run(config, folder, command, data=data_of(task))
    forget_peak_memory()
    if not train_watched(run, label, quiet=quiet, task=task, data_dir=config.loop.data_dir):
        raise KeyboardInterrupt
    return run


# Text ---------------------------------------------------------------------------------------------------------------


def summary(plan: Plan) -> str:
    """What is going to happen, in a line."""
    count, done = len(plan.configs), len(plan.complete)
    if not count:
        return f"{', '.join(plan.names)}: nothing to train"
    left = plan.left
    time = f", the rest takes about {duration(estimate(left, plan.folder))}" if left else ""
    return f"{', '.join(plan.names)}: {count} runs in {plan.folder}, {done} complete already{time}"


def listing(folder: Path) -> Table:
    """Every experiment with its place in the paper, its number of runs and how long it may take from nothing."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "in the paper", "what", "runs", "time"):
        table.add_column(column, no_wrap=column == "name", justify="right" if column in ("runs", "time") else "left")
    speed = step_seconds(load_runs(folder))
    for e in (*EXPERIMENTS, Experiment(ALL, "all of these, equal runs once", "", ())):
        configs = distinct(configurations(one) for one in find_experiments([e.name]))
        time = sum(expected_steps(c) * speed[c.task_name] for c in configs)
        table.add_row(e.name, e.where, e.title, str(len(configs)), duration(time) if configs else "none")
    return table


def results(plan: Plan, out: Path) -> Iterator[Table | str]:
    """What came of a plan, to be shown: the complete runs beside the paper's numbers; a page of them is written."""
    if FILTERS in (experiment.name for experiment in find_experiments(plan.names)):
        yield from responses()
        yield f"written: {draw_filters(out.with_name('filters.png'))}"
    runs = plan.complete
    if not runs:
        return
    from grokfast.lab.report import write_report  # slow to import, and not needed for a list

    shown = {"steps to level": "first", "paper": "published", "accuracy": "accuracy", "best loss": "loss"}
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("run", overflow="fold")
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        found = result(run)
        label = found.label if found.label == run.name else f"{run.config.task_name}, {found.label}"
        table.add_row(label, *(getattr(found, name) for name in shown.values()))
    yield table
    yield "written: " + " and ".join(map(str, write_report(runs, out)))


def responses() -> list[Table]:
    """The numbers behind the figure of the filters."""
    return [response_table(filter) for filter in paper_filters()]


def draw_filters(path: Path) -> Path:
    """The figure of the filters, and the theorem for linear optimizers in numbers."""
    from grokfast.lab.report.draw_matplotlib import draw
    from grokfast.lab.report.plots import response_plot, theorem_plot

    path.parent.mkdir(parents=True, exist_ok=True)
    return draw([response_plot(paper_filters()), theorem_plot(paper_filters())], path)


def paper_filters() -> list[grokfast.Filter]:
    found = [make_filter(resolve(RunConfig(TASKS["modmul"](), kind)).filter) for kind in (MA, EMA)]
    return [filter for filter in found if filter is not None]
