"""Carrying out what a sweep, a duel or `ab` asks for: train it, say how far it has come, and keep its definition."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.files import read_json, write_json
from grokfast.lab.search.workers import ATTEMPTS, Job, Pool, Tell, pruned_at
from grokfast.lab.settings import short_hash
from grokfast.lab.training.machine import stop_on_interrupt

POLL = 0.5  # seconds between looks at Ctrl-C

Ask = Callable[[Job], Run | str | None]  # the run if it has ended, the reason if it failed, None if it is still to come


class Progress(NamedTuple):
    """How far the work has come."""

    done: int  # runs that have ended
    total: int
    running: int
    part: float  # of the runs that are running, by the time that others took
    seconds_left: float | None
    pruned: int
    failed: int


Watch = Callable[[Progress], None]


def carry_out(advance: Callable[[Ask], bool], total: Callable[[], int], pool: Pool, watch: Watch) -> bool:
    """Train what `advance` asks for, again and again, until nothing is missing; False if interrupted."""
    known: dict[Path, Run | str] = {}
    wanted: dict[Path, Job] = {}
    begun: dict[Path, float] = {}
    looked, tries, took = set[Path](), Counter[Path](), list[float]()

    def look(job: Job) -> None:
        run = pool.find(job)
        if run is not None and (run.done or pruned_at(run, job.limits) is not None):
            known[job.path] = run

    def ask(job: Job) -> Run | str | None:
        key = job.path
        if key not in looked:
            looked.add(key)
            look(job)
        if key not in known:
            wanted.setdefault(key, job)
        return known.get(key)

    def progress() -> Progress:
        now, each = time.monotonic(), sum(took) / len(took) if took else None
        part = sum(min((now - since) / each, 0.95) for since in begun.values()) if each else 0.0
        pruned = sum(isinstance(run, Run) and not run.done for run in known.values())
        failed = sum(isinstance(run, str) for run in known.values())
        left = None if each is None else max(total() - len(known) - part, 0.0) * each / pool.size
        return Progress(len(known), total(), len(begun), part, left, pruned, failed)

    with stop_on_interrupt() as interrupted:
        while True:
            wanted.clear()
            if advance(ask):
                watch(progress())
                return True
            if interrupted():
                return False
            for key, job in wanted.items():
                if key not in begun and len(begun) < pool.size:
                    begun[key] = time.monotonic()
                    pool.submit(job)
            watch(progress())
            for job, error in pool.wait(POLL):
                since, key = begun.pop(job.path), job.path
                if error is not None:
                    known[key] = error
                    continue
                look(job)
                if key in known:
                    took.append(time.monotonic() - since)
                    continue
                tries[key] += 1
                if tries[key] >= ATTEMPTS:
                    known[key] = f"its worker died {ATTEMPTS} times"


def time_text(seconds: float) -> str:
    """A duration, rounded for planning.

    >>> time_text(8.2), time_text(3000), time_text(30000)
    ('8 s', '50 min', '8.3 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def progress_line(progress: Progress) -> str:
    counts = {"running": progress.running, "pruned": progress.pruned, "failed": progress.failed}
    now = ", ".join(f"{count} {name}" for name, count in counts.items() if count or name == "running")
    left = "" if progress.seconds_left is None else f", about {time_text(progress.seconds_left)} left"
    return f"{progress.done} of {progress.total} runs, {now}{left}"


def line_watch(tell: Tell, seconds: float = 10.0) -> Watch:
    """A watch that reports the progress every few seconds."""
    last = time.monotonic()

    def watch(progress: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            tell(progress_line(progress))

    return watch


# In a directory -----------------------------------------------------------------------------------------------------


def begin_in(folder: Path, file: str, data: dict[str, Any], free: Sequence[str] = ()) -> dict[str, Any]:
    """Begin a sweep or duel in a directory, or check that the directory has the same one; returns what is kept there.

    `free` names settings that may differ; then the kept values are used.
    """
    path = folder / file
    if not path.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise RunError(f"{folder} must be empty or hold {file}, got other files")
        folder.mkdir(parents=True, exist_ok=True)
        write_json(path, {**data, "digest": short_hash(data)})
        return data
    try:
        begun = read_json(path)
        digest = begun.pop("digest", None)
    except (ValueError, AttributeError) as error:
        raise RunError(f"{path}: {error}") from error
    if digest != short_hash(begun):
        raise RunError(f"{path} was changed since it was written: its digest differs")
    old, new = ({k: v for k, v in flat(each).items() if k not in free} for each in (begun, data))
    if changed := [key for key in {**old, **new} if old.get(key) != new.get(key)]:
        words = [f"{key} is {old.get(key, 'not there')}, got {new.get(key, 'none')}" for key in changed]
        raise RunError(f"{folder} holds another {path.stem}: {'; '.join(words)}")
    return begun


def flat(data: Mapping[str, Any]) -> dict[str, str]:
    """The definition in a directory, by name, as text for a message."""
    given = dict(data.get("given", {}))
    varied = {d["name"]: {k: v for k, v in d.items() if k != "name"} for d in data.get("dimensions", ())}
    rest = {name: value for name, value in data.items() if name not in ("given", "dimensions")}
    return {name: json.dumps(value) for name, value in {**given, **rest, **varied}.items()}
