"""A sweep carried out: its directory, its engine, its progress, its table."""

from __future__ import annotations

import argparse
import contextlib
import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path

from rich.table import Table

from grokfast.lab.commands.common import INTERRUPTED, complain, make_table, show
from grokfast.lab.commands.terminal import Show, show_progress
from grokfast.lab.request import command_line
from grokfast.lab.runs.describe import cell
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Best
from grokfast.lab.sweep import local
from grokfast.lab.sweep.space import Point
from grokfast.lab.sweep.spec import OwnCode, Spec, directory_name, more_is_better, save_spec, settle, with_threads
from grokfast.lab.sweep.standings import Standing, bound_text, heading, nearest, rank_settings, to_json
from grokfast.lab.sweep.study import Sweep, Tally
from grokfast.lab.training.plan import duration
from grokfast.lab.training.train import make_task, rehearse

TOP = 10  # settings in the table
TAIL = 4096  # bytes: the last evaluation of a run is shorter


def begin(spec: Spec, args: argparse.Namespace) -> Path:
    """The directory of a sweep, with its specification, which is written there unless it was before."""
    given = spec.base.get("threads") is not None
    if not given:
        cores = local.count_cores()
        spec = with_threads(spec, max(1, cores // (args.workers or cores)))
    spec = settle(spec)
    first = spec.config(spec.points()[0])
    rehearse(first, make_task(first))  # before the directory is made: a sweep that cannot be run leaves no trace
    folder = args.sweep_dir or Path("sweeps") / directory_name(spec)
    save_spec(spec, folder, threads_given=given)
    return folder


def run_sweep(folder: Path, args: argparse.Namespace) -> int:
    """Train what is left of a sweep, and show its standings; gives the exit code."""
    if args.resume is not None:
        OwnCode(*map(tuple, (args.own_tasks, args.own_filters, args.own_optimizers))).load()
    with Sweep(folder) as sweep:
        if train_sweep(sweep, args):
            return report(sweep, args)
        words = shlex.join(["grokfast", "sweep", "--resume", str(folder), *sweep.spec.own_code.flags])
    complain(f"stopped: {words} continues")
    return INTERRUPTED


def train_sweep(sweep: Sweep, args: argparse.Namespace, label: str = "sweep") -> bool:
    """Train all runs; False if interrupted."""
    sweep.begin()
    quiet, tally = args.quiet or args.json, sweep.tally()
    if not quiet:
        print(f"{sweep.folder}: {tally.total} runs, {tally.total - tally.left} done", flush=True)
    command = ["grokfast", *args.words]
    with show_progress(label, quiet=quiet) as progress:
        watch = watch_tallies(sweep, progress)
        if args.engine == "ray":
            from grokfast.lab.sweep.cluster import run_ray

            return run_ray(sweep, args.workers, watch, command, args.address)
        return local.run_local(sweep, args.workers or usual_workers(sweep.spec), watch, complain, command)


def usual_workers(spec: Spec) -> int:
    """One run at a time on an accelerator, else as many as have cores of their own."""
    return max(1, local.count_cores() // spec.base.get("threads")) if spec.base.get("device") == "cpu" else 1


# Progress -----------------------------------------------------------------------------------------------------------


def watch_tallies(sweep: Sweep, progress: Show) -> Callable[[Tally], None]:
    """A function that shows a tally: how many runs are done, how far the others are, how long it may take."""
    began, before = time.monotonic(), None

    def watch(tally: Tally) -> None:
        nonlocal before
        done = tally.total - tally.left + sum(used_budget(sweep.run(point)) for point in tally.running)
        before = done if before is None else before
        counts = {"running": len(tally.running), "pruned": len(tally.pruned), "failed": len(tally.failed)}
        now = ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "running")
        line = f"{tally.total - tally.left} of {tally.total} runs, {now}"
        if done > before:
            seconds = (time.monotonic() - began) * (tally.total - done) / (done - before)
            line += f", about {duration(seconds)} left"
        progress(done, tally.total, f"runs, {now}", line)

    return watch


def used_budget(run: Run) -> float:
    """The part of its budget that a run has used, from the end of its file: the whole file may be long."""
    with (
        contextlib.suppress(OSError, ValueError, IndexError, KeyError),
        (run.path / "metrics.jsonl").open("rb") as file,
    ):
        file.seek(max(0, file.seek(0, 2) - TAIL))
        step = json.loads(file.read().split(b"\n")[-2])["step"]
        return min(step / run.loop["steps"], 1.0)
    return 0.0


# The result ---------------------------------------------------------------------------------------------------------


def report(sweep: Sweep, args: argparse.Namespace) -> int:
    """Print the standings of a sweep; 1 if a run failed."""
    tally, objective = sweep.tally(), sweep.spec.objective
    found = rank_settings(sweep, tally)
    best = command_line(sweep.spec.config(found[0].points[0])) if found[0].spread.median.exact else None
    if args.json:
        settings = [to_json(standing, objective) for standing in found]
        print(json.dumps({"path": str(sweep.folder), "objective": objective, "best": best, "settings": settings}))
    elif not args.quiet:
        show(f"the best settings by {heading(sweep.spec)}:", standings_table(found, sweep.spec))
        if tally.pruned:
            words = shlex.join(["--runs-dir", str(sweep.runs), *sweep.spec.own_code.flags])
            print(f"{len(tally.pruned)} runs were pruned: grokfast resume NAME {words} trains one to its end")
        if best is not None:
            print(f"train the best setting: {best}")
        elif (near := nearest(sweep, found)) is not None:
            print(nearest_text(sweep, *near))
        print(f"look at all runs: grokfast report {shlex.quote(str(sweep.runs))}", flush=True)
    for point, reason in tally.failed.items():
        complain(f"failed: {sweep.run(point).name}: {reason}")
    return 1 if tally.failed else 0


def nearest_text(sweep: Sweep, point: Point, best: Best) -> str:
    """What came nearest where no setting got to its level."""
    config = sweep.spec.config(point)
    value = f"validation {config.task.measure} {best.value:.4g} at step {best.step:,}"
    return f"no setting got to {config.level:g}; the nearest had {value}: {command_line(config)}"


def standings_table(found: list[Standing], spec: Spec) -> Table:
    """The best settings, with the median and the range over seeds."""
    counts = [name for name in ("pruned", "failed") if any(getattr(standing, name) for standing in found)]
    rows: list[list[str]] = []
    for standing in found[:TOP]:
        spread = standing.spread
        numbers = [bound_text(bound, spec.objective) for bound in (spread.median, spread.low, spread.high)]
        if more_is_better(spec.objective):
            numbers[1:] = numbers[:0:-1]  # the lowest is the last
        rest = [standing.censored, *(getattr(standing, name) for name in counts)]
        values = ["none" if value is None else cell(value) for value in standing.setting.values()]
        rows.append([*values, str(standing.complete), *numbers, *map(str, rest)])
    headings = (*found[0].setting, "runs", "median", "from", "to", "censored", *counts)
    return make_table(headings, rows, right=headings)
