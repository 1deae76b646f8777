"""Write a run directory so that a run resumes exactly, at whatever moment its process is killed.

Every file but metrics.jsonl and gradients.f32 appears whole or not at all. A resume cuts these two back to its
checkpoint. A checkpoint seals the evaluations before it: if they were changed since, an earlier one is taken.
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

from grokfast.lab.runs.directory import (
    ENVIRONMENT,
    METRICS,
    MODEL,
    SETTINGS,
    SUMMARY,
    VERSION,
    Run,
    RunError,
    large_files,
)
from grokfast.lab.runs.files import (
    naming,
    new_directory,
    read_json,
    sha256,
    sha256_of,
    to_json_bytes,
    write_atomically,
    write_json,
)
from grokfast.lab.runs.metrics import Row, row_to_json
from grokfast.lab.settings import Settings, experiment_of, name_of, run_id

GLANCE = 0.2  # seconds: to see whether a run is being written takes its lock for a moment


def create_run(settings: Settings, folder: str | Path, environment: dict[str, Any]) -> Run:
    """Make the directory of a new run; it appears whole or not at all."""
    path = Path(folder) / name_of(settings)
    if path.exists():
        raise RunError(f"{path} exists already")
    try:
        with new_directory(path) as draft:
            kept = {"version": VERSION, "experiment": experiment_of(settings), "settings": settings}
            write_json(draft / SETTINGS, kept)
            write_json(draft / ENVIRONMENT, environment)
            (draft / "checkpoints").mkdir()
    except OSError as error:
        if path.exists():
            raise RunError(f"{path} was begun by another process at the same moment") from error
        raise
    return Run(path)


def check_unedited(run: Run) -> None:
    """Raise RunError if settings.json holds other settings than the run was begun with: its name says which."""
    recorded = re.fullmatch(r".*-([0-9a-f]{8})", run.path.resolve().name)
    if recorded is not None and run_id(run.settings) != recorded[1]:  # else it was renamed
        changed = edited_settings(run)
        what = f"{changed} differ from" if changed else "its settings are not"
        raise RunError(f"{run.path / SETTINGS} was edited: {what} those the run was begun with")


def edited_settings(run: Run) -> str:
    """The differences from the settings in the newest checkpoint, as `lr = 0.1 (was 0.001)`."""
    for path in sorted(run.path.glob("checkpoints/*.json"), reverse=True):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            before, now = read_json(path)["settings"], run.settings
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
        with (run.path / METRICS).open("ab") as metrics:
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
        with naming(self.run.path / METRICS):
            self._metrics.write(line)
            self._metrics.flush()
        self._written.update(line)

    def save_checkpoint(self, step: int, state: dict[str, Any]) -> None:
        """Write a checkpoint, then delete all but the last two."""
        with naming(self.run.path / METRICS):
            os.fsync(self._metrics.fileno())
        data = to_bytes(state)
        write_atomically(self._folder / f"{step:09d}.pt", data)
        seal = {
            "step": step,
            "sha256": sha256(data),
            "metrics_bytes": self._metrics.tell(),
            "metrics_sha256": self._written.hexdigest(),
            "settings": self.run.settings,
        }
        write_json(self._folder / f"{step:09d}.json", seal)
        for old in sorted(self._folder.glob("*.json"))[:-2]:
            old.unlink()
            old.with_suffix(".pt").unlink(missing_ok=True)

    def load_checkpoint(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """The newest checkpoint that is whole, with metrics.jsonl cut back to it; None to begin again.

        A checkpoint is whole if its hash is right, and that of the evaluations before it.
        """
        for seal_path in sorted(self._folder.glob("*.json"), reverse=True):
            try:
                seal = read_json(seal_path)
                data = seal_path.with_suffix(".pt").read_bytes()
                if sha256(data) != seal["sha256"]:
                    raise ValueError("its hash differs")
                written = self._read_metrics(seal)
            except (OSError, ValueError, KeyError, TypeError) as error:
                warn(f"checkpoint {seal_path.stem} is damaged ({error}), going back to the one before it")
                continue
            self._metrics.truncate(len(written))
            self._written = hashlib.sha256(written)
            return torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
        self._metrics.truncate(0)
        return None

    def _read_metrics(self, seal: dict[str, Any]) -> bytes:
        """What metrics.jsonl held when a checkpoint was written; ValueError if that was changed since."""
        lines = (self.run.path / METRICS).read_bytes()
        if len(lines) < seal["metrics_bytes"]:
            raise ValueError("metrics.jsonl is shorter than at that time")
        lines = lines[: seal["metrics_bytes"]]
        if sha256(lines) != seal["metrics_sha256"]:
            raise ValueError("metrics.jsonl was changed since")
        return lines

    def finish(self, weights: dict[str, torch.Tensor], summary: dict[str, Any]) -> None:
        """Write the final weights and, last of all, the summary, which seals all files by their digests."""
        with naming(self.run.path / METRICS):
            os.fsync(self._metrics.fileno())
        write_atomically(self.run.path / MODEL, to_bytes(weights))
        digests = {
            **{name: sha256_of(self.run.path / name) for name in (SETTINGS, ENVIRONMENT)},
            METRICS: self._written.hexdigest(),
            **{name: sha256_of(self.run.path / name) for name in sorted(large_files(self.run.path))},
            SUMMARY: sha256(to_json_bytes(summary)),  # without these digests
        }
        write_json(self.run.path / SUMMARY, {**summary, "sha256": digests})
        shutil.rmtree(self._folder, ignore_errors=True)
