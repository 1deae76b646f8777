"""A run directory: written so that a process killed at any moment loses nothing that a resume does not bring back.

    config.json        the resolved configuration
    environment.json   versions, hardware, commit
    metrics.jsonl      one line per evaluation, appended
    checkpoints/       the last two; STEP.json holds the hash of STEP.pt and the length of metrics.jsonl at that moment
    model.pt           the final weights
    summary.json       written last: present means complete

Every file but metrics.jsonl appears whole or not at all (written beside, synced, renamed). A resume cuts metrics.jsonl
back to the checkpoint it starts from.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import filelock
import torch

from grokfast.lab.config import RunConfig, fingerprint, from_json, title, to_json
from grokfast.lab.machine import describe_machine
from grokfast.lab.metrics import Row

Status = Literal["complete", "incomplete"]


class RunError(Exception):
    """Something about a run directory that a person must know, in one line."""


class Run:
    """A run directory, read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: tuple[tuple[int, int], list[Row]] | None = None

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def status(self) -> Status:
        return "complete" if (self.path / "summary.json").exists() else "incomplete"

    @cached_property
    def config(self) -> RunConfig:
        try:
            return from_json(read_json(self.path / "config.json"))
        except ValueError as error:
            raise RunError(f"{self.path / 'config.json'}: {error}") from error

    @property
    def environment(self) -> dict[str, Any]:
        """What the numbers may depend on besides the configuration; empty where it got lost."""
        path = self.path / "environment.json"
        return read_json(path) if path.exists() else {}

    @property
    def rows(self) -> list[Row]:
        """The evaluations so far; a last line that a kill cut short does not count."""
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        now = path.stat().st_size, path.stat().st_mtime_ns
        if self._known is None or self._known[0] != now:
            lines = path.read_bytes().split(b"\n")[:-1]
            try:
                self._known = now, [row_from_json(line) for line in lines]
            except (ValueError, TypeError) as error:
                raise RunError(f"{path} is damaged: {error}") from error
        return list(self._known[1])

    @property
    def summary(self) -> dict[str, Any] | None:
        """The results of a complete run."""
        path = self.path / "summary.json"
        try:
            return read_json(path) if self.status == "complete" else None
        except ValueError as error:
            raise RunError(f"{path} is damaged: {error}") from error

    def weights(self) -> dict[str, torch.Tensor]:
        """The final weights of a complete run."""
        return torch.load(self.path / "model.pt", weights_only=True, map_location="cpu")

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self.status})"


def load_runs(directory: str | Path = "runs") -> list[Run]:
    """All runs below a directory, oldest first; none where there is no such directory yet."""
    if Path(directory).is_file():
        raise RunError(f"{directory} must be a directory of runs, got a file")
    found = [path.parent for path in Path(directory).glob("*/config.json") if not path.parent.name.startswith(".")]
    return [Run(path) for path in sorted(found, key=lambda path: (path / "config.json").stat().st_mtime_ns)]


