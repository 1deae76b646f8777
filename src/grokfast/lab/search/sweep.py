"""Sweeps: a task at many settings, each with several seeds, in a directory of their own.

DIR/sweep.json      what is varied
DIR/trials.jsonl    what a search proposed
DIR/runs/           run directories
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grokfast.lab.search.objective import more_is_better, number_of
from grokfast.lab.search.progress import Watch, begin_in, carry_out, line_watch
from grokfast.lab.search.search import Journal, Search, Sweep, check_sweep
from grokfast.lab.search.space import Choices, Range, read_varied
from grokfast.lab.search.workers import Job, Limits, Tell, check_engine, leading, open_pool
from grokfast.lab.settings import name_of, plain_word, short_hash
from grokfast.lab.stats import HOLD, Steps, spread_of
from grokfast.lab.training.run import make_task, rehearse


def sweep(
    task: str,
    vary: Mapping[str, Any],
    folder: str | Path | None = None,
    *,
    seeds: int = 1,
    seed: int = 0,
    objective: str = "held",
    search: str = "grid",
    trials: int | None = None,
    prune: bool = False,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    tell: Tell = print,
    **given: Any,
) -> list[dict[str, Any]]:
    """Train a task at many settings, each with several seeds; gives every setting over its seeds, the best first.

    Args:
        task: name of a task, or FILE.py:CLASS.
        vary: for each setting a list of values, or a range `(low, high, "log")` for a search; the scale is "even",
            "log" or "memory".
        folder: keeps the runs; the same call continues what was interrupted.
        seeds: seeds of each setting, from `seed` on.
        objective: "held", "first", "stable" or "seconds" to the level; "accuracy", "loss" or "best_loss"; or a number
            that the task records.
        search: "grid" for all combinations, or "tpe" for `trials` settings that Optuna proposes.
        prune: stop runs early that are worse than the median.
        workers: runs at once.
        engine: "local" or "ray", with the `address` of a cluster.
        tell: gets lines about the progress.
        given: settings of all runs.

    Examples:
        >>> for row in sweep("addition", {"weight_decay": [0.1, 1.0]}, seeds=3):  # doctest: +SKIP
        ...     print(row)  # trains six runs, in processes of their own
    """
    dimensions = [read_varied(name, value) for name, value in vary.items()]
    if fixed := [each for each in dimensions if not isinstance(each, Choices | Range)]:
        raise ValueError(f"vary must hold lists and ranges (low, high, scale), got {fixed[0]}")
    asked = Sweep(
        {"task": task, **given}, tuple(dimensions), tuple(range(seed, seed + seeds)), objective, search, trials, prune
    )
    check_engine(engine, workers, address)
    done = run_sweep(
        settle_sweep(asked),
        None if folder is None else Path(folder),
        workers=workers,
        engine=engine,
        address=address,
        tell=tell,
        watch=line_watch(tell),
    )
    return rank_trials(done)


def settle_sweep(sweep: Sweep) -> Sweep:
    """Check a sweep and fix what all its runs share on this machine: device, threads, data directory, target.

    With the objective "held", runs that stop at a target continue until it is known whether they hold it.
    """
    given = dict(sweep.given)
    if sweep.objective == "held" and given.get("until") is not None:
        given.setdefault("hold", HOLD)
    given.setdefault("threads", 1)  # their number changes rounding, so it must not depend on the machine
    found = dataclasses.replace(sweep, given=given)
    if not sweep.dimensions:
        raise ValueError("a sweep needs --grid, --range or --preset, got none")
    check_sweep(found)
    first = found.settings(found.corners()[0], found.seeds[0])
    same = {name: first[name] for name in ("device", "data_dir") if first[name] is not None}
    rehearse(first, make_task(first))  # before the directory is made
    return dataclasses.replace(found, given=dict(sorted({**given, **same}.items())))


def run_sweep(
    sweep: Sweep,
    folder: Path | None,
    *,
    workers: int | None,
    engine: str,
    address: str | None,
    tell: Tell,
    watch: Watch,
    command: list[str] | None = None,
) -> Search:
    """Train the missing runs of a sweep; KeyboardInterrupt if it is stopped."""
    folder = folder or sweep_folder(sweep)
    runs = folder / "runs"

    def make_job(setting: dict[str, Any], seed: int, limits: Limits | None) -> Job:
        settings = sweep.settings(setting, seed)
        return Job(runs / name_of(settings), settings, limits)

    begin_in(folder, "sweep.json", plain_sweep(sweep))
    search = Search(sweep, make_job, Journal(folder / "trials.jsonl", tell))
    pool = open_pool(folder, sweep.given, workers=workers, engine=engine, address=address, tell=tell, command=command)
    with pool, leading(folder):
        ended = carry_out(search.advance, lambda: sweep.count * len(sweep.seeds), pool, watch)
    if not ended:  # not inside: there it would not let the workers save their runs
        raise KeyboardInterrupt
    return search


def sweep_folder(sweep: Sweep) -> Path:
    """The default directory of a sweep: the same for the same command."""
    names = [plain_word(sweep.given["task"]), *(each.name for each in sweep.dimensions)]
    return Path("sweeps") / "-".join([*names, short_hash(plain_sweep(sweep))])


def plain_sweep(sweep: Sweep) -> dict[str, Any]:
    """A sweep as JSON data."""
    return json.loads(json.dumps(dataclasses.asdict(sweep)))


# The result ---------------------------------------------------------------------------------------------------------


def rank_trials(search: Search) -> list[dict[str, Any]]:
    """Every setting of a sweep over its seeds, the best first, as plain rows.

    `median`, `low` and `high` are None if they are not known. `exact` is False if runs that never reached their level
    could still raise the median. Pruned and failed runs count as runs that never reach it.
    """
    sweep = search.sweep
    sign = -1.0 if more_is_better(sweep.objective, sweep.given["task"]) else 1.0
    rows: list[tuple[Any, dict[str, Any]]] = []
    for trial in search.trials:
        if any(row["setting"] == trial.setting for _, row in rows):
            continue  # proposed twice, run once
        results = trial.results()
        done = [run for run, pruned in results if not pruned and run.rows]
        failed = sum(isinstance(run, str) for run in trial.runs)
        bounds = [number_of(run, sweep.objective) for run in done]
        bounds += [Steps(math.inf, False)] * (len(trial.runs) - len(done))
        spread = spread_of(bounds)
        ends = [spread.median, *((spread.high, spread.low) if sign < 0 else (spread.low, spread.high))]
        median, low, high = (sign * end.value if math.isfinite(end.value) else None for end in ends)
        row = {
            "setting": trial.setting,
            "runs": len(done),
            "median": median,
            "low": low,
            "high": high,
            "exact": spread.median.exact,
            "values": [sign * bound.value if math.isfinite(bound.value) else None for bound in bounds],
            "censored": spread.censored - len(trial.runs) + len(done),
            "pruned": sum(pruned for _, pruned in results),
            "failed": failed,
        }
        rows.append(((not spread.median.exact, spread.median.value, failed), row))
    return [row for _, row in sorted(rows, key=lambda pair: pair[0])]
