"""What runs are called: a few words for a person, and eight hex digits that differ where results may."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from grokfast.lab import filters
from grokfast.lab.config import RunConfig, departures
from grokfast.lab.own_code import is_own_code

NAMED = {"operation": "", "p": "p", "width": "width"}  # settings of the task in the name of a run, after these letters


def fingerprint(config: RunConfig) -> str:
    """Eight hex digits that differ for configurations that may give different results.

    Values at the default of their field do not count: an option that is added later leaves the names of runs alone.
    """
    parts: dict[str, Any] = {part: departures(getattr(config, part)) for part in ("task", "filter", "optim", "loop")}
    names = [config.task_name, config.filter and filters.name_of(config.filter), config.two_stage]
    return short_hash([names, parts])


def short_hash(data: Any) -> str:
    """Eight hex digits of plain data."""
    return hashlib.sha256(json.dumps(data, sort_keys=True, default=str).encode()).hexdigest()[:8]


def title(config: RunConfig, *, with_task: bool = True) -> str:
    """A short name for a person: the task and its unusual settings, optimizer by path, filter, weight decay, seed."""
    optimizer, unusual = config.optim.optimizer, departures(config.task) if with_task else {}
    shown = [f"{NAMED[name]}{plain_word(str(unusual[name]))}" for name in NAMED if name in unusual]
    own = [plain_word(optimizer)] if is_own_code(optimizer) else []
    filter = "baseline" if config.filter is None else filters.short_name(config.filter)
    stages = [] if config.two_stage is None else [f"from{config.two_stage}"]
    ends = [f"wd{config.optim.weight_decay:g}", f"s{config.loop.seed}"]
    return "-".join([plain_word(config.task_name), *shown, *own, filter, *stages, *ends])


def plain_word(text: str) -> str:
    """A path or a name as a word that can be part of a file's name."""
    return re.sub(r"\W+", "_", text.rpartition("/")[2])
