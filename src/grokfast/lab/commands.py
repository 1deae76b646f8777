"""What the commands do, and what they print. Only this module and terminal.py print."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from grokfast.lab.config import (
    FilterConfig,
    LoopConfig,
    OptimConfig,
    RunConfig,
    check_device,
    make_filter,
    resolve,
    to_json,
)
from grokfast.lab.flags import pick
from grokfast.lab.metrics import Crossing, Row
from grokfast.lab.paper import demo_configs
from grokfast.lab.recording import recorded_bytes
from grokfast.lab.results import cell, crossing_text, describe, flatten, progress_text, response_table
from grokfast.lab.runs import Run, RunError, create_run, find_run, load_runs, run_path, write_atomically
from grokfast.lab.tasks import TASKS, Task
from grokfast.lab.terminal import Progress, complain, plain_warnings, stop_on_interrupt
from grokfast.lab.train import Watcher, check_data_of, data_of, rehearse, task_of, train

INTERRUPTED = 130
console = Console()


# Commands -----------------------------------------------------------------------------------------------------------


def config_from(args: argparse.Namespace) -> RunConfig:
    """The resolved configuration that the flags of `grokfast train` describe."""
    values = vars(args)
    parts = (pick(kind, values) for kind in (TASKS[args.task], FilterConfig, OptimConfig, LoopConfig))
    return resolve(RunConfig(*parts))


def command_train(args: argparse.Namespace) -> int:
    config = config_from(args)
    path = run_path(config, args.runs_dir)
    task = task_of(config)  # before the directory is made: data that cannot be read leave no trace
    if path.exists():
        check_data_of(Run(path), task)
    if path.exists() and Run(path).status == "complete":
        if not args.json:
            say(args, f"this configuration has been run already: grokfast show {path.name}")
        return report_result(args, Run(path))
    if path.exists():
        raise RunError(f"this run was begun and not finished: grokfast resume {path.name}{where(args)}")
    rehearse(config, task)
    run = create_run(config, args.runs_dir, command=["grokfast", *sys.argv[1:]], data=data_of(task))
    return train_run(args, run, task)


def command_resume(args: argparse.Namespace) -> int:
    run = find_run(args.name, args.runs_dir)
    if run.status == "complete":
        say(args, f"{run.name} is complete already")
        return report_result(args, run)
    check_device(run.config.loop.device)
    return train_run(args, run, data_dir=args.data_dir)


def command_runs(args: argparse.Namespace) -> int:
    runs = readable(load_runs(args.runs_dir))
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
    if recorded_bytes(run):
        table.add_row("recorded", "megabytes", f"{recorded_bytes(run) / 2**20:,.1f}")
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
    keys = dict.fromkeys(key for f in flat for key in f)
    differing = [key for key in keys if len({repr(f.get(key)) for f in flat}) > 1]
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

    page, picture = write_report(chosen_runs(args), Path(args.out))
    print(f"written: {page} and {picture}")
    return 0


def command_figures(args: argparse.Namespace) -> int:
    from grokfast.lab.report import write_figures

    for path in write_figures(chosen_runs(args), Path(args.out), args.format):
        print(f"written: {path}")
    return 0


def command_response(args: argparse.Namespace) -> int:
    config = resolve(RunConfig(TASKS["modmul"](), pick(FilterConfig, vars(args)))).filter
    filter = make_filter(config)
    assert filter is not None
    console.print(response_table(filter))
    if args.out is not None:
        from grokfast.lab.report.figures import draw
        from grokfast.lab.report.plots import response_plot

        print(f"written: {draw([response_plot([filter])], args.out)}")
    return 0


def command_results(args: argparse.Namespace) -> int:
    from grokfast.lab.results_page import put_between, recorded_runs, results_page, summary_table, table_runs

    folders = args.folders or [args.runs_dir]
    for folder in folders:
        if not folder.is_dir():
            raise RunError(f"a folder of runs must exist, got {folder}")
    runs = readable([run for folder in folders for run in load_runs(folder)])
    kept = table_runs(runs)
    if not kept:
        raise RunError("there is no complete run of one of the paper's arms: grokfast train ...")
    if args.summary is not None:
        page = put_between(args.summary.read_text(encoding="utf-8"), summary_table(runs))
        write_atomically(args.summary, page.encode())
        print(f"written: {args.summary}")
    if args.out is None:
        print(results_page(runs))
        return 0
    from grokfast.lab.report import write_figures

    also = [run for run in recorded_runs(runs) if run not in kept]
    drawn = write_figures(kept, args.out.parent / "figures", "png", also=also)
    write_atomically(args.out, results_page(runs, [path.relative_to(args.out.parent) for path in drawn]).encode())
    print(f"written: {args.out}, pictures in {args.out.parent / 'figures'}")
    return 0


def command_demo(args: argparse.Namespace) -> int:
    from grokfast.lab.headline import headline
    from grokfast.lab.report import write_report
    from grokfast.lab.results import HEADINGS, result

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
    chosen = {name: getattr(args, name) for name in ("seeds", "budget", "quick", "data_dir", "threads")}
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


def train_run(args: argparse.Namespace, run: Run, task: Task | None = None, data_dir: str | None = None) -> int:
    """Train a run to its end with progress; Ctrl-C leaves a checkpoint."""
    with stop_on_interrupt() as interrupted, plain_warnings(), progress_for(args, run) as on_row:
        watcher = Watcher(on_row=on_row, on_warning=complain, should_stop=interrupted)
        complete = train(run, watcher, task=task, data_dir=data_dir)
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
    loss = "" if accuracy else f"best validation loss {cell(found['best_val_loss'])}, "
    diverged = "diverged, " if (run.summary or {})["diverged"] else ""
    result = f"{loss}first at {level:g}: {found['first']}, for good: {found['stable']}"
    say(args, f"{run.name}: {diverged}{accuracy}{result}, {found['seconds']:.1f} s")
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


# Runs ----------------------------------------------------------------------------------------------------------------


def chosen_runs(args: argparse.Namespace) -> list[Run]:
    """The runs that were named, by name, path or folder of runs; all where none was."""
    found: list[Run] = []
    for name in args.names or [str(args.runs_dir)]:
        folder = Path(name).is_dir() and not (Path(name) / "config.json").exists()
        found += load_runs(name) if folder else [find_run(name, args.runs_dir)]
    if not found:
        raise RunError(f"there are no runs in {', '.join(args.names) or args.runs_dir}")
    return found


def readable(runs: list[Run]) -> list[Run]:
    """Those that can be shown; of each other one a line is said."""
    from grokfast.lab.results import sort_out

    kept, lost = sort_out(runs)
    for line in lost:
        complain(line)
    return kept


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
