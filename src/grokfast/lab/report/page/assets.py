"""The files that a page is made of."""

from __future__ import annotations

from pathlib import Path

ASSETS = Path(__file__).parent


def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
