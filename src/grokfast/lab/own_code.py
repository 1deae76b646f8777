"""Classes that a user names, `my_task.py:MyTask` or `package.module:MyTask`, errors in the user's code, and its hash.

No torch here. Only a name that a user typed is imported. A name found in a run directory never is.
"""

from __future__ import annotations

import difflib
import dis
import functools
import hashlib
import importlib
import importlib.util
import inspect
import linecache
import os
import sys
import sysconfig
import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

PACKAGE = Path(__file__).parents[1]
LIBRARIES = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")})


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
        if place_of(error) is not None:  # it says more
            raise
        raise ValueError(f"{name} cannot be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"{name} must name a subclass of {base.__module__}.{base.__qualname__}, got {found!r}")
    return found


def import_file(path: Path) -> Any:
    """The module in a file, imported once per process; it can import the files beside it."""
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


# Errors ---------------------------------------------------------------------------------------------------------------


def place_of(error: BaseException) -> tuple[str, str] | None:
    """The line of the user's own files that raised an error, as (`my_task.py:47`, the source); else None."""
    places = [(entry.filename, entry.lineno) for entry in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError):
        places.append((error.filename or "", error.lineno))
    for name, line in reversed(places):
        source = linecache.getline(name, line or 0).strip()
        if source and is_own_file(name):
            near = os.path.relpath(name)
            return f"{name if near.startswith('..') else near}:{line}", source
    return place_of(error.__cause__) if error.__cause__ is not None else None


def one_line(error: BaseException) -> str:
    """An error as one line. One in the user's own code says where: `my_task.py:47: KeyError: 'x'`."""
    if isinstance(error, OSError) and error.strerror:
        reason = " ".join(error.strerror.lower().split())
        text = f"{reason}: {error.filename}" if error.filename else reason
    else:
        text = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    place, name = place_of(error), type(error).__name__
    if place is None:
        return text or name
    return f"{place[0]}: {name}: {text}" if text else f"{place[0]}: {name}"


# What a function does -------------------------------------------------------------------------------------------------


def source_of(function: Callable[..., object]) -> str:
    """A hash of what a function does: of its source, and of all the user's own code and plain values that it refers to.

    Functions and classes are followed one by one, through globals, closures and imports; a module that it refers to
    counts as a whole. Libraries do not count, nor do files that it reads.
    """
    whole = hashlib.sha256()
    for part in parts_of(function, {}):
        whole.update(part.encode("utf-8", "backslashreplace") + b"\0")
    return whole.hexdigest()[:8]


def parts_of(thing: Any, seen: dict[int, Any]) -> Iterator[str]:
    """What decides what a value is and does, as text, in an order that does not depend on the process."""
    if thing is None or isinstance(thing, bool | int | float | complex | str | bytes | Path):
        yield repr(thing)
        return
    if not isinstance(thing, tuple | frozenset | CodeType):  # equal ones may be one object or not, as Python likes
        if id(thing) in seen:
            return
        seen[id(thing)] = thing  # kept, so that nothing else gets its id
    follow = functools.partial(parts_of, seen=seen)
    if isinstance(thing, set | frozenset):
        yield from sorted(" ".join(parts_of(each, dict(seen))) for each in thing)  # type: ignore[reportUnknownVariableType]
    elif isinstance(thing, Mapping):
        for key, value in thing.items():  # type: ignore[reportUnknownVariableType]
            yield from (part for each in (key, value) for part in follow(each))
    elif isinstance(thing, tuple | list):
        yield str(len(thing))  # type: ignore[reportUnknownArgumentType]
        yield from (part for each in thing for part in follow(each))  # type: ignore[reportUnknownVariableType]
    elif isinstance(thing, functools.partial):
        yield from follow([thing.func, thing.args, thing.keywords])  # type: ignore[reportUnknownMemberType]
    elif isinstance(thing, staticmethod | classmethod) or inspect.ismethod(thing):
        yield from follow([thing.__func__, getattr(thing, "__self__", None)])  # type: ignore[reportUnknownMemberType]
    elif isinstance(thing, property):
        yield from follow([thing.fget, thing.fset])
    elif isinstance(thing, CodeType):
        yield from follow([thing.co_code.hex(), thing.co_names, thing.co_consts])
    elif inspect.ismodule(thing):
        yield from parts_of_module(thing, seen)
    elif inspect.isfunction(thing):
        yield thing.__qualname__
        if is_own_file(thing.__code__.co_filename):
            yield from parts_of_function(thing, seen)
    elif hasattr(thing, "__wrapped__"):  # a cache around a function
        yield from follow(thing.__wrapped__)
    else:
        kind: type[Any] = thing if isinstance(thing, type) else type(thing)
        yield f"{kind.__module__}.{kind.__qualname__}"
        if is_own_module(sys.modules.get(kind.__module__)):
            with suppress(OSError, TypeError):
                yield inspect.getsource(kind)
            inner = [value for name, value in vars(kind).items() if not name.startswith("__") or callable(value)]
            yield from follow([inner, list(kind.__bases__)])
            if thing is not kind:
                yield from follow(dict(getattr(thing, "__dict__", {})))


def parts_of_function(function: Any, seen: dict[int, Any]) -> Iterator[str]:
    with suppress(OSError, TypeError):
        yield inspect.getsource(function)
    code: CodeType = function.__code__  # two functions may share a line
    held: list[Any] = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # it is empty as yet
            held.append(cell.cell_contents)
    yield from parts_of([code, function.__defaults__, function.__kwdefaults__, held], seen)
    names, imported = names_in(code)
    known = function.__globals__
    yield from (part for name in names if name in known for part in parts_of(known[name], seen))
    for name in imported:
        module = None
        with suppress(Exception):  # training says it better
            full = importlib.util.resolve_name(name, known.get("__package__"))
            spec = importlib.util.find_spec(full)
            module = importlib.import_module(full) if spec is not None and is_own_file(spec.origin) else None
        yield from parts_of(module, seen)


def names_in(code: CodeType) -> tuple[list[str], list[str]]:
    """The names of globals and attributes in a function and in those inside it, and the modules that it may import."""
    names, imported, constants = list(code.co_names), list[str](), list[Any]()
    for each in dis.get_instructions(code):
        if each.opname == "IMPORT_NAME":  # the level and the names to import were loaded before it
            level, members = constants[-2:]
            start = "." * level + each.argval
            inside = f"{start}." if each.argval else start
            imported += [start, *(inside + name for name in members or ())]
        elif "CONST" in each.opname or "SMALL_INT" in each.opname:
            constants.append(each.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            names, imported = (mine + more for mine, more in zip((names, imported), names_in(inner), strict=True))
    return names, imported


def parts_of_module(module: ModuleType, seen: dict[int, Any]) -> Iterator[str]:
    """The whole source of a module of the user's own, and of those that it takes something from."""
    yield module.__name__
    if not is_own_module(module):
        return
    if module.__name__ != "__main__" and module.__file__ is not None:
        yield Path(module.__file__).read_text(encoding="utf-8", errors="replace")
    for value in list(vars(module).values()):
        home = value if inspect.ismodule(value) else sys.modules.get(str(getattr(value, "__module__", None)))
        if is_own_module(home):
            yield from parts_of(home, seen)


def is_own_module(module: ModuleType | None) -> bool:
    """Whether a module is the user's own, not one of a library or of Python."""
    if module is None:
        return False
    return module.__name__ == "__main__" or is_own_file(getattr(module, "__file__", None))


def is_own_file(name: str | None) -> bool:
    if name is None or name in ("built-in", "frozen"):
        return False
    path = Path(name).resolve()
    foreign = {"site-packages", "dist-packages"} & set(path.parts) or name.startswith("<frozen")
    return not foreign and PACKAGE not in path.parents and not any(each in path.parents for each in LIBRARIES)
