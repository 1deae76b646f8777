"""A sweep on one machine: worker processes that live as long as there is work.

The workers go on while the process that started them takes part in the sweep. When it is interrupted it leaves, and
each worker stops at its next evaluation, with a checkpoint; so do they when it is killed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from multiprocessing.context import SpawnProcess
from pathlib import Path

from grokfast.lab.runs.directory import RunError
from grokfast.lab.sweep.members import join, lives
from grokfast.lab.sweep.study import ATTEMPTS, Sweep, Tally
from grokfast.lab.sweep.trial import carry_out
from grokfast.lab.commands.terminal import complain, one_line, plain_warnings, stop_on_interrupt

POLL = 0.5  # seconds between looks at what the others do


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_local(sweep: Sweep, workers: int, show: Callable[[Tally], None], command: list[str] | None = None) -> bool:
    """Train all that is left with so many processes; False if interrupted, then with checkpoints left."""
    processes: list[SpawnProcess] = []
    try:
        with stop_on_interrupt() as interrupted:
            with join(sweep.folder) as leader:
                arguments = (sweep.folder, leader, command)
                supervise(sweep, processes, min(workers, sweep.tally().left), arguments, show, interrupted)
            for process in processes:
                process.join()
            return not interrupted()
    finally:
        for process in processes:
            process.kill()


def supervise(
    sweep: Sweep,
    processes: list[SpawnProcess],
    workers: int,
    arguments: tuple[Path, str, list[str] | None],
    show: Callable[[Tally], None],
    interrupted: Callable[[], bool],
) -> None:
    """Keep so many workers going until none finds work; one that died is replaced, for others may take what it had."""
    processes += [start(arguments) for _ in range(workers)]
    deaths, left = 0, sweep.tally().left
    while processes and not interrupted():
        multiprocessing.connection.wait([p.sentinel for p in processes], timeout=POLL)
        tally = sweep.tally()
        show(tally)
        deaths, left = (0 if tally.left < left else deaths), tally.left
        for process in [p for p in processes if p.exitcode is not None]:
            processes.remove(process)
            if process.exitcode == 1:
                raise RunError("a worker failed, see above")
            if process.exitcode and not interrupted():
                deaths += 1
                if deaths > ATTEMPTS * workers:
                    raise RunError(f"workers die one after the other, the last with exit code {process.exitcode}")
                processes.append(start(arguments))


def start(arguments: tuple[Path, str, list[str] | None]) -> SpawnProcess:
    with deaf_to_interrupts():
        process = multiprocessing.get_context("spawn").Process(target=work, args=arguments, daemon=True)
        process.start()
    return process


@contextlib.contextmanager
def deaf_to_interrupts() -> Generator[None]:
    """Processes started here do not hear Ctrl-C, not even while they import; we hear it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def work(folder: Path, leader: str, command: list[str] | None) -> None:
    """What a worker process does: one run after the other, as long as there are any and its leader is there."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Sweep(folder) as sweep, sweep.joined(), plain_warnings():
            while lives(folder, leader):
                claim = sweep.claim()
                if claim is not None:
                    ending = carry_out(
                        sweep.spec,
                        claim.point,
                        sweep.runs,
                        should_stop=lambda: not lives(folder, leader),
                        command=command,
                    )
                    sweep.finish(claim, ending)
                elif sweep.tally().left == 0:
                    return
                else:
                    time.sleep(POLL)
    except (RunError, OSError) as error:
        complain(f"error: {one_line(error)}")
        sys.exit(1)
