"""Lists and ranges of a setting, and the arms of a duel with the ranges that are tuned.

alpha=0.9,0.95,0.98         a list of values, of the type of the setting
lamb=0.1:10:log             a range; `log` spaces it evenly on a log scale
alpha=0.5:0.998:memory      a range that is spaced evenly by the logarithm of the memory 1 / (1 - value)
clip_norm=0.25:4:log:off    the same, but the setting may also be 0

An arm is a name such as `adamw+ema`: an optimizer and what is added to it. It is tuned over the ranges of its parts,
except for settings that the command or the regime fixes for every arm.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grokfast.lab import filters
from grokfast.lab.own_code import is_own_code
from grokfast.lab.settings import OPTIMIZERS, Setting, find_optimizer, resolve, settings_of
from grokfast.lab.values import plain, read_value

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

# The seed has a flag of its own; the others say where and how fast a run is computed, not what.
FIXED = ("seed", "threads", "device", "data_dir", "checkpoint_seconds", "memory_limit")
DIGITS = 4  # of the numbers that a search proposes, so that the printed value is the exact one
EDGE = 0.05  # of a range: a best value in its first or last 5% is reported

SCALES = ("even", "log", "memory")


@dataclass(frozen=True)
class Choices:
    """A setting that takes each value of a list."""

    name: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Range:
    """A setting that takes any number from `low` to `high`; whole numbers if both are. With `off` it may be 0 too."""

    name: str
    low: float
    high: float
    scale: str = "even"
    off: bool = False


Dimension = Choices | Range


# For Optuna ---------------------------------------------------------------------------------------------------------


def distributions_of(dimension: Dimension) -> dict[str, BaseDistribution]:
    """The parameters of a dimension as Optuna knows them: one, and a switch for a range that may be off."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    name = dimension.name
    if isinstance(dimension, Choices):  # by place: Optuna has no tuples
        return {name: CategoricalDistribution(list(range(len(dimension.values))))}
    low, high = search_coordinate(dimension, dimension.low), search_coordinate(dimension, dimension.high)
    log = dimension.scale != "even"
    if isinstance(low, int) and isinstance(high, int):
        found: dict[str, BaseDistribution] = {name: IntDistribution(low, high, log=log)}
    else:
        found = {name: FloatDistribution(low, high, log=log)}
    return {f"{name} on": CategoricalDistribution([True, False]), **found} if dimension.off else found


def search_coordinate(dimension: Range, value: float) -> float:
    """The coordinate of a value in the search: 1 / (1 - value) with the scale `memory`, else the value."""
    return 1.0 / (1.0 - value) if dimension.scale == "memory" else value


def value_from(dimension: Dimension, params: Mapping[str, Any]) -> Any:
    """The value that Optuna's parameters stand for, rounded to a few digits."""
    found = params[dimension.name]
    if isinstance(dimension, Choices):
        return dimension.values[found]
    if not params.get(f"{dimension.name} on", True):
        return 0.0
    if isinstance(dimension.low, int) and isinstance(dimension.high, int):
        return int(found)
    value = float(f"{found:.{DIGITS}g}")
    if dimension.scale == "memory":
        value = float(f"{1.0 - 1.0 / found:.{DIGITS + 2}f}")
    return min(max(value, dimension.low), dimension.high)


def params_of(dimension: Dimension, value: Any) -> dict[str, Any]:
    """The parameters that stand for a value: `value_from` backwards."""
    if isinstance(dimension, Choices):
        return {dimension.name: [plain(each) for each in dimension.values].index(plain(value))}
    if dimension.off and not value:
        return {f"{dimension.name} on": False}
    low, high = search_coordinate(dimension, dimension.low), search_coordinate(dimension, dimension.high)
    found = {dimension.name: min(max(search_coordinate(dimension, value), low), high)}
    return {f"{dimension.name} on": True, **found} if dimension.off else found


