"""A run directory, read.

    settings.json      version, key of the experiment, the settings
    environment.json   versions, hardware, commit, the data
    metrics.jsonl      one line per evaluation, appended
    checkpoints/       the last two; STEP.json seals STEP.pt and metrics.jsonl as it was then
    model.pt           the final weights
    snapshots/         weights on the way, if they were asked for; STEP.pt: recording.py
    gradients.*        gradients on the way, likewise
    summary.json       written last: present means complete; its digests seal the files above

Reading a run does not import torch (only `weights` does), nor any code that the run names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from grokfast.lab.own_code import closest
from grokfast.lab.runs.files import parse_json, read_json, sha256, sha256_of, to_json_bytes
from grokfast.lab.runs.metrics import Kind, Row, crossings, reaches, row_from_plain
from grokfast.lab.stats import HOLD, Crossing, held_crossing

if TYPE_CHECKING:
    import torch

    from grokfast.lab.settings import Settings
    from grokfast.lab.tasks.base import Measure

Status = Literal["complete", "diverged", "running", "incomplete"]
VERSION = 1  # of settings.json
LISTED = 8  # candidates of an ambiguous name
SETTINGS, ENVIRONMENT, METRICS = "settings.json", "environment.json", "metrics.jsonl"
MODEL, SUMMARY = "model.pt", "summary.json"
SNAPSHOTS, GRADIENTS, SAMPLED = "snapshots", "gradients.f32", "gradients.json"
KEPT = "runs.csv"  # a folder with this file holds tables, not run directories: archive.py
NUMBER = (int, float)
NEEDED: dict[str, tuple[type, ...]] = {  # what every reader relies on
    "task": (str,),
    "filter": (str, type(None)),
    "optimizer": (str,),
    "lr": NUMBER,
    "weight_decay": NUMBER,
    "seed": (int,),
    "steps": (int,),
    "until": (*NUMBER, type(None)),
    "extra_steps": (int,),
    "hold": (int,),
    "measure": (str,),
    "level": NUMBER,
}


class RunError(Exception):
    """A problem with a run directory, in one line for the user."""


class Run:
    """A run directory, read.

    Args:
        path: the directory.
        level: judge the run at another level than its own.
        end: judge the run as if it had ended at this step.

    Examples:
        >>> run = Run(Path("runs/not-there-yet"))
        >>> run.name, run.status, run.rows
        ('not-there-yet', 'incomplete', [])
    """

    def __init__(self, path: Path, *, level: float | None = None, end: int | None = None) -> None:
        self.path, self._level, self.end = path, level, end
        self.tables: dict[str, dict[str, Any]] = {}  # derived ones, of a run that is kept in tables
        self._table: tuple[dict[str, Any], Callable[[], list[Row]]] | None = None  # of a run that has no directory
        self._read: tuple[tuple[int, int], list[Row]] | None = None
        self._checked = set[str]()  # large files that fit their digests
        self._crossings: tuple[int, dict[Kind, Crossing]] | None = None

    @classmethod
    def from_table(
        cls,
        path: Path,
        *,
        settings: Settings,
        experiment: str,
        summary: dict[str, Any],
        rows: Callable[[], list[Row]],
        environment: dict[str, Any],
        tables: dict[str, dict[str, Any]],
    ) -> Run:
        """A complete run that is kept in tables, not in a directory; `path` says which tables, and its name."""
        run = cls(path)
        run.__dict__.update(settings=settings, experiment=experiment, environment=environment, tables=tables)
        run._table = summary, rows
        return run

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.path.name

    @property
    def done(self) -> bool:
        """Whether it is complete or diverged: it has a summary."""
        return self._table is not None or (self.path / SUMMARY).exists()

    @property
    def status(self) -> Status:
        """How it ended, or whether a process is training it now."""
        if self.done:
            return "diverged" if (self.summary or {})["diverged"] else "complete"
        return "running" if is_locked(self.path / "lock") else "incomplete"

    @cached_property
    def _kept(self) -> dict[str, Any]:
        """What settings.json holds."""
        path = self.path / SETTINGS
        try:
            kept = parse_json(self._sealed(SETTINGS))
            check_shape(kept)
        except ValueError as error:
            raise RunError(f"{path}: {error}") from error
        return kept

    @cached_property
    def settings(self) -> Settings:
        """All settings, as plain values."""
        return self._kept["settings"]

    @cached_property
    def experiment(self) -> str:
        """The key of the experiment that it repeats."""
        return self._kept["experiment"]

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.settings["task"]

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return self.settings["seed"]

    @cached_property
    def environment(self) -> dict[str, Any]:
        """Machine, versions and data, which may change the numbers; empty if it is missing."""
        path = self.path / ENVIRONMENT
        try:
            return parse_json(self._sealed(ENVIRONMENT)) if path.exists() else {}
        except ValueError as error:
            raise RunError(f"{path}: {error}") from error

    @property
    def summary(self) -> dict[str, Any] | None:
        """The results of a run that is done."""
        if self._table is not None:
            return self._table[0]
        return self._finished[0] if self.done else None

    @cached_property
    def _finished(self) -> tuple[dict[str, Any], dict[str, str]]:
        """The summary, and the digests that seal all files."""
        path = self.path / SUMMARY
        try:
            summary = read_json(path)
            digests = summary.pop("sha256")
            if digests[SUMMARY] != sha256(to_json_bytes(summary)):
                raise ValueError("it was changed after it was written")
            return summary, digests
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path} is damaged: {str(error) or type(error).__name__:.80}") from error

    def _sealed(self, name: str) -> bytes:
        """The content of a file; RunError if the run is done and the file has changed since."""
        content = (self.path / name).read_bytes()
        if self.done and self._finished[1].get(name) != sha256(content):
            raise RunError(f"{self.path / name} was changed after the run was complete")
        return content

    @property
    def rows(self) -> list[Row]:
        """The evaluations so far; a last line that a kill cut short does not count."""
        rows = self._table[1]() if self._table is not None else self._read_rows()
        return rows if self.end is None else [row for row in rows if row.step <= self.end]

    def _read_rows(self) -> list[Row]:
        path = self.path / METRICS
        if not path.exists():
            if self.done:
                raise RunError(f"{path} is missing")
            return []
        now = path.stat().st_size, path.stat().st_mtime_ns
        if self._read is None or self._read[0] != now:
            try:
                lines = self._sealed(METRICS).split(b"\n")[:-1]
                self._read = now, [row_from_plain(json.loads(line)) for line in lines]
            except (ValueError, TypeError, KeyError) as error:
                raise RunError(f"{path} is damaged: {error}") from error
        return self._read[1]

    def weights(self) -> dict[str, torch.Tensor]:
        """The final weights of a run that is done."""
        from grokfast.lab.runs.recording import parse_weights

        if not (self.path / MODEL).exists():
            raise RunError(f"{self.name} has no {MODEL}")
        return parse_weights(self._sealed(MODEL), self.path / MODEL)

    def check_large(self, kind: str = "") -> None:
        """Raise RunError if a large file of a run that is done was changed, added or lost since. Each is read once.

        `kind` is model, snapshots or gradients; by default all. Nothing is lost if all files of a kind were deleted.
        """
        if self._table is not None or not self.done:
            return
        now, sealed = large_files(self.path), self._finished[1]
        for name in sorted({*now, *(name for name in sealed if kind_of(name))} - self._checked):
            if kind not in ("", kind_of(name)):
                continue
            if name in now and sealed.get(name) != sha256_of(self.path / name):
                raise RunError(f"{self.path / name} was changed after the run was complete")
            if name not in now and kind_of(name) in map(kind_of, now):
                raise RunError(f"{self.path / name} is missing")
            self._checked.add(name)

    # How it is judged -------------------------------------------------------------------------------------------------

    @property
    def measure(self) -> Measure:
        """Whether the validation accuracy or the validation loss counts."""
        return self.settings["measure"]

    @property
    def level(self) -> float:
        """The target of this run: `until`, else that of its task."""
        if self._level is not None:
            return self._level
        until = self.settings["until"]
        return self.settings["level"] if until is None else until

    def judged_at(self, level: float) -> Run:
        """The same run, judged at another level."""
        return self._like(level, self.end)

    def up_to(self, end: int) -> Run:
        """The same run, as if it had ended at this step."""
        return self._like(self._level, end)

    def _like(self, level: float | None, end: int | None) -> Run:
        other = Run(self.path, level=level, end=end)
        other.__dict__.update({**self.__dict__, "_level": level, "end": end, "_crossings": None})
        return other

    def crossing(self, kind: Kind = "first") -> Crossing:
        """The crossing of the level by the run, up to its last evaluation."""
        rows = self.rows
        if self._crossings is None or self._crossings[0] != len(rows):
            hold = self.settings["hold"] or HOLD
            self._crossings = len(rows), crossings(rows, self.level, self.measure, hold)
        return self._crossings[1][kind]

    @property
    def stopped_at_level(self) -> bool:
        """Whether reaching `until` ended the run, so that little is known about later steps."""
        rows, until = self.rows, self.settings["until"]
        if until is None or not rows:
            return False
        reached = reaches(rows, until, self.measure)
        first = held_crossing([row.step for row in rows], reached, self.settings["hold"]).step
        return first is not None and rows[-1].step >= first + self.settings["extra_steps"]

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self.status})"


def check_shape(kept: dict[str, Any]) -> None:
    """Raise ValueError unless settings.json holds what readers rely on."""
    if kept.get("version") != VERSION:
        raise ValueError(f"its version must be {VERSION}, got {kept.get('version')}")
    settings: Any = kept.get("settings")
    if not isinstance(kept.get("experiment"), str) or not isinstance(settings, dict):
        raise ValueError("it must hold experiment and settings")
    for name, kinds in NEEDED.items():
        if name not in settings or not isinstance(settings[name], kinds) or isinstance(settings[name], bool):
            words = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
            raise ValueError(f"{name} must be {words}, got {settings.get(name)!r:.60}")  # type: ignore[reportUnknown]


def large_files(path: Path) -> list[str]:
    """The files in a run directory that only some readers need: weights and gradients."""
    snapshots = [f"{SNAPSHOTS}/{file.name}" for file in (path / SNAPSHOTS).glob("*.pt")]
    return [*snapshots, *(name for name in (MODEL, GRADIENTS, SAMPLED) if (path / name).exists())]


def kind_of(name: str) -> str:
    """The kind of a large file; empty for another file.

    >>> kind_of("snapshots/000000100.pt"), kind_of("gradients.f32"), kind_of("metrics.jsonl")
    ('snapshots', 'gradients', '')
    """
    kind = name.partition("/")[0].partition(".")[0]
    return kind if kind in ("model", "snapshots", "gradients") else ""


def is_locked(path: Path) -> bool:
    """Whether a process has a run open for writing."""
    if not path.exists():
        return False
    import filelock  # only a run that is not done has a lock

    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return True
    except OSError:  # a directory that cannot be written
        return False
    lock.release()
    return False


def load_runs(folder: str | Path = "runs") -> list[Run]:
    """All runs of a folder, oldest first; an empty list if there is no such folder yet. A folder of tables is read too.

    Examples:
        >>> for run in load_runs("not/there/yet"):  # usually "runs"
        ...     print(run.name, run.status, run.crossing().step)
    """
    if Path(folder).is_file():
        raise RunError(f"{folder} must be a directory of runs, got a file")
    if (Path(folder) / KEPT).exists():
        from grokfast.lab.runs.archive import read_tables

        return read_tables(Path(folder))
    found = [path.parent for path in Path(folder).glob(f"*/{SETTINGS}") if not path.parent.name.startswith(".")]
    return [Run(path) for path in sorted(found, key=lambda path: (path / SETTINGS).stat().st_mtime_ns)]


def find_run(name: str, folder: str | Path = "runs") -> Run:
    """The run of that name or path, or the only one whose name starts with it or whose hash does."""
    if not name:
        raise RunError("the name of a run must not be empty, got ''")
    for path in (Path(folder) / name, Path(name)):
        if (path / SETTINGS).exists():
            return Run(path)
    runs = load_runs(folder)
    matches = [run for run in runs if run.name.startswith(name) or run.name.rpartition("-")[2].startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(run.name for run in matches[:LISTED]) + (", ..." if len(matches) > LISTED else "")
        raise RunError(f"{len(matches)} runs start with {name!r} in {folder}: {listed}")
    raise RunError(f"there is no run {name!r} in {folder}{closest(name, [run.name for run in runs])}")


def readable_runs(runs: Iterable[Run], *, large: bool = False) -> tuple[list[Run], list[str]]:
    """The runs whose settings and evaluations can be read, and a line about each other one.

    With `large` also those are left out whose weights or recorded gradients were changed.
    """
    kept: list[Run] = []
    lost: list[str] = []
    for run in runs:
        try:
            _ = run.settings, run.environment, run.status, run.crossing()
            if run.done and not run.rows:
                raise RunError(f"{run.path / METRICS} is empty")
            if large:
                run.check_large()
            kept.append(run)
        except (RunError, ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            lost.append(f"{run.name} is left out: {error or type(error).__name__}")
    return kept, lost
