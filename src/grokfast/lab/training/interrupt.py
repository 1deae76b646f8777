"""Ctrl-C and the signals of schedulers: the loop asks whether one came, and workers do not receive Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

# Schedulers end a job with SIGTERM, and a terminal that is closed sends SIGHUP. Windows has no SIGHUP.
STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


@contextmanager
def stop_on_interrupt() -> Generator[Callable[[], bool]]:
    """Turn the first Ctrl-C, SIGTERM or SIGHUP into a question the loop can ask; a second one acts at once.

    A SIGHUP that is ignored stays ignored, for nohup.
    """
    asked = False
    previous = {number: signal.getsignal(number) for number in STOPPING}

    def ask(signum: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signum, previous[signal.Signals(signum)])

    heard = [number for number in STOPPING if number == signal.SIGINT or previous[number] != signal.SIG_IGN]
    for number in heard:
        signal.signal(number, ask)
    try:
        yield lambda: asked
    finally:
        for number in heard:
            signal.signal(number, previous[number])


@contextmanager
def block_interrupts() -> Generator[None]:
    """Processes started here do not receive Ctrl-C, not even while they import; this process does so afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
