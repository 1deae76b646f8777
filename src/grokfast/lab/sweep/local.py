"""A sweep on one machine: worker processes that run as long as there is work.

Workers continue while the process that started them is a member of the sweep. When it is interrupted it leaves, and
each worker stops at its next evaluation, with a checkpoint. The same happens when it is killed.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import NamedTuple

from grokfast.lab.runs.directory import RunError
from grokfast.lab.sweep.members import is_alive, join
from grokfast.lab.sweep.space import Point
from grokfast.lab.sweep.spec import OwnCode, Spec
from grokfast.lab.sweep.study import ATTEMPTS, Sweep, Tally
from grokfast.lab.sweep.trial import Ending, carry_out
from grokfast.lab.training.interrupt import block_interrupts, stop_on_interrupt
from grokfast.lab.training.messages import Tell, one_line, plain_warnings

POLL = 0.5  # seconds between looks at the others
Show = Callable[[Tally], None]


class Orders(NamedTuple):
    """What a worker process must know; `code` was named by the person who started it."""

    folder: Path
    leader: str
    code: OwnCode
    tell: Tell  # found by its name in the worker: a function of a module
    command: list[str] | None

    def leader_is_gone(self) -> bool:
        return not is_alive(self.folder, self.leader)

    def train(self, spec: Spec, point: Point) -> Ending:
        """Train a run, as long as the leader is alive."""
        stop, runs = self.leader_is_gone, self.folder / "runs"
        return carry_out(spec, point, runs, should_stop=stop, tell=self.tell, command=self.command)


def count_cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ignore(line: str) -> None:
    """Drop a message."""


def run_local(sweep: Sweep, workers: int, show: Show, tell: Tell = ignore, command: list[str] | None = None) -> bool:
    """Train everything that is left with this many processes; False if interrupted, which leaves checkpoints."""
    processes: list[SpawnProcess] = []
    try:
        with stop_on_interrupt() as interrupted:
            with join(sweep.folder) as leader:
                orders = Orders(sweep.folder, leader, sweep.spec.own_code, tell, command)
                supervise(sweep, processes, min(workers, sweep.tally().left), orders, show, interrupted)
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
    orders: Orders,
    show: Show,
    interrupted: Callable[[], bool],
) -> None:
    """Keep this many workers running until none finds work; one that died is replaced, and its run taken again."""
    processes += [start(orders) for _ in range(workers)]
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
                    raise RunError(f"workers keep dying, the last one with exit code {process.exitcode}")
                processes.append(start(orders))


def start(orders: Orders) -> SpawnProcess:
    with block_interrupts():
        process = multiprocessing.get_context("spawn").Process(target=work, args=(orders,), daemon=True)
        process.start()
    return process


def work(orders: Orders) -> None:
    """The life of a worker process: one run after the other, as long as there are any and its leader is alive."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        orders.code.load()
        with Sweep(orders.folder) as sweep, sweep.joined(), plain_warnings(orders.tell):
            while not orders.leader_is_gone():
                if (claim := sweep.claim()) is not None:
                    sweep.finish(claim, orders.train(sweep.spec, claim.point))
                elif sweep.tally().left == 0:
                    return
                else:
                    time.sleep(POLL)
    except (RunError, ValueError, OSError) as error:
        orders.tell(f"error: {one_line(error)}")
        sys.exit(1)
