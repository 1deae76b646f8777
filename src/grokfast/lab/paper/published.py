"""The paper's published numbers, as data: which configuration, which number, which table."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from grokfast.lab.config import experiment_key, to_json
from grokfast.lab.request import Request, ask, resolve


class Costs(NamedTuple):
    """What a run costs on the paper's GTX 1080 Ti (Appendix D)."""

    memory_mb: float
    step_seconds: float
    seconds: float | None = None  # until the validation accuracy is at the level


class Distance(NamedTuple):
    """Mean and standard deviation over five seeds, in the paper's unit."""

    mean: float
    deviation: float


class Published(NamedTuple):
    """What the paper reports of an arm, and where."""

    where: str
    steps: int | None = None  # iterations until the validation accuracy is at the level
    converged: bool = True
    accuracy: float | None = None  # mnist: final; imdb: best of one-batch values
    loss: float | None = None  # lowest of the validation; of one-batch values for imdb
    costs: Costs | None = None
    distances: tuple[Distance, Distance, Distance] | None = None  # AB, BC, AC of Table 2

    @property
    def steps_text(self) -> str:
        """What the paper says of the steps to the level."""
        if not self.converged:
            return "not converged"
        return f"{self.steps:,}" if self.steps else ""


class PaperArm(NamedTuple):
    """One row of a table of the paper, or a control of ours beside it."""

    name: str
    request: Request
    published: Published | None  # None for our own controls
    in_summary: bool = False  # one of the few rows that tell the story

    @property
    def task(self) -> str:
        return self.request.task


# Table 2 is headed "l2 Distances (x1000)". They cannot be l2 norms of any scale: AC is longer than AB + BC in both
# columns. They can be mean squared differences times 1000: measured like that, our seed 0 has AB = 1.00 as Baseline and
# 8.01 as Grokfast-MA (l2 norms of 20.5 and 58.2). C of the baseline is at 300,000 steps; for Grokfast no step is given.
# 0.97 +- 2.2 is odd: no five values >= 0 of that mean deviate by more than 0.97 * sqrt(5) = 2.17. "Grokfast" is the run
# of Figure 1, 50.49 times as fast as the baseline: 39,890 / 790 steps, Grokfast-MA in Table 3.
BASELINE_DISTANCES = Distance(0.97, 2.2), Distance(563.7, 199.4), Distance(570.7, 199.8)
GROKFAST_DISTANCES = Distance(7.7, 0.42), Distance(15.3, 0.84), Distance(35.8, 0.98)

BASELINE, EMA, MA = ask("modmul"), ask("modmul", filter="ema"), ask("modmul", filter="ma")
LATE_MA = ask("modmul", filter="ma", two_stage=500, weight_decay=0.0)
LATE_SLOW_MA = LATE_MA.having(slow_only=True)

ARMS = (
    PaperArm(
        "Baseline",
        BASELINE,
        Published("Table 1", steps=39_890, costs=Costs(290, 0.15, 5984), distances=BASELINE_DISTANCES),
        in_summary=True,
    ),
    PaperArm("1-stage MA", MA.having(weight_decay=0.0), Published("Table 1", steps=2_940)),
    PaperArm("2-stage MA", LATE_MA, Published("Table 1", steps=1_920)),
    PaperArm("2-stage MA, slow only", LATE_SLOW_MA, Published("Table 1", converged=False)),
    PaperArm(
        "Grokfast-MA",
        MA,
        Published("Table 3", steps=790, costs=Costs(458, 0.37, 292), distances=GROKFAST_DISTANCES),
        in_summary=True,
    ),
    PaperArm("Grokfast-EMA", EMA, Published("Table 3", steps=910, costs=Costs(294, 0.15, 137)), in_summary=True),
    PaperArm(
        "Baseline",
        ask("mnist"),
        Published("Table 4", steps=44_022, accuracy=0.898, costs=Costs(196, 0.0438, 1928)),
    ),
    PaperArm(
        "Grokfast",
        ask("mnist", filter="ema"),
        Published("Table 4", steps=2_001, accuracy=0.912, costs=Costs(198, 0.0439, 87.8)),
        in_summary=True,
    ),
    PaperArm("Baseline, decay of Grokfast", ask("mnist", weight_decay=2.0), None, in_summary=True),
    PaperArm("Grokfast, decay of the baseline", ask("mnist", filter="ema", weight_decay=0.01), None),
    PaperArm("Baseline", ask("qm9"), Published("Table 5", loss=0.00659, costs=Costs(216, 0.0402))),
    PaperArm("Grokfast", ask("qm9", filter="ema"), Published("Table 5", loss=0.00348, costs=Costs(216, 0.0414))),
    PaperArm("Baseline, decay of Grokfast", ask("qm9", weight_decay=0.01), None),
    PaperArm("Grokfast, decay of the baseline", ask("qm9", filter="ema", weight_decay=0.0), None),
    PaperArm("Baseline", ask("imdb"), Published("Table 6", accuracy=0.84, loss=0.517, costs=Costs(754, 0.0204))),
    PaperArm(
        "Grokfast", ask("imdb", filter="ema"), Published("Table 6", accuracy=0.90, loss=0.412, costs=Costs(762, 0.0212))
    ),
    PaperArm("Baseline, decay of Grokfast", ask("imdb", weight_decay=10.0), None),
    PaperArm("Grokfast, decay of the baseline", ask("imdb", filter="ema", weight_decay=1.0), None),
)


def arms_of(task: str) -> list[PaperArm]:
    return [arm for arm in ARMS if arm.task == task]


def find_arm(settings: dict[str, Any]) -> PaperArm | None:
    """The arm that a run repeats, whatever its seed and length; None if it is another experiment."""
    return known_arms().get(experiment_key(settings))


def published_of(settings: dict[str, Any]) -> Published:
    """What the paper reports of a run's experiment, if anything."""
    arm = find_arm(settings)
    return (None if arm is None else arm.published) or Published("")


def request_key(request: Request) -> str:
    """What the runs of a request share."""
    return experiment_key(to_json(resolve(request)))


@functools.cache
def known_arms() -> dict[str, PaperArm]:
    return {request_key(arm.request): arm for arm in ARMS}