def edge_of(dimension: Dimension, value: Any) -> str | None:
    """The end of its range that a value is close to; None if it is inside, or off.

    >>> lr = Range("lr", 1e-3, 1e-1, "log")
    >>> edge_of(lr, 0.0011), edge_of(lr, 0.01), edge_of(lr, 0.1)
    ('lower', None, 'upper')
    """
    if isinstance(dimension, Choices) or (dimension.off and not value):
        return None
    ends = [search_coordinate(dimension, each) for each in (dimension.low, value, dimension.high)]
    low, at, high = [math.log(end) for end in ends] if dimension.scale != "even" else ends
    share = (at - low) / (high - low)
    return "lower" if share < EDGE else "upper" if share > 1 - EDGE else None


# Reading ------------------------------------------------------------------------------------------------------------


def read_dimensions(task: str, kinds: Iterable[str], grids: Sequence[str], ranges: Sequence[str]) -> list[Dimension]:
    """The dimensions of `--grid` and `--range`, with values of the right types; `kinds` are the filters in use."""
    words = [name for text in grids if text.startswith("filter=") for name in text.partition("=")[2].split(",")]
    # Those first: other filters may have a field of the same name and another type.
    known = settings_of(task, dict.fromkeys([*kinds, *(name for name in words if name != "none"), *filters.FILTERS]))
    return [*(read_choices(text, known) for text in grids), *(read_range(text, known) for text in ranges)]


def read_choices(text: str, known: Mapping[str, Setting]) -> Choices:
    """`alpha=0.9,0.95` as a list of values; write colons between the parts of a value that has several."""
    name, words = split_name(text, "grid", "NAME=VALUE,VALUE")
    setting = find_setting(name, known)
    return Choices(
        name, tuple(dict.fromkeys(read_value(word, name, setting.type, setting.default) for word in words.split(",")))
    )


def read_range(text: str, known: Mapping[str, Setting]) -> Range:
    """`lamb=0.1:10:log` as a range of numbers."""
    form = "NAME=LOW:HIGH[:log|:memory][:off]"
    name, words = split_name(text, "range", form)
    setting = find_setting(name, known)
    low, high, *rest = words.split(":") if ":" in words else (words, "")
    off = rest[-1:] == ["off"]
    scale = (rest[:-1] if off else rest) or ["even"]
    if not high or len(scale) > 1 or scale[0] not in SCALES:
        raise ValueError(f"range must be {form}, got {text}")
    ends = [read_value(word, name, setting.type, setting.default) for word in (low, high)]
    if any(isinstance(end, bool) or not isinstance(end, int | float) for end in ends):
        raise ValueError(f"range needs a setting with numbers, got {name}: give its values with --grid")
    return check_range(Range(name, *ends, *scale, off=off), text)


def check_range(dimension: Range, text: object) -> Range:
    """The range; ValueError unless it can be searched."""
    low, high, scale = dimension.low, dimension.high, dimension.scale
    limits = {"even": (-math.inf, math.inf, "LOW < HIGH"), "log": (0.0, math.inf, "0 < LOW < HIGH")}
    least, most, words = {**limits, "memory": (-1e-9, 1.0, "0 <= LOW < HIGH < 1")}[scale]
    if not least < low < high < most:
        raise ValueError(f"range must have {words}, got {text}")
    return dimension


def read_varied(name: str, value: Any) -> Dimension | Any:
    """A dimension from Python: a list of choices, or a range `(low, high, scale)`; any other value is fixed.

    A pair such as `(0.9, 0.98)` is a value: only the scale makes it a range.
    """
    if isinstance(value, list):
        if not value or not all(isinstance(each, Hashable) for each in value):
            raise ValueError(f"{name} must have choices, one or more, of numbers, words or tuples, got {value}")
        return Choices(name, tuple(value))
    if not (isinstance(value, tuple) and len(value) == 3 and isinstance(value[2], str)):  # type: ignore[reportUnknownArgumentType]
        return value
    low, high, scale = value
    if scale not in SCALES:
        raise ValueError(f"the scale of {name} must be one of {', '.join(SCALES)}, got {scale!r}")
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high)):
        raise ValueError(f"{name} must have numbers as ends of its range, got {value}")
    return check_range(Range(name, low, high, scale), value)


def split_name(text: str, flag: str, form: str) -> tuple[str, str]:
    name, equals, rest = text.partition("=")
    if not (name and equals and rest):
        raise ValueError(f"{flag} must be {form}, got {text}")
    return name.replace("-", "_"), rest


