"""Worker processes and Ray: killed, interrupted, with a full disk, and with code of the user's own."""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import pytest
from searches import BASE, FLAGS, assert_same_as_alone, quiet
from tiny import comparable

from forks import FORKS
from grokfast.lab import Run, load_runs
from grokfast.lab.filters import FILTERS
from grokfast.lab.runs.directory import RunError
from grokfast.lab.search import progress, workers
from grokfast.lab.search.progress import Progress
from grokfast.lab.search.search import Sweep
from grokfast.lab.search.space import Choices
from grokfast.lab.search.sweep import run_sweep
from grokfast.lab.search.workers import Job, check_engine, count_workers, leading, train_job
from grokfast.lab.settings import name_of
from grokfast.lab.tasks import TASKS

ALPHAS = Choices("alpha", (0.9,))
ENGINE: dict[str, Any] = {"engine": "local", "address": None, "tell": quiet}


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forks instead of new interpreters, and short pauses."""
    monkeypatch.setattr(multiprocessing, "get_context", lambda method: FORKS)
    monkeypatch.setattr(progress, "POLL", 0.05)


def wanted(sweep: Sweep) -> list[dict[str, Any]]:
    return [sweep.settings(corner, seed) for corner in sweep.corners() for seed in sweep.seeds]


def test_a_dead_worker_is_replaced_and_ctrl_c_leaves_a_checkpoint(tmp_path: Path) -> None:
    sweep = Sweep({**BASE, "steps": 500, "eval_every": 5, "checkpoint_seconds": 0.1}, (ALPHAS,), objective="loss")
    signals, victim, folder = [signal.SIGKILL, signal.SIGINT], 0, tmp_path / "sweep"

    def watch(progress: Progress) -> None:
        """Kill the first worker in the middle of the run; interrupt this process when the second one has it."""
        nonlocal victim
        runs = load_runs(folder / "runs")
        children = multiprocessing.active_children()
        if signals and runs and runs[0].rows and children and children[0].pid != victim and is_taken(runs[0]):
            victim, sent = children[0].pid or 0, signals.pop(0)
            os.kill(victim if sent == signal.SIGKILL else os.getpid(), sent)

    with pytest.raises(KeyboardInterrupt):
        run_sweep(sweep, folder, workers=2, watch=watch, **ENGINE)
    assert not signals
    assert not multiprocessing.active_children()
    (run,) = load_runs(folder / "runs")
    assert run.status == "incomplete"
    assert list((run.path / "checkpoints").glob("*.pt"))
    run_sweep(sweep, folder, workers=1, watch=lambda progress: None, **ENGINE)
    assert_same_as_alone(folder / "runs", wanted(sweep), tmp_path / "alone")


def is_taken(run: Run) -> bool:
    return run.status == "running"


OWN = """
from dataclasses import dataclass
import grokfast
from grokfast.lab.tasks.modular.task import ModularConfig

@dataclass(frozen=True)
class MyTask(ModularConfig):
    pass

class Toy(grokfast.EMA):
    pass
"""


@pytest.fixture
def own_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    yield
    TASKS.pop("mine.py:MyTask", None)
    FILTERS.pop("mine.py:Toy", None)


@pytest.mark.usefixtures("own_code")
def test_workers_load_the_users_own_task_and_filter_by_relative_path() -> None:
    given = {name: value for name, value in BASE.items() if name != "filter"}
    sweep = Sweep({**given, "task": "mine.py:MyTask"}, (Choices("filter", (None, "mine.py:Toy")),), objective="loss")
    run_sweep(sweep, Path("sweep"), workers=1, watch=lambda progress: None, **ENGINE)
    found = load_runs("sweep/runs")
    assert sorted(run.settings["filter"] or "none" for run in found) == ["mine.py:Toy", "none"]
    assert all(run.done for run in found)


SCRIPT = """
from grokfast import lab
print("begun")
sizes = {"p": 7, "width": 16, "depth": 1, "heads": 2, "batch_size": 8}
rows = lab.sweep("modmul", {"lamb": [1.0, 2.0]}, "sweep", filter="ema", steps=4, objective="loss", workers=1, **sizes)
print(len(rows), rows[0]["median"] <= rows[1]["median"])
"""


def test_a_script_needs_no_guard_against_being_imported_by_its_workers(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert (lines[0], lines[-1], lines.count("begun")) == ("begun", "2 True", 1)


def fill_disk() -> None:
    """No file of this process and those it starts may grow beyond a few kilobytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))


