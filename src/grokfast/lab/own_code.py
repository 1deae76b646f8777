"""Classes that a user names, `my_task.py:MyTask` or `package.module:MyTask`, and errors in their code. No torch here.

Only a name that a user typed is imported. A name found in a run directory never is.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import linecache
import os
import sys
import traceback
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
_folders: set[Path] = set()  # of the files that users have named


def is_own_code(name: str) -> bool:
    """Whether a name is a path to a class, not one of the names that the lab knows."""
    return ":" in name


def closest(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word: the known word that may have been meant.

    >>> closest("emma", ["ema", "ma"]), closest("kalman", ["ema", "ma"])
    (': did you mean ema?', '')
    """
    found = difflib.get_close_matches(word, list(known), n=1)
    return f": did you mean {found[0]}?" if found else ""


def find_class(name: str, known: dict[str, type[Any]], base: type[Any], what: str) -> type[Any]:
    """The class of that name; a class of the user's own is imported and added to `known`."""
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
    """The module in a file, imported once per process; it can import the files beside it."""
    path = path.resolve(strict=True)
    _folders.add(path.parent)
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


# Errors ---------------------------------------------------------------------------------------------------------------


def place_of(error: BaseException) -> tuple[str, str] | None:
    """The line of the user's own files that raised an error, as (`my_task.py:47`, the source); else None."""
    for entry in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(entry.filename)
        if not _folders.isdisjoint(path.parents) and PACKAGE not in path.parents and "site-packages" not in path.parts:
            near = os.path.relpath(path)
            line = entry.lineno or 0
            shown = path if near.startswith("..") else near
            return f"{shown}:{line}", linecache.getline(entry.filename, line).strip()
    return place_of(error.__cause__) if error.__cause__ is not None else None


def one_line(error: BaseException) -> str:
    """An error as one line. One in the user's own code says where: `my_task.py:47: KeyError: 'x'`."""
    if isinstance(error, OSError) and error.strerror:
        reason = " ".join(error.strerror.lower().split())
        text = f"{reason}: {error.filename}" if error.filename else reason
    else:
        text = " ".join(str(error).split()) or type(error).__name__
    place = place_of(error)
    return text if place is None else f"{place[0]}: {type(error).__name__}: {text}"
