"""A real browser, for the tests of pages: `from browser import browser, visit` in a conftest.py."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One for a module: to start it takes longer than most tests."""
    if BROWSER is None:
        pytest.skip("needs chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Any) -> Iterator[Visit]:
    """See `visits`; pages are closed after each test."""
    yield from visits(browser)


def visits(browser: Any, ready: str = "body") -> Iterator[Visit]:
    """Opens a page at a width, in the dark unless told otherwise; its errors and requests are kept on it.

    A page is ready once it has an element `ready`.
    """
    opened: list[Any] = []

    def open_page(path: Path, *, width: int = 1200, ready: str = ready, hash: str = "", **options: Any) -> Any:
        page: Any = browser.new_page(viewport={"width": width, "height": 900}, **{"color_scheme": "dark", **options})
        opened.append(page)
        page.complaints, page.requests = [], []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto(path.as_uri() + hash)
        page.wait_for_selector(ready)
        return page

    yield open_page
    for page in opened:
        page.close()
