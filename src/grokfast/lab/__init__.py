"""The lab: tasks, one training loop, run directories, search, verdicts. Needs `pip install "grokfast[lab]"`.

from grokfast import lab

run = lab.train("modmul", filter="ema", until=0.95)
lab.sweep("modmul", {"lamb": [1.0, 2.0, 5.0]}, filter="ema")
lab.duel("modmul", ["adamw", "adamw+ema"])
lab.table("runs")
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grokfast.lab.runs.directory import Run as Run
from grokfast.lab.runs.directory import load_runs as load_runs

if TYPE_CHECKING:
    from grokfast.lab.analysis.inside import look_inside as look_inside
    from grokfast.lab.search.ab import ab as ab
    from grokfast.lab.search.duel import duel as duel
    from grokfast.lab.search.sweep import sweep as sweep
    from grokfast.lab.tables import table as table

# Imported when they are used: they need torch, and a search needs Optuna; a list of runs needs neither.
_HOMES = {
    "ab": "search.ab",
    "duel": "search.duel",
    "look_inside": "analysis.inside",
    "sweep": "search.sweep",
    "table": "tables",
}


def train(task: str, folder: str | Path = "runs", **settings: Any) -> Run:
    """`grokfast train TASK` for a script: train one run to its end; a complete run is returned as it is.

    Args:
        task: the name of a task, as on the command line.
        folder: contains the run directories.
        settings: the flags of `grokfast train`, with underscores; the task's usual values for all others.

    Examples:
        >>> import tempfile
        >>> sizes = {"p": 5, "width": 8, "heads": 2, "depth": 1}
        >>> run = train("modmul", tempfile.mkdtemp(), filter="ema", lamb=1.0, steps=4, **sizes)
        >>> run.status, run.settings["filter"], run.rows[-1].step
        ('complete', 'ema', 4)
    """
    from grokfast.lab.settings import resolve
    from grokfast.lab.training.run import train as train_settings

    return train_settings(resolve(task, **settings), folder)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
