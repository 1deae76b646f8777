"""What the paper's comparison leaves out: the baseline at other weight decays and learning rates, filters beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from grokfast.lab.compare.seeds import Arm, make_arms
from grokfast.lab.paper.evidence import ADAM_DECAYS, ADAMW_DECAYS, RATES
from grokfast.lab.paper.published import BASELINE, EMA, MA, request_key
from grokfast.lab.runs.directory import Run

FILTERS = {"no filter": BASELINE, "EMA": EMA, "MA": MA}
ADAM = [("adam", decay, 1e-3) for decay in (0.0, *ADAM_DECAYS)]
ADAMW = [("adamw", decay, lr) for lr in RATES for decay in sorted(ADAMW_DECAYS)]


class Control(NamedTuple):
    """One setting of the optimizer, without a filter and with the paper's; None where there are no runs."""

    optimizer: str
    weight_decay: float
    lr: float
    arms: dict[str, Arm | None]  # by FILTERS

    @property
    def setting(self) -> str:
        return f"weight decay {self.weight_decay:g} and learning rate {self.lr:g}"

    @property
    def words(self) -> str:
        name = {"adam": "Adam", "adamw": "AdamW"}[self.optimizer]
        return f"{name} at {self.setting}"


def controls(runs: Sequence[Run]) -> list[Control]:
    """All settings, the paper's baseline first, from runs of modular multiplication judged at one level."""
    known = {arm.key: arm for arm in make_arms(runs)}
    return [Control(*setting, find(known, *setting)) for setting in (*ADAM, *ADAMW)]


def find(known: dict[str, Arm], optimizer: str, decay: float, lr: float) -> dict[str, Arm | None]:
    """The arms of one setting, by filter."""
    asked = {"optimizer": optimizer, "weight_decay": decay, "lr": lr}
    return {name: known.get(request_key(request.having(**asked))) for name, request in FILTERS.items()}


def fastest(found: Sequence[Control], *names: str) -> tuple[Control, Arm] | None:
    """The setting that takes the fewest steps with one of these filters; None where no arm has reached the level."""
    pairs = [(control, arm) for control in found for name in names if (arm := control.arms[name]) is not None]
    reached = [pair for pair in pairs if pair[1].steps().median.exact]
    return min(reached, key=lambda pair: pair[1].steps().order, default=None)
