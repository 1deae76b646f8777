"""What a sweep varies: settings by the names of their flags, over values in a list or over a range.

alpha=0.9,0.95,0.98    a list, of whatever type the setting has
lamb=0.1:10:log        a range of numbers, evenly or on a log scale
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from grokfast.lab.filters import FILTERS
from grokfast.lab.paper.experiments import ALPHAS, DECAYS, GAINS_OF_EMA, GAINS_OF_MA, WINDOWS
from grokfast.lab.request import Option, Request, options
from grokfast.lab.tasks import find_task
from grokfast.lab.values import parser_options, read_value

# The seed has a flag of its own; the others say where and how fast a run is computed, not what.
FIXED = ("seed", "threads", "device", "data_dir", "checkpoint_seconds", "memory_limit")


@dataclass(frozen=True)
class Choices:
    """A setting that takes each value of a list."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """A setting that takes any number from `low` to `high`; whole numbers where both are."""

    name: str
    low: float
    high: float
    log: bool = False


Dimension = Choices | Range


class Point(NamedTuple):
    """One run of a sweep: values of the settings that vary, and a seed."""

    setting: tuple[tuple[str, Any], ...]
    seed: int


PRESETS: dict[str, tuple[str | None, tuple[Choices, ...]]] = {  # the filter it is about, and the paper's values
    "paper-ema": ("ema", (Choices("alpha", ALPHAS), Choices("lamb", GAINS_OF_EMA))),
    "paper-ma": ("ma", (Choices("window_size", WINDOWS), Choices("lamb", GAINS_OF_MA))),
    "paper-decay": (None, (Choices("weight_decay", DECAYS),)),
}


def apply_preset(base: Request, name: str) -> tuple[Request, tuple[Choices, ...]]:
    """The request with the filter that a preset is about, and the paper's lists."""
    about, choices = PRESETS[name]
    filter = base.get("filter")
    if about is None:
        return base, choices
    if filter not in (None, about):
        raise ValueError(f"preset {name} is about the filter {about}, got {filter}")
    return base.having(filter=about), choices


def ends(dimension: Dimension) -> tuple[Any, ...]:
    """The values of a list, or the two ends of a range."""
    return dimension.values if isinstance(dimension, Choices) else (dimension.low, dimension.high)


# Reading ------------------------------------------------------------------------------------------------------------


def read_dimensions(base: Request, grids: Sequence[str], ranges: Sequence[str]) -> list[Dimension]:
    """What `--grid` and `--range` say, each value of the type of its setting."""
    words = [name for text in grids if text.startswith("filter=") for name in text.partition("=")[2].split(",")]
    # First the filters that are meant: those after them may have a field of the same name and another type.
    kinds = dict.fromkeys([name for name in [base.get("filter"), *words] if name not in (None, "none")])
    known = options(find_task(base.task), {**kinds, **FILTERS})
    return [*(read_choices(text, known) for text in grids), *(read_range(text, known) for text in ranges)]


def read_choices(text: str, known: Mapping[str, Option]) -> Choices:
    """`alpha=0.9,0.95` as a list of values; the parts of a tuple stand between colons."""
    name, words = split_name(text, "grid", "NAME=VALUE,VALUE")
    option = find_option(name, known)
    values = [read_value(word, name, option.type, option.default) for word in words.split(",")]
    return Choices(name, tuple(dict.fromkeys(values)))


def read_range(text: str, known: Mapping[str, Option]) -> Range:
    """`lamb=0.1:10:log` as a range of numbers."""
    form = "NAME=LOW:HIGH or NAME=LOW:HIGH:log"
    name, words = split_name(text, "range", form)
    option = find_option(name, known)
    found = parser_options(option.type, option.default)
    if found.get("metavar") not in ("N", "X") or "nargs" in found:
        raise ValueError(f"range needs a setting with numbers, got {name}: give its values with --grid")
    parts = words.split(":")
    if len(parts) not in (2, 3) or parts[2:] not in ([], ["log"]):
        raise ValueError(f"range must be {form}, got {text}")
    low, high = (read_value(part, name, option.type, option.default) for part in parts[:2])
    log = len(parts) == 3
    if not low < high or not math.isfinite(high - low) or (log and low <= 0):
        raise ValueError(f"range must have {'0 < ' if log else ''}LOW < HIGH, got {text}")
    return Range(name, low, high, log)


def split_name(text: str, flag: str, form: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not (name and equals and rest):
        raise ValueError(f"{flag} must be {form}, got {text}")
    return name.replace("-", "_"), rest


def find_option(name: str, known: Mapping[str, Option]) -> Option:
    if name in FIXED:
        raise ValueError(f"{name} cannot be varied" + (": give --seeds" if name == "seed" else ""))
    if name not in known:
        raise ValueError(f"a sweep varies flags of grokfast train, got {name}")
    return known[name]
