"""The paper's tasks. A new one is one file here that keeps the shape of `base.Task`."""

from grokfast.lab.tasks.base import Batch as Batch
from grokfast.lab.tasks.base import Evaluation as Evaluation
from grokfast.lab.tasks.base import Split as Split
from grokfast.lab.tasks.base import Task as Task
from grokfast.lab.tasks.modular import ModularConfig, ModularTask


def make_task(config: ModularConfig, *, seed: int, device: str) -> Task:
    """The task a configuration describes."""
    return ModularTask(config, seed=seed, device=device)
