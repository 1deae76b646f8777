"""Run experiments of results/ on more seeds: `python tools/repeat.py KEY ... --seeds 3 4`. Resumable.

A key is the column `experiment` of results/runs.csv. Everything but the seed is as in the experiment's last run, unless
a setting is given as NAME=VALUE. `tools/keep.py` keeps the runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from grokfast.lab.runs.archive import read_tables
from grokfast.lab.settings import Settings, resolve, unusual
from grokfast.lab.training.run import train

RESULTS = Path(__file__).parents[1] / "results"


def repeated(key: str, seed: int, changed: Mapping[str, Any], kept: Path = RESULTS) -> Settings:
    """The settings of an experiment with another seed."""
    runs = [run for run in read_tables(kept) if run.experiment == key]
    if not runs:
        raise SystemExit(f"KEY must be an experiment of {kept}, got {key}")
    last = max(runs, key=lambda run: run.settings["seed"])
    given = {**unusual(dict(last.settings)), "threads": 1, "device": "cpu", **changed, "seed": seed}
    return resolve(last.task, **given)


def setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE, the value as JSON or plain text.

    >>> setting("steps=1200"), setting("operation=add")
    (('steps', 1200), ('operation', 'add'))
    """
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("keys", nargs="+", metavar="KEY", help="experiments in results/runs.csv")
    parser.add_argument("--seeds", nargs="+", type=int, required=True)
    parser.add_argument("--set", nargs="+", type=setting, default=[], metavar="NAME=VALUE", help="changed settings")
    parser.add_argument("--folder", type=Path, default=Path("runs"))
    given = parser.parse_args()
    for seed in given.seeds:
        for key in given.keys:
            train(repeated(key, seed, dict(given.set)), given.folder)


if __name__ == "__main__":
    main()
