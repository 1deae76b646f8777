"""A run directory, written so that a resume recovers everything, whenever the process was killed.

Every file but metrics.jsonl and gradients.f32 appears whole or not at all. A resume cuts these two back to its
checkpoint. A checkpoint seals what was written so far: where that has changed since, an earlier one is taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import filelock
import torch

from grokfast.lab.config import RunConfig, flatten, to_json
from grokfast.lab.own_code import is_own_code
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.files import new_directory, read_json, write_atomically, write_json
from grokfast.lab.runs.metrics import Row, row_to_json
from grokfast.lab.runs.names import fingerprint, title

GRADIENTS, SNAPSHOTS = "gradients.f32", "snapshots"  # what recording.py writes
CHUNK = 2**20  # bytes of a file in memory
GLANCE = 0.2  # seconds: to see whether a run is being written takes its lock for a moment


def run_path(config: RunConfig, directory: str | Path) -> Path:
    """The directory of a configuration's run: one per distinct configuration."""
    folder = Path(directory)
    # Without the task: before names had settings of the task in them.
    paths = [folder / f"{title(config, with_task=named)}-{fingerprint(config)}" for named in (True, False)]
    return next((path for path in paths if path.exists()), find_old_path(config, folder) or paths[0])


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


def recorded_files(folder: Path, step: int) -> Iterator[str]:
    """The recordings of a run up to a step; later snapshots are from before a kill and will be taken again."""
    if (folder / GRADIENTS).exists():
        yield GRADIENTS
    for path in sorted((folder / SNAPSHOTS).glob("*.pt")):
        if int(path.stem) <= step:
            yield f"{SNAPSHOTS}/{path.name}"


def to_bytes(state: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()


class Sum(NamedTuple):
    """How much of a file is sealed, and the hash of it."""

    size: int
    hash: Any  # of hashlib, which can be continued

    def extend(self, path: Path, end: int | None = None) -> Sum:
        """With what the file holds beyond, up to its end or to a given one."""
        hash, size = self.hash.copy(), self.size
        with path.open("rb") as file:
            file.seek(size)
            while chunk := file.read(CHUNK if end is None else min(CHUNK, end - size)):
                hash.update(chunk)
                size += len(chunk)
        return Sum(size, hash)


class Writer:
    """Appends evaluations and checkpoints to a run."""

    def __init__(self, run: Run, metrics: io.BufferedWriter) -> None:
        self.run, self._metrics = run, metrics
        self._folder = run.path / "checkpoints"
        self._folder.mkdir(exist_ok=True)
        self._written = hashlib.sha256()  # of all lines in metrics.jsonl
        self._recorded: dict[str, Sum] = {}

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
            "recorded": self._seal_recorded(step),
            "config": self.run.settings,
        }
        write_json(self._folder / f"{step:09d}.json", seal)
        for old in sorted(self._folder.glob("*.json"))[:-2]:
            old.unlink()
            old.with_suffix(".pt").unlink(missing_ok=True)

    def _seal_recorded(self, step: int) -> dict[str, tuple[int, str]]:
        """Sizes and hashes of all recordings, of which only what is new is read."""
        for name in recorded_files(self.run.path, step):
            self._recorded[name] = self._recorded.get(name, Sum(0, hashlib.sha256())).extend(self.run.path / name)
        return {name: (size, hash.hexdigest()) for name, (size, hash) in self._recorded.items()}

    def load_checkpoint(self, warn: Callable[[str], None]) -> dict[str, Any] | None:
        """The newest checkpoint that is whole, with metrics.jsonl cut back to it; None to begin again.

        One is whole if its hash is right, and those of the evaluations and recordings before it; old ones have none.
        """
        for seal_path in sorted(self._folder.glob("*.json"), reverse=True):
            try:
                seal = read_json(seal_path)
                data = seal_path.with_suffix(".pt").read_bytes()
                if hashlib.sha256(data).hexdigest() != seal["sha256"]:
                    raise ValueError("its hash differs")
                written, recorded = self._read_metrics(seal), self._read_recorded(seal)
            except (OSError, ValueError, KeyError) as error:
                warn(f"checkpoint {seal_path.stem} is damaged ({error}), going back to the one before it")
                continue
            self._metrics.truncate(seal["metrics_bytes"])
            self._written, self._recorded = hashlib.sha256(written), recorded
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

    def _read_recorded(self, seal: dict[str, Any]) -> dict[str, Sum]:
        """What the recordings held when a checkpoint was written; ValueError where that was changed since."""
        found: dict[str, Sum] = {}
        for name, (size, digest) in seal.get("recorded", {}).items():
            found[name] = Sum(0, hashlib.sha256()).extend(self.run.path / name, size)
            if found[name].hash.hexdigest() != digest:
                raise ValueError(f"{name} was changed since")
        return found

    def resume(self, warn: Callable[[str], None]) -> tuple[dict[str, Any] | None, list[Row]]:
        """The checkpoint to continue from, if there is one, and the evaluations before it."""
        return self.load_checkpoint(warn), self.run.rows

    def finish(self, weights: dict[str, torch.Tensor], summary: dict[str, Any]) -> None:
        """Write the final weights and, last of all, the summary."""
        os.fsync(self._metrics.fileno())
        write_atomically(self.run.path / "model.pt", to_bytes(weights))
        write_json(self.run.path / "summary.json", summary)
        shutil.rmtree(self._folder, ignore_errors=True)
