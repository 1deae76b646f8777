"""The README's line on a tuned optimizer (docs/plan.md, G): `python tools/tuned_line.py DUEL ...`. Resumable.

Each best setting of AdamW in a duel is run on the duel's fresh seeds with a filter of fixed values, and without one at
three times the learning rate and a third of the decay. The runs are in DUEL/line/, their rows in DUEL/line.csv and
DUEL/line_arms.csv. `tools/keep.py --duel DUEL` keeps them with the duel.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grokfast.lab.runs.archive import seal, write_csv
from grokfast.lab.search.objective import LEVEL
from grokfast.lab.search.outcome import Outcome, fresh_row, load_outcome, measures_of
from grokfast.lab.settings import command_line, resolve
from grokfast.lab.training.run import train

REFERENCE = "adamw"
ROWS, ARMS = "line.csv", "line_arms.csv"


def changes(setting: Mapping[str, Any], start: int) -> dict[str, dict[str, Any]]:
    """What each arm of the experiment changes in a setting of AdamW."""
    larger = {"lr": 3 * setting["lr"], "weight_decay": setting["weight_decay"] / 3}
    return {
        "README's line": {"filter": "ema", "alpha": 0.96, "lamb": 2.0, "two_stage": start},
        "MA (50, 2)": {"filter": "ma", "window_size": 50, "lamb": 2.0},
        "larger learning rate": larger,
    }


def run_line(folder: Path) -> None:
    found = load_outcome(folder)
    given, objective = found.duel["given"], found.duel["objective"]
    start = 150 if objective in LEVEL else given["steps"] // 4
    arms, rows = list[dict[str, Any]](), list[dict[str, Any]]()
    for k, setting in enumerate(settings_of(found)):
        seeds = [
            row["seed"] for row in found.runs if (row["arm"], row["settings_of"], row["tuning"]) == (REFERENCE, None, k)
        ]
        for arm, changed in changes(setting, start).items():
            asked = {**given, "optimizer": "adamw", **setting, **changed}
            for seed in seeds:
                run = train(resolve(**asked, seed=seed), folder / "line")
                rows.append(fresh_row((arm, REFERENCE), k, seed, run, measures_of(objective)))
            about = {"setting": {**setting, **changed}, "edges": {}, "command": command_line(resolve(**asked))}
            arms.append({"arm": arm, "settings_of": REFERENCE, "tuning": k, **about})
    rows.sort(
        key=lambda row: (list(changes({"lr": 1, "weight_decay": 1}, 0)).index(row["arm"]), row["tuning"], row["seed"])
    )
    write_csv(folder / ROWS, rows)
    write_csv(folder / ARMS, arms)
    seal(folder)


def settings_of(found: Outcome) -> list[dict[str, Any]]:
    """The best setting of AdamW in each tuning."""
    rows = [row for row in found.settings if (row["arm"], row["settings_of"]) == (REFERENCE, None)]
    return [row["setting"] for row in sorted(rows, key=lambda row: row["tuning"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("duels", nargs="+", type=Path, metavar="DUEL")
    for folder in parser.parse_args().duels:
        run_line(folder)


if __name__ == "__main__":
    main()
