"""How a value is read: from text by the type of its field, for flags and for the grids of sweeps, and from JSON."""

from __future__ import annotations

import argparse
import ast
import collections.abc
import contextlib
import types
from typing import Any, Literal, TypeGuard, Union, get_args, get_origin

import torch

Pairs = tuple[tuple[str, Any], ...]  # names and values of any kind


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
    """One value, as its flag would read it; the parts of a tuple stand between colons, `none` is None where allowed."""
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


def is_pairs(value: Any) -> TypeGuard[Pairs]:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], tuple)


def tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Values read from JSON, which has lists where we have tuples."""

    def freeze(value: Any) -> Any:
        return tuple(map(freeze, value)) if isinstance(value, list) else value  # type: ignore[arg-type]

    return {key: freeze(value) for key, value in values.items()}


def alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)


def describe(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return "|".join(str(value) for value in get_args(kind))
    return {int: "N", float: "X"}.get(kind, "NAME")


def reader(*kinds: Any) -> Any:
    """A function that reads a value of the first of these types that fits, an int or the word auto, say."""

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
