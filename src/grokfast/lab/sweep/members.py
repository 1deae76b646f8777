"""Who takes part in a sweep: each process holds a file lock, which the system releases however the process ends."""

from __future__ import annotations

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import filelock

FOLDER = "members"


@contextmanager
def join(folder: Path) -> Generator[str]:
    """Take part; gives the name under which others can see whether this process is alive."""
    name = f"{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
    path = folder / FOLDER / name
    path.parent.mkdir(exist_ok=True)
    try:
        with filelock.FileLock(path):
            yield name
    finally:
        path.unlink(missing_ok=True)


def is_alive(folder: Path, name: str | None) -> bool:
    """Whether the process that joined under this name still takes part."""
    path = folder / FOLDER / (name or "")
    if not path.is_file():
        return False
    try:
        with filelock.FileLock(path, blocking=False):
            return False
    except filelock.Timeout:
        return True


def remove_dead_members(folder: Path) -> None:
    for path in (folder / FOLDER).glob("*"):
        if not is_alive(folder, path.name):
            path.unlink(missing_ok=True)
