"""Workers: processes of this machine, or tasks on a Ray cluster. Each trains one job at a time.

A worker stops at the next step, with a checkpoint, when the leader asks it to or has died. It sees this by the pipe
between them, on a cluster by the lock of the folder. A worker that died is replaced, and its run is continued.
"""

from __future__ import annotations

import bisect
import errno
import importlib.util
import math
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import filelock

from grokfast.lab.filters import find_filter
from grokfast.lab.own_code import is_own_code, one_line
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.metrics import Row
from grokfast.lab.settings import Settings, find_optimizer
from grokfast.lab.tasks import find_task
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.machine import block_interrupts, plain_warnings
from grokfast.lab.training.run import train

ENGINES = ("local", "ray")
LOCK = "lock"  # in the folder of a sweep or duel: held by its leader
ATTEMPTS = 3  # at a run whose worker died
LOOK = 0.3  # seconds between a worker's looks at its leader
PATIENCE = 30.0  # seconds for a worker of a killed leader to release its run
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)  # every other run would fail too

Tell = Callable[[str], None]


# Pruning ------------------------------------------------------------------------------------------------------------


def gap(value: float | None, level: float, measure: str) -> float:
    """How far a measure is from its level, in [0, 1].

    >>> [gap(accuracy, 0.8, "accuracy") for accuracy in (0.9, 0.8, 0.4, 0.0, None)]
    [0.0, 0.0, 0.5, 1.0, 1.0]
    >>> [gap(loss, 0.5, "loss") for loss in (0.5, 1.0, math.inf)]
    [0.0, 0.5, 1.0]
    """
    if value is None or math.isnan(value):
        return 1.0
    if measure == "accuracy":
        return min(max(1.0 - value / level, 0.0), 1.0)
    return 1.0 - level / value if value > level else 0.0


def distance(row: Row, objective: str, level: float, measure: str) -> float:
    """How far an evaluation is from the goal: the gap to the level, or the accuracy or the loss itself."""
    if objective == "accuracy":
        return 1.0 - (row.val_accuracy or 0.0)
    if objective in ("loss", "best_loss"):  # by its logarithm: 5% more is 5% more at any size
        return math.log(row.val_loss) if 0 < row.val_loss < math.inf else math.inf
    return gap(row.val_accuracy if measure == "accuracy" else row.val_loss, level, measure)


def distances_of(run: Run, objective: str) -> list[tuple[int, float]]:
    """The steps of a run's evaluations, and how far it was from its goal."""
    return [(row.step, distance(row, objective, run.level, run.measure)) for row in run.rows]


class Limits(NamedTuple):
    """The largest allowed distance from the goal at each step. `values[i]` is valid from `steps[i]` on."""

    objective: str
    steps: list[int]
    values: list[float]

    def given_up(self, curve: list[tuple[int, float]]) -> int | None:
        """The first step at which a curve exceeds the limits; None if it never does."""
        lowest = math.inf
        for step, distance in curve:
            lowest = min(lowest, distance)
            place = bisect.bisect_right(self.steps, step)
            if place and lowest > self.values[place - 1]:
                return step
        return None


def pruned_at(run: Run, limits: Limits | None) -> int | None:
    """The step at which a run is pruned; None if it is not."""
    return None if limits is None else limits.given_up(distances_of(run, limits.objective))


# A job --------------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """One run to train: its directory, its settings, and the limits for pruning it."""

    path: Path
    settings: Settings
    limits: Limits | None = None


class Pool(Protocol):
    """Trains jobs: processes, a Ray cluster, or this process."""

    size: int

    def find(self, job: Job) -> Run | None:
        """The run of a job, if it was begun."""
        ...

    def submit(self, job: Job) -> None: ...

    def wait(self, seconds: float) -> list[tuple[Job, str | None]]:
        """Jobs that have ended since, each with the reason if it failed; RunError if no job can succeed any more.

        A job whose worker died has no reason: its directory shows that it has not ended.
        """
        ...


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find(job: Job) -> Run | None:
    """The run of a job, if it was begun."""
    return Run(job.path) if job.path.exists() else None


