"""Slim copies of complete runs, to be kept as evidence: configuration, environment, metrics, summary; no weights.

Nothing in them depends on the machine's directories, and archiving a run twice gives the same bytes.
"""

from __future__ import annotations

import lzma
import shutil
import tempfile
from pathlib import Path
from typing import Any

from grokfast.lab.runs.directory import METRICS, PACKED, Run, RunError
from grokfast.lab.runs.files import write_atomically, write_json

PLACES = ("--runs-dir", "--data-dir", "--sweep-dir")  # flags that name a directory


def archive_run(run: Run, folder: Path) -> Path:
    """Write the slim copy of a complete run below `folder` under its name; one that is there already is left alone."""
    if run.summary is None:
        raise RunError(f"{run.name} must be complete to be archived: grokfast resume {run.name}")
    target = folder / run.name
    if target.exists():
        return target
    folder.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
    try:
        draft.chmod(0o755)
        write_json(draft / "config.json", {**run.settings, "loop": {**run.loop, "data_dir": None}})
        environment = run.environment
        write_json(draft / "environment.json", {**environment, "command": without_places(environment.get("command"))})
        source = run.path / METRICS
        packed = lzma.compress(source.read_bytes()) if source.exists() else (run.path / PACKED).read_bytes()
        write_atomically(draft / PACKED, packed)
        write_json(draft / "summary.json", run.summary)
        draft.rename(target)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return target


def without_places(command: Any) -> Any:
    """What was typed, without the directories.

    >>> without_places(["grokfast", "train", "modmul", "--runs-dir", "x", "--lr", "0.01", "--data-dir=y"])
    ['grokfast', 'train', 'modmul', '--lr', '0.01']
    """
    if not isinstance(command, list):
        return command
    words: list[str] = []
    skip = False
    for word in command:
        if not skip and not word.startswith(tuple(f"{flag}=" for flag in PLACES)) and word not in PLACES:
            words.append(word)
        skip = word in PLACES
    return words
