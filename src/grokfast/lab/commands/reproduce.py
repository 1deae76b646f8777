"""`grokfast reproduce NAME`: run the experiments of the paper's figures and tables.

Complete runs are left alone and interrupted ones are resumed, so the same command again continues where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from rich.table import Table

from grokfast.lab.commands.common import add_out, add_runs_dir, complain, make_table, show
from grokfast.lab.commands.response import response_table
from grokfast.lab.commands.terminal import train_next
from grokfast.lab.compare.results import result
from grokfast.lab.config import RunConfig
from grokfast.lab.paper.experiments import ALL, EXPERIMENTS, FILTERS, Experiment, configurations, find_experiments
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.writer import run_path
from grokfast.lab.tasks.data import data_directory
from grokfast.lab.training import plan
from grokfast.lab.training.messages import one_line


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments as --list names them, or all")
    add_runs_dir(parser)
    parser.add_argument("--list", action="store_true", help="list the experiments, their runs and their times")
    parser.add_argument("--seeds", type=int, metavar="N", help="use the seeds 0 to N - 1 (default: as the paper)")
    help = "train each run for this many steps at most (default: as the experiment needs)"
    parser.add_argument("--budget", type=int, metavar="STEPS", help=help)
    parser.add_argument("--data-dir", metavar="DIR", help="directory of the data sets")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads of each run (default: torch's choice)")
    add_out(parser, "report.html", "the page about all runs")
    help = "train a few steps only, to see that it works; tasks without data are left out"
    parser.add_argument("--quick", action="store_true", help=help)
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(args: argparse.Namespace) -> int:
    if args.list or not args.names:
        show(listing(args.runs_dir))
        return 0
    configs, folder = make_plan(args)
    left = plan.what_is_left(configs, folder)
    tell(args, summary(args.names, configs, left, folder))
    missing = plan.missing_data(left)
    for task, error in missing.items():
        complain(f"{task} is left out: {one_line(error)}")
    failed = {} if args.quick else {f"all of {task}": error for task, error in missing.items()}
    failed |= train_all(args, [config for config in left if config.task_name not in missing], folder)
    for part in results(args.names, plan.complete_runs(configs, folder), args.out):
        tell(args, part)
    for name, error in failed.items():
        complain(f"failed: {name}: {one_line(error)}")
    return 1 if failed else 0


def tell(args: argparse.Namespace, part: str | Table) -> None:
    if not args.quiet:
        show(part)


# Planning -----------------------------------------------------------------------------------------------------------


def make_plan(args: argparse.Namespace) -> tuple[list[RunConfig], Path]:
    """The runs that were asked for, and where they go; quick ones are kept apart from those that mean something."""
    seeds, data_dir = args.seeds, args.data_dir
    if args.quick:
        seeds = 1 if seeds is None else seeds
        data_dir = str(data_directory(data_dir)[0])  # a named directory is never downloaded into
    asked = {"steps": args.budget, "data_dir": data_dir, "threads": args.threads}
    configs = [c for e in find_experiments(args.names) for c in configurations(e, seeds=seeds, **asked)]
    if args.quick and args.budget is None:
        configs = map(plan.shorten, configs)
    return plan.distinct(configs), args.runs_dir / "quick" if args.quick else args.runs_dir


def summary(names: list[str], configs: list[RunConfig], left: list[RunConfig], folder: Path) -> str:
    """What is going to happen, in one line."""
    if not configs:
        return f"{', '.join(names)}: nothing to train"
    rest = f", the rest takes about {plan.duration(plan.estimate(left, folder))}" if left else ""
    done = len(configs) - len(left)
    return f"{', '.join(names)}: {len(configs)} runs in {folder}, {done} complete already{rest}"


def listing(folder: Path) -> Table:
    """Every experiment: its place in the paper, its number of runs, and how long they take without earlier ones."""
    rows: list[list[str]] = []
    speed = plan.measured_step_seconds(folder)
    for e in (*EXPERIMENTS, Experiment(ALL, "all of these, equal runs once", "", ())):
        configs = plan.distinct(config for one in find_experiments([e.name]) for config in configurations(one))
        seconds = sum(plan.expected_seconds(config, speed) for config in configs)
        rows.append([e.name, e.where, e.title, str(len(configs)), plan.duration(seconds) if configs else "none"])
    return make_table(
        ("name", "in the paper", "experiment", "runs", "time"), rows, right=("runs", "time"), whole=("name",)
    )


def train_all(args: argparse.Namespace, configs: list[RunConfig], folder: Path) -> dict[str, Exception]:
    """Train runs one after the other; one that fails does not stop the others. Gives the failures by name."""
    failed: dict[str, Exception] = {}
    for index, config in enumerate(configs):
        name = run_path(config, folder).name
        label = f"[{index + 1} of {len(configs)}] {name}"
        tell(args, f"{label}, about {plan.duration(plan.estimate(configs[index:], folder))} until all is done")
        try:
            found = result(train_next(config, folder, label, args))
            tell(args, f"{found['status']} after {found['seconds']} s, steps to the level: {found['steps to level']}")
        except Exception as error:  # whatever it is: the runs after it may take all night and do not depend on it
            failed[name] = error
    return failed


# Results ------------------------------------------------------------------------------------------------------------


def results(names: list[str], runs: list[Run], out: Path) -> Iterator[Table | str]:
    """What to show of an experiment: its complete runs beside the paper's numbers; a page about them is written."""
    # Slow to import, and not needed for a list.
    from grokfast.lab.report import write_report
    from grokfast.lab.report.draw_matplotlib import draw
    from grokfast.lab.report.plots import response_plot, theorem_plot
    from grokfast.lab.report.results_pictures import paper_filters

    if FILTERS in (experiment.name for experiment in find_experiments(names)):
        filters, path = paper_filters(), out.with_name("filters.png")
        yield from map(response_table, filters)
        path.parent.mkdir(parents=True, exist_ok=True)
        yield f"written: {draw([response_plot(filters), theorem_plot(filters)], path)}"
    if runs:
        yield results_table(runs, "steps to level", "paper", "validation accuracy", "best validation loss")
        yield "written: " + " and ".join(map(str, write_report(runs, out)))


def results_table(runs: list[Run], *columns: str) -> Table:
    """One line per run, beside the paper's number; `columns` are headings of `result`."""
    rows: list[list[str]] = []
    for run in runs:
        found = result(run)
        label = found["run"] if found["run"] == run.name else f"{run.task}, {found['run']}"
        rows.append([label, *(found[name] for name in columns)])
    return make_table(("run", *columns), rows, right=columns, whole=columns)
