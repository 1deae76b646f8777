"""Tables and text as HTML: whatever comes from a run is escaped."""

from __future__ import annotations

import html
from collections.abc import Sequence

SCROLL = 'class=scroll tabindex=0 role=region aria-label="table, scrolls sideways"'


def table(lines: Sequence[Sequence[str]]) -> str:
    """A table whose first line is its head and whose first column names the others; wide ones scroll by themselves."""
    head = "".join(f"<th scope=col>{escape(text)}</th>" for text in lines[0])
    rows = ((escape(line[0]), "".join(f"<td>{escape(text)}</td>" for text in line[1:])) for line in lines[1:])
    body = "".join(f"<tr><th scope=row>{name}</th>{cells}</tr>" for name, cells in rows)
    return f"<div {SCROLL}><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def escape(text: str) -> str:
    return html.escape(text)
