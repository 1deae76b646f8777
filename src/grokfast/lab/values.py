"""How the value of a setting is read from text, checked against the type of its field, and made plain for JSON."""

from __future__ import annotations

import argparse
import ast
import collections.abc
import contextlib
import math
import re
import types
from typing import Any, Literal, Union, get_args, get_origin

import torch

Pairs = tuple[tuple[str, Any], ...]  # names and values of any kind


# From text ------------------------------------------------------------------------------------------------------------


def parser_options(annotation: Any, default: Any) -> dict[str, Any]:
    """The arguments of `add_argument` for a value of this type."""
    kinds = [kind for kind in alternatives(annotation) if kind is not type(None)]
    if kinds == [bool]:
        return {"action": "store_true" if default is False else argparse.BooleanOptionalAction}
    if len(kinds) > 1:
        return {"type": reader(*kinds), "metavar": "|".join(map(describe, kinds))}
    if kinds == [Pairs]:
        return {"action": "append", "type": read_pair, "metavar": "KEY=VALUE"}
    (only,) = kinds
    if get_origin(only) is Literal:
        return {"choices": get_args(only)}
    if get_origin(only) in (tuple, collections.abc.Sequence):
        element, *rest = get_args(only)
        count = 1 + len(rest) if rest and rest != [...] else "+"
        return {"type": reader(element), "nargs": count, "metavar": describe(element)}
    return {"type": str if only is torch.dtype else reader(only), "metavar": describe(only)}


def read_value(word: str, name: str, annotation: Any, default: Any) -> Any:
    """One value as its flag would read it. Colons separate the parts of a tuple; `none` is None if that is allowed."""
    if word == "none" and type(None) in alternatives(annotation):
        return None
    if annotation == Pairs:
        return tuple(map(read_pair, word.split(":")))
    found = parser_options(annotation, default)
    choices = ("true", "false") if "action" in found else found.get("choices")
    if choices:
        if word not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {word}")
        return {"true": True, "false": False}.get(word, word)
    count = found.get("nargs")
    words = word.split(":") if count else [word]
    try:
        values = tuple(found["type"](part) for part in words)
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise ValueError(f"{name} must be {in_words(found['metavar'])}, got {word!r}") from error
    if count not in (None, "+", len(values)):
        raise ValueError(f"{name} must be {count} values with colons between, got {word}")
    return values if count else values[0]


def read_pair(text: str) -> tuple[str, Any]:
    """`key=value`, the value as Python writes it; anything else is text.

    >>> read_pair("eps=1e-6"), read_pair("foreach=False"), read_pair("adjust_lr_fn=original")
    (('eps', 1e-06), ('foreach', False), ('adjust_lr_fn', 'original'))
    """
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise argparse.ArgumentTypeError(f"must be KEY=VALUE, got {text!r}")
    return key, read_literal(value)


def read_literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def literal_text(value: Any) -> str:
    """The text that `read_literal` reads as this value."""
    return value if isinstance(value, str) and read_literal(value) == value else repr(value)


def alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def describe(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(str(value) for value in get_args(kind))
    return {int: "N", float: "X"}.get(kind, "NAME")


def reader(*kinds: Any) -> Any:
    """A function that reads a value of the first of these types that fits, for example an int or the word auto."""

    def read(text: str) -> Any:
        for kind in kinds:
            if text in get_args(kind):
                return text
            if get_origin(kind) is not Literal:
                with contextlib.suppress(ValueError):
                    return kind(text)
        raise argparse.ArgumentTypeError(f"must be {in_words('|'.join(map(describe, kinds)))}, got {text!r}")

    return read


def in_words(metavar: str) -> str:
    """The placeholder of a value in the help, in words.

    >>> in_words("N|auto"), in_words("X")
    ('a whole number or auto', 'a number')
    """
    words = {"N": "a whole number", "X": "a number", "NAME": "a name"}
    return " or ".join(words.get(part, part) for part in metavar.split("|"))


# From Python ----------------------------------------------------------------------------------------------------------


def fit(value: Any, name: str, annotation: Any) -> Any:
    """A value given in Python, as its field wants it: 1 is a float where a float is wanted, a list is a tuple.

    Raises:
        ValueError: if it is of another type; names the setting, the type and the value.
    """
    kinds = alternatives(annotation)
    if isinstance(value, list):
        value = freeze(value)
    if type(value) is int and float in kinds and int not in kinds:
        return float(value)
    simple = [kind for kind in kinds if kind in (bool, int, float, str, type(None))]
    if len(simple) == len(kinds) and type(value) not in simple:
        wanted = " or ".join({bool: "true or false", type(None): "none"}.get(k) or in_words(describe(k)) for k in kinds)
        raise ValueError(f"{name} must be {wanted}, got {value!r}")
    return value


def freeze(value: Any) -> Any:
    """Lists read from JSON as the tuples they were."""
    return tuple(map(freeze, value)) if isinstance(value, list) else value  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """A value as JSON keeps it: tuples are lists, a dtype is its name."""
    if isinstance(value, tuple | list):
        return [plain(part) for part in value]  # type: ignore[reportUnknownVariableType]
    return str(value).removeprefix("torch.") if isinstance(value, torch.dtype) else value


def check_within(name: str, value: Any, interval: str) -> None:
    """Raise ValueError unless a number, or each number of a tuple, is in an interval such as "[0, 1)".

    >>> check_within("alpha", 2.0, "[0, 1)")
    Traceback (most recent call last):
    ...
    ValueError: alpha must be in [0, 1), got 2.0
    """
    found = re.fullmatch(r"([\[(])(\S+), (\S+)([\])])", interval)
    assert found is not None, interval
    low, high = (
        2.0**63 if text == "2^63" else math.inf if text == "inf" else float(text) for text in found.group(2, 3)
    )
    for number in value if isinstance(value, tuple | list) else (value,):  # type: ignore[reportUnknownVariableType]
        above = number > low or (number == low and found[1] == "[")
        below = number < high or (number == high and found[4] == "]")
        if not (above and below):
            shown = " ".join(map(str, value)) if isinstance(value, tuple | list) else value  # type: ignore[arg-type]
            raise ValueError(f"{name} must be in {interval}, got {shown}")
