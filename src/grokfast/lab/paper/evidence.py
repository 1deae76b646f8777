"""The runs that docs/results.md rests on, the most telling first: data only. One thread each, so that they repeat."""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab.paper.experiments import (
    ABLATION_STEPS,
    ALPHAS,
    DECAYS,
    EMA_0,
    GAINS_OF_EMA,
    GAINS_OF_MA,
    MA_0,
    WINDOWS,
    requests_of,
)
from grokfast.lab.paper.published import BASELINE, EMA, LATE_MA, LATE_SLOW_MA, MA
from grokfast.lab.request import Request

TO_LEVEL = {"until": 0.95, "extra_steps": 500}  # beyond the first crossing, to see whether it stays
RECORDED = {**TO_LEVEL, "snapshots": 12, "gradients": 200}  # for distances, trajectories and spectra
CONTROL_STEPS = 5_000
IMDB_STEPS = 3_000  # overfitted by 2,000

ADAMW = [
    {"optimizer": "adamw", "weight_decay": decay, "lr": lr, "steps": CONTROL_STEPS}
    for decay in (1.0, 0.3, 0.1)
    for lr in (3e-3, 1e-3)
]
# What the paper's comparison leaves out: the baseline with weight decay, coupled and decoupled, and a larger learning
# rate, and the filters beside them; EMA without decay. Figure 7 says that decay 0.01 makes the baseline unstable.
CONTROLS = (
    *(BASELINE.having(**values) for values in ADAMW),
    *(BASELINE.having(weight_decay=decay, steps=ABLATION_STEPS) for decay in (0.005, 0.01)),
    *(request.having(**values) for values in ADAMW for request in (EMA, MA)),
    EMA_0.having(steps=ABLATION_STEPS),
)
# The paper stages MA alone, at a step that it chose by hand.
STAGED = (
    EMA.having(two_stage=500, steps=CONTROL_STEPS),
    EMA.having(two_stage="auto", steps=CONTROL_STEPS),
    MA_0.having(two_stage="auto", steps=CONTROL_STEPS),
)
ABLATED = (
    *(BASELINE.having(weight_decay=decay) for decay in DECAYS[1:]),
    *(MA_0.having(lamb=lamb) for lamb in GAINS_OF_MA),
    *(MA_0.having(window_size=size) for size in WINDOWS),
    *(MA.having(weight_decay=decay) for decay in DECAYS),
    *(EMA_0.having(lamb=lamb) for lamb in GAINS_OF_EMA),
    *(EMA_0.having(alpha=alpha) for alpha in ALPHAS),
    *(EMA.having(weight_decay=decay) for decay in DECAYS),
    MA.having(slow_only=True, weight_decay=0.0),
)


def over_seeds(requests: Sequence[Request], seeds: int, **values: object) -> list[Request]:
    return [request.having(seed=seed, **values) for seed in range(seeds) for request in requests]


def published(task: str) -> list[Request]:
    """The two arms of a task that the paper reports; the others are at matched weight decay."""
    return list(requests_of(task)[:2])


EVIDENCE: tuple[Request, ...] = tuple(
    request.having(threads=1)
    for request in (
        *over_seeds([BASELINE.having(steps=150_000)], 3, **RECORDED),
        *over_seeds([EMA, MA], 5, steps=ABLATION_STEPS, **RECORDED),
        *over_seeds([MA_0, LATE_MA], 5, steps=ABLATION_STEPS, **TO_LEVEL),
        *over_seeds([LATE_SLOW_MA], 5, steps=CONTROL_STEPS, **TO_LEVEL),
        *over_seeds(CONTROLS, 3, **TO_LEVEL),
        *over_seeds(requests_of("mnist"), 3),
        *over_seeds(requests_of("qm9"), 5),
        *over_seeds(ABLATED, 1, steps=ABLATION_STEPS, **TO_LEVEL),
        *over_seeds(STAGED, 3, **TO_LEVEL),
        *over_seeds(requests_of("imdb"), 3, steps=IMDB_STEPS),
        *over_seeds(published("imdb"), 1),
    )
)
