"""Within the lab imports go one way, from what a person types down to what a run is made of."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import grokfast.lab

LAB = Path(grokfast.lab.__file__).parent
FILES = sorted(LAB.rglob("*.py"))
# A room may import itself and the rooms after it.
ORDER = ("commands", "report", "duel", "sweep", "compare", "analysis", "training", "runs", "paper", "tasks", "ground")
NEIGHBOURS = {("compare", "analysis"), ("paper", "ground"), ("tasks", "ground"), ("ground", "tasks")}
GROUND = {"config", "filters", "own_code", "request", "stats", "values"}  # modules on the ground floor of lab/
NEVER = {("compare", "training"), ("analysis", "training"), ("report", "training"), ("runs", "paper")}


def room_of(name: str) -> str:
    """The room of a module by its name below grokfast.lab."""
    first = name.split(".")[0]
    return "ground" if first in GROUND or not first else first


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
        found |= {room_of(name.removeprefix("grokfast.lab.")) for name in names if name.startswith("grokfast.lab.")}
    return found


def forbidden(room: str, text: str) -> set[str]:
    """The rooms that a file of this room imports and must not."""
    allowed = set(ORDER[ORDER.index(room) :]) | {other for mine, other in NEIGHBOURS if mine == room}
    return {other for other in imported_rooms(text) if other not in allowed or (room, other) in NEVER}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(LAB)))
def test_a_room_imports_only_the_rooms_below_it(path: Path) -> None:
    parts = path.relative_to(LAB).with_suffix("").parts
    if parts == ("__init__",):
        assert imported_rooms(path.read_text()) == {"runs", "duel", "analysis", "compare", "training"}
        return
    assert not forbidden(room_of(parts[0]), path.read_text())


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("runs", "from grokfast.lab.training import loop"),
        ("compare", "from grokfast.lab.training.loop import train"),
        ("sweep", "def f():\n    import grokfast.lab.report.page"),
        ("tasks", "from grokfast.lab import runs"),
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


def test_the_ground_floor_stays_small_and_every_room_says_what_it_is() -> None:
    assert {path.stem for path in LAB.glob("*.py")} == GROUND | {"__init__"}
    for package in LAB.rglob("__init__.py"):
        assert ast.get_docstring(ast.parse(package.read_text())), package


def test_the_median_over_seeds_has_one_home() -> None:
    homes = [path for path in FILES if "statistics.median" in path.read_text() or "fmean(" in path.read_text()]
    inside = {"stats.py", "compare/seeds.py", "training/plan.py", "compare/sensitivity.py"}
    assert {str(path.relative_to(LAB)) for path in homes} <= inside  # the others are over runs of one kind, not seeds
