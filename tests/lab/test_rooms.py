"""Within the lab imports go one way, from what a user types down to what a run is made of."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import grokfast.lab

LAB = Path(grokfast.lab.__file__).parent
FILES = sorted(LAB.rglob("*.py"))
# A room may import itself and the rooms after it. Rooms in one group do not know each other, but for PAIRS.
ORDER = (
    ("commands",),
    ("report",),
    ("search",),
    ("tables", "analysis", "paper"),
    ("training",),
    ("runs",),
    ("settings",),
    ("filters", "tasks", "values"),
    ("own_code", "stats"),
)
PAIRS = {("tables", "paper"), ("tables", "analysis"), ("analysis", "tables")}
ROOMS = {room for group in ORDER for room in group}
FLOOR = {room: number for number, group in enumerate(ORDER) for room in group}


def imported_rooms(text: str) -> set[str]:
    """The rooms of the lab that a file imports, also inside functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {name.split(".")[2] for name in names if name.startswith("grokfast.lab.")}
    return found


def forbidden(room: str, text: str) -> set[str]:
    """The rooms that a file of this room imports and must not."""
    found = imported_rooms(text) - {room}
    return {other for other in found if FLOOR[other] <= FLOOR[room] and (room, other) not in PAIRS}


def room_of(path: Path) -> str:
    return path.relative_to(LAB).with_suffix("").parts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LAB)))
def test_a_room_imports_only_the_rooms_below_it(path: Path) -> None:
    if room_of(path) != "__init__":
        assert not forbidden(room_of(path), path.read_text())


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("runs", "from grokfast.lab.training import loop"),
        ("search", "def f():\n    import grokfast.lab.report.page"),
        ("tasks", "from grokfast.lab import runs"),
        ("tasks", "from grokfast.lab.settings import resolve"),
        ("report", "from grokfast.lab.commands.terminal import complain"),
    ],
)
def test_an_import_that_goes_up_is_found(room: str, text: str) -> None:
    assert forbidden(room, text)


def test_only_the_commands_print() -> None:
    for path in FILES:
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        prints = {ast.unparse(call) for call in calls} & {"print", "Console", "sys.stdout.write"}
        assert not prints or path.parent.name == "commands", path


def test_every_room_is_known_and_says_what_it_is() -> None:
    assert {room_of(path) for path in FILES} <= {*ROOMS, "__init__"}
    for package in LAB.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(package.read_text())), package
