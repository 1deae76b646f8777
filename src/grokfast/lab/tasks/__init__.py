"""The paper's tasks. A new one is one file here that keeps the shape of `base.Task`."""

from __future__ import annotations

from pathlib import Path

from grokfast.lab.tasks.base import Batch as Batch
from grokfast.lab.tasks.base import Evaluation as Evaluation
from grokfast.lab.tasks.base import Split as Split
from grokfast.lab.tasks.base import Task as Task
from grokfast.lab.tasks.base import TaskConfig as TaskConfig
from grokfast.lab.tasks.imdb import ImdbConfig, ImdbTask
from grokfast.lab.tasks.mnist import MnistConfig, MnistTask
from grokfast.lab.tasks.modular import ModularConfig, ModularTask
from grokfast.lab.tasks.qm9 import Qm9Config, Qm9Task

TASKS: dict[str, type[TaskConfig]] = {
    "modmul": ModularConfig,
    "mnist": MnistConfig,
    "qm9": Qm9Config,
    "imdb": ImdbConfig,
}


def make_task(config: TaskConfig, *, seed: int, device: str, data_dir: str | Path | None = None) -> Task:
    """The task a configuration describes, its data read and checked."""
    match config:
        case ModularConfig():
            return ModularTask(config, seed=seed, device=device)
        case MnistConfig():
            return MnistTask(config, seed=seed, device=device, data_dir=data_dir)
        case Qm9Config():
            return Qm9Task(config, seed=seed, device=device, data_dir=data_dir)
        case ImdbConfig():
            return ImdbTask(config, seed=seed, device=device, data_dir=data_dir)
        case _:
            raise TypeError(f"config must be one of {', '.join(TASKS)}, got {type(config).__name__}")
