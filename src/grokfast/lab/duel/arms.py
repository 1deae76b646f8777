"""Arms by name, `adamw+ema` say: an optimizer and what is added to it. The one place for ranges to tune over.

An arm may be tuned over all its knobs, except those that the command or the regime fixes for every arm.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from grokfast.lab.config import KEYWORDS, OPTIMIZERS, find_optimizer, keywords_of
from grokfast.lab.filters import FILTERS, find_filter
from grokfast.lab.own_code import is_own_code
from grokfast.lab.request import Request, options, resolve
from grokfast.lab.sweep.space import Choices, Dimension, Range
from grokfast.lab.tasks import find_task


class Part(NamedTuple):
    """What a word in the name of an arm stands for: settings, and knobs to be tuned."""

    values: dict[str, Any]
    knobs: tuple[Dimension, ...] = ()


class Contender(NamedTuple):
    """An arm of a duel: what to ask for, and what to tune."""

    name: str
    request: Request
    knobs: tuple[Dimension, ...]


RATE, DECAY = Range("lr", 3e-4, 3e-2, log=True), Range("weight_decay", 1e-3, 10.0, log=True)
COUPLED = Range("weight_decay", 1e-6, 1e-2, log=True)  # added to the gradient, as in Adam and SGD
BETAS = Choices("betas", ((0.9, 0.98), (0.9, 0.95), (0.9, 0.999), (0.8, 0.98), (0.5, 0.98), (0.5, 0.9)))
SIGN_RATE = Range("lr", 3e-5, 3e-3, log=True)  # every weight moves by as much
SIGN_BETAS = Choices("betas", ((0.9, 0.99), (0.9, 0.97), (0.95, 0.98), (0.8, 0.95)))
SLOW_BETAS = Choices("betas", tuple((b1, b2, b3) for b1 in (0.9, 0.5) for b2 in (0.98, 0.999) for b3 in (0.98, 0.999)))
SLOW_GAINS = Choices("optimizer_option", tuple((("alpha", a), ("weight_decouple", True)) for a in (1.0, 2.0, 5.0)))

USUAL = (RATE, DECAY)  # of an optimizer that is not listed here
OPTIMIZER_PARTS: dict[str, Part] = {
    "adam": Part({"optimizer": "adam"}, (RATE, COUPLED, BETAS)),
    "adamw": Part({"optimizer": "adamw"}, (RATE, DECAY, BETAS)),
    "sgd": Part({"optimizer": "sgd"}, (Range("lr", 1e-2, 3.0, log=True), COUPLED, Range("momentum", 0.0, 0.99))),
    "muon": Part(
        {"optimizer": "muon"},
        (
            Range("lr", 2e-3, 0.2, log=True),
            DECAY,
            BETAS,
            Range("companion_lr", 3e-4, 3e-2, log=True),
            Choices("muon_params", ("matrices", "hidden")),
        ),
    ),
    "lion": Part({"optimizer": "pytorch_optimizer:Lion"}, (SIGN_RATE, DECAY, SIGN_BETAS)),
    "ademamix": Part({"optimizer": "pytorch_optimizer:AdEMAMix"}, (RATE, DECAY, SLOW_BETAS, SLOW_GAINS)),
    "schedulefree": Part({"optimizer": "pytorch_optimizer:ScheduleFreeAdamW"}, (RATE, DECAY, BETAS)),
}
RIVAL_PARTS: dict[str, Part] = {
    "rowclip": Part({}, (Range("row_norm", 0.5, 4.0, log=True),)),
    "latedecay": Part({}, (Range("late_decay", 1e-4, 0.1, log=True),)),
    "perpgrad": Part({"perp_grad": True}),
    "equalgrad": Part({"equal_grad": True}),
    "stablemax": Part({"loss": "stablemax"}),
}
GAIN = Range("lamb", 0.1, 10.0, log=True)
FILTER_KNOBS: dict[str, tuple[Dimension, ...]] = {
    "ema": (Range("alpha", 0.5, 0.99), GAIN),
    "ma": (Range("window_size", 2, 200, log=True), GAIN),
}

REGIMES: dict[str, tuple[dict[str, Any], str]] = {
    "tuned": ({}, "with everything tuned"),
    "paper": ({}, "at the published settings, nothing tuned"),
    "no-decay": ({"weight_decay": 0.0}, "without weight decay, everything else tuned"),
    "small-batch": ({"batch_size": 64}, "with batches of 64"),
    "little-data": ({"train_fraction": 0.3}, "with 30% of the equations to train on"),
    "noise": ({"label_noise": 0.05}, "with 5% of the training answers wrong"),
}


def read_arm(name: str, base: Request, typed: Sequence[Dimension] = (), *, tuned: bool = True) -> Contender:
    """The arm of that name on a task. Ranges that a person typed replace its own, where it has such a setting."""
    first, *words = name.split("+")
    if twice := [word for word in words if words.count(word) > 1]:
        raise ValueError(f"an arm must have each addition once, got {twice[0]} twice in {name}")
    parts = [optimizer_part(first), *(added_part(word) for word in words)]
    values: dict[str, Any] = {}
    for part in parts:
        if twice := [key for key in part.values if key in values]:
            raise ValueError(f"an arm must have one {twice[0]}, got two in {name}")
        values |= part.values
    request = base.having(**values)
    if not tuned:
        check_published(name, request, parts)
    knobs = {knob.name: knob for part in parts for knob in part.knobs}
    check_not_fixed(typed, base)
    knobs |= {knob.name: knob for knob in typed if knob.name in knobs or has_setting(request, knob.name)}
    fixed = dict(request.values)
    return Contender(name, request, tuple(k for n, k in knobs.items() if n not in fixed) if tuned else ())


def check_not_fixed(typed: Sequence[Dimension], base: Request) -> None:
    """Raise ValueError where a range was typed for a setting that is fixed for all arms."""
    if fixed := [knob.name for knob in typed if knob.name in dict(base.values)]:
        raise ValueError(f"{fixed[0]} must be either fixed for all arms or tuned, got both")


def has_setting(request: Request, name: str) -> bool:
    """Whether an arm can be tuned over a setting that is not one of its knobs: those of other arms are not for it."""
    filter, optimizer = request.get("filter"), request.get("optimizer")
    find_optimizer(optimizer)
    others = {*KEYWORDS} - keywords_of(optimizer) | {knob.name for part in RIVAL_PARTS.values() for knob in part.knobs}
    known = options(find_task(request.task), [filter] if filter else [])
    return name in known and name not in (others if filter else {*others, "two_stage"})


def check_published(name: str, request: Request, parts: Sequence[Part]) -> None:
    """Raise ValueError where nothing is tuned and an arm has no published settings."""
    usual = resolve(request).task.defaults().optimizer
    if request.get("optimizer") != usual:
        raise ValueError(f"arms of {request.task} in regime paper must begin with {usual}, as published, got {name}")
    if unset := [part.knobs[0].name for part in parts if not part.values]:
        raise ValueError(f"regime paper has no published {unset[0]}, got {name}")


def optimizer_part(word: str) -> Part:
    for short, part in OPTIMIZER_PARTS.items():
        if word in (short, part.values["optimizer"]):
            return part
    if word in OPTIMIZERS or is_own_code(word):
        return Part({"optimizer": word}, USUAL)
    known = ", ".join(dict.fromkeys([*OPTIMIZER_PARTS, *(n for n in OPTIMIZERS if not is_own_code(n))]))
    raise ValueError(f"an arm must begin with one of {known} or PACKAGE:CLASS, got {word}")


def added_part(word: str) -> Part:
    if word in RIVAL_PARTS:
        return RIVAL_PARTS[word]
    if word not in FILTERS and not is_own_code(word):
        known = ", ".join([*RIVAL_PARTS, *(n for n in FILTERS if not is_own_code(n))])
        raise ValueError(f"what is added to an arm must be one of {known} or FILE.py:CLASS, got {word}")
    find_filter(word)
    return Part({"filter": word}, FILTER_KNOBS.get(word, ()))


AS = " at the settings of "


def control_name(reference: str, arm: str) -> str:
    """The name of the control of an arm: its reference at the settings that were found for the arm."""
    return reference + AS + arm


def controlled(name: str) -> str | None:
    """The arm that a control belongs to; None where the name is not that of a control."""
    return name.partition(AS)[2] or None


def name_of_plain(name: str) -> str:
    """The arm that a control trains at other settings; any other arm itself."""
    return name.partition(AS)[0]


def adds_to(arm: str, reference: str) -> bool:
    """Whether an arm is its reference and something more."""
    return arm.startswith(reference + "+")


def reference_of(name: str, names: Sequence[str]) -> str | None:
    """What an arm is compared with: itself without its last part if that takes part too, else the first arm.

    >>> arms = ["adamw", "adamw+ema", "muon", "muon+rowclip+ema", control_name("muon", "muon+rowclip+ema")]
    >>> [reference_of(name, arms) for name in arms]
    [None, 'adamw', 'adamw', 'muon', 'muon']
    """
    if controlled(name):
        return name_of_plain(name)
    found = name
    while "+" in found:
        found = found.rpartition("+")[0]
        if found in names:
            return found
    return None if name == names[0] else names[0]
