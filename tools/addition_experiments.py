"""The maps and duels of the small task that docs/plan.md lists. Thousands of runs, on one core; resumable.

    python tools/addition_experiments.py map        # plan B: steps over weight decay, with and without filters
    python tools/addition_experiments.py surrogate  # plan C: a filter against a larger learning rate
    python tools/addition_experiments.py duels      # plan D: replicated duels
    python tools/addition_experiments.py others     # plan H: other optimizers, tuned like the AdamW of D
    python tools/addition_experiments.py several    # plan M: one setting for several versions of the task
    python tools/addition_experiments.py tables     # a row per run, added to those in results/

Lines are appended to FOLDER/STAGE.jsonl, one per run.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import addition_runs
import torch

from grokfast.lab.runs.archive import seal
from grokfast.lab.stats import (
    HOLD,
    Crossing,
    first_crossing,
    held_crossing,
)

LEVEL = 0.95
Line = dict[str, Any]

# Plan B and C -------------------------------------------------------------------------------------------------------

NONE: Line = {}
MA: Line = {"filter": "ma", "window_size": 50, "lamb": 2.0}
EMA: Line = {"filter": "ema", "alpha": 0.96, "lamb": 2.0}
LATE: Line = {**EMA, "two_stage": 150}
PAPER: Line = {"filter": "ema", "alpha": 0.98, "lamb": 2.0}
AVERAGED: Line = {"average": 0.95}
LAMBS, MEMORIES = (0.5, 1.0, 2.0, 5.0), (3, 10, 50, 200)
DECAYS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


def map_cells() -> Iterator[Line]:
    arms = (NONE, MA, LATE, EMA, PAPER, AVERAGED)
    columns: list[tuple[Line, Sequence[Line]]] = [({"lr": lr}, arms) for lr in (0.01, 0.03, 0.003)]
    changes: list[Line] = [{"batch_size": 0}, {"loss": "cross-entropy"}, {"clip_norm": 1.0}]
    columns += [({"lr": 0.01, **change}, arms) for change in changes]
    columns += [({"lr": 0.01, "p": p}, (NONE, MA, LATE, EMA)) for p in (31, 17)]
    for column, some in columns:
        for decay in DECAYS:
            for arm in some:
                yield {**column, "weight_decay": decay, **arm}


def surrogate_cells() -> Iterator[Line]:
    for batch in (64, 16, 0):
        for decay in (0.3, 1.0):
            base: Line = {"batch_size": batch, "lr": 0.01, "weight_decay": decay}
            yield base
            for lamb in LAMBS:
                yield {**base, "lr": 0.01 * (1 + lamb), "weight_decay": decay / (1 + lamb)}
                for memory in MEMORIES:
                    yield {**base, "filter": "ema", "alpha": 1 - 1 / memory, "lamb": lamb}
                    yield {**base, "filter": "ma", "window_size": 2 * memory - 1, "lamb": lamb}


STAGES: dict[str, tuple[Callable[[], Iterator[Line]], range]] = {
    "map": (map_cells, range(1000, 1010)),
    "surrogate": (surrogate_cells, range(2000, 2010)),
}


def run_cells(stage: str, folder: Path) -> None:
    """Train the runs of a map that are missing."""
    cells, seeds = STAGES[stage]
    done = {(line["cell"], line["seed"]) for line in read(folder, stage)}
    with (folder / f"{stage}.jsonl").open("a") as file:
        for number, cell in enumerate(cells()):
            for seed in seeds:
                if (number, seed) not in done:
                    line = {"cell": number, **run_one(cell, seed, steps=4000, every=10)}
                    file.write(json.dumps(line) + "\n")
                    file.flush()


def run_one(values: Line, seed: int, *, steps: int, every: int) -> Line:
    curve = addition_runs.train(seed, steps=steps, eval_every=every, hold=HOLD, **values)
    return {
        "seed": seed,
        "values": values,
        "diverged": bool(curve.diverged),
        "every": every,
        "curve": [round(float(value), 4) for value in curve.val_accuracy],
        "coherence": [round(float(value), 5) for value in curve.coherence[::10]],
    }


# Plan D, H and M ----------------------------------------------------------------------------------------------------

K, TRIALS, BUDGET, EVERY = 20, 30, 2000, 5
REGIMES: dict[str, Line] = {
    "tuned": {},
    "no-decay": {"weight_decay": 0.0},
    "noise": {"label_noise": 0.05},
    "little-data": {"train_fraction": 0.4},
    "full-batch": {"batch_size": 0},
}
ADDED: dict[str, tuple[str, ...]] = {
    "adamw": (),
    "adamw+ema": ("filter", "alpha", "lamb"),
    "adamw+ma": ("filter", "window_size", "lamb"),
    "adamw+average": ("average",),
}
OTHERS: dict[str, tuple[str, ...]] = {"nadam": (), "ademamix": (), "muon": ()}
SEVERAL: dict[str, Line] = {
    "several-17": {"p": 17},
    "several-31": {"p": 31},
    "several-entropy": {"loss": "cross-entropy"},
    "several-batch": {"batch_size": 0},
}


class Replicated(NamedTuple):
    """Duels whose arms are tuned K times."""

    arms: dict[str, tuple[str, ...]]  # by name: the settings that an arm adds to AdamW's
    together: Sequence[dict[str, Line]]  # versions of the task: one setting is searched for those of a group
    unseen: dict[str, Line]  # versions in which that setting is only judged
    tuning_seed: int
    fresh_seed: int
    fresh: int  # seeds of each tuning


APART = [{name: fixed} for name, fixed in REGIMES.items()]
DUELS = {
    "duels": Replicated(ADDED, APART, {}, 10_000, 20_000, 5),
    "others": Replicated(OTHERS, APART, {}, 10_000, 20_000, 5),
    "several": Replicated(ADDED, [SEVERAL], {"several-unseen": {}}, 30_000, 40_000, 3),
}
SLOW: dict[str, tuple[str, Line]] = {  # arms with an exponential average: the setting that is its decay, and others
    "adamw+ema": ("alpha", {"filter": "ema"}),
    "adamw+average": ("average", {}),
    "ademamix": ("slow_beta", {}),
}
BETAS = ((0.9, 0.98), (0.9, 0.95), (0.9, 0.999), (0.8, 0.98), (0.5, 0.98), (0.5, 0.9))


def propose(trial: Any, arm: str, fixed: Iterable[str]) -> Line:
    """The setting that a search tries next; `fixed` are names of settings that it must not choose."""
    values: Line = {"lr": trial.suggest_float("lr", 1e-3, 0.3, log=True)}
    if "weight_decay" not in fixed:
        values["weight_decay"] = trial.suggest_float("weight_decay", 1e-3, 30.0, log=True)
    if arm != "muon":
        values["betas"] = BETAS[trial.suggest_categorical("betas", list(range(6)))]
    clipped = trial.suggest_categorical("clip", [False, True])
    values["clip_norm"] = trial.suggest_float("clip_norm", 0.25, 4.0, log=True) if clipped else 0.0
    if arm in SLOW:
        decay = 1 - 1 / trial.suggest_float("memory", 2.0, 500.0, log=True)
        values |= {**SLOW[arm][1], SLOW[arm][0]: decay}
    if arm == "adamw+ma":
        values |= {"filter": "ma", "window_size": trial.suggest_int("window_size", 2, 500, log=True)}
    if "filter" in values:
        values["lamb"] = trial.suggest_float("lamb", 0.05, 10.0, log=True)
    if arm == "ademamix":
        values["slow_gain"] = trial.suggest_float("slow_gain", 0.05, 10.0, log=True)
    return {**values, "optimizer": arm} if arm in OTHERS else values


def search_value(line: Line) -> float:
    """The step from which the target is held; without one, budget x (1 + gap of the best stretch)."""
    held = crossings(line)[1]
    if held.step is not None:
        return held.step
    curve = line["curve"]
    worst = [min(curve[i : i + HOLD + 1]) for i in range(len(curve) - HOLD)]
    return BUDGET * (2 - max(worst, default=0.0) / LEVEL)


def run_duels(stage: str, folder: Path) -> None:
    """Train missing replicates: tune every arm, then train the winners and both controls on fresh seeds."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    asked = DUELS[stage]
    done = {(line["regime"], line["replicate"]) for line in read(folder, stage) if line["role"] == "end"}
    for versions in asked.together:
        regime = next(iter(versions))
        for replicate in range(K):
            if (regime, replicate) in done:
                continue
            lines, best = list[Line](), dict[str, Line]()
            for arm in asked.arms:
                best[arm], trials = tune(arm, versions, replicate, asked.tuning_seed + replicate)
                lines += trials
            first = asked.fresh_seed + asked.fresh * replicate
            for name, fixed in {**versions, **asked.unseen}.items():
                for seed in range(first, first + asked.fresh):
                    for arm, added in asked.arms.items():
                        for role, values in sides_of(best, arm, added).items():
                            line = run_one({**values, **fixed}, seed, steps=BUDGET, every=EVERY)
                            lines.append({"regime": name, "replicate": replicate, "role": role, "arm": arm, **line})
            lines.append({"regime": regime, "replicate": replicate, "role": "end"})
            with (folder / f"{stage}.jsonl").open("a") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))


