"""Every Python block of README and docs runs as it stands, page by page, and every relative link leads somewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(\s*)```(.*)$")
LINK = re.compile(r"\]\(([^)\s]+)\)")
# A block in another language, or in none, would escape the test.
LANGUAGES = {"python", "sh", "text"}

# Lightning's own: it uses a name that torch has deprecated, and wants more workers than a tiny data set needs.
HOST_WARNINGS = [".*treespec, LeafSpec.*is deprecated", ".*does not have many workers"]
RUN_PAGE = f"""
import os, runpy, sys, warnings
for message in {HOST_WARNINGS!r}:
    warnings.filterwarnings("ignore", message)
runpy.run_path("page.py", run_name="__main__")
sys.stdout.flush()
os._exit(0)  # gloo's threads may abort an orderly exit
"""

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


def run(command: list[str], cwd: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(cwd)}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


PAGES_WITH_CODE = [page for page in PAGES if script(page.read_text()).strip()]


def test_the_pages_have_code() -> None:
    assert {"README.md", "docs/howto.md", "docs/hosts/optax.md"} <= {name(page) for page in PAGES_WITH_CODE}


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=name)
def test_python_blocks_run_as_they_stand(page: Path, tmp_path: Path) -> None:
    if page.name == "timm.md" and importlib.util.find_spec("torchvision") is None:
        pytest.skip("timm needs torchvision; tests/integrations/test_timm.py runs this page without it")
    (tmp_path / "page.py").write_text(script(page.read_text()))
    if "load_runs" in page.read_text():  # there must be something to load
        run([sys.executable, "-m", "grokfast.lab.commands.cli", *TINY_RUN], tmp_path)
    run([sys.executable, "-W", "error", "-c", RUN_PAGE], tmp_path)


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
