"""Flags from settings: their names, types, choices, defaults and help, for every command that takes a task or a filter.

A command of a task calls `add_settings(parser, task)` in its `add` and `settings_from(args)` in its `run`.
"""

from __future__ import annotations

import argparse
import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import MISSING
from typing import Any

from grokfast.lab import filters
from grokfast.lab.own_code import is_own_code
from grokfast.lab.settings import LoopConfig, OptimConfig, Setting, resolve, settings_of
from grokfast.lab.tasks import TASKS, find_task
from grokfast.lab.tasks.base import usual_of
from grokfast.lab.values import parser_options, plain

NUMBER = re.compile(r"-(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")  # argparse would take -1e-5 for a flag
PREFIX = "setting "  # of settings among parsed arguments, which have names such as `run` too
WITHOUT = "none"  # the word for no filter
# The usual flags; the help shows the others after `--help all`.
FIRST = ("filter", "alpha", "lamb", "window_size", "optimizer", "lr", "weight_decay", "seed", "steps", "until")


# The words on the command line --------------------------------------------------------------------------------------


def first_word(parser: argparse.ArgumentParser) -> str | None:
    """The word after the command, unless it is a flag: the task or the filter on which the other flags depend."""
    word = next(iter(parser.get_default("words")[1:]), "-")
    return None if word.startswith("-") else word


def filter_word(words: list[str]) -> str | None:
    """The filter that the words name: the last one counts, as argparse has it."""
    named = [words[i + 1] for i, word in enumerate(words[:-1]) if word == "--filter"]
    named += [word.partition("=")[2] for word in words if word.startswith("--filter=")]
    return read_filter(named[-1]) if named else None


def wants_all(words: list[str]) -> bool:
    """Whether `--help all` is asked for."""
    return any(a in ("-h", "--help") and b == "all" for a, b in itertools.pairwise(words))


def add_task(parser: argparse.ArgumentParser, nargs: str | None = None, *others: str) -> str | None:
    """Add the argument TASK; gives the task that the command line names. If it names none, the help lists all."""
    task = first_word(parser)
    parser.add_argument(
        "task", nargs=nargs, metavar="TASK", help="name of a task, or FILE.py:CLASS for one of your own"
    )
    if task is None:
        explain_names(parser, "task", TASKS, *others)
    return task


def explain_names(parser: argparse.ArgumentParser, what: str, kinds: Mapping[str, type[Any]], *others: str) -> None:
    """List the tasks or filters in the help; flags without one are refused, except `others`: they depend on it."""
    words = parser.get_default("words")[1:]
    if words and not any(word.startswith(("-h", "--help", *others)) for word in words):
        usage = f"{parser.prog} {what.upper()} {words[0]} ..."
        raise ValueError(f"{what.upper()} must come before the flags, got {words[0]}: {usage}")
    width = max(map(len, kinds))
    lines = [f"  {name:{width}}  {first_line(kind)}" for name, kind in kinds.items()]
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "\n".join([f"{what}s:", *lines, "", f"The flags of a {what}: {parser.prog} {what.upper()} --help"])


def first_line(kind: type[Any]) -> str:
    """The first line of a class's docstring, without its full stop."""
    return (kind.__doc__ or kind.__name__).strip().splitlines()[0].rstrip(".")


# Flags --------------------------------------------------------------------------------------------------------------


def add_settings(parser: argparse.ArgumentParser, task: str) -> None:
    """Add one flag for each setting of a task, of its optimizer and its loop, and of all filters.

    The task, and the filter that the command line names, may be the user's own: they are loaded here. The help shows
    the settings that people change first, and those of the user's own code; `--help all` shows all.

    Raises:
        ValueError: if there is no such task or filter, or one of their fields is called like a flag of the command.
    """
    words = parser.get_default("words")
    kind, chosen = find_task(task), filter_word(words)
    if chosen is not None:
        filters.find_filter(chosen)
    names = sorted(filters.FILTERS, key=lambda name: name != chosen)  # the types of the chosen one's fields count
    table = settings_of(kind, names)
    asked_for = any(word in ("-h", "--help") for word in words)
    texts = default_texts(task, table, names) if asked_for else {}
    titles = {"run": "Filter", "filter": "Filter", "optim": first_line(OptimConfig), "loop": first_line(LoopConfig)}
    of_filter = (
        []
        if chosen is None or not is_own_code(chosen)
        else [f.name for f in filters.fields_of(filters.FILTERS[chosen])]
    )
    groups: dict[str, dict[str, Setting]] = {}
    shown: set[str] = set()
    for name, found in table.items():
        groups.setdefault(titles.get(found.group, first_line(kind)), {})[name] = found
        own = (found.group == "task" and is_own_code(task)) or (found.group == "filter" and found.field in of_filter)
        shown |= {name} if own or name in FIRST or wants_all(words) else set()
    for title, members in groups.items():
        add_group(parser, title, members, texts, shown)
    if len(shown) < len(table):
        parser.epilog = f"All {len(table)} settings: {parser.prog} {task} --help all"