def find_setting(name: str, known: Mapping[str, Setting]) -> Setting:
    if name in FIXED:
        raise ValueError(f"{name} cannot be varied" + (": give --seeds" if name == "seed" else ""))
    if name not in known:
        raise ValueError(f"a sweep varies flags of grokfast train, got {name}")
    return known[name]


# Arms ---------------------------------------------------------------------------------------------------------------

# Each arm gets the same width: two decades of learning rate, four of decay, clipping that may be off.
RATE, DECAY = Range("lr", 3e-4, 3e-2, "log"), Range("weight_decay", 1e-3, 10.0, "log")
COUPLED = Range("weight_decay", 1e-6, 1e-2, "log")  # added to the gradient, as in Adam and SGD
BETAS = Choices("betas", ((0.9, 0.98), (0.9, 0.95), (0.9, 0.999), (0.8, 0.98), (0.5, 0.98), (0.5, 0.9)))
CLIP = Range("clip_norm", 0.25, 4.0, "log", off=True)
SIGN_RATE = Range("lr", 3e-5, 3e-3, "log")  # every weight moves by as much
SIGN_BETAS = Choices("betas", ((0.9, 0.99), (0.9, 0.97), (0.95, 0.98), (0.8, 0.95)))
SLOW_BETAS = Choices("betas", tuple((b1, b2, b3) for b1 in (0.9, 0.5) for b2 in (0.98, 0.999) for b3 in (0.98, 0.999)))
SLOW_GAINS = Choices("optimizer_option", tuple((("alpha", a), ("weight_decouple", True)) for a in (1.0, 2.0, 5.0)))
DECOUPLED = (("decoupled_weight_decay", True),)
MEMORY = 0.5, 0.998  # decay of an average over about 2 to 500 steps

Part = tuple[dict[str, Any], tuple[Dimension, ...]]  # fixed settings and ranges of an arm, or of a word of its name
OPTIMIZER_PARTS: dict[str, Part] = {
    "adam": ({"optimizer": "adam"}, (RATE, COUPLED, BETAS, CLIP)),
    "adamw": ({"optimizer": "adamw"}, (RATE, DECAY, BETAS, CLIP)),
    "nadam": ({"optimizer": "nadam", "optimizer_option": DECOUPLED}, (RATE, DECAY, BETAS, CLIP)),
    "sgd": ({"optimizer": "sgd"}, (Range("lr", 3e-2, 3.0, "log"), COUPLED, Range("momentum", 0.0, 0.99), CLIP)),
    "muon": (
        {"optimizer": "muon"},
        (
            Range("lr", 2e-3, 0.2, "log"),
            DECAY,
            BETAS,
            CLIP,
            Range("companion_lr", 3e-4, 3e-2, "log"),
            Choices("muon_params", ("matrices", "hidden")),
        ),
    ),
    "lion": ({"optimizer": "pytorch_optimizer:Lion"}, (SIGN_RATE, DECAY, SIGN_BETAS, CLIP)),
    "ademamix": ({"optimizer": "pytorch_optimizer:AdEMAMix"}, (RATE, DECAY, SLOW_BETAS, SLOW_GAINS, CLIP)),
    "schedulefree": ({"optimizer": "pytorch_optimizer:ScheduleFreeAdamW"}, (RATE, DECAY, BETAS, CLIP)),
}
GAIN = Range("lamb", 0.05, 10.0, "log")
FILTER_RANGES: dict[str, tuple[Dimension, ...]] = {
    "ema": (Range("alpha", *MEMORY, "memory"), GAIN),
    "ma": (Range("window_size", 2, 500, "log"), GAIN),
}
RIVAL_PARTS: dict[str, Part] = {
    "average": ({}, (Range("average", *MEMORY, "memory"),)),
    "rowclip": ({}, (Range("row_norm", 0.5, 4.0, "log"),)),
    "latedecay": ({}, (Range("late_decay", 1e-4, 0.1, "log"),)),
    "perpgrad": ({"perp_grad": True}, ()),
    "equalgrad": ({"equal_grad": True}, ()),
    "stablemax": ({"loss": "stablemax"}, ()),
}

