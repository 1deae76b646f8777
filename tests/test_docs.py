"""README and docs: Python blocks run as they stand, commands are understood, links lead somewhere, names exist."""

import pkgutil
import re
import shlex
from pathlib import Path

import pytest

from forks import Fork, run_script
from grokfast.lab.commands.cli import build_parser, main
from grokfast.lab.paper import EXPERIMENTS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(\s*)```(.*)$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A block in another language, or in none, would escape the test.
LANGUAGES = {"python", "sh", "text"}

# Lightning's own: it uses a name that torch has deprecated, and wants more workers than a tiny data set needs.
HOST_WARNINGS = [".*treespec, LeafSpec.*is deprecated", ".*does not have many workers"]

TINY_RUN = ["train", "modmul", "--p", "5", "--width", "8", "--heads", "2", "--depth", "1", "--steps", "4", "--quiet"]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def fences(text: str) -> list[tuple[str, list[int]]]:
    """The language of each fenced block and the numbers (from 0) of its lines."""
    found: list[tuple[str, list[int]]] = []
    inside = False
    for number, line in enumerate(text.splitlines()):
        if fence := FENCE.match(line):
            inside = not inside
            if inside:
                found.append((fence[2].strip(), []))
        elif inside:
            found[-1][1].append(number)
    return found


def script(text: str) -> str:
    """The Python blocks of a page as one program, each line at the number that it has on the page."""
    lines = text.splitlines()
    code = {number for language, numbers in fences(text) if language == "python" for number in numbers}
    return "".join(f"{line if number in code else ''}\n" for number, line in enumerate(lines))


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    lines = text.splitlines()
    code = {number for _, numbers in fences(text) for number in numbers}
    return "\n".join(line for number, line in enumerate(lines) if number not in code)


def anchors(text: str) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


PAGES_WITH_CODE = [page for page in PAGES if script(page.read_text()).strip()]


def test_the_pages_have_code() -> None:
    assert {"README.md", "docs/recipes.md", "docs/moving.md", "docs/hosts.md"} <= {
        name(page) for page in PAGES_WITH_CODE
    }


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=name)
def test_python_blocks_run_as_they_stand(page: Path, tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text(script(page.read_text()))
    if "load_runs" in page.read_text():  # there must be something to load
        assert main([*TINY_RUN, "--runs-dir", str(tmp_path / "runs")]) == 0
    fork = Fork(run_script, tmp_path / "page.py", HOST_WARNINGS, cwd=tmp_path)
    assert fork.wait() == 0, fork.err


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_block_names_its_language(page: Path) -> None:
    assert {language for language, _ in fences(page.read_text())} <= LANGUAGES


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_relative_links_lead_to_files_and_headings(page: Path) -> None:
    for link in LINK.findall(prose(page.read_text())):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), f"{name(page)} links to {link}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target.read_text()), f"{name(page)} links to {link}"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_extras_are_installed_by_one_form_of_command(page: Path) -> None:
    for what in re.findall(r"pip install ([^`\n]+)", page.read_text()):
        assert re.fullmatch(r'\.|"grokfast\[\w+\]"', what.strip()), f"{name(page)}: pip install {what}"


def test_every_page_is_linked_from_another_one() -> None:
    linked = {
        (page.parent / link.partition("#")[0]).resolve()
        for page in PAGES
        for link in LINK.findall(prose(page.read_text()))
        if link.partition("#")[0] not in ("", page.name)
    }
    assert {name(page) for page in PAGES} - {"README.md", "CHANGELOG.md"} <= {
        str(target.relative_to(ROOT)) for target in linked if target.is_relative_to(ROOT)
    }


# Commands -----------------------------------------------------------------------------------------------------------


def understood(command: str) -> None:
    words = shlex.split(command)[1:]
    build_parser(words).parse_args(words)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_is_understood(page: Path) -> None:
    lines = page.read_text().splitlines()
    shell = [lines[n].partition("  #")[0] for language, ns in fences(page.read_text()) if language == "sh" for n in ns]
    for command in shell:
        if command.startswith("grokfast ") and ".py:" not in command:  # that code is not here
            understood(command)


def test_a_command_that_does_not_exist_is_not_understood() -> None:
    with pytest.raises(SystemExit):
        understood("grokfast reproduce --fig1")


# The paper in code --------------------------------------------------------------------------------------------------

PAPER = (ROOT / "docs" / "paper.md").read_text()


def test_every_name_of_the_paper_page_exists() -> None:
    names = re.findall(r"`((?:grokfast|torch)\.[\w.]+)`", PAPER)
    assert len(names) > 20
    for dotted in names:
        pkgutil.resolve_name(dotted)


def test_every_file_of_the_paper_page_exists() -> None:
    files = re.findall(r"`((?:src|tests)/[^`]+)`", PAPER)
    assert files
    assert all((ROOT / file).exists() for file in files)


def test_the_paper_page_has_every_experiment() -> None:
    assert set(re.findall(r"`grokfast reproduce (\w[\w-]*)`", PAPER)) == {e.name for e in EXPERIMENTS}


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`(grokfast [^`]+)`", PAPER))))
def test_every_command_of_the_paper_page_is_understood(command: str) -> None:
    if not command.endswith("--help"):
        understood(command)
