"""A run directory, read.

    config.json        the resolved configuration
    environment.json   versions, hardware, commit
    metrics.jsonl      one line per evaluation, appended; metrics.xz in an archive
    checkpoints/       the last two; STEP.json seals STEP.pt and metrics.jsonl as it was then by their hashes
    model.pt           the final weights
    summary.json       written last: present means complete

Looking at a run needs no torch and imports no code that the run names; only `config` and `weights` do.
"""

from __future__ import annotations

import json
import lzma
import math
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from grokfast.lab.own_code import closest
from grokfast.lab.runs.files import read_json
from grokfast.lab.runs.metrics import Crossing, Kind, Row, crossings, row_from_plain, unpack_rows
from grokfast.lab.runs.upgrade import upgrade

if TYPE_CHECKING:
    import torch

    from grokfast.lab.config import RunConfig
    from grokfast.lab.tasks.base import Measure

Status = Literal["complete", "incomplete"]
LISTED = 8  # candidates of an ambiguous name
METRICS, PACKED = "metrics.jsonl", "metrics.xz"


class RunError(Exception):
    """A problem with a run directory that a person must know about, in one line."""


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
        self._known: tuple[tuple[int, int], list[Row]] | None = None
        self._crossings: tuple[list[Row], dict[Kind, Crossing]] | None = None

    @property
    def name(self) -> str:
        """The name of the directory."""
        return self.path.name

    @property
    def status(self) -> Status:
        """Complete once it has a summary."""
        return "complete" if (self.path / "summary.json").exists() else "incomplete"

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration as plain data, in today's form."""
        try:
            return upgrade(read_json(self.path / "config.json"), self.environment)
        except ValueError as error:
            raise RunError(f"{self.path / 'config.json'}: {error}") from error

    @cached_property
    def config(self) -> RunConfig:
        """The configuration as it was trained; its task and filter must be known here."""
        from grokfast.lab.config import from_json

        try:
            return from_json(self.settings)
        except ValueError as error:
            raise RunError(f"{self.path / 'config.json'}: {error}") from error

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.settings["task"]["name"]

    @property
    def filter(self) -> str | None:
        """The name of its filter."""
        return None if self.settings["filter"] is None else self.settings["filter"]["name"]

    @property
    def optimizer(self) -> str:
        """The name of its optimizer."""
        return self.settings["optim"]["optimizer"]

    @property
    def loop(self) -> dict[str, Any]:
        """Seed, length, evaluation grid and recordings."""
        return self.settings["loop"]

    @property
    def weight_decay(self) -> float:
        """The weight decay of its optimizer."""
        return self.settings["optim"]["weight_decay"]

    @property
    def environment(self) -> dict[str, Any]:
        """What the numbers may depend on besides the configuration; empty where it is missing."""
        path = self.path / "environment.json"
        return read_json(path) if path.exists() else {}

    @property
    def rows(self) -> list[Row]:
        """The evaluations so far; a last line that a kill cut short does not count."""
        path = next((path for name in (METRICS, PACKED) if (path := self.path / name).exists()), None)
        if path is None:
            return []
        now = path.stat().st_size, path.stat().st_mtime_ns
        if self._known is None or self._known[0] != now:
            try:
                self._known = now, read_rows(path)
            except (ValueError, TypeError, KeyError, lzma.LZMAError) as error:
                raise RunError(f"{path} is damaged: {error}") from error
        return [row for row in self._known[1] if self.end is None or row.step <= self.end]

    @property
    def diverged(self) -> bool:
        """Whether its loss is not finite any more."""
        rows = self.rows
        return bool(rows) and not math.isfinite(rows[-1].train_loss)

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
        from grokfast.lab.runs.recording import load_weights

        return load_weights(self.path / "model.pt")

    # How it is judged -------------------------------------------------------------------------------------------------

    @property
    def measure(self) -> Measure:
        """Whether the validation accuracy or the validation loss counts."""
        return self._judged["measure"]

    @property
    def level(self) -> float:
        """The level this run is judged at: where it stops, else where its task counts as generalised."""
        if self._level is not None:
            return self._level
        until = self.loop["until"]
        return self._judged["level"] if until is None else until

    @cached_property
    def _judged(self) -> dict[str, Any]:
        if "judged" in self.settings:
            return self.settings["judged"]
        task = self.config.task
        return {"measure": task.measure, "level": task.defaults().level}

    @property
    def judged_by_task(self) -> float:
        """Where its task counts as generalised, wherever this run stopped."""
        return self._judged["level"]

    def judged_at(self, level: float) -> Run:
        """The same run, judged at another level."""
        return self._like(level, self.end)

    def up_to(self, end: int) -> Run:
        """The same run, as if it had ended at this step."""
        return self._like(self._level, end)

    def _like(self, level: float | None, end: int | None) -> Run:
        other = Run(self.path, level=level, end=end)
        other._known = self._known
        return other

    def crossing(self, kind: Kind = "first") -> Crossing:
        """Where the run crosses its level, so far as it has come."""
        rows = self.rows
        if self._crossings is None or len(self._crossings[0]) != len(rows):
            self._crossings = rows, crossings(rows, self.level, self.measure)
        return self._crossings[1][kind]

    @property
    def stopped_at_level(self) -> bool:
        """Whether reaching `until` ended the run, so that little is known of what would have come."""
        rows, until = self.rows, self.loop["until"]
        if until is None or not rows:
            return False
        first = crossings(rows, until, self.measure)["first"].step
        return first is not None and rows[-1].step >= first + self.loop["extra_steps"]

    def __repr__(self) -> str:
        return f"Run({self.name!r}, {self.status})"


def read_rows(path: Path) -> list[Row]:
    content = path.read_bytes()
    if path.name == PACKED:
        return unpack_rows(content)
    return [row_from_plain(json.loads(line)) for line in content.split(b"\n")[:-1]]


def load_runs(directory: str | Path = "runs") -> list[Run]:
    """All runs below a directory, oldest first; none where there is no such directory yet.

    Examples:
        >>> for run in load_runs("not/there/yet"):  # usually "runs"
        ...     print(run.name, run.status, run.crossing().step)
    """
    if Path(directory).is_file():
        raise RunError(f"{directory} must be a directory of runs, got a file")
    found = [path.parent for path in Path(directory).glob("*/config.json") if not path.parent.name.startswith(".")]
    return [Run(path) for path in sorted(found, key=lambda path: (path / "config.json").stat().st_mtime_ns)]


def find_run(name: str, directory: str | Path = "runs") -> Run:
    """The run of that name or path, or the only one whose name starts with it."""
    if not name:
        raise RunError("the name of a run must not be empty, got ''")
    for path in (Path(directory) / name, Path(name)):
        if (path / "config.json").exists():
            return Run(path)
    matches = [run for run in load_runs(directory) if run.name.startswith(name)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(run.name for run in matches[:LISTED]) + (", ..." if len(matches) > LISTED else "")
        raise RunError(f"{len(matches)} runs start with {name!r} in {directory}: {listed}")
    near = closest(name, [run.name for run in load_runs(directory)])
    raise RunError(f"there is no run {name!r} in {directory}{near}")
