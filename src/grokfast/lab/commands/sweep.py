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
from typing import Any

from rich.console import Console

from grokfast.lab.training import parallel
from grokfast.lab.commands.common import INTERRUPTED
from grokfast.lab.config import FilterConfig, LoopConfig, OptimConfig, RunConfig
from grokfast.lab.commands.flags import pick
from grokfast.lab.runs.directory import RunError
from grokfast.lab.sweep.space import PRESETS, Dimension, preset, read_choices, read_range
from grokfast.lab.sweep.spec import Spec, load_spec, name_of, save_spec, settle
from grokfast.lab.tasks import TASKS
from grokfast.lab.commands.terminal import complain
from grokfast.lab.training.loop import rehearse, task_of

TOP = 10  # settings in the table
WIDE = 240  # columns of a table that goes to a file
ENGINES = ("local", "ray")
DEFAULTS = {"workers": None, "engine": "local", "address": None, "quiet": False, "json": False}


def add_spec_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("What to vary, and what is sought")
    group.add_argument("--grid", action="append", default=[], metavar="NAME=V,V", help="values of a flag; repeatable")
    group.add_argument("--range", action="append", default=[], metavar="NAME=LOW:HIGH[:log]", help="range of a search")
    group.add_argument("--preset", choices=tuple(PRESETS), help="the paper's values as grids")
    group.add_argument("--search", choices=("grid", "tpe"), default="grid", help="default: grid")
    group.add_argument("--trials", type=int, metavar="N", help="settings that a search tries")
    group.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds of each setting, from --seed on")
    group.add_argument(
        "--objective",
        choices=("stable", "first", "accuracy", "loss", "seconds"),
        default="stable",
        help="steps to the level for good or at first, final accuracy, best loss, seconds to the level for good "
        "(default: stable)",
    )
    group.add_argument("--prune", action="store_true", help="stop runs that fall behind the median of complete ones")
    group.add_argument("--sweep-dir", type=Path, metavar="DIR", help="where the sweep lives (default: sweeps/...)")


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """How to carry a sweep out; these may differ each time it is resumed or joined."""
    group = parser.add_argument_group("Engine and output")
    none: dict[str, Any] = {"default": argparse.SUPPRESS}
    group.add_argument("--workers", type=int, metavar="N", help="runs at once (default: as many as cores)", **none)
    group.add_argument("--engine", choices=ENGINES, help="this machine, or a Ray cluster (default: local)", **none)
    group.add_argument("--address", metavar="HOST:PORT", help="of the cluster (default: one is made here)", **none)
    group.add_argument("--quiet", action="store_true", help="print nothing but errors", **none)
    group.add_argument("--json", action="store_true", help="print the result as JSON and nothing else", **none)


