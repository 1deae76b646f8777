"""Every figure and table of the paper as data: which runs it takes. Nothing here trains.

Figures are counted by caption in the paper's source, where the sketch of the idea is Figure 1 and the one called
"figure one" is Figure 2. Runs of different figures that mean the same are the same configuration and are trained once:
every run on modular arithmetic stops at 0.95, is evaluated once per epoch, and has the task's budget if the paper
says how it ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from grokfast.lab.config import RunConfig
from grokfast.lab.paper.published import BASELINE, EMA, LATE_MA, LATE_SLOW_MA, MA, arms_of, known_arms, request_key
from grokfast.lab.request import Request, resolve


class Experiment(NamedTuple):
    """A figure or a table of the paper."""

    name: str
    title: str
    where: str
    requests: tuple[Request, ...]  # one for each curve of a figure or row of a table
    seeds: int = 1  # the paper shows one run of each, but for the trajectories
    budget: int | None = None  # of an ablation, in steps: the paper does not say how its runs end; None: the task's
    extra_steps: int | None = None
    snapshots: int | None = None
    gradients: int | None = None


UNTIL = {"modmul": 0.95}  # the other tasks are judged by their whole curves

# Section 2.2 states both grids of the search; the captions of Figure 4 fix the other value at 100 and 5.
GAINS_OF_MA = (1.0, 2.0, 5.0, 10.0)
WINDOWS = (2, 5, 10, 20, 50, 100, 200)
# The text of Q3 states only 0 and the best, 0.01; Section 4.1 only 0.005 for EMA. The others are ours, around them.
DECAYS = (0.0, 0.001, 0.005, 0.01, 0.02)
# Section 4.1 states no grid, only the ranges it recommends, [0.1, 5] and [0.8, 0.99]: their ends, and ours between.
GAINS_OF_EMA = (0.1, 0.5, 1.0, 2.0, 5.0)
ALPHAS = (0.8, 0.9, 0.95, 0.98, 0.99)

# Enough to see which value is best: more than three times as long as MA without weight decay takes (2,940).
ABLATION_STEPS = 10_000

MA_0, EMA_0 = MA.having(weight_decay=0.0), EMA.having(weight_decay=0.0)
PUBLISHED = tuple(arm.request for task in ("mnist", "qm9", "imdb") for arm in arms_of(task) if arm.published)


def requests_of(task: str) -> tuple[Request, ...]:
    return tuple(arm.request for arm in arms_of(task))


FILTERS, ALL = "fig-filters", "all"
EXPERIMENTS = (
    Experiment("fig1", "Grokfast-MA against the baseline", "Figure 2, Section 2.3 Q3", (BASELINE, MA)),
    Experiment(
        "table-staged",
        "MA from the beginning, after overfitting, and alone",
        "Figure 6 and Table 1, Section 2.3 Q2",
        (BASELINE, MA_0, LATE_MA, LATE_SLOW_MA),
    ),
    Experiment(
        "fig-ma-gain",
        "MA: the gain lambda, at window 100",
        "Figure 4 (a, b), Section 2.2",
        (BASELINE, *(MA_0.having(lamb=lamb) for lamb in GAINS_OF_MA)),
        budget=ABLATION_STEPS,
    ),
    Experiment(
        "fig-ma-window",
        "MA: the window size, at lambda 5",
        "Figure 4 (c, d), Section 2.2",
        (BASELINE, *(MA_0.having(window_size=size) for size in WINDOWS)),
        budget=ABLATION_STEPS,
    ),
    Experiment(
        "fig-ma-decay",
        "MA: weight decay, with the filter and without",
        "Figure 7, Section 2.3 Q3",
        # The paper shows one decay without the filter: the decay of its best run with the filter.
        tuple(arm.having(weight_decay=decay) for arm in (BASELINE, MA) for decay in DECAYS),
        budget=ABLATION_STEPS,
    ),
    Experiment("fig-ema", "Grokfast-EMA against the baseline", "Figure 8 (a, b), Section 4.1", (BASELINE, EMA)),
    Experiment(
        "fig-ema-ablations",
        "EMA: lambda and alpha without weight decay, and weight decay",
        "Figure 8 (c, d, e), Section 4.1",
        (
            BASELINE,
            *(EMA_0.having(lamb=lamb) for lamb in GAINS_OF_EMA),
            *(EMA_0.having(alpha=alpha) for alpha in ALPHAS),
            *(EMA.having(weight_decay=decay) for decay in DECAYS),
        ),
        budget=ABLATION_STEPS,
    ),
    Experiment(FILTERS, "Responses of MA and EMA in time and frequency", "Figure 3, Sections 2.1 and 3", ()),
    Experiment(
        "fig-slow-only",
        "The slow part alone, from the beginning and after overfitting",
        "Figure 5, Section 2.3 Q1",
        (BASELINE, MA.having(slow_only=True, weight_decay=0.0), LATE_SLOW_MA),
    ),
    Experiment("mnist", "MNIST, and matched weight decay", "Figure 9, Section 4.2", requests_of("mnist")),
    Experiment("qm9", "QM9, and matched weight decay", "Figure 10, Section 4.3", requests_of("qm9")),
    Experiment("imdb", "IMDb, and matched weight decay", "Figure 11, Section 4.4", requests_of("imdb")),
    Experiment(
        "trajectories",
        "Paths of the weights: principal axes, distances between states",
        "Figures 12 and 13, Table 2, Section 5.2",
        # The paper says Grokfast, which is its word for EMA, and the experiment of "figure one", which is MA: both.
        (BASELINE, MA, EMA),
        seeds=5,
        # State C is 500 steps after 0.95 in every run; the paper has it at 300,000 for the baseline, else unstated.
        extra_steps=500,
        snapshots=12,  # about a gigabyte in all
        gradients=200,  # for spectra: as much again for the baseline's 50,000 steps
    ),
    Experiment(
        "costs",
        "Time, memory and steps of the paper's arms",
        "Tables 3 to 6, Appendix D",
        (BASELINE, MA, EMA, *PUBLISHED),
    ),
)

# The paper shows the ablations as curves and states no steps. With them stands the figure that has no table.
ABLATIONS = tuple(experiment for experiment in EXPERIMENTS if experiment.budget is not None)
SLOW_ONLY = next(experiment for experiment in EXPERIMENTS if experiment.name == "fig-slow-only")
NAMES = (*(experiment.name for experiment in EXPERIMENTS), ALL)


def find_experiments(names: list[str]) -> list[Experiment]:
    """The experiments of these names, in the order of the list; ValueError for a name that is not known."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"an experiment must be one of {', '.join(NAMES)}, got {unknown[0]}")
    return [e for e in EXPERIMENTS if ALL in names or e.name in names]