def add_group(
    parser: argparse.ArgumentParser,
    title: str,
    table: Mapping[str, Setting],
    texts: Mapping[str, str],
    shown: Iterable[str] | None = None,
) -> None:
    """Add a group of flags; `texts` says what their defaults are, `shown` which are in the help (default: all)."""
    parser._negative_number_matcher = NUMBER  # type: ignore[attr-defined]
    group = parser.add_argument_group(title)
    for name, found in table.items():
        text = texts.get(name, "")
        help = f"{found.help} (default: {text})" if text and "(default" not in found.help else found.help
        reading: dict[str, Any] = parser_options(found.type, found.default)
        if name == "filter":
            reading = {"type": read_filter, "metavar": f"NAME|{WITHOUT}|FILE.py:CLASS"}
        if name == "optimizer":
            reading = {"type": str, "metavar": "NAME|PACKAGE:CLASS|FILE.py:CLASS"}
        try:
            group.add_argument(
                "--" + name.replace("_", "-"),
                dest=PREFIX + name,
                default=argparse.SUPPRESS,
                help=help.replace("%", "%%") if shown is None or name in shown else argparse.SUPPRESS,
                **reading,
            )
        except argparse.ArgumentError as error:
            raise ValueError(f"a field must not be called like another flag, got {name}") from error


def read_filter(word: str) -> str | None:
    return None if word == WITHOUT else word


def settings_from(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that flags were given for, by name."""
    given = {key.removeprefix(PREFIX): value for key, value in vars(args).items() if key.startswith(PREFIX)}
    return {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}


# Defaults in the help -----------------------------------------------------------------------------------------------


def default_texts(task: str, table: Mapping[str, Setting], filter_names: Iterable[str]) -> dict[str, str]:
    """The defaults of a task, as text."""
    try:
        usual, defaults = resolve(task), usual_of(find_task(task)())
    except TypeError:  # a task of the user's own with a field that must be given
        return {}
    names = list(filter_names)
    texts = {name: value_text(usual[name]) for name, found in table.items() if found.group not in ("run", "filter")}
    texts |= {n: filter_default(s.field, names, defaults.filters) for n, s in table.items() if s.group == "filter"}
    decay = {name: value_text(value) for name, value in defaults.weight_decay.items() if name is not None}
    texts["weight_decay"] = by_filter(decay, value_text(defaults.weight_decay[None]))
    if usual["eval_every"] is None:
        texts["eval_every"] = "once per epoch"
    return texts


def filter_default(field: str, names: Iterable[str], of_task: Mapping[str, Mapping[str, float]]) -> str:
    """The default of a field in each filter that has it: of the task, else of the filter itself."""
    found: dict[str, str] = {}
    for name in names:
        for f in filters.fields_of(filters.find_filter(name)):
            if f.name == field and f.default is not MISSING:
                found[name] = value_text(plain(of_task.get(name, {}).get(field, f.default)))
    usual, count = Counter(found.values()).most_common(1)[0] if found else ("", 0)
    return by_filter({n: text for n, text in found.items() if text != usual}, usual) if count > 1 else by_filter(found)


def by_filter(texts: Mapping[str, str], rest: str = "") -> str:
    """Values that differ between filters.

    >>> by_filter({"ma": "5"}, "2"), by_filter({"ema": "0.98"}), by_filter({}, "2")
    ('5 for ma, else 2', '0.98 for ema', '2')
    """
    parts = [f"{text} for {name}" for name, text in texts.items() if text]
    return ", ".join([*parts, f"else {rest}" if parts else rest] if rest else parts)


def value_text(value: Any) -> str:
    """A plain value as the help shows it; empty if there is no default, or if it means that nothing is done."""
    if value is None or value is False or value == []:
        return ""
    if isinstance(value, list):
        return " ".join(map(value_text, value))  # type: ignore[reportUnknownArgumentType]
    return "yes" if value is True else f"{value:g}" if isinstance(value, float) else str(value)
