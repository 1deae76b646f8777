"""The command line: `grokfast train modmul --filter ema --until 0.95`. The only module that prints."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from grokfast.lab.config import FilterConfig, LoopConfig, OptimConfig, RunConfig, resolve, to_json
from grokfast.lab.flags import add_flags, default_hints, pick
from grokfast.lab.metrics import Crossing, Row
from grokfast.lab.paper import demo_configs
from grokfast.lab.results import cell, crossing_text, describe, flatten, progress_text
from grokfast.lab.runs import Run, RunError, create_run, find_run, load_runs, run_path, write_atomically
from grokfast.lab.tasks import TASKS, Task
from grokfast.lab.terminal import Progress, complain, plain_warnings, stop_on_interrupt
from grokfast.lab.train import Watcher, task_of, train

INTERRUPTED = 130
console = Console()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a mistake of the user gives one line on stderr and a non-zero exit code."""
    args = build_parser().parse_args(arguments)
    try:
        return args.run(args)
    except (RunError, ValueError, TypeError, OSError) as error:
        print(f"grokfast: error: {one_line(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror.lower()}: {error.filename}" if error.filename else error.strerror.lower()
    return " ".join(str(error).split()) or type(error).__name__


# Commands -----------------------------------------------------------------------------------------------------------


def config_from(args: argparse.Namespace) -> RunConfig:
    """The resolved configuration that the flags of `grokfast train` describe."""
    values = vars(args)
    parts = (pick(kind, values) for kind in (TASKS[args.task], FilterConfig, OptimConfig, LoopConfig))
    return resolve(RunConfig(*parts))


def command_train(args: argparse.Namespace) -> int:
    config = config_from(args)
    path = run_path(config, args.runs_dir)
    if path.exists() and Run(path).status == "complete":
        if not args.json:
            say(args, f"this configuration has been run already: grokfast show {path.name}")
        return report_result(args, Run(path))
    if path.exists():
        raise RunError(f"this run was begun and not finished: grokfast resume {path.name}{where(args)}")
    task = task_of(config)  # before the directory is made: data that cannot be read leave no trace
    return train_run(args, create_run(config, args.runs_dir, command=["grokfast", *sys.argv[1:]]), task)


def command_resume(args: argparse.Namespace) -> int:
    run = find_run(args.name, args.runs_dir)
    if run.status == "complete":
        say(args, f"{run.name} is complete already")
        return report_result(args, run)
    loop = run.config.loop
    moved = dataclasses.replace(loop, data_dir=args.data_dir or loop.data_dir)
    return train_run(args, run, task_of(dataclasses.replace(run.config, loop=moved)))


def command_runs(args: argparse.Namespace) -> int:
    runs = load_runs(args.runs_dir)
    if args.json:
        print(json.dumps([describe(run) for run in runs], indent=1))
    elif not runs:
        print(f"no runs in {args.runs_dir}")
    else:
        console.print(runs_table(runs))
    return 0


def command_show(args: argparse.Namespace) -> int:
    run = find_run(args.name, args.runs_dir)
    if args.json:
        print(json.dumps({**describe(run), "config": to_json(run.config), "summary": run.summary}, indent=1))
        return 0
    table = Table(title=run.name, show_header=False)
    for section, values in to_json(run.config).items():
        for name, value in values.items() if isinstance(values, dict) else []:
            if value not in (None, (), []):
                table.add_row(section, name, str(value))
    for name, value in (run.summary or {}).items():
        if name == "crossings":
            for kind, crossing in value.items():
                table.add_row("crossing", kind, crossing_text(Crossing(**crossing)))
        else:
            table.add_row("result", name, f"{value:.6g}" if isinstance(value, float) else str(value))
    console.print(table)
    if run.status == "incomplete":
        print(f"incomplete, {progress_text(run)}: grokfast resume {run.name}{where(args)}")
    return 0


def command_compare(args: argparse.Namespace) -> int:
    runs = [find_run(name, args.runs_dir) for name in args.names]
    if args.json:
        print(json.dumps([{**describe(run), "config": to_json(run.config), "summary": run.summary} for run in runs]))
        return 0
    flat = [flatten(to_json(run.config)) for run in runs]
    differing = [key for key in flat[0] | flat[-1] if len({repr(f.get(key)) for f in flat}) > 1]
    table = Table(title="what differs, and what came of it")
    table.add_column("")
    for run in runs:
        table.add_column(run.name, overflow="fold")
    for key in differing:
        table.add_row(key, *(str(f.get(key)) for f in flat))
    table.add_section()
    described = [describe(run) for run in runs]
    for key in ("status", "step", "first", "stable", "val_accuracy", "best_val_loss", "seconds"):
        table.add_row(key, *(cell(d[key]) for d in described))
    console.print(table)
    return 0


def command_report(args: argparse.Namespace) -> int:
    from grokfast.lab.report import write_report

    runs = [find_run(name, args.runs_dir) for name in args.names] or load_runs(args.runs_dir)
    page, picture = write_report(runs, Path(args.out))
    print(f"written: {page} and {picture}")
    return 0


def command_results(args: argparse.Namespace) -> int:
    from grokfast.lab.tables import results_page

    text = results_page([run for folder in args.folders or [args.runs_dir] for run in load_runs(folder)])
    if not text:
        raise RunError("there is no complete run of one of the paper's arms: grokfast train ...")
    if args.out is None:
        print(text)
    else:
        write_atomically(args.out, text.encode())
        print(f"written: {args.out}")
    return 0


def command_demo(args: argparse.Namespace) -> int:
    from grokfast.lab.report import write_report
    from grokfast.lab.results import HEADINGS, headline, result

    runs: list[Run] = []
    for config in demo_configs(quick=args.quick):
        path = run_path(config, args.runs_dir)
        run = Run(path) if path.exists() else create_run(config, args.runs_dir, command=["grokfast", "demo"])
        if run.status == "incomplete" and (code := train_run(args, run)):
            return code
        runs.append(run)
    page, picture = write_report(runs, Path(args.out))
    shown = ("label", "first", "interval", "stable", "published")
    table = Table(*(getattr(HEADINGS, name) for name in shown), title="steps until the validation accuracy is 0.95")
    for run in runs:
        table.add_row(*(getattr(result(run), name) for name in shown))
    console.print(table)
    print(f"{headline(runs)}\nLook at {page} (curves also in {picture}).")
    return 0


def command_reproduce(args: argparse.Namespace) -> int:
    from grokfast.lab import reproduce

    if args.list or not args.names:
        console.print(reproduce.listing(args.runs_dir))
        return 0
    chosen = {name: getattr(args, name) for name in ("seeds", "budget", "quick", "data_dir")}
    plan = reproduce.make_plan(args.names, args.runs_dir, **chosen)
    say(args, reproduce.summary(plan))
    outcome = reproduce.carry_out(plan, partial(say, args), quiet=args.quiet, command=["grokfast", *sys.argv[1:]])
    if outcome.interrupted:
        complain("stopped: the same command goes on from here")
        return INTERRUPTED
    for shown in reproduce.results(plan, Path(args.out)):
        if not args.quiet:
            console.print(shown, soft_wrap=isinstance(shown, str))
    for line in outcome.failed:
        complain(f"failed: {line}")
    return 1 if outcome.failed else 0


# Training with something to look at ---------------------------------------------------------------------------------


def train_run(args: argparse.Namespace, run: Run, task: Task | None = None) -> int:
    """Train a run to its end with progress; Ctrl-C leaves a checkpoint."""
    with stop_on_interrupt() as interrupted, plain_warnings(), progress_for(args, run) as on_row:
        watcher = Watcher(on_row=on_row, on_warning=complain, should_stop=interrupted)
        complete = train(run, watcher, task=task)
    if not complete:
        complain(f"stopped at {progress_text(run)}: grokfast resume {run.name}{where(args)}")
        return INTERRUPTED
    return report_result(args, run)


def report_result(args: argparse.Namespace, run: Run) -> int:
    if args.json:
        print(json.dumps({**describe(run), "path": str(run.path), "summary": run.summary}))
        return 0
    found = describe(run)
    accuracy = f"validation accuracy {found['val_accuracy']:.4f}, " if found["val_accuracy"] is not None else ""
    level = (run.summary or {})["level"]
    loss = "" if accuracy else f"best validation loss {found['best_val_loss']:.5g}, "
    result = f"{loss}first at {level:g}: {found['first']}, for good: {found['stable']}"
    say(args, f"{run.name}: {accuracy}{result}, {found['seconds']:.1f} s")
    return 0


@contextmanager
def progress_for(args: argparse.Namespace, run: Run) -> Generator[Callable[[Row], None]]:
    """What to do with each evaluation: a live bar, plain lines, or nothing; and TensorBoard where asked for."""
    budget = run.config.loop.steps or 0
    with Progress(run.name, budget, quiet=args.quiet or args.json) as bar:
        if not args.tensorboard:
            yield bar.update
            return
        from grokfast.lab.tensorboard import event_writer

        with event_writer(run.path / "tensorboard") as write:

            def both(row: Row) -> None:
                bar.update(row)
                write(row)

            yield both


# Text ---------------------------------------------------------------------------------------------------------------


def say(args: argparse.Namespace, message: str) -> None:
    if not args.quiet and not args.json:
        print(message, flush=True)


def where(args: argparse.Namespace) -> str:
    return "" if str(args.runs_dir) == "runs" else f" --runs-dir {args.runs_dir}"


def runs_table(runs: list[Run]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("run", overflow="fold", min_width=12)
    for column in ("status", "step", "train", "val", "loss", "first", "sec"):
        table.add_column(column, no_wrap=True, justify="left" if column == "status" else "right")
    for run in runs:
        d = describe(run)
        values = (d["train_accuracy"], d["val_accuracy"], d["best_val_loss"], steps(d["first"]))
        table.add_row(d["name"], d["status"], f"{d['step']:,}", *(cell(v) for v in values), f"{d['seconds']:.0f}")
    return table


def steps(crossing: str | None) -> str | None:
    """A crossing without its interval, where space is short."""
    return crossing and crossing.split(" (")[0]


# The parser ---------------------------------------------------------------------------------------------------------


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="grokfast", description="Reproduce, measure, explain accelerated grokking.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(
        name: str, run: Callable[[argparse.Namespace], int], help: str, parent: Any = commands
    ) -> argparse.ArgumentParser:
        added = parent.add_parser(name, help=help, description=help[0].upper() + help[1:] + ".")
        added.set_defaults(run=run, tensorboard=False, quiet=False, json=False)
        added.add_argument(
            "--runs-dir", type=Path, default="runs", metavar="DIR", help="where runs live (default: runs)"
        )
        return added

    training = commands.add_parser("train", help="train one run of a task")
    tasks = training.add_subparsers(title="tasks", required=True, metavar="TASK")
    for name, kind in TASKS.items():
        doc = (kind.__doc__ or name).splitlines()[0].rstrip(".")
        task = command(name, command_train, doc[0].lower() + doc[1:], tasks)
        task.set_defaults(task=name)
        task.usage = f"grokfast train {name} [flags]"
        for part in (FilterConfig, OptimConfig, LoopConfig, kind):
            add_flags(task, part, default_hints(kind))
        add_output_flags(task)
    resume = command("resume", command_resume, "go on with a run that was interrupted")
    show = command("show", command_show, "show the configuration and results of a run")
    for added in (resume, show):
        added.add_argument("name", help="name of a run, or the beginning of one")
    resume.add_argument("--data-dir", metavar="DIR", help="where data sets lie now (default: as when the run began)")
    add_output_flags(resume)
    compare = command("compare", command_compare, "show what differs between runs, and what came of it")
    compare.add_argument("names", nargs="+", metavar="RUN")
    listing = command("runs", command_runs, "list all runs")
    for added in (show, compare, listing):
        added.add_argument("--json", action="store_true", help="print JSON")
    report = command("report", command_report, "write a page and a picture of the curves of runs")
    report.add_argument("names", nargs="*", metavar="RUN", help="default: all")
    report.add_argument("-o", "--out", default="report.html", metavar="FILE", help="default: report.html")
    results = command("results", command_results, "the paper's arms over seeds, published beside measured, as Markdown")
    results.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="folders of runs (default: --runs-dir)")
    results.add_argument("-o", "--out", type=Path, metavar="FILE", help="write there instead of printing")
    demo = command("demo", command_demo, "see grokking happen, accelerated, in about two minutes")
    demo.set_defaults(runs_dir=Path("demo/runs"))
    again = command("reproduce", command_reproduce, "run the experiments of the paper's figures and tables")
    again.add_argument("names", nargs="*", metavar="NAME", help="figures or tables as --list names them, or all")
    again.add_argument("--list", action="store_true", help="names, places in the paper, numbers of runs, times")
    again.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N - 1 (default: as many as the paper's)")
    again.add_argument("--budget", type=int, metavar="STEPS", help="steps of each run at most (default: as needed)")
    again.add_argument("--data-dir", metavar="DIR", help="where data sets lie")
    for added, out in ((demo, "demo/index.html"), (again, "report.html")):
        added.add_argument("-o", "--out", default=out, metavar="FILE", help=f"default: {out}")
        added.add_argument("--quick", action="store_true", help="a few steps only, to see that it works")
        added.add_argument("--quiet", action="store_true", help="no progress")
    return parser


def add_output_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Output")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")
    group.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")
    group.add_argument("--tensorboard", action="store_true", help="write TensorBoard events too")


if __name__ == "__main__":
    sys.exit(main())
