"""Ctrl-C: a question that the loop can ask, and processes that do not hear it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_on_interrupt() -> Generator[Callable[[], bool]]:
    """Turn the first Ctrl-C into a question the loop can ask; a second one interrupts at once."""
    asked = False

    def ask(signum: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signal.SIGINT, previous)

    previous = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, previous)


@contextmanager
def block_interrupts() -> Generator[None]:
    """Processes started here do not hear Ctrl-C, not even while they import; we hear it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
