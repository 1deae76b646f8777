"""Keep runs and duels in results/: `python tools/keep.py RUNS ... --duel DIR --lines FILE`, then `make results`.

Runs that are kept already stay as they are. A run of the same name with other results is refused. Runs that kept
weights or recorded gradients get their derived tables: paths and distances of the weights, spectra of the gradients.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grokfast.lab.analysis.spectrum import SHORTEST, spectrum_table
from grokfast.lab.analysis.trajectory import find_base, weight_table
from grokfast.lab.analysis.weights import has_weights
from grokfast.lab.runs.archive import (
    RUNS,
    curve_frame,
    read_csv,
    read_parquet,
    read_tables,
    seal,
    write_csv,
    write_parquet,
    write_tables,
)
from grokfast.lab.runs.directory import Run, RunError, load_runs
from grokfast.lab.runs.metrics import shorten
from grokfast.lab.runs.recording import has_gradients

ROOT = Path(__file__).parents[1]


def keep(new: Sequence[Run], folder: Path) -> list[Run]:
    """Add runs to a folder of tables; gives those that were added."""
    known = {run.name: run for run in read_tables(folder)} if (folder / RUNS).exists() else {}
    for run in new:
        if run.name in known and results_of(run) != results_of(known[run.name]):
            raise RunError(f"{run.name} is kept in {folder} with other results")
    added = [run for run in new if run.name not in known]
    for run in added:
        run.tables |= derived_tables(run, [*new])
    write_tables([*known.values(), *added], folder)
    return added


def results_of(run: Run) -> Any:
    """The curve of a run as it is kept, without the time that it took."""
    return curve_frame(run).drop("seconds").rows()


def derived_tables(run: Run, others: Sequence[Run]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    if has_weights(run):
        found["weights"] = weight_table(run, find_base(run, [other for other in others if has_weights(other)]))
    if has_gradients(run) and run.rows[-1].step >= SHORTEST:
        found["spectra"] = spectrum_table(run)
    return found


# Duels and other tables -----------------------------------------------------------------------------------------------


def keep_duel(name: str, tables: Mapping[str, Sequence[Mapping[str, Any]]], folder: Path) -> None:
    """Add the rows of a duel to the tables of these names; a duel of that name that is kept already is replaced."""
    for file, rows in tables.items():
        read, write = (read_csv, write_csv) if file.endswith(".csv") else (read_lists, write_lists)
        known = read(folder / file) if (folder / file).exists() else []
        if found := [*(row for row in known if row["duel"] != name), *({"duel": name, **row} for row in rows)]:
            write(folder / file, found)
            seal(folder)


def keep_outcome(duel: Path, folder: Path) -> None:
    """Add the outcome of `grokfast duel`, and what tools/tuned_line.py added, under the name of the directory."""
    from grokfast.lab.search.outcome import FILE, load_outcome

    found = load_outcome(duel / FILE)
    shared = {key: found.duel[key] for key in ("regime", "trials", "tuning_seeds", "objective")}
    about = {**found.duel["given"], **shared, "sampler_seed": found.duel["seed"]}
    about["data_dir"] = None
    arms, runs = (
        [*rows, *(read_csv(duel / file) if (duel / file).exists() else [])]
        for rows, file in ((found.settings, "line_arms.csv"), (found.runs, "line.csv"))
    )
    tables = {
        "duel_arms.csv": [{**about, **row} for row in arms],
        "duels.csv": runs,
        "duel_trials.parquet": [{**row, "setting": json.dumps(row["setting"])} for row in found.trials],
        "duel_curves.parquet": [curve_of(run) for part in ("tuning", "runs", "line") for run in load_runs(duel / part)],
    }
    keep_duel(duel.resolve().name, {file: without_places(rows) for file, rows in tables.items()}, folder)


def without_places(rows: Any) -> Any:
    """Rows without directories of this machine: of each absolute path the name alone.

    >>> without_places([{"task": "/home/me/gpt_task.py:Gpt", "lr": 1, "command": "grokfast train /a/b.py:C --lr 1/3"}])
    [{'task': 'gpt_task.py:Gpt', 'lr': 1, 'command': 'grokfast train b.py:C --lr 1/3'}]
    """
    return json.loads(re.sub(r'(?<=["\s=])/(?:[^/\s"]+/)*(?=[^/\s"])', "", json.dumps(rows)))


def curve_of(run: Run) -> dict[str, Any]:
    """The validation accuracy of a run, or its loss if that is what its task is judged by, at each evaluation."""
    values = [row.val_accuracy if run.measure == "accuracy" else row.val_loss for row in run.rows]
    return {"run": run.name, "steps": [row.step for row in run.rows], "value": [shorten(value, 4) for value in values]}


def read_lists(path: Path) -> list[dict[str, Any]]:
    return read_parquet(path).rows(named=True)


def write_lists(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    import polars as pl

    write_parquet(path, [pl.DataFrame(rows, infer_schema_length=None)])


def keep_lines(path: Path, folder: Path) -> Path:
    """Keep a file of JSON lines as a table of the same name; settings in `values` become columns of their own."""
    import polars as pl

    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    flat = [{**{k: v for k, v in line.items() if k != "values"}, **line.get("values", {})} for line in lines]
    table = folder / f"{path.stem}.parquet"
    write_parquet(table, [pl.DataFrame(flat, infer_schema_length=None, strict=False)])
    seal(folder)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="RUNS", help="directories of runs")
    parser.add_argument("--duel", action="append", default=[], type=Path, metavar="DIR", help="the outcome of a duel")
    help = "a table of other runs, as JSON lines"
    parser.add_argument("--lines", action="append", default=[], type=Path, metavar="FILE", help=help)
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "results", help="the tables (default: results)")
    args = parser.parse_args()
    found = [run for folder in args.folders for run in load_runs(folder)]
    done = [run for run in found if run.done]
    try:
        if args.folders:
            added = keep(done, args.out)
            print(f"runs added: {len(added)}; kept already: {len(done) - len(added)}; open: {len(found) - len(done)}")
        for duel in args.duel:
            keep_outcome(duel, args.out)
            print(f"duel kept: {duel}")
        for path in args.lines:
            print(f"table kept: {keep_lines(path, args.out)}")
    except (RunError, ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