def train_job(job: Job, is_stopped: Callable[[], bool], tell: Tell, command: list[str] | None) -> None:
    """Train a run until it ends, exceeds its limits, or the leader stops it; then it has a checkpoint."""
    last, stopped = time.monotonic(), False
    level = job.settings["level"] if job.settings["until"] is None else job.settings["until"]
    curve = distances_of(Run(job.path), job.limits.objective) if job.limits and job.path.exists() else []

    def interrupted() -> bool:
        nonlocal last, stopped
        if not stopped and time.monotonic() - last >= LOOK:
            last, stopped = time.monotonic(), is_stopped()
        return stopped

    def on_row(row: Row) -> None:
        if job.limits is not None:  # steps after the checkpoint are repeated
            here = row.step, distance(row, job.limits.objective, level, job.settings["measure"])
            curve[:] = [*(pair for pair in curve if pair[0] < row.step), here]

    def is_behind() -> bool:
        return job.limits is not None and job.limits.given_up(curve) is not None

    watcher = Watcher(on_row=on_row, on_warning=tell, should_stop=is_behind, interrupted=interrupted)
    with plain_warnings(tell):
        train(job.settings, job.path.parent, watcher, command=command, patience=PATIENCE)


def reason_of(error: Exception) -> tuple[str, bool]:
    """An error in one line, and whether all other runs would fail by it too."""
    return one_line(error), isinstance(error, OSError) and error.errno in FULL


def load_code(job: Job) -> None:
    """Import the classes of the user's own that a job needs. The leader sends only names that the user typed."""
    for part, finder in (("task", find_task), ("filter", find_filter), ("optimizer", find_optimizer)):
        name = job.settings[part]
        if name is not None and is_own_code(name):
            finder(name)


# Processes of this machine ------------------------------------------------------------------------------------------


