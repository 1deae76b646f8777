"""Find data sets: in a directory of the user, in $GROKFAST_DATA, or in a cache that downloads fill.

Each data set has a folder of its own name. Readers check every file and name a damaged one in the error; a download
counts only if its checksum is right.
"""

from __future__ import annotations

import gzip
import hashlib
import logging
import os
import tarfile
import zlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

VARIABLE = "GROKFAST_DATA"
DataDir = str | Path | None  # as the user gave it


class DataError(ValueError):
    """A data file is missing or damaged; the message is one line that names it."""


def data_directory(given: DataDir) -> tuple[Path, bool]:
    """The directory of data sets, and whether downloads may be written to it: only to the cache."""
    named = given if given is not None else os.environ.get(VARIABLE)
    if named:
        if not Path(named).is_dir():
            raise DataError(f"the data directory must exist, got {named}")
        return Path(named), False
    import pooch

    return Path(pooch.os_cache("grokfast")), True


def locate(
    data_dir: DataDir,
    folders: Sequence[str],
    patterns: Sequence[str],
    *,
    wanted: str,
    source: tuple[str, str] | None = None,
    hint: str = "",
) -> Path:
    """The first file that fits a pattern, in order of patterns, then of folders; downloaded if there is none.

    Args:
        folders: names below the data directory, in order of preference; the first is where a download goes.
        patterns: of file names, in order of preference.
        wanted: what the file is usually called, for messages and downloads.
        source: where the file can be downloaded, and its checksum as `md5:...` or `sha256:...`.
        hint: what else a user could do, for the message.
    """
    root, ours = data_directory(data_dir)
    for folder in folders:
        for pattern in patterns:
            found = list_files(root / folder, pattern)
            if len(found) > 1:
                names = ", ".join(path.name for path in found)
                raise DataError(f"one file must fit {pattern} in {root / folder}, got {names}")
            if found:
                return found[0]
    target = root / folders[0] / wanted
    if ours and source is not None:
        return download(target, source, hint)
    raise DataError(f"missing data: put {wanted} into {target.parent}{hint and f', or {hint}'}")


def list_files(folder: Path, pattern: str) -> list[Path]:
    return sorted(path for path in folder.glob(pattern) if path.is_file())


def download(target: Path, source: tuple[str, str], hint: str = "") -> Path:
    """Fetch a file, with progress; it appears under its name only when its checksum is right."""
    import pooch

    address, checksum = source
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        fetch: Any = pooch.HTTPDownloader(progressbar=True)
        pooch.retrieve(address, checksum, fname=target.name, path=target.parent, downloader=fetch)
    except (OSError, ValueError) as error:  # no network; wrong checksum
        reason = "the checksum is wrong" if "hash" in str(error) else " ".join(str(error).split())[:120]
        otherwise = f"put it into {target.parent} by hand{hint and f', or {hint}'}"
        raise DataError(f"cannot download {target.name} ({reason}): {otherwise}") from error
    return target


def read_bytes(path: Path) -> bytes:
    """The content of a file, unpacked if it is a gzip file, whatever its name is."""
    content = path.read_bytes()
    try:
        return gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged or cut short: {error}") from error


def read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} must be UTF-8 text: {error.reason} at byte {error.start}") from error


def read_archive(path: Path, prefix: Sequence[str]) -> dict[str, bytes]:
    """The plain files below these folders of a tar archive, by name, read into memory: nothing is written anywhere."""
    try:
        with tarfile.open(path) as archive:
            members = (member for member in archive if member.isfile() and member.name.startswith(tuple(prefix)))
            found: dict[str, bytes] = {}
            for member in members:
                if PurePosixPath(member.name).is_absolute() or ".." in PurePosixPath(member.name).parts:
                    raise DataError(f"{path} must hold plain paths, got {member.name!r}")
                content = archive.extractfile(member)
                found[member.name] = content.read() if content is not None else b""
            return found
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise DataError(f"{path} is damaged or cut short: {error}") from error


def digest(*parts: bytes) -> str:
    """A short name for data, kept in checkpoints so that a run cannot go on with other data."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(hashlib.sha256(part).digest())
    return whole.hexdigest()[:16]


def check_same_data(saved: str, now: str) -> None:
    if saved != now:
        raise DataError(f"this run was begun with other data: its checksum must be {saved}, got {now}")
