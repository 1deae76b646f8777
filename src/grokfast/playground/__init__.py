"""The playground: two small networks race in a browser, one of them with a filter. One page, no network needed."""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path

ROOM = Path(__file__).parent
ENGINE = ("network", "optimizer", "race")  # what a worker of the page needs
PAGE = ("settings", "response", "story", "drawing", "page")


def page(home: str | None = None) -> str:
    """The page as one HTML file, with a link to `home` above it."""
    parts = {
        "home": "" if home is None else f'<a class="home" href="{escape(home)}">grokfast</a>',
        "style": read("style.css"),
        "engine": script(*ENGINE),
        "page": script(*PAGE),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda slot: parts[slot[1]], read("index.html"))


def script(*modules: str) -> str:
    """Modules as one classic script: a worker made of text cannot import, and neither can a page opened as a file."""
    text = "".join(read(f"{module}.js") for module in modules)
    text = re.sub(r"^import .*\n", "", text, flags=re.MULTILINE)
    return '"use strict";\n' + re.sub(r"^export ", "", text, flags=re.MULTILINE)


def read(name: str) -> str:
    return (ROOM / name).read_text(encoding="utf-8")


def write_page(path: Path) -> None:
    """Write the page to a file that is never seen half-written."""
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.write_text(page(), encoding="utf-8")
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
