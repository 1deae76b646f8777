"""`grokfast reproduce NAME`: run the experiments of the paper's figures and tables, beside the published numbers.

Runs that are done are left alone and interrupted ones are resumed, so the same command again continues it.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rich.table import Table

from grokfast.lab.commands.common import add_out, add_runs_dir, complain, make_table, show
from grokfast.lab.commands.runs import result_line
from grokfast.lab.commands.terminal import train_next
from grokfast.lab.own_code import one_line
from grokfast.lab.paper import (
    ALL,
    EMA,
    EXPERIMENTS,
    FILTERS,
    MA,
    Experiment,
    find_arm,
    find_experiments,
    ours,
    settings_of_experiment,
)
from grokfast.lab.runs.directory import Run, RunError, load_runs
from grokfast.lab.search.progress import time_text
from grokfast.lab.settings import Settings, experiment_of, filter_of, name_of, resolve, task_of
from grokfast.lab.tasks.data import DataError, data_directory
from grokfast.lab.training.run import make_task

TIMED_STEPS = 100  # a shorter run mostly measures its start


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments as --list names them, or all")
    add_runs_dir(parser)
    parser.add_argument("--list", action="store_true", help="list the experiments, their runs and their times")
    parser.add_argument("--seeds", type=int, metavar="N", help="use the seeds 0 to N - 1 (default: as the paper)")
    help = "train each run for this many steps at most (default: as the experiment needs)"
    parser.add_argument("--budget", type=int, metavar="STEPS", help=help)
    parser.add_argument("--data-dir", metavar="DIR", help="directory of the data sets")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads of each run (default: torch's choice)")
    add_out(parser, "report.html", "the page about all runs", endings=(".html",))
    help = "train a few steps only, to see that it works; tasks without data are left out"
    parser.add_argument("--quick", action="store_true", help=help)
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(args: argparse.Namespace) -> int:
    if args.list or not args.names:
        show(listing(args.runs_dir))
        return 0
    planned, folder = plan_runs(args)
    left = [settings for settings in planned if not run_of(settings, folder).done]
    tell(args, summary(args.names, planned, left, folder))
    missing = missing_data(left)
    for task, error in missing.items():
        complain(f"{task} is left out: {one_line(error)}")
    failed = {} if args.quick else {f"all of {task}": error for task, error in missing.items()}
    failed |= train_all(args, [settings for settings in left if settings["task"] not in missing], folder)
    runs = [run for settings in planned if (run := run_of(settings, folder)).done]
    for part in results(args.names, runs, args.out):
        tell(args, part)
    for name, error in failed.items():
        complain(f"failed: {name}: {one_line(error)}")
    return 1 if failed else 0


def tell(args: argparse.Namespace, part: str | Table) -> None:
    if not args.quiet:
        show(part)


# Planning -------------------------------------------------------------------------------------------------------------


def plan_runs(args: argparse.Namespace) -> tuple[list[Settings], Path]:
    """The runs that were asked for, each once, and their folder; quick ones are kept apart from the real ones."""
    seeds = 1 if args.quick and args.seeds is None else args.seeds
    asked = {"steps": args.budget, "data_dir": args.data_dir, "threads": args.threads}
    found = [s for e in find_experiments(args.names) for s in settings_of_experiment(e, seeds=seeds, **asked)]
    if args.quick and args.budget is None:
        found = [{**settings, "steps": task_of(settings).quick_steps} for settings in found]
    if args.quick and args.data_dir is None:
        named = str(data_directory(None)[0])  # --quick never downloads into a directory of the user
        found = [s if s["task"] == "qm9" else {**s, "data_dir": named} for s in found]  # qm9 comes as a package
    return distinct(found), args.runs_dir / "quick" if args.quick else args.runs_dir


def distinct(planned: Iterable[Settings]) -> list[Settings]:
    return list({name_of(settings): settings for settings in planned}.values())


def run_of(settings: Settings, folder: Path) -> Run:
    return Run(folder / name_of(settings))


def missing_data(planned: Iterable[Settings]) -> dict[str, Exception]:
    """The tasks whose data cannot be read, with the reason; tested before the first run."""
    found: dict[str, Exception] = {}
    for task, settings in {settings["task"]: settings for settings in planned}.items():
        try:
            make_task(settings)
        except (DataError, OSError) as error:
            found[task] = error
    return found


def summary(names: list[str], planned: list[Settings], left: list[Settings], folder: Path) -> str:
    """The plan in one line."""
    if not planned:
        return f"{', '.join(names)}: nothing to train"
    rest = f", the rest takes about {time_text(seconds_left(left, folder))}" if left else ""
    done = len(planned) - len(left)
    return f"{', '.join(names)}: {len(planned)} runs in {folder}, {done} complete already{rest}"


def listing(folder: Path) -> Table:
    """Every experiment: its place in the paper, its number of runs, and how long they take without earlier ones."""
    rows: list[list[str]] = []
    speed = measured_step_seconds(folder)
    for e in (*EXPERIMENTS, Experiment(ALL, "all of these, equal runs once", "", ()), *ours()):
        planned = distinct(s for one in find_experiments([e.name]) for s in settings_of_experiment(one))
        seconds = sum(expected_seconds(settings, speed) for settings in planned)
        rows.append([e.name, e.where, e.title, str(len(planned)), time_text(seconds) if planned else "none"])
    return make_table(
        ("name", "in the paper", "experiment", "runs", "time"), rows, right=("runs", "time"), whole=("name",)
    )


# How long it takes ----------------------------------------------------------------------------------------------------


def seconds_left(planned: Iterable[Settings], folder: Path) -> float:
    """Seconds that these runs may still take."""
    speed = measured_step_seconds(folder)
    return sum(expected_seconds(settings, speed, steps_done(settings, folder)) for settings in planned)


def expected_seconds(settings: Settings, speed: Mapping[str, float], done: int = 0) -> float:
    """Seconds that a run may take after `done` steps, at the measured speed of its task if there is one."""
    usual = speed.get(settings["task"], task_of(settings).step_seconds)
    return max(expected_steps(settings) - done, 0) * usual


def expected_steps(settings: Settings) -> int:
    """The published steps if the run stops at the level, else the whole budget."""
    arm = find_arm(experiment_of(settings))
    if arm is None or arm.steps is None or settings["until"] is None:
        return settings["steps"]
    return min(settings["steps"], arm.steps + settings["extra_steps"])


def steps_done(settings: Settings, folder: Path) -> int:
    with contextlib.suppress(RunError):  # damaged: training it will say so
        return max((row.step for row in run_of(settings, folder).rows[-1:]), default=0)
    return 0


def measured_step_seconds(folder: Path) -> dict[str, float]:
    """Seconds per step of each task that has complete runs in a folder: their median."""
    found: dict[str, list[float]] = {}
    for run in load_runs(folder):
        with contextlib.suppress(RunError, OSError, KeyError, TypeError):  # a damaged run says nothing
            ended = run.summary or {}
            if ended.get("steps", 0) >= TIMED_STEPS and ended["steps_per_second"]:
                found.setdefault(run.task, []).append(1 / ended["steps_per_second"])
    return {task: statistics.median(seconds) for task, seconds in found.items()}


# Training -------------------------------------------------------------------------------------------------------------


def train_all(args: argparse.Namespace, planned: list[Settings], folder: Path) -> dict[str, Exception]:
    """Train runs one after the other; one that fails does not stop the others. Gives the failures by name."""
    failed: dict[str, Exception] = {}
    for index, settings in enumerate(planned):
        name = name_of(settings)
        label = f"[{index + 1} of {len(planned)}] {name}"
        tell(args, f"{label}, about {time_text(seconds_left(planned[index:], folder))} until all is done")
        try:
            tell(args, result_line(train_next(settings, folder, label, args)))
        except Exception as error:  # any error: the other runs do not depend on this one
            failed[name] = error
    return failed


def results(names: list[str], runs: list[Run], out: Path) -> Iterator[Table | str]:
    """Tables of experiments with the paper's numbers; writes a page about their runs."""
    # Slow to import, and not needed for a list.
    from grokfast.lab.commands.response import response_table
    from grokfast.lab.report import write_report
    from grokfast.lab.report.curves import PAPER
    from grokfast.lab.report.depth import response_picture, theorem_picture
    from grokfast.lab.report.pictures import COLOURS, write_picture
    from grokfast.lab.report.rows import arm_rows
    from grokfast.lab.tables import arms, by_task

    if FILTERS in (experiment.name for experiment in find_experiments(names)):
        pairs = ((MA, "Grokfast-MA"), (EMA, "Grokfast-EMA"))
        made = {filter_of(resolve(**given)): COLOURS[PAPER[name]] for given, name in pairs}
        filters = {filter: colour for filter, colour in made.items() if filter is not None}
        yield from map(response_table, filters)
        path = out.with_name("filters.png")
        path.parent.mkdir(parents=True, exist_ok=True)
        yield f"written: {write_picture([response_picture(filters), theorem_picture(filters)], path)}"
    for task, members in by_task(runs).items():
        headings, *rows = arm_rows(arms(members))
        table = make_table(headings, rows, right=headings[1:], whole=headings[1:])
        table.title = task
        yield table
    if runs:
        yield f"written: {write_report(runs, out)}"
