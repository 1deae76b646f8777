"""The command line: `grokfast train modmul --filter ema --until 0.95`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

from grokfast.lab.training import parallel
from grokfast.lab.commands import look, train, write
from grokfast.lab.commands.common import INTERRUPTED
from grokfast.lab.commands.suggest import add_suggest, command_suggest
from grokfast.lab.commands.sweep import add_engine_flags, add_spec_flags, command_sweep
from grokfast.lab.config import FilterConfig, FilterName, LoopConfig, OptimConfig
from grokfast.lab.commands.flags import add_flags, default_hints
from grokfast.lab.runs.directory import RunError
from grokfast.lab.tasks import TASKS
from grokfast.lab.commands.terminal import complain, one_line, stop_on_interrupt
from grokfast.lab.training.loop import Watcher, follow


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; under torchrun rank 0 does, and the other ranks train along with it."""
    with parallel.joined() as rank:
        code = run_command(arguments) if rank == 0 else run_along(rank)
    return parallel.end(code)


def run_along(rank: int) -> int:
    try:
        with stop_on_interrupt() as interrupted:
            follow(Watcher(should_stop=interrupted))
        return 0
    except (RunError, ValueError, OSError, RuntimeError) as error:
        complain(f"rank {rank}: error: {one_line(error)}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def run_command(arguments: Sequence[str] | None) -> int:
    """Run one command; a mistake of the user gives one line on stderr and a non-zero exit code."""
    args = build_parser().parse_args(arguments)
    try:
        return args.run(args)
    except (RunError, ValueError, TypeError, OSError) as error:
        complain(f"error: {one_line(error)}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="grokfast", description="Reproduce, measure, explain accelerated grokking.")
    added = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    add_train(added)
    add_looking(added)
    add_writing(added)
    add_suggest(
        command(added, "suggest", command_suggest, "propose a filter for a run without one, by the authors' rule")
    )
    add_response(added)
    add_sweep(added)
    add_paper(added)
    return parser


def command(parent: Any, name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
    """A command that has to do with runs."""
    added = parent.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
    added.set_defaults(run=run, tensorboard=False, quiet=False, json=False)
    added.add_argument("--runs-dir", type=Path, default="runs", metavar="DIR", help="where runs live (default: runs)")
    return added


def add_train(parent: Any) -> None:
    """`grokfast train TASK`, and `grokfast resume RUN`."""
    tasks = parent.add_parser("train", help="train one run of a task").add_subparsers(
        title="tasks", required=True, metavar="TASK"
    )
    for name, kind in TASKS.items():
        doc = (kind.__doc__ or name).splitlines()[0].rstrip(".")
        task = command(tasks, name, train.command_train, doc[0].lower() + doc[1:])
        task.set_defaults(task=name)
        task.usage = f"grokfast train {name} [flags]"
        for part in (FilterConfig, OptimConfig, LoopConfig, kind):
            add_flags(task, part, default_hints(kind))
        add_output_flags(task)
    resume = command(parent, "resume", train.command_resume, "go on with a run that was interrupted")
    resume.add_argument("name", help="name of a run, or the beginning of one")
    resume.add_argument("--data-dir", metavar="DIR", help="where data sets lie now (default: as when the run began)")
    add_output_flags(resume)


def add_looking(parent: Any) -> None:
    """`grokfast runs`, `show RUN`, `compare RUN RUN`."""
    listing = command(parent, "runs", look.command_runs, "list all runs")
    show = command(parent, "show", look.command_show, "show the configuration and results of a run")
    show.add_argument("name", help="name of a run, or the beginning of one")
    compare = command(parent, "compare", look.command_compare, "show what differs between runs, and what came of it")
    compare.add_argument("names", nargs="+", metavar="RUN")
    for added in (listing, show, compare):
        added.add_argument("--json", action="store_true", help="print JSON")


def add_writing(parent: Any) -> None:
    """`grokfast report`, `figures`, `results`."""
    report = command(parent, "report", write.command_report, "write a page and a picture of the curves of runs")
    figures = command(parent, "figures", write.command_figures, "write the pictures of the page to files, for papers")
    for added, out, kind in ((report, "report.html", "FILE"), (figures, "figures", "DIR")):
        added.add_argument("names", nargs="*", metavar="RUN", help="default: all")
        added.add_argument("-o", "--out", default=out, metavar=kind, help=f"default: {out}")
    figures.add_argument("--format", choices=("png", "svg", "pdf"), default="png", help="default: png")
    help = "the paper's arms over seeds, beside the published, as Markdown"
    results = command(parent, "results", write.command_results, help)
    results.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="folders of runs (default: --runs-dir)")
    results.add_argument("-o", "--out", type=Path, metavar="FILE", help="write there, with pictures beside it")
    help = "put a short table between the marks of this page"
    results.add_argument("--summary", type=Path, metavar="FILE", help=help)


def add_paper(parent: Any) -> None:
    """`grokfast demo`, and `grokfast reproduce NAME`."""
    demo = command(parent, "demo", train.command_demo, "see grokking happen, accelerated, in about two minutes")
    demo.set_defaults(runs_dir=Path("demo/runs"))
    help = "run the experiments of the paper's figures and tables"
    again = command(parent, "reproduce", train.command_reproduce, help)
    again.add_argument("names", nargs="*", metavar="NAME", help="figures or tables as --list names them, or all")
    again.add_argument("--list", action="store_true", help="names, places in the paper, numbers of runs, times")
    again.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N - 1 (default: as many as the paper's)")
    again.add_argument("--budget", type=int, metavar="STEPS", help="steps of each run at most (default: as needed)")
    again.add_argument("--data-dir", metavar="DIR", help="where data sets lie")
    again.add_argument("--threads", type=int, metavar="N", help="CPU threads of each run (default: as torch finds)")
    for added, out in ((demo, "demo/index.html"), (again, "report.html")):
        added.add_argument("-o", "--out", default=out, metavar="FILE", help=f"default: {out}")
        added.add_argument("--quick", action="store_true", help="a few steps only, to see that it works")
        added.add_argument("--quiet", action="store_true", help="no progress")


def add_response(parent: Any) -> None:
    """`grokfast response ema --alpha 0.98 --lamb 2`: a filter in frequency, without any run."""
    help = "show what a filter does to each frequency"
    response = parent.add_parser("response", help=help, description=help[0].upper() + help[1:] + ".")
    response.set_defaults(run=look.command_response)
    response.usage = "grokfast response FILTER [flags]"
    kinds = get_args(FilterName)
    response.add_argument("filter", choices=kinds, metavar="FILTER", help=", ".join(kinds))
    add_flags(response, FilterConfig, default_hints(TASKS["modmul"]), without=("filter", "two_stage"))
    response.add_argument("-o", "--out", type=Path, metavar="FILE", help="write a picture: png, svg or pdf")


def add_sweep(parent: Any) -> None:
    """`grokfast sweep modmul --filter ema --grid alpha=0.9,0.98 --seeds 3`, and `grokfast sweep --resume DIR`."""
    help = "train many settings of a task, by grid or by search"
    sweep = parent.add_parser("sweep", help=help, description=help[0].upper() + help[1:] + ".")
    sweep.set_defaults(run=command_sweep, task=None)
    sweep.usage = "grokfast sweep TASK [flags] | grokfast sweep --resume DIR [flags]"
    sweep.add_argument("--resume", type=Path, metavar="DIR", help="join the sweep in DIR, or go on with it")
    add_engine_flags(sweep)
    tasks = sweep.add_subparsers(title="tasks", metavar="TASK")
    for name, kind in TASKS.items():
        doc = (kind.__doc__ or name).splitlines()[0].rstrip(".")
        task = tasks.add_parser(name, help=doc[0].lower() + doc[1:], usage=f"grokfast sweep {name} [flags]")
        task.set_defaults(task=name)
        add_spec_flags(task)
        add_engine_flags(task)
        for part in (FilterConfig, OptimConfig, LoopConfig, kind):
            add_flags(task, part, default_hints(kind))


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Output")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")
    group.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    group.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")


if __name__ == "__main__":
    sys.exit(main())
