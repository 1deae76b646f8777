"""`grokfast archive RUN -o results`: slim copies of complete runs, to keep as evidence.

The same command again adds the runs that were completed since and the tables that copies lack, and nothing else.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from grokfast.lab.commands.common import add_chosen_runs, add_out, chosen_runs, complain, drop_unreadable
from grokfast.lab.runs.archive import archive_run, read_table, without_places
from grokfast.lab.runs.directory import Run, RunError


def add(parser: argparse.ArgumentParser) -> None:
    add_chosen_runs(parser)
    add_out(parser, "results", "directory of the copies; existing copies are kept", "DIR")


def run(args: argparse.Namespace) -> int:
    found = drop_unreadable(chosen_runs(args))
    complete = [run for run in found if run.status == "complete"]
    for run in found:
        if run not in complete:
            complain(f"{run.name} is left out: it is not complete")
    failed = 0
    for run in complete:
        try:
            tables = new_tables(run, complete, Run(args.out / run.name), ["grokfast", *args.words])
            print(f"{archive_run(run, args.out, tables)}: {args.out / run.name}")
        except RunError as error:
            complain(str(error))
            failed = 1
    return failed


def new_tables(run: Run, others: Sequence[Run], copy: Run, command: list[str]) -> dict[str, dict[str, Any]]:
    """The tables of what a run recorded, as far as its copy lacks them or their points."""
    # Slow to import, and not needed for a help text.
    from grokfast.lab.analysis.paths import WEIGHTS, find_base, weight_table
    from grokfast.lab.analysis.spectrum import SHORTEST, SPECTRA, spectrum_table
    from grokfast.lab.analysis.weights import has_weights
    from grokfast.lab.runs.recording import has_gradients

    found = {name: table for name in (WEIGHTS, SPECTRA) if (table := read_table(run, name)) is not None}
    if found or run.diverged:  # an archive is archived, or there is nothing to draw
        return found
    known, base = read_table(copy, WEIGHTS), find_base(run, [other for other in others if has_weights(other)])
    if has_weights(run) and (known is None or (base is not None and "points" not in known)):
        found[WEIGHTS] = weight_table(run, base)
    if has_gradients(run) and read_table(copy, SPECTRA) is None and run.rows[-1].step >= SHORTEST:
        found[SPECTRA] = spectrum_table(run)
    return {name: {"command": without_places(command), **table} for name, table in found.items()}
