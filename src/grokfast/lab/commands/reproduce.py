"""`grokfast reproduce NAME`: run the experiments of the paper's figures and tables.

Complete runs are left alone and interrupted ones are resumed, so the same command again continues where it stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from grokfast.lab.commands.common import add_runs_dir, show
from grokfast.lab.commands.response import response_table
from grokfast.lab.commands.terminal import INTERRUPTED, complain, train_watched
from grokfast.lab.training.messages import one_line

if TYPE_CHECKING:
    from rich.table import Table

    import grokfast
    from grokfast.lab.config import RunConfig
    from grokfast.lab.runs.directory import Run
    from grokfast.lab.training.plan import Plan, Turn
    from grokfast.lab.training.train import Outcome

HELP = "run the experiments of the paper's figures and tables"


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="NAME", help="experiments as --list names them, or all")
    add_runs_dir(parser)
    parser.add_argument("--list", action="store_true", help="list the experiments, their runs and their times")
    parser.add_argument("--seeds", type=int, metavar="N", help="use the seeds 0 to N - 1 (default: as the paper)")
    help = "train each run for this many steps at most (default: as the experiment needs)"
    parser.add_argument("--budget", type=int, metavar="STEPS", help=help)
    parser.add_argument("--data-dir", metavar="DIR", help="directory of the data sets")
    parser.add_argument("--threads", type=int, metavar="N", help="CPU threads of each run (default: as torch finds)")
    help = "the page about all runs (default: report.html)"
    parser.add_argument("-o", "--out", type=Path, default=Path("report.html"), metavar="FILE", help=help)
    help = "train a few steps only, to see that it works; tasks without data are left out"
    parser.add_argument("--quick", action="store_true", help=help)
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(args: argparse.Namespace) -> int:
    from grokfast.lab.training.plan import carry_out, missing_data

    if args.list or not args.names:
        show(listing(args.runs_dir))
        return 0
    plan = make_plan(args)
    tell(args, summary(args.names, plan))
    missing = missing_data(plan.left)
    for task, error in missing.items():
        complain(f"{task} is left out: {one_line(error)}")
    outcome = carry_out(plan.without(missing), partial(train_one, args))
    if outcome.interrupted:
        complain("stopped: the same command continues from here")
        return INTERRUPTED
    for part in results(args.names, plan, args.out):
        tell(args, part)
    failed = {} if args.quick else {f"all of {task}": error for task, error in missing.items()}
    failed |= outcome.failed
    for name, error in failed.items():
        complain(f"failed: {name}: {one_line(error)}")
    return 1 if failed else 0


def tell(args: argparse.Namespace, part: str | Table) -> None:
    if not args.quiet:
        show(part)


# Planning -----------------------------------------------------------------------------------------------------------


def make_plan(args: argparse.Namespace) -> Plan:
    """The runs that were asked for; quick ones are kept apart from those that mean something."""
    from grokfast.lab.paper.experiments import configurations, find_experiments
    from grokfast.lab.tasks.data import data_directory
    from grokfast.lab.training.plan import Plan, distinct, shorten

    seeds, data_dir = args.seeds, args.data_dir
    if args.quick:
        seeds = 1 if seeds is None else seeds
        data_dir = str(data_directory(data_dir)[0])  # a named directory is never downloaded into
    asked = {"steps": args.budget, "data_dir": data_dir, "threads": args.threads}
    configs = distinct(configurations(e, seeds=seeds, **asked) for e in find_experiments(args.names))
    if args.quick and args.budget is None:
        configs = distinct([[shorten(config) for config in configs]])
    return Plan(configs, args.runs_dir / "quick" if args.quick else args.runs_dir, expected_steps)


def expected_steps(config: RunConfig) -> int:
    """The steps that the paper reports where the run stops at the level, else the whole budget."""
    from grokfast.lab.config import to_json
    from grokfast.lab.paper.published import published_of

    published = published_of(to_json(config)).steps
    if published is None or config.loop.until is None:
        return config.loop.steps
    return min(config.loop.steps, published + config.loop.extra_steps)


def summary(names: list[str], plan: Plan) -> str:
    """What is going to happen, in one line."""
    from grokfast.lab.training.plan import duration, estimate

    if not plan.configs:
        return f"{', '.join(names)}: nothing to train"
    rest = f", the rest takes about {duration(estimate(plan))}" if plan.left else ""
    return f"{', '.join(names)}: {len(plan.configs)} runs in {plan.folder}, {len(plan.complete)} complete already{rest}"


def listing(folder: Path) -> Table:
    """Every experiment: its place in the paper, its number of runs, and how long they take without earlier ones."""
    from rich.table import Table

    from grokfast.lab.paper.experiments import ALL, EXPERIMENTS, Experiment, configurations, find_experiments
    from grokfast.lab.runs.directory import load_runs
    from grokfast.lab.training.plan import distinct, duration, measured_step_seconds

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("name", "in the paper", "experiment", "runs", "time"):
        table.add_column(column, no_wrap=column == "name", justify="right" if column in ("runs", "time") else "left")
    speed = measured_step_seconds(load_runs(folder))
    for e in (*EXPERIMENTS, Experiment(ALL, "all of these, equal runs once", "", ())):
        configs = distinct(configurations(one) for one in find_experiments([e.name]))
        seconds = sum(expected_steps(c) * speed.get(c.task_name, c.task.step_seconds) for c in configs)
        table.add_row(e.name, e.where, e.title, str(len(configs)), duration(seconds) if configs else "none")
    return table


# Training -----------------------------------------------------------------------------------------------------------


def train_one(args: argparse.Namespace, config: RunConfig, turn: Turn) -> Outcome:
    """Train one run of the plan, and say so before and after."""
    from grokfast.lab.runs.writer import run_path
    from grokfast.lab.training.plan import duration
    from grokfast.lab.training.train import train

    folder = args.runs_dir / "quick" if args.quick else args.runs_dir
    label = f"[{turn.number} of {turn.total}] {run_path(config, folder).name}"
    tell(args, f"{label}, about {duration(turn.seconds)} until all is done")
    begin = partial(train, config, folder, command=["grokfast", *args.words])
    outcome = train_watched(begin, label, config.loop.steps, quiet=args.quiet)
    if outcome.complete:
        from grokfast.lab.compare.results import result

        found = result(outcome.run)
        tell(args, f"{found['status']} after {found['seconds']} s, steps to the level: {found['steps to level']}")
    return outcome


# Results ------------------------------------------------------------------------------------------------------------


def results(names: list[str], plan: Plan, out: Path) -> Iterator[Table | str]:
    """What to show of a plan: its complete runs beside the paper's numbers; a page about them is written."""
    from grokfast.lab.paper.experiments import FILTERS, find_experiments

    if FILTERS in (experiment.name for experiment in find_experiments(names)):
        yield from map(response_table, paper_filters())
        yield f"written: {draw_filters(out.with_name('filters.png'))}"
    if runs := plan.complete:
        from grokfast.lab.report import write_report  # slow to import, and not needed for a list

        yield results_table(runs)
        yield "written: " + " and ".join(map(str, write_report(runs, out)))


def results_table(runs: list[Run]) -> Table:
    from rich.table import Table

    from grokfast.lab.compare.results import result

    shown = {"steps to level": "steps to level", "paper": "paper"}
    shown |= {"accuracy": "validation accuracy", "best loss": "best validation loss"}
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("run", overflow="fold")
    for heading in shown:
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        found = result(run)
        label = run.name if found["run"] == run.name else f"{run.task}, {found['run']}"
        table.add_row(label, *(found[name] for name in shown.values()))
    return table


def paper_filters() -> list[grokfast.Filter]:
    """The two filters of the paper, as it uses them on modular arithmetic."""
    from grokfast.lab.paper.published import EMA, MA
    from grokfast.lab.request import resolve

    return [filter for request in (MA, EMA) if (filter := resolve(request).filter) is not None]


def draw_filters(path: Path) -> Path:
    """The figure of the filters, and the theorem for linear optimizers in numbers."""
    from grokfast.lab.report.draw_matplotlib import draw
    from grokfast.lab.report.plots import response_plot, theorem_plot

    path.parent.mkdir(parents=True, exist_ok=True)
    return draw([response_plot(paper_filters()), theorem_plot(paper_filters())], path)
