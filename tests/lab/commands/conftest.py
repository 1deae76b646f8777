from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from grokfast.lab import filters, tasks
from grokfast.lab.commands.cli import main

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command; gives its exit code, stdout and stderr."""

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture(autouse=True)
def known() -> Generator[None]:
    """Forget the tasks and filters of the user's own that a command has loaded, as a new process would."""
    yield
    for names in (tasks.TASKS, filters.FILTERS):
        for name in [name for name in names if ":" in name]:
            del names[name]
