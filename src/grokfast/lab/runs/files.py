"""Files and directories that appear whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is never seen half-written: write a draft beside it, sync it, rename it."""
    draft = path.with_name(f".{path.name}.new")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def new_directory(path: Path) -> Generator[Path]:
    """A draft to write into, which becomes the directory at `path` when all is written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".new-", dir=path.parent))
    try:
        draft.chmod(0o755)
        yield draft
        draft.rename(path)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise


def write_json(path: Path, data: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data
