"""Faults on purpose, for a few minutes: what was tried, how often, what was lost. `make soak` prints the table.

Every fault is followed by a resume, whose rows and weights must equal those of a run without faults, bit for bit.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

from grokfast.lab import Run, load_runs

GROKFAST = [sys.executable, "-m", "grokfast.lab.commands.cli"]
SMALL = ["modmul", "--p", "7", "--width", "16", "--depth", "1", "--heads", "2", "--batch-size", "8", "--threads", "1"]
TRAIN = ["train", *SMALL, "--filter", "ema", "--steps", "1500", "--eval-every", "100", "--checkpoint-seconds", "0.05"]
KILLS, SECONDS = 15, 300  # at most: of the first part, and between faults of all


class Line(NamedTuple):
    """One line of the table."""

    fault: str
    times: int
    survived: int
    seconds: float


def main() -> int:
    began, dice = time.monotonic(), random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        call([*TRAIN, "--quiet", "--runs-dir", str(folder / "whole")])
        (whole,) = load_runs(folder / "whole")
        parts = (kill_at_random, damage_files, fill_the_disk, share_a_sweep)
        lines = [timed(part, folder / part.__name__, whole, dice) for part in parts]
    width = max(len(line.fault) for line in lines)
    print(f"{'fault':{width}}  times  survived  seconds")
    for line in lines:
        print(f"{line.fault:{width}}  {line.times:5}  {line.survived:8}  {line.seconds:7.0f}")
    lost = sum(line.times - line.survived for line in lines)
    print(f"{lost} lost, {time.monotonic() - began:.0f} s")
    return 1 if lost else 0


def timed(part: Callable[[Path, Run, random.Random], tuple[str, int, int]], *words: object) -> Line:
    began = time.monotonic()
    fault, times, survived = part(*words)  # type: ignore[arg-type]
    return Line(fault, times, survived, time.monotonic() - began)


def call(words: list[str], **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*GROKFAST, *words], capture_output=True, text=True, **more)  # type: ignore[call-overload]


def is_same(run: Run, whole: Run) -> bool:
    """Whether two runs are complete and equal but for the clock."""
    if run.status != "complete":
        return False
    rows = [[row._replace(seconds=0.0) for row in each.rows] for each in (run, whole)]
    pairs = zip(run.weights().values(), whole.weights().values(), strict=True)
    return rows[0] == rows[1] and all(torch.equal(p, q) for p, q in pairs)


def kill_at_random(folder: Path, whole: Run, dice: random.Random) -> tuple[str, int, int]:
    """kill -9 at random moments, then resume."""
    words, kills, end = [*TRAIN, "--quiet", "--runs-dir", str(folder)], 0, time.monotonic() + SECONDS
    while kills < KILLS and time.monotonic() < end:
        process = subprocess.Popen([*GROKFAST, *words], stderr=subprocess.DEVNULL)
        time.sleep(dice.uniform(1.5, 4.0))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            kills += 1
        process.wait()
        found = load_runs(folder)
        if found and found[0].status == "complete":
            break
        words = ["resume", found[0].name, "--quiet", "--runs-dir", str(folder)] if found else words
    call(words)
    return "kill -9, then resume", kills, kills if is_same(load_runs(folder)[0], whole) else 0


def damage_files(folder: Path, whole: Run, dice: random.Random) -> tuple[str, int, int]:
    """One file of a stopped run cut, emptied or changed: the resume ends equal, or refuses in one line."""
    process = subprocess.Popen(
        [*GROKFAST, *TRAIN, "--quiet", "--runs-dir", str(folder / "begun")], stderr=subprocess.DEVNULL
    )
    while not any(len(run.rows) > 2 for run in load_runs(folder / "begun")):
        time.sleep(0.05)
    process.terminate()
    process.wait()
    (begun,) = load_runs(folder / "begun")
    files = [path for path in sorted(begun.path.rglob("*")) if path.is_file() and path.name != "lock"]
    survived = 0
    for i, file in enumerate(files):
        copy = folder / str(i) / begun.name
        shutil.copytree(begun.path, copy)
        target = copy / file.relative_to(begun.path)
        content = bytearray(target.read_bytes() or b" ")
        place = dice.randrange(len(content))
        content[place] ^= 1 << dice.randrange(7)
        target.write_bytes(dice.choice([bytes(content), bytes(content[:place]), b""]))
        done = call(["resume", copy.name, "--quiet", "--runs-dir", str(copy.parent)])
        refused = done.returncode == 1 and done.stderr.count("\n") == 1
        survived += refused or is_same(Run(copy), whole)
    return "a damaged file, then resume", len(files), survived


def fill_the_disk(folder: Path, whole: Run, dice: random.Random) -> tuple[str, int, int]:
    """No file may grow beyond a few kilobytes for a while; then there is room again."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))

    failed = call([*TRAIN, "--quiet", "--runs-dir", str(folder)], preexec_fn=limit)
    (run,) = load_runs(folder)
    call(["resume", run.name, "--quiet", "--runs-dir", str(folder)])
    return "a full disk, then resume", 1, int(failed.stderr.count("\n") == 1 and is_same(run, whole))


def share_a_sweep(folder: Path, whole: Run, dice: random.Random) -> tuple[str, int, int]:
    """Three processes train one sweep, one of them killed: every run is there once and complete."""
    words = ["sweep", *SMALL, "--filter", "ema", "--grid", "lamb=1,2,3,4,5,6", "--steps", "400"]
    words += ["--sweep-dir", str(folder), "--workers", "1", "--quiet"]
    processes = [subprocess.Popen([*GROKFAST, *words], start_new_session=True) for _ in range(3)]
    time.sleep(dice.uniform(8.0, 12.0))
    os.killpg(processes[0].pid, signal.SIGKILL)
    for process in processes:
        process.wait()
    found = json.loads(call([*words[:-1], "--json"]).stdout or "{}").get("settings", [])
    return "three processes in one sweep, one killed", 6, sum(each["complete"] for each in found)


if __name__ == "__main__":
    sys.exit(main())
