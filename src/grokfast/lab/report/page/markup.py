"""Tables and text as HTML: whatever comes from a run is escaped."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from html import escape

SCROLL = 'class=scroll tabindex=0 role=region aria-label="table, scrolls"'
BLANK = ("", "-")
NAME, LONG = 20, 40  # letters; the first column, or another, with longer cells is wrapped


def table(lines: Sequence[Sequence[str]], *, mark: Callable[[int, str], bool] = lambda column, text: False) -> str:
    """A table whose first line is its head and whose first column names the others; wide ones scroll by themselves.

    `mark` says which cells to highlight, by column and text. A column without any value is left out.
    """
    kept = [i for i in range(len(lines[0])) if i == 0 or any(line[i] not in BLANK for line in lines[1:])]
    long = {i for i in kept if any(len(line[i]) > (LONG if i else NAME) for line in lines[1:])}
    head = "".join(f"<th scope=col{look(i in long)}>{escape(lines[0][i])}</th>" for i in kept)
    rows = ("".join(cell(i, line[i], mark(i, line[i]), i in long) for i in kept) for line in lines[1:])
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<div {SCROLL}><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def titled_table(title: str, lines: Sequence[Sequence[str]]) -> str:
    """A table under its title; nothing where there are no lines."""
    return f"<h3>{title}</h3>{table(lines)}" if lines else ""


def look(long: bool) -> str:
    return " class=long" if long else ""


def cell(column: int, text: str, marked: bool, long: bool) -> str:
    shown = "<span class=soft>&ndash;</span>" if text in BLANK else escape(text)
    shown = f"<mark>{shown}</mark>" if marked else shown
    return f"<td{look(long)}>{shown}</td>" if column else f"<th scope=row{look(long)}>{shown}</th>"


def commands(lines: Iterable[str]) -> str:
    """Commands to copy, each of which wraps by itself, between its flags."""
    parts = (" ".join(f"<span>{escape(flag)}</span>" for flag in re.split(" (?=--)", line)) for line in lines)
    return f'<pre tabindex="0">{"".join(f"<code>{part}</code>" for part in parts)}</pre>'


def prose(text: str) -> str:
    """Escaped text in which `words` between backticks are code.

    >>> prose("a < b by `--level`")
    'a &lt; b by <code>--level</code>'
    """
    return re.sub(r"`(.+?)`", r"<code>\1</code>", escape(text))


def bullets(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""
