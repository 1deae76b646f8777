"""Files and directories that appear whole or not at all. Errors of the storage name the path."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any


@contextlib.contextmanager
def naming(path: Path) -> Generator[None]:
    """Add the path to an OSError: a failed write or sync does not name it."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is never seen half-written: write a draft beside it, sync it, rename it."""
    draft = path.with_name(f".{path.name}.new")
    try:
        with naming(path), draft.open("wb") as file:
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


def to_json_bytes(data: dict[str, Any]) -> bytes:
    return (json.dumps(data, indent=1, allow_nan=False) + "\n").encode()


def write_json(path: Path, data: dict[str, Any]) -> None:
    write_atomically(path, to_json_bytes(data))


def read_json(path: Path) -> dict[str, Any]:
    return parse_json(path.read_bytes())


def parse_json(content: bytes) -> dict[str, Any]:
    """A JSON object; ValueError if it is not one."""
    try:
        data = json.loads(content)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ValueError("not a JSON object")
    return data


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_of(path: Path) -> str:
    """The digest of a file of any size."""
    whole = hashlib.sha256()
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            whole.update(part)
    return whole.hexdigest()