def configurations(experiment: Experiment, *, seeds: int | None = None, **asked: Any) -> list[RunConfig]:
    """The runs of an experiment, seed by seed: a figure is whole, if thin, after the first.

    `asked` is what the user wants for all of them, such as a budget in `steps`; None leaves it to the experiment.
    """
    count = experiment.seeds if seeds is None else seeds
    if count < 1:
        raise ValueError(f"seeds must be >= 1, got {count}")
    return [configuration(experiment, r, seed, asked) for seed in range(count) for r in experiment.requests]


def configuration(experiment: Experiment, request: Request, seed: int, asked: dict[str, Any]) -> RunConfig:
    is_published = request_key(request) in known_arms()
    own = {"until": UNTIL.get(request.task), "steps": None if is_published else experiment.budget}
    own |= {name: getattr(experiment, name) for name in ("extra_steps", "snapshots", "gradients")}
    own |= {name: value for name, value in asked.items() if value is not None}
    return resolve(request.having(seed=seed, **{name: value for name, value in own.items() if value is not None}))


def demo_configs(*, quick: bool = False) -> list[RunConfig]:
    """The paper's first figure in two minutes: EMA and MA to 95%, the baseline for longer than both; seed 0."""
    asked = [
        EMA.having(steps=2_000, until=0.95),
        MA.having(steps=2_000, until=0.95),
        BASELINE.having(steps=2_400, until=0.95, eval_every=30),
    ]
    return [resolve(request.having(steps=30) if quick else request) for request in asked]
