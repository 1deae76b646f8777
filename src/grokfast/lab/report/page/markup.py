"""Tables and text as HTML: whatever comes from a run is escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape

SCROLL = 'class=scroll tabindex=0 role=region aria-label="table, scrolls sideways"'


def table(lines: Sequence[Sequence[str]], *, mark: Callable[[int, str], bool] = lambda column, text: False) -> str:
    """A table whose first line is its head and whose first column names the others; wide ones scroll by themselves.

    `mark` says which cells to highlight, by column and text.
    """
    head = "".join(f"<th scope=col>{escape(text)}</th>" for text in lines[0])
    rows = ("".join(cell(i, text, mark(i, text)) for i, text in enumerate(line)) for line in lines[1:])
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<div {SCROLL}><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def titled_table(title: str, lines: Sequence[Sequence[str]]) -> str:
    """A table under its title; nothing where there are no lines."""
    return f"<h3>{title}</h3>{table(lines)}" if lines else ""


def cell(column: int, text: str, marked: bool) -> str:
    shown = f"<mark>{escape(text)}</mark>" if marked else escape(text) or "<span class=soft>&ndash;</span>"
    return f"<td>{shown}</td>" if column else f"<th scope=row>{shown}</th>"


def prose(text: str) -> str:
    """Escaped text in which `words` between backticks are code.

    >>> prose("a < b by `--level`")
    'a &lt; b by <code>--level</code>'
    """
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escape(text))


def bullets(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""
