"""`grokfast sweep TASK --grid NAME=V,V ...`: train many settings, by grid or by search, and rank them."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from grokfast.lab.commands.common import INTERRUPTED, cell, complain, make_table, read_folder, show
from grokfast.lab.commands.flags import add_settings, add_task, settings_from
from grokfast.lab.commands.terminal import show_progress
from grokfast.lab.search.objective import LEVEL, OBJECTIVES
from grokfast.lab.search.progress import Progress, Watch, progress_line
from grokfast.lab.search.search import AT_ONCE, METHODS, Search, Sweep
from grokfast.lab.search.space import Choices, Dimension, read_dimensions
from grokfast.lab.search.sweep import rank_trials, run_sweep, settle_sweep, sweep_folder
from grokfast.lab.search.workers import ENGINES, check_engine
from grokfast.lab.settings import command_line

TOP = 10  # settings in the table
PRESETS = ("paper-ema", "paper-ma", "paper-decay")
HEADINGS = {
    "held": "steps until {level} is reached and held",
    "first": "steps to {level}",
    "stable": "steps until {level} is stable to the end",
    "seconds": "seconds until {level} is reached and held",
    "accuracy": "final validation accuracy",
    "loss": "final validation loss",
    "best_loss": "best validation loss",
}


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "grokfast sweep TASK [flags]"
    task = add_task(parser)
    if task is None:
        return
    group = parser.add_argument_group("Settings to vary, and objective")
    add_ranges(group)
    group.add_argument("--preset", choices=PRESETS, help="the paper's values as grids")
    group.add_argument("--search", choices=METHODS, default="grid", help="default: grid")
    group.add_argument("--trials", type=int, metavar="N", help="settings that a search tries")
    help = "seeds per setting, from --seed on (default: 1)"
    group.add_argument("--seeds", type=int, default=1, metavar="N", help=help)
    help = f"one of {', '.join(OBJECTIVES)}, or the last value of a number that --measures records (default: held)"
    group.add_argument("--objective", default="held", metavar="NAME", help=help)
    group.add_argument("--prune", action="store_true", help="stop runs that are worse than the median of complete ones")
    help = f"simultaneous trials of a search; changes its result (default: {AT_ONCE})"
    group.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N", help=help)
    help = "directory of the sweep (default: sweeps/...)"
    group.add_argument("--sweep-dir", type=read_folder, metavar="DIR", help=help)
    add_engine_flags(parser)
    add_settings(parser, task)


def add_ranges(group: argparse._ArgumentGroup) -> None:
    help = "values of a setting; repeatable"
    group.add_argument("--grid", action="append", default=[], metavar="NAME=V,V", help=help)
    help = "range of a setting in a search; `memory` spaces it by the logarithm of 1/(1-value), `off` allows 0 too"
    form = "NAME=LOW:HIGH[:log|:memory][:off]"
    group.add_argument("--range", action="append", default=[], metavar=form, help=help)


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Flags that do not change the result: they may differ when the command is repeated."""
    group = parser.add_argument_group("Engine and output")
    group.add_argument("--workers", type=int, metavar="N", help="number of runs at once (default: cores / threads)")
    group.add_argument("--engine", choices=ENGINES, default="local", help="this machine, or a Ray cluster")
    group.add_argument("--address", metavar="HOST:PORT", help="address of the Ray cluster (default: start one here)")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")
    group.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    check_engine(args.engine, args.workers, args.address)
    sweep = settle_sweep(sweep_from(args))
    folder = args.sweep_dir or sweep_folder(sweep)
    quiet = args.quiet or args.json
    if not quiet:
        print(f"{folder}: {sweep.count} settings x {len(sweep.seeds)} seeds", flush=True)
    try:
        with show_progress("sweep", quiet=quiet) as progress:
            search = run_sweep(sweep, folder, **engine_of(args), watch=bar_of(progress))
    except KeyboardInterrupt:
        complain("stopped: the same command continues from here")
        return INTERRUPTED
    return show_ranking(search, folder, args)


def sweep_from(args: argparse.Namespace) -> Sweep:
    """The sweep that the flags describe."""
    given: dict[str, Any] = {"task": args.task, **settings_from(args)}
    seed, preset = given.pop("seed", 0), list[Dimension]()
    if args.preset:
        about, preset = preset_of(args.preset)
        if about is not None and given.setdefault("filter", about) != about:
            raise ValueError(f"preset {args.preset} is about the filter {about}, got {given['filter']}")
    typed = read_dimensions(args.task, filter(None, [given.get("filter")]), args.grid, args.range)
    kept = [each for each in preset if each.name not in [other.name for other in typed]]
    seeds = tuple(range(seed, seed + args.seeds))
    rest = {"prune": args.prune, "sampler_seed": seed, "at_once": args.at_once}
    return Sweep(given, (*kept, *typed), seeds, args.objective, args.search, args.trials, **rest)


