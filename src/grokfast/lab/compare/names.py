"""What runs and settings are called in tables, legends and sentences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from grokfast.lab import filters
from grokfast.lab.config import experiment_key
from grokfast.lab.paper.published import find_arm
from grokfast.lab.runs.directory import Run

WORDS = {"lr": "learning rate", "name": "filter"}


def words(name: str) -> str:
    """A setting as a person says it; `optim.lr` is the learning rate."""
    last = name.rpartition(".")[2]
    return WORDS.get(last, last.replace("_", " "))


def enumerate_words(texts: Sequence[str]) -> str:
    """
    >>> enumerate_words(["lamb", "alpha", "weight decay"])
    'lamb, alpha and weight decay'
    """
    *most, last = texts
    return f"{', '.join(most)} and {last}" if most else last


def label(run: Run) -> str:
    """What to call a run: its name in the paper and its seed, or its own name."""
    arm = find_arm(run.settings)
    return run.name if arm is None else f"{arm.name}, seed {run.loop['seed']}"


def experiment_name(run: Run) -> str:
    """What to call all runs that repeat this one: the paper's name, or filter and weight decay."""
    arm = find_arm(run.settings)
    if arm is not None:
        return arm.name
    return f"{filters.describe_plain(run.settings['filter'])}, weight decay {run.weight_decay:g}"


def disambiguate(runs: Sequence[Run]) -> list[str]:
    """A name for the experiment of each run, all different: equal ones are followed by the settings that differ."""
    names = [experiment_name(run) for run in runs]
    counts = Counter(names)
    for name in (name for name, count in counts.items() if count > 1):
        places = [i for i, known in enumerate(names) if known == name]
        for i, settings in zip(places, differences([runs[i] for i in places]), strict=True):
            names[i] = ", ".join([name, *settings])
    return names


def differences(runs: Sequence[Run], *, known: Sequence[str] = ()) -> list[list[str]]:
    """The fewest settings that distinguish experiments, as text, for each; those in `known` are shown already."""
    flat = [experiment_settings(run) for run in runs]
    keys, named = dict.fromkeys(key for settings in flat for key in settings), list(known)

    def distinct(*chosen: str) -> int:
        return len({repr([settings.get(key) for key in chosen]) for settings in flat})

    while distinct(*named) < distinct(*keys):
        named.append(max(keys, key=lambda key: distinct(*named, key)))
    return [[setting_text(key, settings.get(key)) for key in named[len(known) :]] for settings in flat]


def experiment_settings(run: Run) -> dict[str, Any]:
    """The settings that runs of one experiment share, by dotted name."""
    return json.loads(experiment_key(run.settings))


def setting_text(key: str, value: Any) -> str:
    """
    >>> setting_text("optim.lr", 0.01), setting_text("task.fast", False), setting_text("two_stage", None)
    ('learning rate 0.01', 'no fast', 'no two stage')
    """
    if value is None or isinstance(value, bool):
        return words(key) if value else f"no {words(key)}"
    return f"{words(key)} {value:g}" if isinstance(value, float) else f"{words(key)} {value}"
