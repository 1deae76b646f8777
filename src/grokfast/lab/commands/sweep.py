"""`grokfast sweep`: from flags to a specification, to an engine, to a table."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import shlex
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from grokfast.lab.commands.flags import add_task_options, first_line, first_word, list_names, request_from
from grokfast.lab.commands.terminal import INTERRUPTED, complain
from grokfast.lab.runs.describe import cell
from grokfast.lab.runs.directory import RunError

if TYPE_CHECKING:
    from rich.table import Table

    from grokfast.lab.sweep.spec import Spec
    from grokfast.lab.sweep.standings import Standing
    from grokfast.lab.sweep.study import Sweep

HELP = "train many settings of a task, by grid or by search"
TOP = 10  # settings in the table
WIDE = 240  # columns of a table that goes to a file


# Flags --------------------------------------------------------------------------------------------------------------


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "grokfast sweep TASK [flags] | grokfast sweep --resume DIR [flags]"
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("task", nargs="?", metavar="TASK", help="name of a task, or FILE.py:CLASS of your own")
    task = first_word(parser)
    if task is None:
        add_resume_flags(parser)
    else:
        parser.set_defaults(resume=None)
        add_spec_flags(parser)
    add_engine_flags(parser)
    if task is not None:
        add_task_options(parser, task)


def add_resume_flags(parser: argparse.ArgumentParser) -> None:
    """The flags where no task is named; those of a task depend on it and must come after it."""
    from grokfast.lab.tasks import TASKS

    words = parser.get_default("words")[1:]
    if words and not any(word in ("-h", "--help") or word.startswith("--resume") for word in words):
        raise ValueError(f"TASK must come before the flags, got {words[0]}: grokfast sweep TASK {words[0]} ...")
    group = parser.add_argument_group("Resume or join")
    group.add_argument("--resume", type=Path, metavar="DIR", help="join the sweep in DIR, or continue it")
    for flag in ("task", "filter"):
        help = f"the {flag} of your own that the sweep uses: code is loaded only if you name it"
        dest = f"own_{flag}s"
        group.add_argument(f"--{flag}", dest=dest, action="append", default=[], metavar="FILE.py:CLASS", help=help)
    parser.epilog = list_names("tasks", {name: first_line(kind) for name, kind in TASKS.items()})


def add_spec_flags(parser: argparse.ArgumentParser) -> None:
    from grokfast.lab.sweep.space import PRESETS
    from grokfast.lab.sweep.spec import Objective, Search

    group = parser.add_argument_group("What to vary, and what to optimise")
    group.add_argument("--grid", action="append", default=[], metavar="NAME=V,V", help="values of a flag; repeatable")
    group.add_argument("--range", action="append", default=[], metavar="NAME=LOW:HIGH[:log]", help="range of a search")
    group.add_argument("--preset", choices=tuple(PRESETS), help="the paper's values as grids")
    group.add_argument("--search", choices=get_args(Search), default="grid", help="default: grid")
    group.add_argument("--trials", type=int, metavar="N", help="settings that a search tries")
    group.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds of each setting, from --seed on")
    help = "steps to the level for good or at first, final accuracy, best loss, seconds to the level for good"
    group.add_argument("--objective", choices=get_args(Objective), default="stable", help=f"{help} (default: stable)")
    group.add_argument("--prune", action="store_true", help="stop runs that fall behind the median of complete ones")
    group.add_argument("--sweep-dir", type=Path, metavar="DIR", help="directory of the sweep (default: sweeps/...)")


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """How to carry a sweep out; these may differ each time it is resumed or joined."""
    group = parser.add_argument_group("Engine and output")
    group.add_argument("--workers", type=int, metavar="N", help="runs at once (default: cores / threads)")
    group.add_argument("--engine", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster")
    group.add_argument("--address", metavar="HOST:PORT", help="of the cluster (default: one is made here)")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")
    group.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")


def check_flags(args: argparse.Namespace) -> None:
    from grokfast.lab.training import parallel

    if parallel.launched():
        raise RunError("a sweep has workers of its own: start it without torchrun")
    if (args.task is None) == (args.resume is None):
        raise ValueError("a sweep needs a task or --resume DIR, got " + ("neither" if args.task is None else "both"))
    if args.workers is not None and args.workers < 1:
        raise ValueError(f"workers must be >= 1, got {args.workers}")
    if args.address is not None and args.engine != "ray":
        raise ValueError(f"address needs --engine ray, got {args.address} without it")
    need("optuna", "sweep")
    if args.engine == "ray":
        need("ray", "ray")


def need(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise RunError(f'this sweep needs {package}: pip install "grokfast[{extra}]"')


# The specification --------------------------------------------------------------------------------------------------


def run(args: argparse.Namespace) -> int:
    check_flags(args)
    from grokfast.lab.sweep.spec import OwnCode
    from grokfast.lab.sweep.study import Sweep

    if args.resume is not None:
        OwnCode(tuple(args.own_tasks), tuple(args.own_filters)).load()
    folder = args.resume or begin(args)
    with Sweep(folder) as sweep:
        if carry_out(sweep, args):
            return report(sweep, args)
        words = shlex.join(["grokfast", "sweep", "--resume", str(folder), *sweep.spec.own_code.flags])
    complain(f"stopped: {words} continues")
    return INTERRUPTED


def begin(args: argparse.Namespace) -> Path:
    """The directory of a sweep, with its specification, which is written there unless it was before."""
    from grokfast.lab.sweep.local import count_cores
    from grokfast.lab.sweep.spec import directory_name, save_spec, settle, with_threads
    from grokfast.lab.training.train import make_task, rehearse

    spec = spec_from(args)
    given = spec.base.get("threads") is not None
    if not given:
        spec = with_threads(spec, max(1, count_cores() // (args.workers or count_cores())))
    spec = settle(spec)
    first = spec.config(spec.points()[0])
    rehearse(first, make_task(first))  # before the directory is made: a sweep that cannot be run leaves no trace
    folder = args.sweep_dir or Path("sweeps") / directory_name(spec)
    save_spec(spec, folder, threads_given=given)
    return folder


def spec_from(args: argparse.Namespace) -> Spec:
    from grokfast.lab.sweep.space import apply_preset, read_dimensions
    from grokfast.lab.sweep.spec import Spec

    base, preset = request_from(args, args.task), ()
    seed = base.get("seed") or 0
    base = dataclasses.replace(base, values=tuple(pair for pair in base.values if pair[0] != "seed"))
    if args.preset:
        base, preset = apply_preset(base, args.preset)
    typed = read_dimensions(base, args.grid, args.range)
    kept = [d for d in preset if d.name not in [other.name for other in typed]]
    seeds = tuple(range(seed, seed + args.seeds))
    return Spec(base, (*kept, *typed), seeds, args.objective, args.search, args.trials, args.prune)


# Carrying out -------------------------------------------------------------------------------------------------------


def carry_out(sweep: Sweep, args: argparse.Namespace) -> bool:
    """Train all runs; False if interrupted."""
    from grokfast.lab.commands.sweep_progress import SweepProgress

    sweep.begin()
    quiet, tally = args.quiet or args.json, sweep.tally()
    if not quiet:
        print(f"{sweep.folder}: {tally.total} runs, {tally.total - tally.left} done", flush=True)
    command = ["grokfast", *args.words]
    with SweepProgress(sweep, quiet=quiet) as progress:
        if args.engine == "ray":
            from grokfast.lab.sweep.cluster import run_ray

            return run_ray(sweep, args.workers, progress.show, command, args.address)
        from grokfast.lab.sweep.local import run_local

        return run_local(sweep, args.workers or usual_workers(sweep.spec), progress.show, complain, command)


def usual_workers(spec: Spec) -> int:
    """One run on an accelerator, or as many as have cores of their own."""
    from grokfast.lab.sweep.local import count_cores

    return max(1, count_cores() // spec.base.get("threads")) if spec.base.get("device") == "cpu" else 1


# The result ---------------------------------------------------------------------------------------------------------


def report(sweep: Sweep, args: argparse.Namespace) -> int:
    """Print the standings of a sweep; 1 if a run failed."""
    from grokfast.lab.request import command_line
    from grokfast.lab.sweep.standings import rank_settings, to_json

    tally, objective = sweep.tally(), sweep.spec.objective
    found = rank_settings(sweep, tally)
    best = command_line(sweep.spec.config(found[0].points[0])) if found[0].spread.median.exact else None
    if args.json:
        settings = [to_json(standing, objective) for standing in found]
        print(json.dumps({"path": str(sweep.folder), "objective": objective, "best": best, "settings": settings}))
    elif not args.quiet:
        show(sweep, found, len(tally.pruned), best)
    for point, reason in tally.failed.items():
        complain(f"failed: {sweep.run(point).name}: {reason}")
    return 1 if tally.failed else 0


def show(sweep: Sweep, found: list[Standing], pruned: int, best: str | None) -> None:
    from rich.console import Console

    from grokfast.lab.sweep.standings import heading

    print(f"the best settings by {heading(sweep.spec)}:")
    Console(width=None if sys.stdout.isatty() else WIDE).print(standings_table(found, sweep.spec))
    if pruned:
        words = shlex.join(["--runs-dir", str(sweep.runs), *sweep.spec.own_code.flags])
        print(f"{pruned} runs were pruned: grokfast resume NAME {words} trains one to its end")
    if best is not None:
        print(f"train the best setting: {best}")
    print(f"look at all runs: grokfast report {shlex.quote(str(sweep.runs))}", flush=True)


def standings_table(found: list[Standing], spec: Spec) -> Table:
    """The best settings, with the median and the range over seeds."""
    from rich.table import Table

    from grokfast.lab.sweep.standings import bound_text

    text = partial(bound_text, objective=spec.objective)
    table = Table(box=None, header_style="bold", pad_edge=False)
    counts = [name for name in ("pruned", "failed") if any(getattr(standing, name) for standing in found)]
    for column in (*found[0].setting, "runs", "median", "from", "to", "censored", *counts):
        table.add_column(column, justify="right", overflow="fold")
    for standing in found[:TOP]:
        spread = standing.spread
        numbers = [text(bound) for bound in (spread.median, spread.low, spread.high)]
        if spec.objective == "accuracy":
            numbers[1:] = numbers[:0:-1]  # the sign was turned: the lowest accuracy is the last
        rest = [standing.censored, *(getattr(standing, name) for name in counts)]
        values = [setting_text(value) for value in standing.setting.values()]
        table.add_row(*values, str(standing.complete), *numbers, *map(str, rest))
    return table


def setting_text(value: Any) -> str:
    return "none" if value is None else cell(value)
