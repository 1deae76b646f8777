"""Errors and warnings as one line each; who prints the lines is up to the caller."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager

Tell = Callable[[str], None]


def one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        reason = " ".join(error.strerror.lower().split())
        return f"{reason}: {error.filename}" if error.filename else reason
    return " ".join(str(error).split()) or type(error).__name__


@contextmanager
def plain_warnings(tell: Tell) -> Generator[None]:
    """Give each warning to `tell` as one line."""
    original = warnings.showwarning
    warnings.showwarning = lambda message, *rest, **more: tell(f"warning: {message}")  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.showwarning = original
