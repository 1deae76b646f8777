"""The rules of the architecture, read from the imports.

Each rule is a function of a file's path and text that returns the names that break it, so that it is tried on bad text
too.
"""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import grokfast

SOURCE = Path(grokfast.__file__).parent
FILES = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}

# Which modules of ours a module may import; `filters` stands for the package and for every module in it.
MAY_IMPORT = {
    "__init__": {"binding", "factory", "filters", "functional", "stages"},
    "__main__": {"lab"},  # the process of the command line
    "binding/__init__": set(),
    "binding/attach": {"binding/handle", "binding/step", "checks", "filters", "stages"},
    "binding/handle": {"binding/metrics", "binding/state", "binding/step", "checks", "filters", "stages"},
    "binding/metrics": {"binding/state", "binding/step", "filters"},
    "binding/step": {"binding/state", "checks", "filters"},
    "binding/state": {"filters", "stages"},
    "checks": set(),
    "factory": {"binding/attach", "filters"},
    "filters": {"checks", "filters"},
    "functional": {"binding/state", "binding/step", "filters"},
    "integrations/keras": {"checks"},  # a twin without torch, like optax
    "optax": {"checks"},
    "playground": set(),
    "stages": {"checks"},
}
MAY_NEED = {  # the rest: torch
    "__init__": set(),
    "__main__": set(),
    "checks": set(),
    "integrations/keras": {"keras", "numpy"},
    "optax": {"jax", "optax"},
    "playground": set(),
    "stages": set(),
}
ON_PUBLIC_NAMES = ("integrations", "lab")
PUBLIC = {*grokfast.__all__, "__version__", "playground/write_page"}


def is_within(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}/")


def room_of(path: str) -> str | None:
    """The key of MAY_IMPORT for a file."""
    return next((room for room in MAY_IMPORT if is_within(path.removesuffix(".py"), room)), None)


CORE = [path for path in FILES if room_of(path)]
OUTSIDE = [path for path in FILES if path.startswith(ON_PUBLIC_NAMES) and not room_of(path)]
each_core_file = pytest.mark.parametrize("path", CORE)


def imports(text: str, *, at_import: bool = False) -> set[str]:
    """Full names of all imports, `from a import b` as a.b, relative ones with their dots; or of the top level only."""
    tree = ast.parse(text)
    found: set[str] = set()
    for node in tree.body if at_import else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            found |= {f"{'.' * node.level}{node.module or ''}.{alias.name}" for alias in node.names}
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            found |= {arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)}
    return found


def own_imports(text: str) -> set[str]:
    """Imports of our own modules as paths: `binding/state`. Relative imports keep their dots and so match no room."""
    names = {name for name in imports(text) if name.startswith(("grokfast.", "."))}
    return {name.removeprefix("grokfast.").replace(".", "/") for name in names}


def forbidden_imports(path: str, text: str) -> set[str]:
    """Modules of ours that a module of the core may not import."""
    allowed = MAY_IMPORT[room_of(path) or ""]
    return {name for name in own_imports(text) if not any(is_within(name, room) for room in allowed)}


def foreign_packages(path: str, text: str) -> set[str]:
    """Packages that a module of the core may not need. The design of Butterworth needs scipy, when it is called."""
    roots = {name.split(".")[0] for name in imports(text)} - {"", "grokfast"} - sys.stdlib_module_names
    lazy = {"scipy"} if path == "filters/linear.py" else set()
    lazy -= {name.split(".")[0] for name in imports(text, at_import=True)}
    return roots - lazy - MAY_NEED.get(room_of(path) or "", {"torch"})


def private_names(path: str, text: str) -> set[str]:
    """Names of ours that a file outside the core uses though they are neither public nor in its own room."""
    nodes = list(ast.walk(ast.parse(text)))
    bound = [alias for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    aliases = {"grokfast"} | {alias.asname for alias in bound if alias.name == "grokfast"}
    used = {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in aliases
    }
    return {name for name in own_imports(text) | used if name not in PUBLIC and not is_within(name, path.split("/")[0])}


def global_effects(path: str, text: str) -> set[str]:
    """Calls that print or seed."""
    calls = {ast.unparse(node.func) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)}
    return calls & {"print", "torch.manual_seed", "torch.seed", "random.seed"}


# The files keep the rules -----------------------------------------------------------------------------------------


def test_every_module_has_a_rule() -> None:
    assert {path for path in FILES if not room_of(path)} == set(OUTSIDE)
    assert {room_of(path) for path in CORE} == set(MAY_IMPORT)


@each_core_file
def test_core_modules_import_only_what_they_may(path: str) -> None:
    assert not forbidden_imports(path, FILES[path])


@each_core_file
def test_core_modules_need_torch_and_the_standard_library_only(path: str) -> None:
    assert not foreign_packages(path, FILES[path])


@each_core_file
def test_core_modules_never_print_and_never_seed(path: str) -> None:
    assert not global_effects(path, FILES[path])


@pytest.mark.parametrize("path", OUTSIDE)
def test_lab_and_integrations_use_public_names_only(path: str) -> None:
    assert not private_names(path, FILES[path])


@pytest.mark.parametrize("path", [path for path in CORE if path.startswith("filters/")])
def test_filters_know_no_optimizer(path: str) -> None:
    assert not any(name.startswith("torch.optim") for name in imports(FILES[path]))
    assert "optimizer.state" not in FILES[path]


