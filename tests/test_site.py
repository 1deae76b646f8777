"""The documentation site: built strictly, it opens offline, and its reference has every public name with an example."""

import importlib.util
import pkgutil
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

import grokfast
import grokfast.lab
import grokfast.optax

ROOT = Path(__file__).parents[1]
REFERENCE = re.findall(r"^::: ([\w.]+)$", (ROOT / "docs" / "api.md").read_text(), flags=re.MULTILINE)


def exported(module: ModuleType) -> set[str]:
    """The names that a module exports by `import x as x`, as full names."""
    names = re.findall(r"^ *from .* import (\w+) as \1$", Path(module.__file__ or "").read_text(), flags=re.MULTILINE)
    return {f"{module.__name__}.{name}" for name in names}


PUBLIC = {
    *(f"grokfast.{name}" for name in grokfast.__all__),
    *(f"grokfast.optax.{name}" for name in grokfast.optax.__all__),
    *exported(grokfast.lab),
    "grokfast.integrations.lightning.GrokfastCallback",
    "grokfast.integrations.transformers.GrokfastCallback",
    "grokfast.integrations.transformers.grokfast_optimizer",
}


def find(dotted: str) -> object:
    """What a full name stands for: a function, not the module of the same name."""
    module, _, name = dotted.rpartition(".")
    return pkgutil.resolve_name(f"{module}:{name}")


def test_the_public_names_are_known() -> None:
    assert {"grokfast.EMA", "grokfast.optax.ema", "grokfast.lab.ab", "grokfast.lab.load_runs"} <= PUBLIC


def test_every_public_name_is_in_the_reference_once() -> None:
    shown = [find(dotted) for dotted in REFERENCE]
    assert {dotted: shown.count(find(dotted)) for dotted in PUBLIC} == dict.fromkeys(PUBLIC, 1)


@pytest.mark.parametrize("dotted", REFERENCE)
def test_every_name_of_the_reference_has_a_docstring(dotted: str) -> None:
    assert find(dotted).__doc__


@pytest.mark.parametrize("dotted", sorted(PUBLIC))
def test_every_public_name_has_an_example(dotted: str) -> None:
    assert ">>> " in (find(dotted).__doc__ or "")  # pytest runs it as a doctest


# The pages ------------------------------------------------------------------------------------------------------------


class Links(HTMLParser):
    """What a page of the site loads, where its links lead, and the names that links can lead to."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.loaded: set[str] = set()
        self.links: set[str] = set()
        self.names: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {key: value or "" for key, value in attrs}
        self.names |= {found[key] for key in ("id", "name") if key in found}
        if tag == "a" and "href" in found:
            self.links.add(found["href"])
        elif tag == "link" and found.get("rel") in ("stylesheet", "icon"):
            self.loaded.add(found["href"])
        elif "src" in found:
            self.loaded.add(found["src"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> dict[Path, Links]:
    folder = tmp_path_factory.mktemp("site")
    # Not --quiet: strict mode counts the warnings that are logged.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return {page: Links(page) for page in sorted(folder.rglob("*.html")) if page.name != "404.html"}


def test_the_site_loads_nothing_from_elsewhere(site: dict[Path, Links]) -> None:
    for page, found in site.items():
        for loaded in found.loaded:
            assert loaded.startswith("data:") or (page.parent / unquote(loaded)).exists(), f"{page.name} loads {loaded}"


def test_every_link_of_the_site_leads_to_a_file_and_a_heading(site: dict[Path, Links]) -> None:
    for page, found in site.items():
        for link in found.links:
            path, _, anchor = unquote(link).partition("#")
            if ":" in path:
                continue
            target = (page.parent / path).resolve() if path else page
            assert target.is_file(), f"{page.name} links to {link}"
            assert not anchor or anchor in site[target].names, f"{page.name} links to {link}"


def test_readme_and_changelog_are_pages_of_the_site(site: dict[Path, Links]) -> None:
    texts = {page.name: page.read_text() for page in site}
    assert "Does it help?" in texts["index.html"]
    assert "Unreleased" in texts["changelog.html"]


# The hooks ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_links_of_the_repository_become_links_of_the_site(hooks: ModuleType) -> None:
    def relink(text: str, source: str, page: str) -> str:
        return hooks.relink(text, source, page, "")

    assert relink("[a](docs/howto.md#b)", "README.md", "index.md") == "[a](howto.md#b)"
    assert relink("[a](../README.md)", "docs/when.md", "when.md") == "[a](index.md)"
    assert relink("![a](docs/x.png)", "README.md", "hosts/y.md") == "![a](../x.png)"
    assert relink("[a](../../examples/ddp.py)", "docs/hosts/y.md", "hosts/y.md") == "[a](../examples/ddp.md)"
    assert relink("[a](https://b.c) [d](#e)", "README.md", "index.md") == "[a](https://b.c) [d](#e)"
    assert relink("```sh\n[a](results)\n```", "README.md", "index.md") == "```sh\n[a](results)\n```"


def test_links_that_leave_the_site_need_the_address_of_the_repository(hooks: ModuleType) -> None:
    assert hooks.relink("see [runs](results)", "README.md", "index.md", "") == "see runs"
    known = hooks.relink("see [runs](results)", "README.md", "index.md", "https://host/project/")
    assert known == "see [runs](https://host/project/blob/HEAD/results)"


def test_a_new_page_of_a_folder_is_in_the_navigation(hooks: ModuleType) -> None:
    nav = [{"How to": ["howto.md", {"Frameworks": ["hosts/README.md", "hosts/*"]}]}]
    pages = ["hosts/README.md", "hosts/new.md", "howto.md"]
    assert hooks.expand(nav, pages) == [{"How to": ["howto.md", {"Frameworks": ["hosts/README.md", "hosts/new.md"]}]}]
