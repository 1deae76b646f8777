"""Slim copies of complete runs, to be kept as evidence: configuration, environment, metrics, summary; no weights.

    metrics.xz     the evaluations, floats to five digits, or to all where five would move a crossing
    weights.json   how far the weights went and where to, of a run that kept them
    spectra.json   the spectra of its gradients, of a run that recorded them

Nothing in a copy depends on the machine's directories, and archiving a run twice gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from grokfast.lab.runs.directory import METRICS, PACKED, Run, RunError
from grokfast.lab.runs.files import new_directory, read_json, write_atomically, write_json
from grokfast.lab.runs.metrics import Row, crossings, pack_rows, shorten, unpack_rows

PLACES = ("--runs-dir", "--data-dir", "--sweep-dir", "-o", "--out")  # flags that name a directory
DIGITS, ALL_DIGITS = 5, 17
Tables = Mapping[str, dict[str, Any]]  # by the name of their file
Outcome = Literal["archived", "completed", "there already"]


def archive_run(run: Run, folder: Path, tables: Tables | None = None) -> Outcome:
    """Write the slim copy of a complete run below `folder` under its name, with these tables.

    A copy that is there is left alone but for tables that it lacks; RunError if it is of a run with other results.
    """
    if run.summary is None:
        raise RunError(f"{run.name} must be complete to be archived: grokfast resume {run.name}")
    target = folder / run.name
    if target.exists():
        return complete(run, target, tables or {})
    with new_directory(target) as draft:
        write_json(draft / "config.json", {**run.settings, "loop": {**run.loop, "data_dir": None}})
        environment = run.environment
        write_json(draft / "environment.json", {**environment, "command": without_places(environment.get("command"))})
        write_atomically(draft / PACKED, pack(run))
        for name, table in (tables or {}).items():
            write_table(draft / name, table)
        write_json(draft / "summary.json", run.summary)
    return "archived"


def complete(run: Run, target: Path, tables: Tables) -> Outcome:
    """Add tables to the copy of a run."""
    if results_of(Run(target).rows) != results_of(unpack_rows(pack(run))):
        raise RunError(f"{target} is of a run with other results than {run.path}: remove it to archive this one")
    new = {name: table for name, table in tables.items() if read_table(Run(target), name) != table}
    for name, table in new.items():
        write_table(target / name, table)
    return "completed" if new else "there already"


def pack(run: Run) -> bytes:
    """The evaluations of a run, to as few digits as leave its crossings where they are."""
    if not (run.path / METRICS).exists() and (run.path / PACKED).exists():
        return (run.path / PACKED).read_bytes()
    few = pack_rows(run.rows, DIGITS)
    same = crossings(unpack_rows(few), run.level, run.measure) == crossings(run.rows, run.level, run.measure)
    return few if same else pack_rows(run.rows, ALL_DIGITS)


def results_of(rows: list[Row]) -> list[str]:
    """Evaluations as they can be compared: without the time they took."""
    return [repr(row._replace(seconds=0.0)) for row in rows]


def without_places(command: Any) -> Any:
    """What was typed, without the directories of a machine.

    >>> without_places(["grokfast", "train", "modmul", "--runs-dir", "x", "--lr", "0.01", "--data-dir=y"])
    ['grokfast', 'train', 'modmul', '--lr', '0.01']
    >>> without_places(["grokfast", "archive", "/home/me/runs"])
    ['grokfast', 'archive', 'runs']
    """
    if not isinstance(command, list):
        return command
    before: list[str] = ["", *command[:-1]]
    named = tuple(f"{flag}=" for flag in PLACES)
    pairs = zip(before, command, strict=False)
    kept = [word for last, word in pairs if not {last, word} & set(PLACES) and not word.startswith(named)]
    return [Path(word).name if Path(word).is_absolute() else word for word in kept]


# Tables ---------------------------------------------------------------------------------------------------------------


def write_table(path: Path, table: dict[str, Any]) -> None:
    """One line for each entry: lists of numbers are long."""
    lines = [f"{json.dumps(key)}: {json.dumps(value, allow_nan=False)}" for key, value in table.items()]
    write_atomically(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def read_table(run: Run, name: str) -> dict[str, Any] | None:
    """The table that an archive keeps of a recording; None where there is none."""
    try:
        return read_json(run.path / name) if (run.path / name).exists() else None
    except ValueError as error:
        raise RunError(f"{run.path / name}: {error}") from error


def few_digits(values: Any) -> list[Any]:
    """Numbers for a table, of any shape."""
    return [few_digits(value) if isinstance(value, list) else shorten(float(value), DIGITS) for value in values]
