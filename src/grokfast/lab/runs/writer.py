"""A run directory, written so that a process killed at any moment loses nothing that a resume does not bring back.

Every file but metrics.jsonl appears whole or not at all. A resume cuts metrics.jsonl back to the checkpoint it starts
from.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import filelock
import torch

from grokfast.lab.config import RunConfig, fingerprint, flatten, title, to_json
from grokfast.lab.own_code import is_own_code
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.files import new_directory, read_json, write_atomically, write_json
from grokfast.lab.runs.metrics import Row, row_to_json

GLANCE = 0.2  # seconds: to see whether a run is being written takes its lock for a moment


def run_path(config: RunConfig, directory: str | Path) -> Path:
    """Where a configuration's run lives: one directory per distinct configuration."""
    path = Path(directory) / f"{title(config)}-{fingerprint(config)}"
    return path if path.exists() else find_old_path(config, Path(directory)) or path


def find_old_path(config: RunConfig, directory: Path) -> Path | None:
    """The run of the same configuration under the name that version 0.1 gave it."""
    if is_own_code(config.task_name):  # it knew none, and a path is no pattern
        return None
    for path in directory.glob(f"{config.task_name}-*-s{config.loop.seed}-????????/config.json"):
        with contextlib.suppress(RunError, OSError, ValueError):
            if "version" not in read_json(path) and fingerprint(Run(path.parent).config) == fingerprint(config):
                return path.parent
    return None


def create_run(config: RunConfig, directory: str | Path, environment: dict[str, Any]) -> Run:
    """Make the directory of a new run; it appears whole or not at all."""
    path = run_path(config, directory)
    if path.exists():
        verb = "show" if Run(path).status == "complete" else "resume"
        raise RunError(f"{path} exists already: grokfast {verb} {path.name}")
    try:
        with new_directory(path) as draft:
            write_json(draft / "config.json", to_json(config))
            write_json(draft / "environment.json", environment)
            (draft / "checkpoints").mkdir()
    except OSError as error:
        if path.exists():
            raise RunError(f"{path} was begun by another process at the same moment") from error
        raise
    return Run(path)


def check_unedited(run: Run) -> None:
    """Raise RunError where config.json holds other settings than the run was begun with: its name says which."""
    recorded = re.fullmatch(r".*-([0-9a-f]{8})", run.path.resolve().name)
    if recorded is None or "version" not in read_json(run.path / "config.json"):  # renamed, or begun with 0.1
        return
    if fingerprint(run.config) != recorded[1]:
        changed = edited_settings(run)
        what = f"{changed} differ from" if changed else "its settings are not"
        raise RunError(f"{run.path / 'config.json'} was edited: {what} those the run was begun with")


def edited_settings(run: Run) -> str:
    """What differs from the settings beside the newest checkpoint, as `optim.lr = 0.1 (was 0.001)`."""
    for path in sorted(run.path.glob("checkpoints/*.json"), reverse=True):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            before, now = flatten(read_json(path)["config"]), flatten(run.settings)
            names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
            return ", ".join(f"{name} = {now.get(name)} (was {before.get(name)})" for name in names)
    return ""


@contextlib.contextmanager
def open_for_writing(run: Run, *, patience: float = 0.0) -> Generator[Writer]:
    """The only writer of a run; RunError while another process has it, after `patience` seconds."""
    lock = filelock.FileLock(run.path / "lock")
    try:
        lock.acquire(timeout=max(patience, GLANCE))
    except filelock.Timeout:
        raise RunError(f"{run.path} is being written by another process") from None
    try:
        with (run.path / "metrics.jsonl").open("ab") as metrics:
            yield Writer(run, metrics)
    finally:
        lock.release()


def to_bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


class Writer:
    """Appends evaluations and checkpoints to a run."""

    def __init__(self, run: Run, metrics: io.BufferedWriter) -> None:
        self.run, self._metrics = run, metrics
        self._folder = run.path / "checkpoints"
        self._folder.mkdir(exist_ok=True)
        self._written = hashlib.sha256()  # of all lines in metrics.jsonl

    def append(self, row: Row) -> None:
        line = row_to_json(row)
        self._metrics.write(line)
        self._metrics.flush()
        self._written.update(line)

    def save_checkpoint(self, step: int, state: dict[str, Any]) -> None:
        """Write a checkpoint, then delete all but the last two."""
        os.fsync(self._metrics.fileno())
        data = to_bytes(state)
        write_atomically(self._folder / f"{step:09d}.pt", data)
        seal = {
            "step": step,
            "sha256": hashlib.sha256(data).hexdigest(),
            "metrics_bytes": self._metrics.tell(),
            "metrics_sha256": self._written.hexdigest(),
            "config": self.run.settings,
        }
        write_json(self._folder / f"{step:09d}.json", seal)
        for old in sorted(self._folder.glob("*.json"))[:-2]:
            old.unlink()
            old.with_suffix(".pt").unlink(missing_ok=True)

    def load_checkpoint(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """The newest checkpoint that is whole, with metrics.jsonl cut back to it; None to begin anew.

        One is whole if its hash is right and that of the evaluations before it; those of version 0.1 have none.
        """
        for seal_path in sorted(self._folder.glob("*.json"), reverse=True):
            try:
                seal = read_json(seal_path)
                data = seal_path.with_suffix(".pt").read_bytes()
                if hashlib.sha256(data).hexdigest() != seal["sha256"]:
                    raise ValueError("its hash differs")
                written = self._read_metrics(seal)
            except (OSError, ValueError, KeyError) as error:
                warn(f"checkpoint {seal_path.stem} is damaged ({error}), going back to the one before it")
                continue
            self._metrics.truncate(seal["metrics_bytes"])
            self._written = hashlib.sha256(written)
            return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
        self._metrics.truncate(0)
        return None

    def _read_metrics(self, seal: dict[str, Any]) -> bytes:
        """What metrics.jsonl held when a checkpoint was written; ValueError where that was changed since."""
        lines = (self.run.path / "metrics.jsonl").read_bytes()
        if len(lines) < seal["metrics_bytes"]:
            raise ValueError("metrics.jsonl is shorter than at that time")
        lines = lines[: seal["metrics_bytes"]]
        if hashlib.sha256(lines).hexdigest() != seal.get("metrics_sha256", hashlib.sha256(lines).hexdigest()):
            raise ValueError("metrics.jsonl was changed since")
        return lines

    def resume(self, warn: Callable[[str], None]) -> tuple[dict[str, Any] | None, list[Row]]:
        """The checkpoint to continue from, if there is one, and the evaluations before it."""
        return self.load_checkpoint(warn), self.run.rows

    def finish(self, weights: dict[str, torch.Tensor], summary: dict[str, Any]) -> None:
        """Write the final weights and, last of all, the summary."""
        os.fsync(self._metrics.fileno())
        write_atomically(self.run.path / "model.pt", to_bytes(weights))
        write_json(self.run.path / "summary.json", summary)
        shutil.rmtree(self._folder, ignore_errors=True)
