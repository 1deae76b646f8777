"""Hooks of the documentation site (mkdocs.yml): pages made of files outside docs/, and links that lead out of docs/."""

import ast
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Link, Navigation
from mkdocs.structure.pages import Page

from grokfast import playground

ROOT = Path(__file__).parents[1]
PLAYGROUND = "src/grokfast/playground/index.html"
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
# Files of the repository, and the pages that the site makes of them. Files below docs/ keep their place.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "examples": "examples/index.md",
    PLAYGROUND: "playground.html",
    **{f"examples/{script.name}": f"examples/{script.stem}.md" for script in SCRIPTS},
}
SOURCES = {page: source for source, page in PAGES.items()}
FENCE = re.compile(r"(^```.*?^```$)", flags=re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
INCLUDE = re.compile(r"<!-- include (the table of )?(\S+): (.+?) -->.*?<!-- /include -->", flags=re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of files outside docs/, and list whole folders in the navigation."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=page_of(source)))
    pages = sorted(file.src_uri for file in files.documentation_pages())
    config.nav = expand(config.nav, pages)
    return files


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    """Add the playground, which is no page of Markdown, behind the first page."""
    nav.items.insert(1, Link("Playground", PAGES[PLAYGROUND]))
    return nav


def page_of(source: str) -> str:
    """A file of the repository as Markdown; the playground as it is."""
    if source == "examples":
        lines = [f"- [{script.name}](examples/{script.name}): {opening(script)}" for script in SCRIPTS]
        return "\n".join(["# Examples", "", "Short scripts to copy. The tests run each of them.", "", *lines])
    if source == PLAYGROUND:
        return playground.page(home="index.html")
    text = (ROOT / source).read_text()
    return text if source.endswith(".md") else f"# {posixpath.basename(source)}\n\n```python\n{text}```\n"


def opening(script: Path) -> str:
    """The first paragraph of a script's docstring; of a notebook, which has none, its title."""
    text = script.read_text()
    found = ast.get_docstring(ast.parse(text)) or text.split("# # ")[1]
    return " ".join(re.split(r"\n#?\n", found)[0].split())


def expand(nav: Any, pages: list[str]) -> Any:
    """The navigation, with FOLDER/* replaced by the pages of that folder that are not named beside it."""
    if isinstance(nav, dict):
        return {title: expand(inside, pages) for title, inside in nav.items()}
    if isinstance(nav, str):
        return nav
    found: list[Any] = []
    for item in nav:
        if isinstance(item, str) and item.endswith("/*"):
            found += [page for page in pages if posixpath.dirname(page) == item[:-2] and page not in nav]
        else:
            found.append(expand(item, pages))
    return found


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links within the repository links within the site, and fill in sections of other pages."""
    here, url = page.file.src_uri, config.repo_url or ""
    text = relink(markdown, SOURCES.get(here, f"docs/{here}"), here, url)

    def fill(match: re.Match[str]) -> str:
        found = section(match[2], match[3])
        return relink(table(found) if match[1] else found, match[2], here, url)

    return INCLUDE.sub(fill, text)


def section(source: str, heading: str) -> str:
    """What stands below a heading of a file, up to the next heading."""
    below = re.compile(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", flags=re.MULTILINE | re.DOTALL)
    if found := below.search((ROOT / source).read_text()):
        return found[1].strip()
    raise ValueError(f"{source} has no heading {heading!r}")


def table(text: str) -> str:
    """The rows of the tables in a text, without what stands around them."""
    return "\n".join(line for line in text.splitlines() if line.startswith("|"))


def relink(text: str, source: str, here: str, url: str) -> str:
    """The Markdown of a file for a page of the site; its code blocks stay as they are."""
    base = "" if source == "examples" else posixpath.dirname(source)

    def link(match: re.Match[str]) -> str:
        target = locate(match[2], base, here, url)
        return match[1] if target is None else f"[{match[1]}]({target})"

    parts = FENCE.split(text)
    return "".join(part if part.startswith("```") else LINK.sub(link, part) for part in parts)


def locate(link: str, base: str, here: str, url: str) -> str | None:
    """Where a link leads on the site; None if it leads out of it and nobody knows the address of the repository."""
    path, mark, anchor = link.partition("#")
    if not path or "://" in link:
        return link
    target = posixpath.normpath(posixpath.join(base, path))
    page = PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
    if page is None:
        return f"{url.rstrip('/')}/blob/HEAD/{target}" if url else None
    return posixpath.relpath(page, posixpath.dirname(here) or ".") + mark + anchor
