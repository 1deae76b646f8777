"""A real browser, for the tests of pages; a page stays open for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from browser import Visit, visits
from browser import browser as browser


@pytest.fixture(scope="module")
def visit(browser: Any) -> Iterator[Visit]:
    yield from visits(browser, ready=".view svg")
