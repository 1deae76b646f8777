"""What a sweep varies: fields of a configuration, over values in a list or over a range.

alpha=0.9,0.95,0.98    a list, of whatever type the field has
lamb=0.1:10:log        a range of numbers, evenly or on a log scale
"""

from __future__ import annotations

import argparse
import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_type_hints

from grokfast.lab.config import FilterConfig, LoopConfig, OptimConfig, RunConfig, make_filter, resolve
from grokfast.lab.paper.experiments import ALPHAS, DECAYS, GAINS_OF_EMA, GAINS_OF_MA, WINDOWS
from grokfast.lab.commands.flags import parser_options
from grokfast.lab.tasks.base import TaskConfig

PARTS = ("task", "filter", "optim", "loop")
# The seed has a flag of its own; the others say where and how fast a run is computed, not what.
FIXED = ("seed", "threads", "device", "data_dir", "checkpoint_seconds")


@dataclass(frozen=True)
class Choices:
    """A field that takes each value of a list."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """A field that takes any number from `low` to `high`; whole numbers where both are."""

    name: str
    low: float
    high: float
    log: bool = False


Dimension = Choices | Range


class Point(NamedTuple):
    """One run of a sweep: values of the fields that vary, and a seed."""

    setting: tuple[tuple[str, Any], ...]
    seed: int


PRESETS: dict[str, tuple[str | None, tuple[Choices, ...]]] = {  # the filter it is about, and the paper's values
    "paper-ema": ("ema", (Choices("alpha", ALPHAS), Choices("lamb", GAINS_OF_EMA))),
    "paper-ma": ("ma", (Choices("window_size", WINDOWS), Choices("lamb", GAINS_OF_MA))),
    "paper-decay": (None, (Choices("weight_decay", DECAYS),)),
}


# Reading ------------------------------------------------------------------------------------------------------------


def read_choices(text: str, task: type[TaskConfig]) -> Choices:
    """`alpha=0.9,0.95` as a list of values of the field's type; the parts of a tuple stand between colons."""
    name, words = split_name(text, "grid", "NAME=VALUE,VALUE")
    field, annotation = find_field(name, task)
    values = [read_value(word, field, annotation) for word in words.split(",")]
    return Choices(field.name, tuple(dict.fromkeys(values)))


def read_range(text: str, task: type[TaskConfig]) -> Range:
    """`lamb=0.1:10:log` as a range of numbers."""
    name, words = split_name(text, "range", "NAME=LOW:HIGH or NAME=LOW:HIGH:log")
    field, annotation = find_field(name, task)
    options = parser_options(annotation, field.default)
    if options.get("type") not in (int, float) or "nargs" in options:
        raise ValueError(f"range needs a field of numbers, got {name}: give its values with --grid")
    parts = words.split(":")
    if len(parts) not in (2, 3) or parts[2:] not in ([], ["log"]):
        raise ValueError(f"range must be NAME=LOW:HIGH or NAME=LOW:HIGH:log, got {text}")
    low, high = (read_value(part, field, annotation) for part in parts[:2])
    log = len(parts) == 3
    if not low < high or not math.isfinite(high - low) or (log and low <= 0):
        raise ValueError(f"range must have {'0 < ' if log else ''}LOW < HIGH, got {text}")
    return Range(field.name, low, high, log)


def split_name(text: str, flag: str, form: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not (name and equals and rest):
        raise ValueError(f"{flag} must be {form}, got {text}")
    return name, rest


def find_field(name: str, task: type[TaskConfig]) -> tuple[dataclasses.Field[Any], Any]:
    """The field of a configuration that has this name, and its type."""
    wanted = name.replace("-", "_")
    if wanted in FIXED:
        raise ValueError(f"{wanted} cannot be varied" + (": give --seeds" if wanted == "seed" else ""))
    for kind in (task, FilterConfig, OptimConfig, LoopConfig):
        for field in dataclasses.fields(kind):
            if field.name == wanted:
                return field, get_type_hints(kind)[wanted]
    raise ValueError(f"a sweep varies flags of grokfast train, got {name}")


def read_value(word: str, field: dataclasses.Field[Any], annotation: Any) -> Any:
    """One value, as its flag would read it."""
    none = bool(field.metadata.get("none"))
    options: dict[str, Any] = dict(parser_options(annotation, field.default, none=none))
    if "action" in options:
        options["choices"] = ("true", "false")
    if "choices" in options:
        if word not in options["choices"]:
            raise ValueError(f"{field.name} must be one of {', '.join(options['choices'])}, got {word}")
        return {"true": True, "false": False, "none": None}.get(word, word)
    count = options.get("nargs")
    words = word.split(":") if count else [word]
    try:
        values = tuple(options["type"](part) for part in words)
    except (ValueError, argparse.ArgumentTypeError) as error:
        raise ValueError(f"{field.name} must be {options['metavar']}, got {word}") from error
    if count not in (None, "+", len(values)):
        raise ValueError(f"{field.name} must be {count} values with colons between, got {word}")
    return values if count else values[0]


def preset(name: str, filter: str | None) -> tuple[str | None, tuple[Choices, ...]]:
    """The filter and the lists of one of the paper's grids."""
    about, choices = PRESETS[name]
    if about is not None and filter not in (None, about):
        raise ValueError(f"preset {name} is about the filter {about}, got {filter}")
    return about or filter, choices


# Applying -----------------------------------------------------------------------------------------------------------


def configure(base: RunConfig, point: Point) -> RunConfig:
    """The configuration of one run: `base` with the values of a point, and the paper's where none is given."""
    values: Mapping[str, Any] = {**dict(point.setting), "seed": point.seed}
    parts: list[Any] = []
    for part in (getattr(base, name) for name in PARTS):
        mine = {f.name: values[f.name] for f in dataclasses.fields(part) if f.name in values}
        parts.append(dataclasses.replace(part, **mine))
    return resolve(RunConfig(*parts))


def ends(dimension: Dimension) -> tuple[Any, ...]:
    """The values of a list, or the two ends of a range."""
    return dimension.values if isinstance(dimension, Choices) else (dimension.low, dimension.high)


def check_influence(base: RunConfig, dimensions: Sequence[Dimension]) -> None:
    """Refuse to vary a value of the filter that this filter does not have: all runs would be the same."""
    names = {f.name for f in dataclasses.fields(FilterConfig)} - {"filter", "two_stage"}
    first = {d.name: ends(d)[0] for d in dimensions}
    for d in (d for d in dimensions if d.name in names and "filter" not in first and len(ends(d)) > 1):
        settings = [{**first, d.name: end} for end in ends(d)]
        filters = [make_filter(configure(base, Point(tuple(s.items()), 0)).filter) for s in settings]
        if all(filter == filters[0] for filter in filters):
            raise ValueError(f"{d.name} changes nothing with the filter {base.filter.filter or 'none'}")
