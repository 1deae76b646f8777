"""The lab: the paper's tasks, one training loop, run directories, reports. Needs `pip install "grokfast[lab]"`."""

import importlib
from typing import TYPE_CHECKING, Any

from grokfast.lab.runs.directory import Run as Run
from grokfast.lab.runs.directory import load_runs as load_runs

if TYPE_CHECKING:
    from grokfast.lab.analysis.inside_run import look_inside as look_inside
    from grokfast.lab.compare.seeds import make_arms as make_arms
    from grokfast.lab.duel.ab import ab as ab
    from grokfast.lab.training.train import train_task as train_task

# Imported when they are used: they need torch, and `ab` needs Optuna, which a list of runs does not.
_HOMES = {
    "ab": "duel.ab",
    "look_inside": "analysis.inside_run",
    "make_arms": "compare.seeds",
    "train_task": "training.train",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