# The rules can fail -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("filters/ema.py", "from grokfast.binding.state import COUNT"),
        ("filters/ema.py", "import grokfast.binding"),
        ("filters/ema.py", "from grokfast import stages"),
        ("filters/ema.py", "from ..binding import state"),
        ("filters/ema.py", "def f():\n    from grokfast.functional import gradfilter_ema"),
        ("binding/state.py", "from grokfast.binding.handle import Attachment"),
        ("binding/step.py", "import importlib\nimportlib.import_module('grokfast.binding.attach')"),
        ("functional.py", "from grokfast.binding.handle import Attachment"),
        ("checks.py", "from grokfast.filters import EMA"),
        ("optax.py", "from grokfast.filters import EMA"),
        ("stages.py", "from grokfast.lab import runs"),
        ("__init__.py", "import grokfast.integrations.lightning"),
    ],
)
def test_forbidden_import_is_found(path: str, text: str) -> None:
    assert forbidden_imports(path, text)


@pytest.mark.parametrize("room", ["lab/runs/directory.py", "integrations/lightning.py"])
@pytest.mark.parametrize(
    "text",
    [
        "from grokfast import entries",
        "from grokfast import binding",
        "from grokfast import EMA, checks",
        "from grokfast import *",
        "import grokfast.binding.state",
        "import grokfast.binding.state as state",
        "from grokfast.filters import EMA",
        "from grokfast.filters.base import State",
        "import grokfast\ngrokfast.filters.base.State",
        "import grokfast\ngrokfast._HOMES",
        "import grokfast as g\ng.binding.attach.unwrap",
        "import importlib\nimportlib.import_module('grokfast.checks')",
        "from ..filters import base",
        "from ... import stages",
    ],
)
def test_private_name_is_found(room: str, text: str) -> None:
    assert private_names(room, text)


def test_public_names_and_the_own_room_are_free() -> None:
    text = "import grokfast\nfrom grokfast import EMA\nfrom grokfast.lab.config import x\ngrokfast.attach, grokfast.lab"
    assert not private_names("lab/train.py", text)
    assert private_names("integrations/lightning.py", text) == {"lab/config/x", "lab"}


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("filters/ma.py", "import numpy"),
        ("filters/ma.py", "def f():\n    from scipy import signal"),
        ("filters/linear.py", "from scipy import signal"),
        ("checks.py", "import torch"),
        ("stages.py", "from torch import Tensor"),
        ("__init__.py", "import torch"),
        ("optax.py", "import torch"),
        ("functional.py", "import jax"),
    ],
)
def test_foreign_package_is_found(path: str, text: str) -> None:
    assert foreign_packages(path, text)


@pytest.mark.parametrize("text", ["print('x')", "import torch\ntorch.manual_seed(0)"])
def test_print_and_seed_are_found(text: str) -> None:
    assert global_effects("stages.py", text)


# What an import loads ---------------------------------------------------------------------------------------------


def run_python(script: str) -> str:
    return subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout


def loaded_by(statement: str) -> set[str]:
    return set(json.loads(run_python(f"{statement}; import json, sys; print(json.dumps(sorted(sys.modules)))")))


def packages(modules: set[str]) -> set[str]:
    return {name.split(".")[0] for name in modules} - sys.stdlib_module_names


def test_importing_grokfast_loads_nothing_else() -> None:
    extra = loaded_by("import grokfast") - loaded_by("pass")
    assert packages(extra) == {"grokfast"}
    assert not any(name.startswith("grokfast.") for name in extra)


def test_touching_a_name_loads_torch_and_nothing_heavier() -> None:
    extra = loaded_by("import torch, grokfast; grokfast.EMA, grokfast.attach") - loaded_by("import torch")
    assert packages(extra) == {"grokfast"}
    assert not any(name.startswith(("grokfast.lab", "grokfast.optax", "grokfast.integrations")) for name in extra)
    assert not extra & {"torch._dynamo", "torch._inductor"}


def test_optax_works_without_torch() -> None:
    script = """
import sys
sys.modules["torch"] = None  # importing it raises ImportError
import grokfast.optax, jax.numpy as jnp
ema = grokfast.optax.ema(lamb=2.0)
print(ema.update(jnp.ones(1), ema.init(jnp.zeros(1)))[0])
"""
    assert run_python(script) == "[3.]\n"


def test_public_names_are_those_promised() -> None:
    promised = {
        "EMA", "FIR", "IIR", "MA", "Butterworth", "Filter", "Attachment", "Ramp", "Saturation", "Slow", "Trigger",
        "attach", "gradfilter_ema", "gradfilter_ma", "Optimizer",
    }  # fmt: skip
    assert set(grokfast.__all__) == promised
    assert promised <= set(dir(grokfast))
    assert all(getattr(grokfast, name).__name__ == name for name in promised)


def test_type_checkers_see_every_public_name() -> None:
    assert {name.split("/")[-1] for name in own_imports(FILES["__init__.py"])} == set(grokfast.__all__)


def test_attach_is_the_function_only() -> None:
    with pytest.raises(ModuleNotFoundError):
        __import__("grokfast.attach")
    assert callable(grokfast.attach)


def test_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'grokfast' has no attribute 'EMMA'"):
        grokfast.EMMA  # type: ignore[attr-defined]  # noqa: B018
