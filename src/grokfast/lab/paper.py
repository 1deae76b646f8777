"""The paper's published numbers, as data: which configuration, which number, where it stands."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from grokfast.lab.config import (
    DEFAULTS,
    FilterConfig,
    LoopConfig,
    ModularConfig,
    OptimConfig,
    RunConfig,
    complete,
    resolve,
)


class Published(NamedTuple):
    """A number of the paper and its place."""

    steps: int | None  # iterations until the validation accuracy is 0.95; None for "not converged"
    where: str


class Arm(NamedTuple):
    """One row of a table: what is done to the gradients, at which weight decay."""

    name: str
    filter: FilterConfig
    weight_decay: float
    published: Published


MODMUL_ARMS = (
    Arm("Baseline", FilterConfig(), 0.0, Published(39_890, "Table 1")),
    Arm("1-stage MA", FilterConfig(filter="ma"), 0.0, Published(2_940, "Table 1")),
    Arm("2-stage MA", FilterConfig(filter="ma", two_stage=500), 0.0, Published(1_920, "Table 1")),
    Arm(
        "2-stage MA, slow only",
        FilterConfig(filter="ma", two_stage=500, slow_only=True),
        0.0,
        Published(None, "Table 1"),
    ),
    Arm("Grokfast-MA", FilterConfig(filter="ma"), 0.01, Published(790, "Table 3")),
    Arm("Grokfast-EMA", FilterConfig(filter="ema"), 0.005, Published(910, "Table 3")),
)


def find_arm(config: RunConfig) -> Arm | None:
    """The row of the paper that a modmul run repeats, whatever its seed; None if it is another experiment."""
    # How the model is computed does not make it another experiment.
    if dataclasses.replace(config.task, fast=True, compile=False) != ModularConfig():
        return None
    defaults = DEFAULTS[config.task_name]
    if (config.optim.optimizer, config.optim.lr, config.optim.betas) != (
        defaults.optimizer,
        defaults.lr,
        defaults.betas,
    ):
        return None
    for arm in MODMUL_ARMS:
        same_filter = config.filter == complete(RunConfig(ModularConfig(), arm.filter)).filter
        if same_filter and config.optim.weight_decay == arm.weight_decay:
            return arm
    return None


def demo_configs(*, quick: bool = False) -> list[RunConfig]:
    """The paper's first figure in two minutes: EMA and MA to 95%, the baseline for longer than both; seed 0."""
    arms = {arm.name: arm for arm in MODMUL_ARMS}
    loops = {
        "Grokfast-EMA": LoopConfig(steps=2_000, until=0.95),
        "Grokfast-MA": LoopConfig(steps=2_000, until=0.95),
        "Baseline": LoopConfig(steps=2_400, until=0.95, eval_every=30),
    }
    return [
        resolve(
            RunConfig(
                ModularConfig(),
                arms[name].filter,
                OptimConfig(weight_decay=arms[name].weight_decay),
                dataclasses.replace(loop, steps=30) if quick else loop,
            )
        )
        for name, loop in loops.items()
    ]