def tune(arm: str, versions: dict[str, Line], replicate: int, seed: int) -> tuple[Line, list[Line]]:
    """The setting with the smallest geometric mean over versions of the task, and all runs of its search."""
    import optuna

    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=replicate))
    names = {name for fixed in versions.values() for name in fixed}
    found, lines = list[tuple[float, int, Line]](), list[Line]()
    for number in range(TRIALS):
        trial = study.ask()
        values = propose(trial, arm, names)
        runs = {name: run_one({**values, **fixed}, seed, steps=BUDGET, every=EVERY) for name, fixed in versions.items()}
        value = statistics.geometric_mean(search_value(run) for run in runs.values())
        study.tell(trial, value)
        found.append((value, number, values))
        about: Line = {"replicate": replicate, "role": "trial", "arm": arm, "n": number}
        lines += [{"regime": name, **about, **run} for name, run in runs.items()]
    return min(found, key=lambda each: each[:2])[2], lines


def sides_of(best: dict[str, Line], arm: str, added: Sequence[str]) -> dict[str, Line]:
    """What an arm is judged by on fresh seeds: its own setting, and if it adds something, both controls."""
    sides = {"fresh": best[arm]}
    if added:
        sides["without"] = {name: value for name, value in best[arm].items() if name not in added}
        sides["with"] = {**best["adamw"], **{name: best[arm][name] for name in added}}
    return sides