def test_a_full_disk_ends_a_sweep_with_one_line(tmp_path: Path) -> None:
    words = ["-m", "grokfast", "sweep", *FLAGS, "--grid", "lamb=1,2", "--steps", "60", "--checkpoint-seconds", "0"]
    words += ["--sweep-dir", str(tmp_path / "sweep"), "--workers", "1"]
    full = subprocess.run([sys.executable, *words, "--quiet"], capture_output=True, text=True, preexec_fn=fill_disk)
    assert full.returncode == 1
    assert full.stderr.count("\n") == 1
    assert "file too large" in full.stderr
    assert str(tmp_path) in full.stderr
    again = subprocess.run([sys.executable, *words, "--json"], capture_output=True, text=True)
    assert again.returncode == 0
    assert all(run.done for run in load_runs(tmp_path / "sweep" / "runs"))


# One job --------------------------------------------------------------------------------------------------------------


def make_job(folder: Path, **changes: Any) -> Job:
    sweep = Sweep({**BASE, **changes}, (ALPHAS,))
    settings = sweep.settings({"alpha": 0.9}, 0)
    return Job(folder / name_of(settings), settings)


def test_a_stopped_run_continues_from_its_checkpoint_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "LOOK", 0.0)
    job, other = make_job(tmp_path / "a"), make_job(tmp_path / "b")
    train_job(job, lambda: len(Run(job.path).rows) == 2, quiet, None)
    stopped = Run(job.path)
    assert not stopped.done
    assert stopped.rows[-1].step == 4
    assert list((job.path / "checkpoints").glob("*.pt"))
    for each in (job, other):
        train_job(each, lambda: False, quiet, None)
    assert comparable(Run(job.path).rows) == comparable(Run(other.path).rows)
    assert Run(job.path).done


def test_a_run_that_another_process_completes_meanwhile_is_not_trained_again(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    train_job(job, lambda: False, quiet, None)
    summary = job.path / "summary.json"
    content, before = summary.read_bytes(), Run(job.path).rows
    summary.unlink()
    lock = filelock.FileLock(job.path / "lock", thread_local=False)
    lock.acquire()

    def finish() -> None:
        time.sleep(0.3)
        summary.write_bytes(content)
        lock.release()

    thread = threading.Thread(target=finish)
    thread.start()
    train_job(job, lambda: False, quiet, None)
    thread.join()
    assert Run(job.path).rows == before


def test_a_folder_has_one_leader(tmp_path: Path) -> None:
    with leading(tmp_path), pytest.raises(RunError, match="is in use by another process"):
        fork_leader(tmp_path)


def fork_leader(folder: Path) -> None:
    lock = filelock.FileLock(folder / "lock", thread_local=True)
    try:
        lock.acquire(timeout=0.1)
    except filelock.Timeout:
        with leading(folder):
            pass


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("local", 0, None), "workers must be >= 1, got 0"),
        (("local", None, "h:1"), "address needs --engine ray, got h:1"),
        (("slurm", None, None), "engine must be one of local, ray, got slurm"),
    ],
)
def test_an_engine_that_cannot_be_used_is_refused(words: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_engine(*words)


def test_as_many_runs_at_once_as_have_cores_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "count_cores", lambda: 8)
    assert count_workers({"device": "cpu", "threads": 2}, None) == 4
    assert count_workers({"device": "cpu", "threads": 2}, 3) == 3
    assert count_workers({"device": "cuda", "threads": 2}, None) == 1


# Ray ------------------------------------------------------------------------------------------------------------------


def who_has(path: Path) -> int | None:
    """The process that has this file open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink() == path:
                return int(link.parts[2])
        except OSError:
            continue


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks up in /proc who has a file open")
def test_ray_restarts_the_run_of_a_killed_worker(tmp_path: Path) -> None:
    folder = (tmp_path / "sweep").resolve()
    words = [*FLAGS, "--grid", "alpha=0.9,0.98", "--grid", "lamb=1,2", "--steps", "100", "--checkpoint-seconds", "0"]
    words += ["--engine", "ray", "--workers", "2", "--sweep-dir", str(folder), "--quiet", "--objective", "loss"]
    short = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # for sockets, whose paths must be short
    environment = {**os.environ, "RAY_TMPDIR": short}
    environment.pop("RAY_ADDRESS", None)
    process = subprocess.Popen([sys.executable, "-m", "grokfast", "sweep", *words], env=environment)
    try:
        victim = None
        while victim is None:
            assert process.poll() is None
            begun = [run for run in load_runs(folder / "runs") if not run.done and run.rows]
            victim = who_has(begun[0].path / "lock") if begun else None
            time.sleep(0.02)
        assert victim != process.pid
        os.kill(victim, signal.SIGKILL)
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(short, ignore_errors=True)
    dimensions = (Choices("alpha", (0.9, 0.98)), Choices("lamb", (1.0, 2.0)))
    sweep = Sweep({**BASE, "steps": 100}, dimensions)
    assert_same_as_alone(folder / "runs", wanted(sweep), tmp_path / "alone")
