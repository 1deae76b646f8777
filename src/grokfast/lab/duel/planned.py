"""The duels that we want a verdict on: whether EMA helps the usual optimizer, in six regimes and on three tasks."""

from __future__ import annotations

from typing import NamedTuple

from grokfast.lab.duel.arms import REGIMES


class Planned(NamedTuple):
    """A duel of two arms; its outcome is kept under its name."""

    task: str
    regime: str = "tuned"
    optimizer: str = "adamw"
    flags: str = ""

    @property
    def name(self) -> str:
        return f"{self.task}-{self.regime}"

    @property
    def title(self) -> str:
        return f"{self.task} {REGIMES[self.regime][1]}"

    @property
    def arms(self) -> tuple[str, str]:
        return self.optimizer, f"{self.optimizer}+ema"

    @property
    def command(self) -> str:
        regime = "" if self.regime == "tuned" else f"--regime {self.regime}"
        words = ["grokfast duel", self.task, *self.arms, regime, self.flags, f"--duel-dir duels/{self.name}"]
        return " ".join(filter(None, words))


TUNED = Planned("modmul", flags="--steps 2000")  # the test that matters most for the filter
PLANNED = (
    Planned("modmul", "paper", "adam"),  # the paper's optimizer; its baseline has no decay, its EMA a coupled 0.005
    TUNED,
    # These reach their level after a thousand steps or so, and an evaluation takes as long as several steps.
    Planned("modmul", "no-decay", flags="--eval-every 20"),
    Planned("modmul", "small-batch"),
    Planned("modmul", "little-data", flags="--eval-every 20"),
    Planned("modmul", "noise", flags="--eval-every 20"),
    # Both reach their level after some 500 steps or sooner, so their usual evaluation grids would be coarse.
    Planned("mnist", flags="--eval-every 5"),
    Planned("parity", flags="--eval-every 10"),
)