def command_sweep(args: argparse.Namespace) -> int:
    if parallel.launched():
        raise RunError("a sweep has workers of its own: start it without torchrun")
    if (args.task is None) == (args.resume is None):
        raise ValueError("a sweep needs a task or --resume DIR, got " + ("neither" if args.task is None else "both"))
    chosen: dict[str, Any] = {**DEFAULTS, **vars(args)}
    workers: int | None = chosen["workers"]
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")
    if chosen["address"] is not None and chosen["engine"] != "ray":
        raise ValueError(f"address needs --engine ray, got {chosen['address']} without it")
    need("optuna", "sweep")
    if chosen["engine"] == "ray":
        need("ray", "ray")
    from grokfast.lab.sweep.local import cores

    if args.resume is not None:
        folder, spec = args.resume, load_spec(args.resume)
    else:
        folder, spec = begin(args, workers or cores())
    if workers is None and chosen["engine"] == "local":
        workers = 1 if spec.base.loop.device != "cpu" else max(1, cores() // (spec.base.loop.threads or 1))
    return carry_out(folder, chosen, workers)


def need(package: str, extra: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise RunError(f'this sweep needs {package}: pip install "grokfast[{extra}]"')


# The specification --------------------------------------------------------------------------------------------------


def begin(args: argparse.Namespace, workers: int) -> tuple[Path, Spec]:
    """The directory of a sweep and its specification, written there unless it was before."""
    from grokfast.lab.sweep.local import cores

    given = hasattr(args, "threads")
    spec = settle(spec_from(args))
    folder = args.sweep_dir or Path("sweeps") / name_of(spec)
    if not given:
        loop = dataclasses.replace(spec.base.loop, threads=max(1, cores() // workers))
        spec = dataclasses.replace(spec, base=dataclasses.replace(spec.base, loop=loop))
    first = spec.config(spec.points()[0])
    rehearse(first, task_of(first))  # before the directory is made: what cannot be run leaves no trace
    return folder, save_spec(spec, folder, threads_given=given)


def spec_from(args: argparse.Namespace) -> Spec:
    values, task = dict(vars(args)), TASKS[args.task]
    dimensions: dict[str, Dimension] = {}
    if args.preset:
        values["filter"], choices = preset(args.preset, values.get("filter"))
        dimensions |= {c.name: c for c in choices}
    typed: list[Dimension] = [*(read_choices(g, task) for g in args.grid), *(read_range(r, task) for r in args.range)]
    for d in typed:
        if d.name in [other.name for other in typed if other is not d]:
            raise ValueError(f"{d.name} must be varied once, got it twice")
        dimensions[d.name] = d
    for name in dimensions:
        if hasattr(args, name):
            raise ValueError(f"{name} must be either fixed or varied, got --{name.replace('_', '-')} as well")
    if args.seeds < 1:
        raise ValueError(f"seeds must be >= 1, got {args.seeds}")
    base = RunConfig(*(pick(kind, values) for kind in (task, FilterConfig, OptimConfig, LoopConfig)))
    seeds = tuple(range(base.loop.seed, base.loop.seed + args.seeds))
    return Spec(base, tuple(dimensions.values()), seeds, args.objective, args.search, args.trials, args.prune)


# Carrying out -------------------------------------------------------------------------------------------------------


def carry_out(folder: Path, chosen: dict[str, Any], workers: int | None) -> int:
    from grokfast.lab.sweep.local import run_local
    from grokfast.lab.sweep.progress import SweepProgress
    from grokfast.lab.sweep.study import Sweep

    quiet = chosen["quiet"] or chosen["json"]
    command = ["grokfast", *sys.argv[1:]]
    if chosen["engine"] == "ray":
        from grokfast.lab.sweep.rays import run_ray

        run: Any = partial(run_ray, address=chosen["address"])
    else:
        run = run_local
    with Sweep(folder) as sweep:
        sweep.begin()
        if not quiet:
            tally = sweep.tally()
            Console().print(f"{folder}: {tally.total} runs, {tally.total - tally.left} done", soft_wrap=True)
        with SweepProgress(sweep, quiet=quiet) as progress:
            complete = run(sweep, workers, progress.show, command)
        if complete:
            return report(sweep, chosen)
    complain(f"stopped: grokfast sweep --resume {shlex.quote(str(folder))} goes on")
    return INTERRUPTED


def report(sweep: Any, chosen: dict[str, Any]) -> int:
    """Show what came of a sweep; 1 if a run failed."""
    from grokfast.lab.sweep.standings import as_json, standings, standings_table

    tally, objective = sweep.tally(), sweep.spec.objective
    console = Console(width=None if sys.stdout.isatty() else WIDE)
    found = standings(sweep, tally)
    if chosen["json"]:
        data = {"path": str(sweep.folder), "objective": objective, "settings": [as_json(s, objective) for s in found]}
        console.file.write(json.dumps(data) + "\n")
    elif not chosen["quiet"]:
        console.print(standings_table(found, sweep.spec, TOP))
        if tally.pruned:
            rest = f"grokfast resume NAME --runs-dir {shlex.quote(str(sweep.runs))} trains one to its end"
            console.print(f"{len(tally.pruned)} runs were pruned: {rest}", soft_wrap=True)
        console.print(f"look at them: grokfast report {shlex.quote(str(sweep.runs))}", soft_wrap=True)
    for point, reason in tally.failed.items():
        complain(f"failed: {sweep.run(point).name}: {reason}")
    return 1 if tally.failed else 0