def find_run(name: str, directory: str | Path = "runs") -> Run:
    """The run of that name or path, or the only one whose name starts with it."""
    for path in (Path(directory) / name, Path(name)):
        if (path / "config.json").exists():
            return Run(path)
    matches = [run for run in load_runs(directory) if run.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    what = f"{len(matches)} runs start with" if matches else "there is no run"
    raise RunError(f"{what} {name!r} in {directory}")


def run_path(config: RunConfig, directory: str | Path) -> Path:
    """Where a configuration's run lives: one directory per distinct configuration."""
    return Path(directory) / f"{title(config)}-{fingerprint(config)}"


def create_run(
    config: RunConfig, directory: str | Path = "runs", command: list[str] | None = None, data: str | None = None
) -> Run:
    """Make the directory of a new run; it appears whole or not at all. `data` is the checksum of what it learns."""
    path = run_path(config, directory)
    if path.exists():
        raise RunError(
            f"{path} exists already: grokfast {'show' if Run(path).status == 'complete' else 'resume'} {path.name}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=".new-", dir=path.parent))
    try:
        draft.chmod(0o755)
        write_json(draft / "config.json", to_json(config))
        write_json(draft / "environment.json", {**describe_machine(command), "data": data})
        (draft / "checkpoints").mkdir()
        draft.rename(path)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return Run(path)


@contextlib.contextmanager
def open_for_writing(run: Run) -> Generator[Writer]:
    """The only writer of a run; RunError while another process has it."""
    lock = filelock.FileLock(run.path / "lock")
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        raise RunError(f"{run.path} is being written by another process") from None
    try:
        with (run.path / "metrics.jsonl").open("ab") as metrics:
            yield Writer(run, metrics)
    finally:
        lock.release()


class Writer:
    """Appends evaluations and checkpoints to a run."""

    def __init__(self, run: Run, metrics: io.BufferedWriter) -> None:
        self.run, self._metrics = run, metrics
        self._folder = run.path / "checkpoints"

    def append(self, row: Row) -> None:
        self._metrics.write(row_to_json(row))
        self._metrics.flush()

    def save_checkpoint(self, step: int, state: dict[str, Any]) -> None:
        """Write a checkpoint, then forget all but it and the one before."""
        os.fsync(self._metrics.fileno())
        buffer = io.BytesIO()
        torch.save(state, buffer)
        data = buffer.getvalue()
        write_atomically(self._folder / f"{step:09d}.pt", data)
        seal = {"step": step, "sha256": hashlib.sha256(data).hexdigest(), "metrics_bytes": self._metrics.tell()}
        write_json(self._folder / f"{step:09d}.json", seal)
        for old in sorted(self._folder.glob("*.json"))[:-2]:
            old.unlink()
            old.with_suffix(".pt").unlink(missing_ok=True)

    def load_checkpoint(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """The newest checkpoint that is whole, with metrics.jsonl cut back to it; None to begin anew."""
        for seal_path in sorted(self._folder.glob("*.json"), reverse=True):
            try:
                seal = read_json(seal_path)
                data = seal_path.with_suffix(".pt").read_bytes()
                if hashlib.sha256(data).hexdigest() != seal["sha256"]:
                    raise ValueError("its hash differs")
                if (self.run.path / "metrics.jsonl").stat().st_size < seal["metrics_bytes"]:
                    raise ValueError("metrics.jsonl is shorter than at that time")
            except (OSError, ValueError, KeyError) as error:
                warn(f"checkpoint {seal_path.stem} is damaged ({error}), using the one before it")
                continue
            self._metrics.truncate(seal["metrics_bytes"])
            return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
        self._metrics.truncate(0)
        return None

    def resume(self, warn: Callable[[str], None]) -> tuple[dict[str, Any] | None, list[Row]]:
        """The checkpoint to go on from, if there is one, and the evaluations before it."""
        return self.load_checkpoint(warn), self.run.rows

    def finish(self, weights: dict[str, torch.Tensor], summary: dict[str, Any]) -> None:
        """Write the final weights and, last of all, the summary."""
        os.fsync(self._metrics.fileno())
        buffer = io.BytesIO()
        torch.save(weights, buffer)
        write_atomically(self.run.path / "model.pt", buffer.getvalue())
        write_json(self.run.path / "summary.json", summary)
        shutil.rmtree(self._folder, ignore_errors=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is never seen half: beside it, synced, then renamed over it."""
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


def row_to_json(row: Row) -> bytes:
    """One line; JSON knows no NaN and no inf, hence null."""
    plain = {k: finite(v) for k, v in row._asdict().items()}
    return (json.dumps(plain, allow_nan=False) + "\n").encode()


def finite(value: Any) -> Any:
    """JSON knows no infinities."""
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def row_from_json(line: bytes) -> Row:
    row = Row(**json.loads(line))
    losses = {k: math.nan for k in ("train_loss", "val_loss", "weight_norm", "grad_norm") if getattr(row, k) is None}
    return row._replace(**losses)
