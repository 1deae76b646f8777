from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grokfast.lab.filters import FILTERS
from grokfast.lab.tasks import TASKS


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture(autouse=True)
def forget_own_code() -> Iterator[None]:
    """Tasks and filters of a user's own that one test has loaded are not known to the next."""
    before = dict(TASKS), dict(FILTERS)
    yield
    for known, names in zip((TASKS, FILTERS), before, strict=True):
        known.clear()
        known.update(names)  # type: ignore[arg-type]