REGIMES: dict[str, tuple[dict[str, Any], str]] = {
    "tuned": ({}, "with everything tuned"),
    "paper": ({}, "at the published settings, nothing tuned"),
    "no-decay": ({"weight_decay": 0.0}, "without weight decay, everything else tuned"),
    "small-batch": ({"batch_size": 64}, "with batches of 64"),
    "full-batch": ({"batch_size": 0}, "with all examples in each batch, for tasks that can"),
    "little-data": ({"train_fraction": 0.3}, "with 30% of the equations to train on"),
    "noise": ({"label_noise": 0.05}, "with 5% of the training answers wrong"),
}


def read_arm(name: str, shared: Mapping[str, Any], typed: Iterable[Dimension] = (), *, tuned: bool = True) -> Part:
    """The arm of that name. `shared` are the settings of all arms; a typed range replaces the arm's own."""
    first, *words = name.split("+")
    if twice := [word for word in words if words.count(word) > 1]:
        raise ValueError(f"an arm must have each addition once, got {twice[0]} twice in {name}")
    parts = [optimizer_part(first), *(added_part(word) for word in words)]
    given = dict(shared)
    for values, _ in parts:
        if clash := [key for key in values if key in given]:
            raise ValueError(f"{clash[0]} must be set once, got {name} and {given[clash[0]]}")
        given |= values
    if not tuned:
        check_published(name, given, parts)
        return given, ()
    ranges = {each.name: each for _, found in parts for each in found}
    for each in typed:
        if each.name in shared:
            raise ValueError(f"{each.name} must be either fixed for all arms or tuned, got both")
        if each.name in ranges or has_setting(given, each):
            ranges[each.name] = each
    return given, tuple(each for each in ranges.values() if each.name not in given)


def has_setting(given: Mapping[str, Any], dimension: Dimension) -> bool:
    """Whether an arm can be tuned over a setting that is not in its ranges: those of other arms are not for it."""
    if any(each.name == dimension.name for _, ranges in RIVAL_PARTS.values() for each in ranges):
        return False
    value = dimension.values[0] if isinstance(dimension, Choices) else dimension.low
    try:
        tried: dict[str, Any] = {**given, dimension.name: value}
        resolve(**tried)
    except ValueError:
        return False
    return True


def check_published(name: str, given: Mapping[str, Any], parts: Sequence[Part]) -> None:
    """Raise ValueError if nothing is tuned and an arm has no published settings."""
    task = given["task"]
    usual = resolve(task)["optimizer"]
    if given["optimizer"] != usual:
        raise ValueError(f"arms of {task} in regime paper must begin with {usual}, as published, got {name}")
    if unset := [ranges[0].name for values, ranges in parts if not values]:
        raise ValueError(f"regime paper has no published {unset[0]}, got {name}")


def optimizer_part(word: str) -> Part:
    for short, (values, ranges) in OPTIMIZER_PARTS.items():
        if word in (short, values["optimizer"]):
            return values, ranges
    if word in OPTIMIZERS or is_own_code(word):
        find_optimizer(word)
        return {"optimizer": word}, (RATE, DECAY, CLIP)
    known = ", ".join(dict.fromkeys([*OPTIMIZER_PARTS, *(n for n in OPTIMIZERS if not is_own_code(n))]))
    raise ValueError(f"an arm must begin with one of {known} or PACKAGE:CLASS, got {word}")


def added_part(word: str) -> Part:
    if word in RIVAL_PARTS:
        return RIVAL_PARTS[word]
    if word not in filters.FILTERS and not is_own_code(word):
        known = ", ".join([*RIVAL_PARTS, *(n for n in filters.FILTERS if not is_own_code(n))])
        raise ValueError(f"what is added to an arm must be one of {known} or FILE.py:CLASS, got {word}")
    filters.find_filter(word)
    return {"filter": word}, FILTER_RANGES.get(word, ())


def reference_of(name: str, names: Sequence[str]) -> str | None:
    """The reference of an arm: itself without its last parts if that takes part too, else the first arm.

    >>> arms = ["adamw", "adamw+ema", "muon", "muon+rowclip+ema"]
    >>> [reference_of(name, arms) for name in arms]
    [None, 'adamw', 'adamw', 'muon']
    """
    found = name
    while "+" in found:
        found = found.rpartition("+")[0]
        if found in names:
            return found
    return None if name == names[0] else names[0]