class _Processes:
    """A pool of processes, which live as long as the pool; one starts when it is first needed."""

    def __init__(self, size: int, tell: Tell, command: list[str] | None = None) -> None:
        self.size, self._tell, self._command = size, tell, command
        self._processes: dict[Connection, SpawnProcess] = {}  # each by this end of its pipe
        self._idle: list[Connection] = []
        self._busy: dict[Connection, Job] = {}

    def find(self, job: Job) -> Run | None:
        return find(job)

    def submit(self, job: Job) -> None:
        pipe = self._idle.pop() if self._idle else self._start()
        self._busy[pipe] = job
        with suppress(OSError):  # it died while it was idle; `wait` finds out
            pipe.send(job)

    def _start(self) -> Connection:
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        with block_interrupts(), without_main():
            process = context.Process(target=work, args=(theirs, self._command), daemon=True)
            process.start()
        theirs.close()
        self._processes[mine] = process
        return mine

    def wait(self, seconds: float) -> list[tuple[Job, str | None]]:
        ended: list[tuple[Job, str | None]] = []
        ready = multiprocessing.connection.wait(list(self._busy), timeout=seconds)
        for pipe in [pipe for pipe in self._busy if pipe in ready]:
            try:
                kind, text = pipe.recv()
            except (EOFError, OSError):
                self._processes.pop(pipe).join()
                ended.append((self._busy.pop(pipe), None))
                continue
            if kind == "tell":
                self._tell(text)
            elif kind == "full":
                raise RunError(text)
            else:
                ended.append((self._busy.pop(pipe), text))
                self._idle.append(pipe)
        return ended

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Let the workers stop with a checkpoint; after a second Ctrl-C kill them."""
        try:
            for pipe in self._processes:
                pipe.close()
            if kind is None or issubclass(kind, Exception):
                for process in self._processes.values():
                    process.join()
        finally:
            for process in self._processes.values():
                process.kill()
                process.join()


@contextmanager
def without_main() -> Generator[None]:
    """Processes started here do not import the main module: a script without `if __name__ == ...` would run again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def work(pipe: Connection, command: list[str] | None) -> None:
    """The life of a worker process: one job after the other, until the leader closes the pipe or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def tell(line: str) -> None:
        with suppress(OSError):
            pipe.send(("tell", line))

    while True:
        try:
            job: Job = pipe.recv()
        except (EOFError, OSError):
            return
        kind, text = "done", None
        try:
            load_code(job)
            # While a job runs the leader sends nothing, so anything to read is the end of the pipe.
            train_job(job, pipe.poll, tell, command)
        except Exception as error:  # any error: the other runs do not depend on this one
            text, full = reason_of(error)
            kind = "full" if full else kind
        try:
            pipe.send((kind, text))
        except OSError:
            return


# Ray ----------------------------------------------------------------------------------------------------------------


class _Ray:
    """Tasks on a Ray cluster, or on one that is started here. All nodes must see the folder under the same path."""

    def __init__(
        self,
        folder: Path,
        size: int | None,
        command: list[str] | None = None,
        *,
        threads: int,
        device: str,
        address: str | None = None,
    ) -> None:
        import ray

        self._ray, self._command, self._lock = ray, command, (folder / LOCK).absolute()
        self._tasks: dict[Any, Job] = {}
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
        found = address or os.environ.get("RAY_ADDRESS")
        if found is None:  # only names go through the object store
            options |= {"num_cpus": count_cores(), "include_dashboard": False, "object_store_memory": 100 << 20}
        try:
            ray.init(address=found or "local", **options)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise RunError(f"there is no Ray cluster at {found or 'local'}: {one_line(error)}") from error
        gpus = int(device.startswith("cuda"))
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= threads and node.get("GPU", 0) >= gpus for node in nodes):
            ray.shutdown()  # else Ray would wait for such a node forever
            raise RunError(f"a node of the cluster must have {threads} CPUs and {gpus} GPUs for one run, got none")
        self.size = size or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        self._task = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=ATTEMPTS)(work_on_ray)

    def find(self, job: Job) -> Run | None:
        return find(job)

    def submit(self, job: Job) -> None:
        there = job._replace(path=job.path.absolute())
        self._tasks[self._task.remote(there, self._lock, Path.cwd(), self._command)] = job

    def wait(self, seconds: float) -> list[tuple[Job, str | None]]:
        ended: list[tuple[Job, str | None]] = []
        for task in self._ray.wait(list(self._tasks), timeout=seconds)[0]:
            job = self._tasks.pop(task)
            try:
                text, full = self._ray.get(task)
            except self._ray.exceptions.RayError:  # its worker died more often than Ray tries
                text, full = None, False
            if full:
                raise RunError(text)
            ended.append((job, text))
        return ended

    def __enter__(self) -> _Ray:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        """Let the tasks stop with a checkpoint: they see that the lock of the folder is free."""
        try:
            if self._tasks and (kind is None or issubclass(kind, Exception)):
                self._ray.wait(list(self._tasks), num_returns=len(self._tasks), timeout=PATIENCE)
        finally:
            self._ray.shutdown()


def work_on_ray(job: Job, lock: Path, cwd: Path, command: list[str] | None) -> tuple[str | None, bool]:
    """The task of a worker of the cluster. It needs no Optuna."""
    try:
        if any(is_own_code(job.settings[part] or "") for part in ("task", "filter", "optimizer")):
            os.chdir(cwd)  # files of the user's own may be named by relative paths
            load_code(job)
        train_job(job, lambda: not is_held(lock), lambda line: None, command)
    except Exception as error:
        return reason_of(error)
    return None, False


# Choice of engine ---------------------------------------------------------------------------------------------------


def check_engine(engine: str, workers: int | None, address: str | None) -> None:
    """Raise an error if an engine cannot be used here, before anything is written."""
    if engine not in ENGINES:
        raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {engine}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be >= 1, got {workers}")
    if address is not None and engine != "ray":
        raise ValueError(f"address needs --engine ray, got {address} without it")
    for package, extra in (("optuna", "sweep"), *([("ray", "ray")] if engine == "ray" else [])):
        if importlib.util.find_spec(package) is None:
            raise RunError(f'this needs {package}: pip install "grokfast[{extra}]"')


def count_workers(given: Settings, workers: int | None) -> int:
    """The number of simultaneous runs: one on an accelerator, else cores / threads."""
    if workers is not None or given["device"] != "cpu":
        return workers or 1
    return max(1, count_cores() // given["threads"])


def open_pool(
    folder: Path,
    given: Settings,
    *,
    workers: int | None,
    engine: str,
    address: str | None,
    tell: Tell,
    command: list[str] | None,
) -> _Processes | _Ray:
    """The pool that trains the runs of a folder; a context manager. `given` names their threads and device."""
    if engine == "ray":
        needs = {"threads": given["threads"], "device": given["device"]}
        return _Ray(folder, workers, command, address=address, **needs)
    return _Processes(count_workers(given, workers), tell, command)


# The leader ---------------------------------------------------------------------------------------------------------


def is_held(lock: Path) -> bool:
    """Whether a leader holds this lock."""
    try:
        with filelock.FileLock(lock, blocking=False):
            return False
    except filelock.Timeout:
        return True


@contextmanager
def leading(folder: Path) -> Generator[None]:
    """While this lasts, no other process can lead the sweep or duel in a folder."""
    lock = filelock.FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=1.0)  # workers of a cluster take it briefly to test it
    except filelock.Timeout:
        raise RunError(f"{folder} is in use by another process") from None
    try:
        yield
    finally:
        lock.release()
