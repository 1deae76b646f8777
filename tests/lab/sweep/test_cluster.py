"""A sweep on a Ray cluster of two workers, one of them killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from sweeps import FLAGS, assert_complete_and_same, states

from grokfast.lab import load_runs

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks up in /proc who has a file open")


def who_has(path: Path) -> int | None:
    """The process that has this file open."""
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink() == path:
                return int(link.parts[2])
        except OSError:
            continue


def test_ray_restarts_the_run_of_a_killed_worker(tmp_path: Path) -> None:
    folder = (tmp_path / "sweep").resolve()
    words = [*FLAGS, "--grid", "alpha=0.9,0.98", "--grid", "lamb=1,2", "--steps", "100", "--checkpoint-seconds", "0"]
    words += ["--engine", "ray", "--workers", "2", "--sweep-dir", str(folder), "--quiet"]
    short = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # sockets lie there, whose paths must be short
    environment = {**os.environ, "RAY_TMPDIR": short}
    environment.pop("RAY_ADDRESS", None)
    process = subprocess.Popen([sys.executable, "-m", "grokfast.lab.commands.cli", "sweep", *words], env=environment)
    try:
        victim = None
        while victim is None:
            assert process.poll() is None
            begun = [run for run in load_runs(folder / "runs") if run.status == "incomplete" and run.rows]
            victim = who_has(begun[0].path / "lock") if begun else None
            time.sleep(0.02)
        assert victim != process.pid
        os.kill(victim, signal.SIGKILL)
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(short, ignore_errors=True)
    assert_complete_and_same(folder, tmp_path / "alone")
    assert states(folder) == {"COMPLETE": 4}  # the study did not notice
