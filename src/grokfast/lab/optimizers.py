"""The optimizers that the lab knows by name: torch's. One by path, `package:Class` or `my.py:Class`, needs no line.

A class by path gets the task's learning rate and decay; betas and momentum are its own defaults unless given.
"""

from __future__ import annotations

import inspect
from typing import Any

from torch import optim

from grokfast.lab.own_code import find_class, is_own_code

OPTIMIZERS: dict[str, type[optim.Optimizer]] = {
    "adam": optim.Adam,
    "adamw": optim.AdamW,
    "sgd": optim.SGD,
    "nadam": optim.NAdam,
    "muon": optim.Muon,
    "radam": optim.RAdam,
    "adamax": optim.Adamax,
    "rmsprop": optim.RMSprop,
    "adagrad": optim.Adagrad,
}
KEYWORDS = ("betas", "momentum", "nesterov")  # settings that some optimizers have and others do not
FLAGS = ("lr", "weight_decay", "fused", *KEYWORDS)  # what has a flag of its own is no option


def find_optimizer(name: str) -> type[optim.Optimizer]:
    """The class of that name; a class by path is imported and known from then on."""
    return find_class(name, OPTIMIZERS, optim.Optimizer, "optimizer")


def parameters_of(name: str) -> dict[str, Any]:
    """What the constructor of a known optimizer takes by name, with the defaults."""
    found = inspect.signature(OPTIMIZERS[name]).parameters.values()
    return {p.name: p.default for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def keywords_of(name: str) -> set[str]:
    """Which of our settings a known optimizer has. Muon's momentum is an option: the betas are its companion's."""
    return {"betas"} if name == "muon" else {word for word in KEYWORDS if word in parameters_of(name)}


def own_defaults(name: str) -> dict[str, Any]:
    """The values of our settings that a class by path brings along."""
    if not is_own_code(name):
        return {}
    known = {word: parameters_of(name)[word] for word in keywords_of(name)}
    return {word: value for word, value in known.items() if isinstance(value, (tuple, float, bool))}


def check_keyword(word: str, name: str) -> None:
    """Raise ValueError where a setting has no effect on an optimizer."""
    if word in KEYWORDS and word not in keywords_of(name):
        others = ", ".join(other for other in OPTIMIZERS if word in keywords_of(other))
        raise ValueError(f"{word} has no effect on {name}: it is for {others}")


def check_option(word: str, name: str) -> None:
    """Raise ValueError unless the constructor of an optimizer names this option."""
    if word in FLAGS and (name, word) not in {("muon", "momentum"), ("muon", "nesterov")}:
        raise ValueError(f"optimizer_option must not be a setting that has a flag, got {word}: give --{word}")
    known = [other for other in parameters_of(name) if other not in (*FLAGS, "params")]
    if word not in parameters_of(name):
        raise ValueError(f"optimizer_option must be one of {', '.join(known)} for {name}, got {word}")
