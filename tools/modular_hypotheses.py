"""Runs on modular arithmetic until the target is held (docs/plan.md): the four hypotheses of A, the leaderboard of I.

Resumable; complete runs are left alone.

python tools/modular_hypotheses.py run [STAGE ...] [--folder runs]
python tools/modular_hypotheses.py report [--folder runs]       # verdicts by the held measure
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grokfast.lab.runs.archive import read_tables
from grokfast.lab.runs.directory import load_runs
from grokfast.lab.settings import Settings, experiment_of, resolve, unusual
from grokfast.lab.stats import HOLD, Steps, Verdict, interval_text, spread_of, steps_to, verdict
from grokfast.lab.training.run import train

Values = dict[str, Any]
ARMS: dict[str, Values] = {
    "no filter": {},
    "MA": {"filter": "ma", "window_size": 50, "lamb": 2.0},
    "EMA": {"filter": "ema", "alpha": 0.96, "lamb": 2.0},
    "EMA from step 150": {"filter": "ema", "alpha": 0.96, "lamb": 2.0, "two_stage": 150},
    "averaged": {"average": 0.95},
}
SEEDS = range(100, 105)
Cell = tuple[str, str, float, float]  # operation, arm, weight decay, clip norm
STAGES: dict[str, list[Cell]] = {
    "1": [
        *(("multiply", arm, 2.0, 1.0) for arm in ("MA", "no filter")),
        ("multiply", "averaged", 1.0, 1.0),
        ("multiply", "no filter", 2.0, 0.0),
        *(("multiply", arm, 2.0, 1.0) for arm in ("EMA from step 150", "EMA")),
        ("multiply", "MA", 2.0, 0.0),
        ("multiply", "no filter", 1.0, 0.0),
        ("multiply", "no filter", 1.0, 1.0),
        ("multiply", "averaged", 2.0, 1.0),
    ],
    "2": [
        ("multiply", arm, decay, 1.0)
        for decay in (0.3, 0.1)
        for arm in ("no filter", "MA", "EMA from step 150", "averaged")
    ],
    "3": [
        (operation, arm, decay, 1.0)
        for operation in ("divide", "add", "subtract")
        for arm, decay in (("MA", 2.0), ("averaged", 1.0), ("no filter", 2.0), ("EMA from step 150", 2.0))
    ],
}
LEADERBOARD, LEADERBOARD_SEEDS = "leaderboard", range(101, 106)
RESULTS = Path(__file__).parents[1] / "results"
# (hypothesis, challenger, reference)
VERDICTS: list[tuple[str, Cell, Cell]] = [
    ("1", ("multiply", "MA", 2.0, 1.0), ("multiply", "no filter", 2.0, 1.0)),
    ("1", ("multiply", "MA", 2.0, 0.0), ("multiply", "no filter", 2.0, 0.0)),
    ("2", ("multiply", "MA", 2.0, 1.0), ("multiply", "averaged", 1.0, 1.0)),
    ("3", ("multiply", "EMA from step 150", 2.0, 1.0), ("multiply", "EMA", 2.0, 1.0)),
    *(
        ("4", ("multiply", arm, decay, 1.0), ("multiply", "no filter", decay, 1.0))
        for decay in (2.0, 0.3, 0.1)
        for arm in ("MA", "EMA from step 150")
    ),
    *(("1", (op, "MA", 2.0, 1.0), (op, "no filter", 2.0, 1.0)) for op in ("divide", "add", "subtract")),
    *(("2", (op, "MA", 2.0, 1.0), (op, "averaged", 1.0, 1.0)) for op in ("divide", "add", "subtract")),
]


def settings_of(cell: Cell, seed: int) -> Settings:
    operation, arm, decay, clip = cell
    fixed: Values = {"optimizer": "adamw", "lr": 0.003, "betas": (0.9, 0.98), "weight_decay": decay, "clip_norm": clip}
    loop: Values = {"steps": 1200, "until": 0.95, "hold": HOLD, "eval_every": 10, "seed": seed}
    machine: Values = {"threads": 1, "device": "cpu"}
    return resolve("modmul", operation=operation, **fixed, **ARMS[arm], **loop, **machine)


def runs_of(stages: list[str]) -> Iterator[Settings]:
    """All cells of one seed before the next seed."""
    for stage in stages:
        for seed in LEADERBOARD_SEEDS if stage == LEADERBOARD else SEEDS:
            yield from entries_of(seed) if stage == LEADERBOARD else (settings_of(cell, seed) for cell in STAGES[stage])


def entries_of(seed: int) -> Iterator[Settings]:
    """The complete entries of the leaderboard on multiply, to be judged by `held`."""
    from page_tables import find_entries

    for entry in find_entries(read_tables(RESULTS)):
        if entry.complete:
            given = {**unusual(dict(entry.settings)), "seed": seed, "threads": 1, "device": "cpu"}
            yield resolve("modmul", **{**given, "steps": 1200, "until": 0.95, "hold": HOLD, "eval_every": 10})


def report(folder: Path) -> None:
    found: dict[str, list[tuple[Steps, Steps]]] = {}
    for run in load_runs(folder):
        if run.done and run.settings["seed"] in SEEDS:
            both = [steps_to(run.crossing(kind), diverged=run.status == "diverged") for kind in ("first", "held")]
            found.setdefault(run.experiment, []).append((both[0], both[1]))
    cells = {cell: settings_of(cell, 100) for stage in STAGES.values() for cell in stage}
    runs = {cell: found.get(experiment_of(settings), []) for cell, settings in cells.items()}
    print("| operation | arm | decay | clip | seeds | held | first touch |\n|---|---|---|---|---|---|---|")
    for (operation, arm, decay, clip), numbers in runs.items():
        held, first = (spread_of([pair[place] for pair in numbers]) for place in (1, 0))
        count = f"{held.count - held.censored} of {held.count} hold"
        print(f"| {operation} | {arm} | {decay:g} | {clip or 'off'} | {count} | {held} | {first} |")
    print("\n| hypothesis | challenger | reference | held | first touch |\n|---|---|---|---|---|")
    for name, one, other in VERDICTS:
        words = [text_of(verdict([[p[i] for p in runs[one]]], [[p[i] for p in runs[other]]])) for i in (1, 0)]
        print(f"| {name} | {label(one)} | {label(other)} | {words[0]} | {words[1]} |")


def label(cell: Cell) -> str:
    return f"{cell[0]}, {cell[1]}, decay {cell[2]:g}, clip {cell[3] or 'off'}"


def text_of(found: Verdict) -> str:
    return f"{found.word} ({interval_text(found)}, {found.seeds} seeds)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "report"])
    parser.add_argument("stages", nargs="*", help=f"1, 2, 3, {LEADERBOARD} (default: 1 to 3)")
    parser.add_argument("--folder", type=Path, default=Path("runs"))
    given = parser.parse_args()
    if given.what == "report":
        return report(given.folder)
    for settings in runs_of(given.stages or list(STAGES)):
        train(settings, given.folder)


if __name__ == "__main__":
    main()