# Reading ------------------------------------------------------------------------------------------------------------


def read(folder: Path, stage: str) -> list[Line]:
    path = folder / f"{stage}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def crossings(line: Line) -> tuple[Crossing, Crossing]:
    """The first and the held crossing."""
    if "held" in line:  # tuning trials may be kept without their curves
        first, held = line["first"], line["held"]
        return Crossing(line["last"], first), Crossing(line["after"], held)
    reached = [value >= LEVEL for value in line["curve"]]
    steps = [line["every"] * (i + 1) for i in range(len(reached))]
    return first_crossing(steps, reached), held_crossing(steps, reached)


# Tables -------------------------------------------------------------------------------------------------------------


def is_whole(stage: str, lines: Sequence[Line]) -> bool:
    """Whether all runs of a stage are among the lines."""
    if stage in DUELS:
        return sum(line["role"] == "end" for line in lines) == K * len(DUELS[stage].together)
    cells, seeds = STAGES[stage]
    return len(lines) == len(list(cells())) * len(seeds)


def write_tables(folder: Path, kept: Path) -> None:
    """Add complete stages to addition_runs.parquet, a row per run, and to addition_curves.parquet, but for trials.

    Stages that are kept already stay as they are; the first ones were trained by AdamW.
    """
    import polars as pl

    places = [kept / f"addition_{name}.parquet" for name in ("runs", "curves")]
    runs, accuracies = (pl.read_parquet(path) if path.exists() else pl.DataFrame() for path in places)
    known = set(runs["stage"]) if len(runs) else set[str]()
    rows, curves = list[Line](), list[Line]()
    for stage in (*STAGES, *DUELS):
        lines = read(folder, stage)
        if not lines or stage in known:
            continue
        if not is_whole(stage, lines):
            raise SystemExit(f"{stage} is not complete in {folder}: run it first")
        for line in lines:
            if line.get("role") == "end":
                continue
            first, held = crossings(line)
            values = {**addition_runs.USUAL, **line["values"]}
            del values["hold"], values["level"]
            values["steps"] = BUDGET if stage in DUELS else 4000
            values["eval_every"] = EVERY if stage in DUELS else 10
            if values["filter"] is None:
                values |= {"alpha": None, "window_size": None, "lamb": None}
            if values["optimizer"] != "ademamix":
                values |= {"slow_beta": None, "slow_gain": None}
            values["betas"] = json.dumps(values["betas"]) if values["optimizer"] != "muon" else None
            where = {name: line.get(name) for name in ("regime", "replicate", "role", "arm")}
            outcome = {"first": first.step, "held": held.step, "held_after": held.after, "diverged": line["diverged"]}
            number = len(runs) + len(rows)
            rows.append({"run": number, "stage": stage, **where, **values, "seed": line["seed"], **outcome})
            if "curve" in line and line.get("role") != "trial":
                curves.append({"run": number, "val_accuracy": line["curve"]})
    if rows:
        new = pl.DataFrame(rows, infer_schema_length=None)
        every = pl.concat([runs, new], how="diagonal_relaxed")
        every.with_columns(pl.col("optimizer").fill_null("adamw")).write_parquet(places[0])
        new = pl.DataFrame(curves)
        pl.concat([accuracies, new], how="diagonal_relaxed").write_parquet(places[1], compression_level=19)
        seal(kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*STAGES, *DUELS, "tables"])
    parser.add_argument("--folder", type=Path, default=Path("runs-addition"))
    parser.add_argument("--kept", type=Path, default=Path("results"), help="of the tables")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.what in STAGES:
        run_cells(given.what, given.folder)
    elif given.what in DUELS:
        run_duels(given.what, given.folder)
    else:
        write_tables(given.folder, given.kept)


if __name__ == "__main__":
    main()
