"""The extras and constraints.txt agree: what can be installed is pinned, and what is pinned can be installed."""

import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
import tomllib  # pyright: ignore[reportMissingImports]  # Python 3.11
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
PINS = {
    canonicalize_name(name): version
    for name, version in (line.split("==") for line in (ROOT / "constraints.txt").read_text().split())
}
DIRECT = sorted({*PROJECT["dependencies"], *(text for texts in EXTRAS.values() for text in texts)})
made_here = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11) or sys.platform != "linux", reason="the pins were made on Linux with Python 3.11"
)


def requirements(name: str, extras: frozenset[str]) -> list[Requirement]:
    """What a distribution needs here, ours as pyproject.toml says and others as installed."""
    if name == PROJECT["name"]:
        texts = [*PROJECT["dependencies"], *(text for extra in extras for text in EXTRAS[extra])]
    else:
        texts = requires(name) or []
    wanted = [Requirement(text) for text in texts]
    return [
        item for item in wanted if not item.marker or any(item.marker.evaluate({"extra": x}) for x in (*extras, ""))
    ]


def reachable() -> set[str]:
    """Every distribution that some extra installs, directly or not."""
    found: set[tuple[str, frozenset[str]]] = set()
    todo = [(str(PROJECT["name"]), frozenset(EXTRAS))]
    while todo:
        found.add(node := todo.pop())
        needs = {(str(canonicalize_name(item.name)), frozenset(item.extras)) for item in requirements(*node)}
        todo += needs - found
    return {name for name, _ in found} - {PROJECT["name"]}


@pytest.mark.parametrize("text", [text for text in DIRECT if not text.startswith(PROJECT["name"])])
def test_every_requirement_is_pinned_within_its_range(text: str) -> None:
    wanted = Requirement(text)
    assert wanted.specifier.contains(PINS[canonicalize_name(wanted.name)]), text


def test_every_extra_of_ours_that_is_named_exists() -> None:
    ours = [Requirement(text) for text in DIRECT if text.startswith(PROJECT["name"])]
    assert {extra for item in ours for extra in item.extras} <= set(EXTRAS)


@made_here
def test_pins_are_what_the_extras_install_and_nothing_else() -> None:
    assert set(PINS) == reachable()


def test_pins_are_sorted_and_single() -> None:
    names = [line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().split()]
    assert names == sorted(set(names))
