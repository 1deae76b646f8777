"""A release has one version, a changelog that people can read, a citation, and workflows that call what exists."""

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import grokfast

ROOT = Path(__file__).parents[2]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
MAKEFILE = (ROOT / "Makefile").read_text()
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
KINDS = ["Added", "Changed", "Fixed", "Removed"]
TARGETS = set(re.findall(r"^([a-z]+):", MAKEFILE, flags=re.MULTILINE))
VERSIONS = runpy.run_path(str(ROOT / "tools" / "versions.py"))
each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)


def load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in load(path)["jobs"].values() for step in job["steps"]]


def sections(text: str) -> list[tuple[str, str]]:
    """Each version of the changelog with its text."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def test_the_version_stands_in_one_place() -> None:
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text()
    told = subprocess.run(["git", "grep", "-lF", f'"{grokfast.__version__}"', "src"], cwd=ROOT, capture_output=True)
    assert told.stdout.decode().split() in (["src/grokfast/__init__.py"], [])  # none: not a checkout


def test_the_changelog_begins_with_unreleased_and_knows_this_version() -> None:
    names = [name for name, _ in sections(CHANGELOG)]
    assert names[0] == "Unreleased"
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \((unreleased|\d{4}-\d\d-\d\d)\)", name) for name in names[1:]), names
    assert grokfast.__version__ in {"0.1.0", *(name.split()[0] for name in names)}  # 0.1.0 is not released yet


@pytest.mark.parametrize(("name", "text"), sections(CHANGELOG), ids=lambda value: value.split()[0][:12])
def test_changes_are_sorted_by_kind(name: str, text: str) -> None:
    before, *parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
    kinds, lists = parts[::2], parts[1::2]
    assert kinds == [kind for kind in KINDS if kind in kinds], f"{name}: {kinds}"
    assert not re.search("^- ", before, flags=re.MULTILINE), f"{name}: a change stands under no kind"
    assert all(re.search("^- ", entries, flags=re.MULTILINE) for entries in lists), f"{name}: a kind has no change"


def test_the_citation_names_this_version_and_the_paper() -> None:
    citation = load(ROOT / "CITATION.cff")
    assert str(citation["version"]) == grokfast.__version__
    assert citation["authors"] == [{"name": "grokfast contributors"}]
    paper = citation["preferred-citation"]
    assert [person["family-names"] for person in paper["authors"]] == ["Lee", "Kang", "Kim", "Lee"]
    assert paper["identifiers"][0]["value"] == "arXiv:2405.20233"


def test_make_without_a_target_lists_every_target() -> None:
    done = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = re.findall(r"^make (\w+) +\S", done.stdout, flags=re.MULTILINE)
    assert listed == re.findall(r"^([a-z]+):", MAKEFILE, flags=re.MULTILINE)
    assert set(listed) == set(re.findall(r"^\.PHONY: (.+)$", MAKEFILE, flags=re.MULTILINE)[0].split())


def test_the_hooks_run_what_the_gate_runs() -> None:
    hooks = load(ROOT / ".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert {(hook["entry"], *hook["stages"]) for hook in hooks} == {
        ("make lint", "pre-commit"),
        ("make test", "pre-push"),
    }
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith("\nmake test")


@each_workflow
def test_a_workflow_calls_targets_that_exist(path: Path) -> None:
    called = {name for step in steps(path) for name in re.findall(r"\bmake (\w+)", step.get("run", ""))}
    assert called <= TARGETS, path.name


@each_workflow
def test_actions_are_pinned_by_major_version(path: Path) -> None:
    for used in [step["uses"] for step in steps(path) if "uses" in step]:
        assert re.fullmatch(r"(actions/[\w-]+@v\d+|pypa/gh-action-pypi-publish@release/v1)", used), used


@each_workflow
def test_only_a_job_that_publishes_may_write(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    writing = {name for name, job in workflow["jobs"].items() if "write" in job.get("permissions", {}).values()}
    assert writing <= {"publish", "deploy"}


def test_claims_about_versions_are_those_that_are_tested() -> None:
    jobs = load(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]
    pairs = [f"{pair['python']}+{pair['torch']}" for pair in jobs["core"]["strategy"]["matrix"]["include"]]
    assert pairs == list(VERSIONS["PAIRS"])
    project = (ROOT / "pyproject.toml").read_text()
    oldest, newest = (tuple(pair.split("+")) for pair in pairs)
    assert f'requires-python = ">={oldest[0]}"' in project
    assert f'dependencies = ["torch>={oldest[1].removesuffix(".0")}"]' in project
    pinned = re.findall(r"^torch==(\d+\.\d+)", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)[0]
    suite = next(step["with"]["python-version"] for step in jobs["suite"]["steps"] if "with" in step)
    hosts = " ".join((ROOT / "docs" / "hosts.md").read_text().split())
    for python, torch in (oldest, newest, (suite, pinned)):
        assert f"Python {python} and torch {torch}" in hosts
        assert f'"Programming Language :: Python :: {python}"' in project


def test_the_core_needs_no_extra() -> None:
    helpers = {path.stem for path in (ROOT / "tests").glob("*.py")}
    there = {*helpers, *VERSIONS["PACKAGES"].split(), *sys.stdlib_module_names, "grokfast", "torch"}
    for path in (ROOT / "tests").glob("test_*.py"):
        if path.name not in VERSIONS["ELSEWHERE"].split():
            names = top_level_imports(path)
            assert {name.split(".")[0] for name in names} <= there, path.name
            assert not any(name.startswith(("grokfast.lab", "grokfast.optax")) for name in names), path.name


def test_the_tests_that_an_old_torch_skips_exist() -> None:
    skipped = {
        test for _, _, tests in runpy.run_path(str(ROOT / "tests" / "conftest.py"))["FEATURES"] for test in tests
    }
    defined = {
        name for path in (ROOT / "tests").glob("test_*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert skipped <= defined


def top_level_imports(path: Path) -> set[str]:
    nodes = ast.parse(path.read_text()).body
    direct = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return direct | {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
