"""The maps and duels of the small task that docs/plan.md lists. Thousands of runs, on one core; resumable.

    python tools/addition_experiments.py map        # plan B: steps over weight decay, with and without filters
    python tools/addition_experiments.py surrogate  # plan C: a filter against a larger learning rate
    python tools/addition_experiments.py duels      # plan D: replicated duels
    python tools/addition_experiments.py others     # plan H: other optimizers, tuned like the AdamW of D
    python tools/addition_experiments.py report     # the verdicts, as Markdown
    python tools/addition_experiments.py pictures   # docs/figures/addition-*.svg
    python tools/addition_experiments.py tables     # a row per run, added to those in results/

Lines are appended to FOLDER/STAGE.jsonl, one per run.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import addition_runs
import torch

from grokfast.lab.runs.archive import seal
from grokfast.lab.stats import (
    HOLD,
    Crossing,
    Steps,
    Verdict,
    first_crossing,
    held_crossing,
    interval_text,
    spread_of,
    steps_to,
    verdict,
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


# Plan D and H -------------------------------------------------------------------------------------------------------

K, TRIALS, FRESH, BUDGET, EVERY = 20, 30, 5, 2000, 5
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
DUELS = {"duels": ADDED, "others": OTHERS}  # by stage: the arms, and the settings that they add to AdamW's
SLOW: dict[str, tuple[str, Line]] = {  # arms with an exponential average: the setting that is its decay, and others
    "adamw+ema": ("alpha", {"filter": "ema"}),
    "adamw+average": ("average", {}),
    "ademamix": ("slow_beta", {}),
}
BETAS = ((0.9, 0.98), (0.9, 0.95), (0.9, 0.999), (0.8, 0.98), (0.5, 0.98), (0.5, 0.9))


def propose(trial: Any, arm: str, regime: str) -> Line:
    values: Line = {"lr": trial.suggest_float("lr", 1e-3, 0.3, log=True)}
    if regime != "no-decay":
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
    arms = DUELS[stage]
    done = {(line["regime"], line["replicate"]) for line in read(folder, stage) if line["role"] == "end"}
    for regime, fixed in REGIMES.items():
        for replicate in range(K):
            if (regime, replicate) in done:
                continue
            here: Line = {"regime": regime, "replicate": replicate}
            lines, best = list[Line](), dict[str, Line]()
            for arm in arms:
                study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=replicate))
                found: list[tuple[float, int, Line]] = []
                for number in range(TRIALS):
                    trial = study.ask()
                    values = {**propose(trial, arm, regime), **fixed}
                    line = run_one(values, 10000 + replicate, steps=BUDGET, every=EVERY)
                    study.tell(trial, search_value(line))
                    found.append((search_value(line), number, values))
                    lines.append({**here, "role": "trial", "arm": arm, "n": number, **line})
                best[arm] = min(found, key=lambda each: each[:2])[2]
            for seed in range(20000 + FRESH * replicate, 20000 + FRESH * (replicate + 1)):
                for arm, added in arms.items():
                    roles = {"fresh": best[arm]}
                    if added:
                        roles["without"] = {k: v for k, v in best[arm].items() if k not in added}
                        roles["with"] = {**best["adamw"], **{k: best[arm][k] for k in added}}
                    for role, values in roles.items():
                        lines.append(
                            {**here, "role": role, "arm": arm, **run_one(values, seed, steps=BUDGET, every=EVERY)}
                        )
            lines.append({**here, "role": "end"})
            with (folder / f"{stage}.jsonl").open("a") as file:
                file.write("".join(json.dumps(line) + "\n" for line in lines))


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


def held_steps(line: Line) -> Steps:
    return steps_to(crossings(line)[1], diverged=line["diverged"])


def arm_of(values: Line) -> str:
    """The filter of a run, in short."""
    if values.get("average"):
        return f"averaged {values['average']:g}"
    if values.get("filter") is None:
        return "no filter"
    kind = f"MA ({values['window_size']}" if values["filter"] == "ma" else f"EMA ({values['alpha']:.3g}"
    late = f" from step {values['two_stage']}" if values.get("two_stage") else ""
    return f"{kind}, {values['lamb']:g}){late}"


def column_of(values: Line) -> str:
    usual: Line = {"lr": 0.01, "p": 23, "loss": "mse", "batch_size": 64, "clip_norm": 0.0}
    return ", ".join(f"{name} {values[name]}" for name in usual if name in values)


# The report ---------------------------------------------------------------------------------------------------------


def cell_text(runs: Sequence[Steps]) -> str:
    spread = spread_of(runs)
    return f"{spread.median}" + (
        f" ({spread.count - spread.censored} of {spread.count} hold)" if spread.censored else ""
    )


def words(found: Verdict) -> str:
    return f"{found.word} ({interval_text(found)})"


def report_map(folder: Path) -> None:
    columns: dict[str, dict[float, dict[str, list[Steps]]]] = {}
    for line in read(folder, "map"):
        cells = columns.setdefault(column_of(line["values"]), {})
        arms = cells.setdefault(line["values"]["weight_decay"], {})
        arms.setdefault(arm_of(line["values"]), []).append(held_steps(line))
    for column, decays in columns.items():
        names = list(next(iter(decays.values())))
        print(f"\n### {column}\n\n| decay | {' | '.join(names)} |\n|---{'|---' * len(names)}|")
        for decay, arms in decays.items():
            print(f"| {decay:g} | {' | '.join(cell_text(arms.get(name, [])) for name in names)} |")
        print(f"\n| decay | {' | '.join(names[1:])} |\n|---{'|---' * (len(names) - 1)}|")
        for decay, arms in decays.items():
            found = [words(verdict([arms.get(name, [])], [arms["no filter"]])) for name in names[1:]]
            print(f"| {decay:g} | {' | '.join(found)} |")
        late, start = (f"EMA (0.96, 2){when}" for when in (" from step 150", ""))
        found = [
            f"decay {d:g}: {words(verdict([a[late]], [a[start]]))}"
            for d, a in decays.items()
            if late in a and start in a
        ]
        print(f"\n{late} against the same from the start: {'; '.join(found)}")


def surrogate_runs(folder: Path) -> dict[tuple[Any, ...], list[Steps]]:
    """By batch, learning rate x decay, learning rate and filter."""
    runs: dict[tuple[Any, ...], list[Steps]] = {}
    for line in read(folder, "surrogate"):
        v = line["values"]
        key = v["batch_size"], round(v["lr"] * v["weight_decay"], 9), round(v["lr"], 6), arm_of(v)
        runs.setdefault(key, []).append(held_steps(line))
    return runs


def filter_name(kind: str, memory: int, lamb: float) -> str:
    return f"{kind} ({1 - 1 / memory:.3g}, {lamb:g})" if kind == "EMA" else f"{kind} ({2 * memory - 1}, {lamb:g})"


def report_surrogate(folder: Path) -> None:
    runs = surrogate_runs(folder)
    for batch in (64, 16, 0):
        for decay in (0.3, 1.0):
            product = round(0.01 * decay, 9)
            if (batch, product, 0.01, "no filter") not in runs:
                continue
            base = cell_text(runs[batch, product, 0.01, "no filter"])
            print(f"\n### batch {batch or 'all'}, decay {decay:g}: no filter {base}\n")
            print("| lamb | surrogate | filter | memory 3 | 10 | 50 | 200 |\n|---|---|---|---|---|---|---|")
            for lamb in LAMBS:
                surrogate = runs.get((batch, product, round(0.01 * (1 + lamb), 6), "no filter"), [])
                for kind in ("EMA", "MA"):
                    cells = list[str]()
                    for memory in MEMORIES:
                        mine = runs.get((batch, product, 0.01, filter_name(kind, memory, lamb)), [])
                        cells.append(f"{cell_text(mine)}: {words(verdict([mine], [surrogate]))}" if mine else "")
                    print(f"| {lamb:g} | {cell_text(surrogate)} | {kind} | {' | '.join(cells)} |")


def report_duels(folder: Path) -> None:
    runs: dict[tuple[str, str, str], dict[int, list[Steps]]] = {}
    for line in read(folder, "duels"):
        if line["role"] not in ("trial", "end"):
            arms = runs.setdefault((line["regime"], line["role"], line["arm"]), {})
            arms.setdefault(line["replicate"], []).append(held_steps(line))
    print(
        "\n| regime | K | arm | steps | tuned, against tuned AdamW | against its settings without | AdamW's with it |"
    )
    print("|---|---|---|---|---|---|---|")
    for regime in REGIMES:
        arms = {arm: list(runs.get((regime, "fresh", arm), {}).values()) for arm in ADDED}
        for arm, tunings in arms.items():
            if not tunings:
                continue
            flat = cell_text([run for tuning in tunings for run in tuning])
            cells = [regime, str(len(tunings)), arm, flat, "", "", ""]
            if arm != "adamw":
                without, with_it = (list(runs[regime, role, arm].values()) for role in ("without", "with"))
                pairs = ((tunings, arms["adamw"]), (tunings, without), (with_it, arms["adamw"]))
                cells[4:] = [words(verdict(mine, theirs)) for mine, theirs in pairs]
            print(f"| {' | '.join(cells)} |")


# Pictures -----------------------------------------------------------------------------------------------------------


def draw_pictures(folder: Path, out: Path) -> None:
    """addition-decay.svg: steps over weight decay. addition-surrogate.svg: filters against a larger learning rate."""
    from grokfast.lab.report.pictures import write_picture

    pictures = {"addition-decay": decay_picture(folder), "addition-surrogate": surrogate_picture(folder)}
    for name, picture in pictures.items():
        write_picture([picture], out / f"{name}.svg")


def decay_picture(folder: Path) -> Any:
    from grokfast.lab.report.pictures import COLOURS, Picture, axis, line, make_view, note

    shown = ["no filter", "MA (50, 2)", "EMA (0.96, 2) from step 150", "EMA (0.98, 2)"]
    runs: dict[tuple[str, float, float], list[Steps]] = {}
    for each in read(folder, "map"):
        v = each["values"]
        if column_of(v) == f"lr {v['lr']}":
            runs.setdefault((arm_of(v), v["lr"], v["weight_decay"]), []).append(held_steps(each))
    least = 0.01  # stands for decay 0 on a log axis
    views: list[Any] = []
    for rate in (0.003, 0.01, 0.03):
        lines: list[Any] = []
        for name, colour in zip(shown, COLOURS, strict=False):
            found = {decay: spread_of(runs.get((name, rate, decay), [])) for decay in DECAYS[:-1]}
            known = {max(decay, least): spread for decay, spread in found.items() if spread.median.exact}
            y = [spread.median.value for spread in known.values()]
            for style in ("solid", "rings"):
                lines.append(line(name, list(known), y, colour, style))
        across = axis(
            "weight decay (0 at the left edge)", log=True, values=(0.01, 0.03, 0.1, 0.3, 1, 3), domain=(0.01, 3)
        )
        up = axis("steps until 95% is held" if not views else "", log=True, domain=(100, 4000))
        notes = [note(0.18, 3700, f"learning rate {rate:g}")]
        views.append(make_view(lines, across, up, notes=notes))
    title = "Steps over weight decay on the small task, medians of 10 seeds; missing marks: most runs never hold 95%"
    return Picture("addition-decay", title, views, dict(zip(shown, COLOURS, strict=False)))


def surrogate_picture(folder: Path) -> Any:
    from grokfast.lab.report.pictures import COLOURS, Picture, axis, line, make_view, note

    runs = surrogate_runs(folder)
    names = [f"lamb {lamb:g}" for lamb in LAMBS]
    views: list[Any] = []
    for kind in ("EMA", "MA"):
        for batch in (16, 64, 0):
            lines: list[Any] = []
            for lamb, name, colour in zip(LAMBS, names, COLOURS, strict=False):
                surrogate = runs.get((batch, 0.01, round(0.01 * (1 + lamb), 6), "no filter"), [])
                ratios: dict[int, float] = {}
                for memory in MEMORIES:
                    mine = runs.get((batch, 0.01, 0.01, filter_name(kind, memory, lamb)), [])
                    found = verdict([mine], [surrogate]) if mine and surrogate else None
                    if found is not None and found.ratio is not None:
                        ratios[memory] = found.ratio
                for style in ("solid", "rings"):
                    lines.append(line(name, list(ratios), list(ratios.values()), colour, style))
            up = axis("surrogate's steps / filter's steps" if not views else "", log=True, domain=(0.08, 2))
            notes = [note(25, 1.85, f"{kind}, batch {batch or 'all'}")]
            across = axis("memory in steps", log=True, values=MEMORIES, domain=(3, 200))
            views.append(make_view(lines, across, up, notes=notes, rules=[1.0]))
    title = "Above 1 the filter beats 1 + lamb times the learning rate (decay 1, 10 seeds); missing: too many runs fail"
    return Picture("addition-surrogate", title, views, dict(zip(names, COLOURS, strict=False)))


# Tables -------------------------------------------------------------------------------------------------------------


def write_tables(folder: Path, kept: Path) -> None:
    """Add complete runs to addition_runs.parquet, a row per run, and to addition_curves.parquet, but for trials.

    Stages that are kept already stay as they are; the first ones were trained by AdamW.
    """
    import polars as pl

    places = [kept / f"addition_{name}.parquet" for name in ("runs", "curves")]
    runs, accuracies = (pl.read_parquet(path) if path.exists() else pl.DataFrame() for path in places)
    known = set(runs["stage"]) if len(runs) else set[str]()
    rows, curves = list[Line](), list[Line]()
    for stage in (*STAGES, *DUELS):
        for line in read(folder, stage):
            if stage in known or line.get("role") == "end":
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
    parser.add_argument("what", choices=[*STAGES, *DUELS, "report", "pictures", "tables"])
    parser.add_argument("--folder", type=Path, default=Path("runs-addition"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures"), help="of the pictures")
    parser.add_argument("--kept", type=Path, default=Path("results"), help="of the tables")
    given = parser.parse_args()
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.what in STAGES:
        run_cells(given.what, given.folder)
    elif given.what in DUELS:
        run_duels(given.what, given.folder)
    elif given.what == "pictures":
        draw_pictures(given.folder, given.out)
    elif given.what == "tables":
        write_tables(given.folder, given.kept)
    else:
        for report in (report_map, report_surrogate, report_duels):
            report(given.folder)


if __name__ == "__main__":
    main()
