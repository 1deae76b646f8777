"""The rules of the architecture, read from the imports; and `import grokfast` loads torch and nothing heavier."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import grokfast

SOURCE = Path(grokfast.__file__).parent
LAB = sorted((SOURCE / "lab").rglob("*.py"))

# What each module of ours may import of ours. `filters` stands for the package and all modules in it.
MAY_IMPORT = {
    "checks": set(),
    "filters": {"checks", "filters"},
    "binding": {"binding", "checks", "filters", "stages"},
    "stages": set(),
    "functional": {"filters"},
    "__init__": {"binding", "filters", "functional", "stages"},
}


def imports(path: Path, *, top_level: bool = False) -> set[str]:
    """Full names of everything a file imports, `from a import b` as a.b; at import time only if `top_level`."""
    tree = ast.parse(path.read_text())
    found: set[str] = set()
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def room(path: Path) -> str:
    """The module of ours that a file is part of, as MAY_IMPORT calls it."""
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


CORE = [path for path in sorted(SOURCE.rglob("*.py")) if room(path) in MAY_IMPORT]


def test_every_module_of_the_core_has_a_rule() -> None:
    apart = {"lab", "optax", "integrations"}  # extras: they stand on the public names
    rooms = {room(path) for path in SOURCE.rglob("*.py")}
    assert rooms - apart == set(MAY_IMPORT)


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_core_modules_import_only_what_they_may(path: Path) -> None:
    ours = {name.split(".")[1] for name in imports(path) if name.startswith("grokfast.")}
    assert ours <= MAY_IMPORT[room(path)]


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_core_modules_need_torch_and_the_standard_library_only(path: Path) -> None:
    roots = {name.split(".")[0] for name in imports(path)}
    foreign = roots - {"torch", "grokfast"} - sys.stdlib_module_names
    assert foreign <= ({"scipy"} if path.name == "linear.py" else set())
    assert "scipy" not in {name.split(".")[0] for name in imports(path, top_level=True)}


def test_the_optax_twins_import_jax_and_optax_only() -> None:
    paths = sorted((SOURCE / "optax").glob("*.py"))
    assert paths
    for path in paths:
        roots = {name.split(".")[0] for name in imports(path) if not name.startswith("grokfast.optax.")}
        assert roots - sys.stdlib_module_names <= {"jax", "optax"}, path.name


def test_filters_know_no_optimizer() -> None:
    for path in (SOURCE / "filters").glob("*.py"):
        assert not any(name.startswith("torch.optim") for name in imports(path))
        assert "optimizer.state" not in path.read_text()


@pytest.mark.parametrize("path", LAB, ids=lambda path: str(path.relative_to(SOURCE)))
def test_lab_uses_public_names_only(path: Path) -> None:
    public = {name for name in vars(grokfast) if not name.startswith("_")} | {"__version__"}
    for name in imports(path):
        parts = name.split(".")
        if parts[0] == "grokfast" and len(parts) > 1 and parts[1] != "lab":
            assert len(parts) == 2, f"{path.name} imports {name}"
            assert parts[1] in public, f"{path.name} imports {name}"
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "grokfast":
            assert node.attr in public | {"lab"}, f"{path.name} uses grokfast.{node.attr}"


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(SOURCE)))
def test_core_modules_never_print_and_never_seed(path: Path) -> None:
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    assert not {ast.unparse(call) for call in calls} & {"print", "torch.manual_seed", "torch.seed", "random.seed"}


def loaded_by(statement: str) -> set[str]:
    script = f"{statement}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout))


def test_importing_grokfast_loads_torch_and_nothing_heavier() -> None:
    extra = loaded_by("import torch, grokfast") - loaded_by("import torch")
    ours = {name for name in extra if name.split(".")[0] == "grokfast"}
    assert not any(name.startswith("grokfast.lab") for name in ours)
    assert extra - ours <= set(sys.stdlib_module_names)
    assert not extra & {"scipy", "matplotlib", "jax", "optax", "torch._dynamo", "torch._inductor"}


def test_public_names_are_those_promised() -> None:
    promised = {
        "EMA", "FIR", "IIR", "MA", "Butterworth", "Filter", "Attachment", "Saturation", "Trigger",
        "attach", "gradfilter_ema", "gradfilter_ma",
    }  # fmt: skip
    assert promised <= set(vars(grokfast))
    assert callable(grokfast.attach)
