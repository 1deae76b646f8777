"""The lab: the paper's tasks, one training loop, run directories, reports. Needs `pip install "grokfast[lab]"`."""

from typing import TYPE_CHECKING, Any

from grokfast.lab.runs.directory import Run as Run
from grokfast.lab.runs.directory import load_runs as load_runs

if TYPE_CHECKING:
    from grokfast.lab.duel.ab import ab as ab


def __getattr__(name: str) -> Any:
    if name != "ab":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from grokfast.lab.duel.ab import ab  # needs torch and Optuna, which a list of runs does not

    return ab
