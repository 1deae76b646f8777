from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from grokfast.lab.filters import FILTERS
from grokfast.lab.settings import OPTIMIZERS
from grokfast.lab.tasks import TASKS


@pytest.fixture
def runs_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture(autouse=True)
def forget_own_code() -> Iterator[None]:
    """Tasks, filters and optimizers of a user's own that one test has loaded are not known to the next."""
    lists = TASKS, FILTERS, OPTIMIZERS
    before = [dict(known) for known in lists]
    yield
    for known, names in zip(lists, before, strict=True):
        known.clear()
        known.update(names)  # type: ignore[arg-type]