def preset_of(name: str) -> tuple[str | None, list[Dimension]]:
    """The filter of a preset, and the paper's values."""
    from grokfast.lab import paper

    gains = {"ema": paper.GAINS_OF_EMA, "ma": paper.GAINS_OF_MA}
    if name == "paper-decay":
        return None, [Choices("weight_decay", paper.DECAYS)]
    if name == "paper-ema":
        return "ema", [Choices("alpha", paper.ALPHAS), Choices("lamb", gains["ema"])]
    return "ma", [Choices("window_size", paper.WINDOWS), Choices("lamb", gains["ma"])]


# Shared with the duel -----------------------------------------------------------------------------------------------


def engine_of(args: argparse.Namespace) -> dict[str, Any]:
    """The flags about workers and engine."""
    words = ["grokfast", *args.words]
    return {
        "workers": args.workers,
        "engine": args.engine,
        "address": args.address,
        "tell": complain,
        "command": words,
    }


def bar_of(show: Any) -> Watch:
    """A watch that moves a progress bar, or prints its line now and then."""

    def watch(progress: Progress) -> None:
        line = progress_line(progress)
        show(progress.done + progress.part, progress.total, line.partition(" of ")[2], line)

    return watch


# The result ---------------------------------------------------------------------------------------------------------


def show_ranking(search: Search, folder: Path, args: argparse.Namespace) -> int:
    """Print the ranking of a sweep; 1 if a run failed."""
    rows, sweep = rank_trials(search), search.sweep
    best = sweep.settings(rows[0]["setting"], sweep.seeds[0])
    command = command_line(best) if rows[0]["exact"] else None
    if args.json:
        kept = {"path": str(folder), "objective": sweep.objective, "best": command, "settings": rows}
        print(json.dumps(kept))
    elif not args.quiet:
        show(f"the best settings by {heading(sweep, best)}:", make_ranking(rows, sweep))
        if pruned := sum(row["pruned"] for row in rows):
            words = f"grokfast train --resume NAME --runs-dir {shlex.quote(str(folder / 'runs'))}"
            print(f"{pruned} runs were pruned: {words} trains one to its end")
        print(f"train the best setting: {command}" if command else nearest_text(search))
        print(f"look at all runs: grokfast report {shlex.quote(str(folder / 'runs'))}", flush=True)
    failed = {
        job.path.name: run
        for t in search.trials
        for job, run in zip(t.jobs, t.runs, strict=True)
        if isinstance(run, str)
    }
    for name, reason in failed.items():
        complain(f"failed: {name}: {reason}")
    return 1 if failed else 0


def heading(sweep: Sweep, settings: dict[str, Any]) -> str:
    """The objective in words."""
    varied = any(each.name in ("until", "loss") for each in sweep.dimensions)
    level = settings["level"] if settings["until"] is None else settings["until"]
    words = "its level" if varied else f"validation {settings['measure']} {level:g}"
    return HEADINGS.get(sweep.objective, f"final {sweep.objective}").format(level=words)


def nearest_text(search: Search) -> str:
    """The run that came closest if no setting reached its level."""
    runs = [run for trial in search.trials for run, _ in trial.results() if run.rows]
    if search.sweep.objective not in LEVEL or not runs:
        return "no setting has a median that is known"
    sign = 1 if runs[0].measure == "loss" else -1
    found = [
        (sign * value, row.step, run) for run in runs for row in run.rows if (value := value_at(run, row)) is not None
    ]
    value, step, run = min(found, key=lambda each: each[:2])
    words = f"validation {run.measure} {sign * value:.4g} at step {step:,}"
    return f"no setting reached {run.level:g}; the closest had {words}: {command_line(run.settings)}"


def value_at(run: Any, row: Any) -> float | None:
    return row.val_accuracy if run.measure == "accuracy" else row.val_loss


def make_ranking(rows: list[dict[str, Any]], sweep: Sweep) -> Any:
    """The best settings, with the median and the range over seeds."""
    counts = ["censored", *(name for name in ("pruned", "failed") if any(row[name] for row in rows))]
    shown: list[list[str]] = []
    for row in rows[:TOP]:
        median, low, high = (cell(row[name]) for name in ("median", "low", "high"))
        median = f"> {median}" if not row["exact"] and row["median"] is not None else median
        values = ["none" if value is None else cell(value) for value in row["setting"].values()]
        shown.append([*values, str(row["runs"]), median, low, high, *(str(row[name]) for name in counts)])
    headings = (*rows[0]["setting"], "runs", "median", "from", "to", *counts)
    return make_table(headings, shown, right=headings)
