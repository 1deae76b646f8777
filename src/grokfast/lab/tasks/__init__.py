"""The tasks that the lab knows by name. A new one is a file here and a line below; a user's own needs neither."""

from __future__ import annotations

import dataclasses

from grokfast.lab.own_code import find_class
from grokfast.lab.tasks.addition import AdditionConfig
from grokfast.lab.tasks.base import TaskConfig
from grokfast.lab.tasks.imdb.task import ImdbConfig
from grokfast.lab.tasks.mnist import MnistConfig
from grokfast.lab.tasks.modular.task import ModularConfig
from grokfast.lab.tasks.parity import ParityConfig
from grokfast.lab.tasks.qm9.task import Qm9Config

TASKS: dict[str, type[TaskConfig]] = {
    "modmul": ModularConfig,
    "mnist": MnistConfig,
    "qm9": Qm9Config,
    "imdb": ImdbConfig,
    "parity": ParityConfig,
    "addition": AdditionConfig,
}


def find_task(name: str) -> type[TaskConfig]:
    """The settings of the task of that name; a class of the user's own is imported and known from then on."""
    found = find_class(name, TASKS, TaskConfig, "a task")
    if any(isinstance(value, dataclasses.Field) for value in vars(found).values()):
        raise ValueError(f"{name} must be a dataclass: write @dataclass(frozen=True) above it")
    return found


def name_of(task: TaskConfig) -> str:
    """The name under which the lab knows a task's class."""
    return next(name for name, kind in TASKS.items() if type(task) is kind)
