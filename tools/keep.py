"""Keep complete runs in results/: `python tools/keep.py RUNS ... [-o results]`, then `make results`.

Runs that are kept already stay as they are. A run of the same name with other results is refused. Runs that kept
weights or recorded gradients get their derived tables: paths and distances of the weights, spectra of the gradients.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grokfast.lab.analysis.paths import find_base, weight_table
from grokfast.lab.analysis.spectrum import SHORTEST, spectrum_table
from grokfast.lab.analysis.weights import has_weights
from grokfast.lab.runs.archive import RUNS, curve_of, read_tables, write_tables
from grokfast.lab.runs.directory import Run, RunError, load_runs
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
    return curve_of(run).drop("seconds").rows()


def derived_tables(run: Run, others: Sequence[Run]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    if has_weights(run):
        found["weights"] = weight_table(run, find_base(run, [other for other in others if has_weights(other)]))
    if has_gradients(run) and run.rows[-1].step >= SHORTEST:
        found["spectra"] = spectrum_table(run)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="RUNS", help="directories of runs")
    parser.add_argument("-o", "--out", type=Path, default=ROOT / "results", help="the tables (default: results)")
    args = parser.parse_args()
    found = [run for folder in args.folders for run in load_runs(folder)]
    done = [run for run in found if run.done]
    try:
        added = keep(done, args.out)
    except RunError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"added {len(added)} runs; kept already: {len(done) - len(added)}; not complete: {len(found) - len(done)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
