"""The runs that docs/results.md rests on, the most important first: data only. One thread each, so that they repeat."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from grokfast.lab.paper.experiments import (
    ABLATION_STEPS,
    ABLATIONS,
    EMA_0,
    MA_0,
    SLOW_ONLY,
    Experiment,
    requests_of,
)
from grokfast.lab.paper.published import BASELINE, EMA, LATE_MA, LATE_SLOW_MA, MA, request_key
from grokfast.lab.request import Request, resolve

TO_LEVEL = {"until": 0.95, "extra_steps": 500}  # beyond the first crossing, to see whether it stays
RECORDED = {**TO_LEVEL, "snapshots": 12, "gradients": 200}  # for distances, trajectories and spectra
CONTROL_STEPS = 5_000
COMPARED_AT = {"imdb": 3_000}  # runs of this task have different lengths; it has overfitted by 2,000
COST_STEPS = {"modmul": 1_000, "mnist": 10_000, "qm9": 20_000, "imdb": 200}

ADAM_DECAYS = (0.001, 0.005, 0.01)
ADAMW_DECAYS, RATES = (1.0, 0.3, 0.1), (1e-3, 3e-3)
ADAMW = [
    {"optimizer": "adamw", "weight_decay": decay, "lr": lr, "steps": CONTROL_STEPS}
    for decay in ADAMW_DECAYS
    for lr in reversed(RATES)
]
# What the paper's comparison leaves out: the baseline with weight decay, coupled and decoupled, and a larger learning
# rate, and the filters beside them; EMA without decay. Figure 7 says that decay 0.01 makes the baseline unstable.
CONTROLS = (
    *(BASELINE.having(**values) for values in ADAMW),
    *(BASELINE.having(weight_decay=decay, steps=ABLATION_STEPS) for decay in ADAM_DECAYS),
    *(request.having(**values) for values in ADAMW for request in (EMA, MA)),
    EMA_0.having(steps=ABLATION_STEPS),
    *(f.having(weight_decay=decay, steps=ABLATION_STEPS) for f in (EMA, MA) for decay in ADAM_DECAYS),
)
# The paper stages MA alone, at a step that it chose by hand.
STAGED = (EMA.having(two_stage=500), EMA.having(two_stage="auto"), MA_0.having(two_stage="auto"))
TWO_STAGES = Experiment(
    "two-stage", "Two stages: MA and EMA, from a step and once saturated", "ours", (LATE_MA, *STAGED)
)


def without_filter(request: Request) -> Request:
    """Adam without a filter that treats slow gradients as it does with one, up to noise.

    A filter multiplies slow gradients by 1 + lamb. It hardly changes the noise, by which Adam divides, and not the
    weight decay, which Adam adds later. So slow gradients get 1 + lamb times the learning rate, and decay as much as
    before.
    """
    config = resolve(request)
    gain = 1 + getattr(config.filter, "lamb", 0.0)
    return BASELINE.having(lr=gain * config.optim.lr, weight_decay=round(config.optim.weight_decay / gain, 8))


INSTEAD = Experiment(
    "instead",
    "No filter, but 1 + lambda times the learning rate and as much less weight decay",
    "ours",
    (EMA, without_filter(EMA), MA, without_filter(MA)),
)
# Those without a filter first. LATE_SLOW_MA has its own budget below.
ABLATED = sorted(
    (r for experiment in (*ABLATIONS, SLOW_ONLY) for r in experiment.requests if r != LATE_SLOW_MA),
    key=lambda request: request.get("filter") is not None,
)


def over_seeds(requests: Sequence[Request], seeds: int, **values: object) -> list[Request]:
    return [request.having(seed=seed, **values) for seed in range(seeds) for request in requests]


EVIDENCE = tuple(
    request.having(threads=1)
    for request in (
        *over_seeds([BASELINE], 3, steps=150_000, **RECORDED),
        *over_seeds([EMA, MA], 5, steps=ABLATION_STEPS, **RECORDED),
        *over_seeds([without_filter(EMA), without_filter(MA)], 5, steps=CONTROL_STEPS, **TO_LEVEL),
        *over_seeds([MA_0, LATE_MA], 5, steps=ABLATION_STEPS, **TO_LEVEL),
        *over_seeds([LATE_SLOW_MA], 5, steps=CONTROL_STEPS, **TO_LEVEL),
        *over_seeds(CONTROLS, 3, **TO_LEVEL),
        *over_seeds(requests_of("mnist"), 3),
        *over_seeds(requests_of("qm9"), 5),
        *over_seeds(ABLATED, 1, steps=ABLATION_STEPS, **TO_LEVEL),
        *over_seeds(STAGED, 3, steps=CONTROL_STEPS, **TO_LEVEL),
        *over_seeds(requests_of("imdb"), 3, steps=COMPARED_AT["imdb"]),
        *over_seeds(requests_of("imdb")[:2], 1, steps=10_000),  # the published arms, as long as in the paper
    )
)
# For time and memory, with nothing else on the machine: short, and without recordings.
COSTS = tuple(
    request.having(seed=0, threads=1, steps=COST_STEPS[request.task])
    for request in (BASELINE, EMA, MA, *(r for task in ("mnist", "qm9", "imdb") for r in requests_of(task)[:2]))
)


@functools.cache
def planned() -> dict[tuple[str, int], Request]:
    """Each run once, with its largest budget, by experiment and seed; a run may serve several tables."""
    found: dict[tuple[str, int], Request] = {}
    for request in EVIDENCE:
        key = request_key(request), request.get("seed")
        if key not in found or (request.get("steps") or 0) > (found[key].get("steps") or 0):
            found[key] = request
    return found
