"""Runs on modular arithmetic until the target is held: the four hypotheses of docs/plan.md, A.

Resumable; complete runs are left alone: python tools/modular_hypotheses.py run [STAGE ...] [--folder runs]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grokfast.lab.settings import Settings, resolve
from grokfast.lab.stats import HOLD
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
    *(("4", (op, "EMA from step 150", 2.0, 1.0), (op, "no filter", 2.0, 1.0)) for op in ("divide", "add", "subtract")),
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
        for seed in SEEDS:
            yield from (settings_of(cell, seed) for cell in STAGES[stage])


def label(cell: Cell) -> str:
    """An arm in words: `EMA from step 150, decay 2, clipped`."""
    _, arm, decay, clip = cell
    return f"{arm}, decay {decay:g}, {'clipped' if clip else 'not clipped'}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run"])
    parser.add_argument("stages", nargs="*", help=f"of {', '.join(STAGES)} (default: all)")
    parser.add_argument("--folder", type=Path, default=Path("runs"))
    given = parser.parse_args()
    for settings in runs_of(given.stages or list(STAGES)):
        train(settings, given.folder)


if __name__ == "__main__":
    main()
