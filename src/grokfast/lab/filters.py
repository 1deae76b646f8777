"""The filters that the lab knows by name. A new one is a line here; `my_filter.py:MyFilter` needs none.

Flags, run names, titles and sweep axes follow from the fields of a filter's dataclass, help from its docstring.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from typing import Any, get_args, get_type_hints

import torch

import grokfast
from grokfast.lab.own_code import find_class

FILTERS: dict[str, type[grokfast.Filter]] = {
    "ema": grokfast.EMA,
    "ma": grokfast.MA,
    "fir": grokfast.FIR,
    "iir": grokfast.IIR,
    "butterworth": grokfast.Butterworth,
}


def find_filter(name: str) -> type[grokfast.Filter]:
    """The class of that name; a class of the user's own is imported and known from then on."""
    return find_class(name, FILTERS, grokfast.Filter, "filter")


def name_of(filter: grokfast.Filter) -> str:
    """The name under which the lab knows a filter's class."""
    return next(name for name, kind in FILTERS.items() if type(filter) is kind)


def fields_of(kind: type[grokfast.Filter]) -> list[dataclasses.Field[Any]]:
    """What can be set in a filter."""
    return [field for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]


def required_of(kind: type[grokfast.Filter]) -> list[str]:
    """The fields that have no default."""
    return [f.name for f in fields_of(kind) if f.default is f.default_factory is dataclasses.MISSING]


def numbers_of(kind: type[grokfast.Filter]) -> list[str]:
    """The fields that hold one number: those that can be swept over a range."""
    return [name for name, annotation in types_of(kind).items() if annotation in (int, float)]


@functools.cache
def types_of(kind: type[grokfast.Filter]) -> dict[str, Any]:
    """The types of what can be set in a filter, by name."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields_of(kind)}


def make_filter(name: str, values: dict[str, Any]) -> grokfast.Filter:
    """A filter of that name; ValueError that names missing fields."""
    kind = find_filter(name)
    missing = [field for field in required_of(kind) if values.get(field) is None]
    if missing:
        raise ValueError(f"the filter {name} needs {' and '.join(missing)}, got none")
    return kind(**{key: read_dtype(kind, key, value) for key, value in values.items()})


def read_dtype(kind: type[grokfast.Filter], name: str, value: Any) -> Any:
    """A dtype by its name, if the type of the field is a dtype."""
    if not isinstance(value, str) or torch.dtype not in (hint := types_of(kind).get(name), *get_args(hint)):
        return value
    found = getattr(torch, value, None)
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name} must be the name of a torch dtype, got {value}")
    return found


def help_of(kind: type[grokfast.Filter], name: str) -> str:
    """The first sentence on a field in the class's docstring.

    >>> help_of(grokfast.EMA, "alpha")
    'decay of the average, in [0, 1)'
    """
    lines = re.search(rf"^\s+{name}: (.+?)(?=^\s+\w+: |^\s*$|\Z)", kind.__doc__ or "", re.DOTALL | re.MULTILINE)
    text = " ".join(lines[1].split()) if lines else ""
    return re.split(r"\.(?= |$)", text)[0].replace("`", "")


def describe(filter: grokfast.Filter) -> str:
    """A filter in a few words: its kind, its numbers, and other fields that are not at their default.

    >>> describe(grokfast.EMA(alpha=0.98, lamb=2.0))
    'EMA, alpha 0.98, lamb 2'
    """
    numbers = [f"{name.replace('_', ' ')} {getattr(filter, name):g}" for name in numbers_of(type(filter))]
    return ", ".join([type(filter).__name__, *numbers, *(word.replace("_", " ") for word in departures(filter))])


def describe_plain(name: str, values: Mapping[str, Any]) -> str:
    """The same from plain values, for a filter whose class is not known here.

    >>> describe_plain("mine.py:Mine", {"gain": 2.0, "slow_only": False, "init": "zero"})
    'mine.py:Mine, gain 2, init zero'
    """
    texts = {key.replace("_", " "): f"{v:g}" if isinstance(v, float) else v for key, v in values.items() if v}
    return ", ".join([name, *(key if value is True else f"{key} {value}" for key, value in texts.items())])


def departures(filter: grokfast.Filter) -> list[str]:
    """The fields other than numbers that are not at their default: `slow_only`, `no_warmup`, `zero`."""
    found: list[str] = []
    for field in fields_of(type(filter)):
        value = getattr(filter, field.name)
        if field.name in numbers_of(type(filter)) or isinstance(value, tuple) or value == field.default:
            continue
        found.append(field.name if value is True else f"no_{field.name}" if value is False else str(value))
    return found


def short_name(filter: grokfast.Filter) -> str:
    """A filter in the name of a run.

    >>> short_name(grokfast.MA(window_size=100, lamb=5.0, slow_only=True))
    'ma-w100-l5-slow_only'
    """
    numbers = [f"{name[0]}{getattr(filter, name):g}" for name in numbers_of(type(filter))]
    kind = re.sub(r"\W+", "_", name_of(filter).rpartition("/")[2])
    return "-".join([kind, *numbers, *departures(filter)])
