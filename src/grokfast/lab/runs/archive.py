"""Slim copies of complete runs, to be kept as evidence: configuration, environment, metrics, summary; no weights.

Nothing in them depends on the machine's directories, and archiving a run twice gives the same bytes.
"""

from __future__ import annotations

import lzma
from pathlib import Path
from typing import Any

from grokfast.lab.runs.directory import METRICS, PACKED, Run, RunError
from grokfast.lab.runs.files import new_directory, write_atomically, write_json

PLACES = ("--runs-dir", "--data-dir", "--sweep-dir")  # flags that name a directory


def archive_run(run: Run, folder: Path) -> Path:
    """Write the slim copy of a complete run below `folder` under its name; one that is there already is left alone."""
    if run.summary is None:
        raise RunError(f"{run.name} must be complete to be archived: grokfast resume {run.name}")
    target = folder / run.name
    if target.exists():
        return target
    with new_directory(target) as draft:
        write_json(draft / "config.json", {**run.settings, "loop": {**run.loop, "data_dir": None}})
        environment = run.environment
        write_json(draft / "environment.json", {**environment, "command": without_places(environment.get("command"))})
        source = run.path / METRICS
        packed = lzma.compress(source.read_bytes()) if source.exists() else (run.path / PACKED).read_bytes()
        write_atomically(draft / PACKED, packed)
        write_json(draft / "summary.json", run.summary)
    return target


def without_places(command: Any) -> Any:
    """What was typed, without the directories.

    >>> without_places(["grokfast", "train", "modmul", "--runs-dir", "x", "--lr", "0.01", "--data-dir=y"])
    ['grokfast', 'train', 'modmul', '--lr', '0.01']
    """
    if not isinstance(command, list):
        return command
    before: list[str] = ["", *command[:-1]]
    named = tuple(f"{flag}=" for flag in PLACES)
    pairs = zip(before, command, strict=False)
    return [word for last, word in pairs if not {last, word} & set(PLACES) and not word.startswith(named)]
