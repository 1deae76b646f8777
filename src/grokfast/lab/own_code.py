"""Classes that a user names on the command line: `my_task.py:MyTask`, or `package.module:MyTask`.

Only a name that a person typed is imported. A name found in a run directory never is.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def is_own_code(name: str) -> bool:
    """Whether a name says where its class is, instead of standing in one of our lists."""
    return ":" in name


def closest(word: str, known: Iterable[str]) -> str:
    """The end of a message about a word that is not known: the one that may have been meant.

    >>> closest("emma", ["ema", "ma"]), closest("kalman", ["ema", "ma"])
    (': did you mean ema?', '')
    """
    found = difflib.get_close_matches(word, list(known), n=1)
    return f": did you mean {found[0]}?" if found else ""


def find_class(name: str, known: dict[str, type[Any]], base: type[Any], what: str) -> type[Any]:
    """The class of that name; one of the user's own is imported and known from then on."""
    if name not in known and is_own_code(name):
        known[name] = load_class(name, base)
    if name not in known:
        listed = ", ".join(other for other in known if not is_own_code(other))
        raise ValueError(f"{what} must be one of {listed} or FILE.py:CLASS, got {name}{closest(name, known)}")
    return known[name]


def load_class(name: str, base: type[Any]) -> type[Any]:
    """The class that `file.py:Class` or `package.module:Class` names; ValueError unless it is a `base`."""
    where, _, attribute = name.rpartition(":")
    try:
        module = import_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        found = getattr(module, attribute)
    except FileNotFoundError:
        raise ValueError(f"{name} must name a file that exists, got {where}") from None
    except (ImportError, SyntaxError, AttributeError) as error:
        raise ValueError(f"{name} cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{name} must name a subclass of {base.__module__}.{base.__qualname__}, got {found!r}")
    return found


def import_file(path: Path) -> Any:
    """The module in a file, imported once per process; files beside it can be imported by it."""
    path = path.resolve(strict=True)
    name = f"grokfast_own_{path.stem}_{zlib.crc32(str(path).encode()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up here
    sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        sys.path.remove(str(path.parent))
    return module
