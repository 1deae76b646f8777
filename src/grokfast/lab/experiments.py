"""Every figure and table of the paper as data: which runs it takes. Nothing here trains.

Figures are counted by caption in the paper's source, where the sketch of the idea is Figure 1 and the one called
"figure one" is Figure 2. Runs of different figures that mean the same are the same configuration, hence trained once:
every run on modular arithmetic stops at 0.95, is evaluated once per epoch, and has the task's budget if the paper
tells how it ends.
"""

from __future__ import annotations

from typing import NamedTuple

from grokfast.lab.config import FilterConfig, LoopConfig, OptimConfig, RunConfig, resolve
from grokfast.lab.paper import EMA, LATE_MA, LATE_SLOW_MA, MA, NO_FILTER, Arm, arms, find_arm
from grokfast.lab.tasks import TASKS


class Point(NamedTuple):
    """One curve of a figure, or one row of a table: what is done to the gradients, at which weight decay."""

    task: str
    filter: FilterConfig
    weight_decay: float


class Experiment(NamedTuple):
    """A figure or a table of the paper."""

    name: str
    title: str
    where: str
    points: tuple[Point, ...]
    seeds: int = 1  # the paper shows one run of each, but for the trajectories
    budget: int | None = None  # in steps, for points whose outcome the paper does not tell; None: the task's
    extra_steps: int = 0
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


def modmul(filter: FilterConfig, weight_decay: float = 0.0) -> Point:
    return Point("modmul", filter, weight_decay)


def of_arm(arm: Arm) -> Point:
    return Point(arm.task, arm.filter, arm.weight_decay)


BASELINE, BEST_MA, BEST_EMA = modmul(NO_FILTER), modmul(MA, 0.01), modmul(EMA, 0.005)
PUBLISHED = tuple(of_arm(arm) for task in ("mnist", "qm9", "imdb") for arm in arms(task) if arm.published)

FILTERS, ALL = "fig-filters", "all"
EXPERIMENTS = (
    Experiment("fig1", "Grokfast-MA against the baseline", "Figure 2, Section 2.3 Q3", (BASELINE, BEST_MA)),
    Experiment(
        "table-staged",
        "MA from the beginning, after overfitting, and alone",
        "Figure 6 and Table 1, Section 2.3 Q2",
        (BASELINE, modmul(MA), modmul(LATE_MA), modmul(LATE_SLOW_MA)),
    ),
    Experiment(
        "fig-ma-gain",
        "MA: the gain lambda, at window 100",
        "Figure 4 (a, b), Section 2.2",
        (BASELINE, *(modmul(FilterConfig(filter="ma", lamb=lamb)) for lamb in GAINS_OF_MA)),
        budget=ABLATION_STEPS,
    ),
    Experiment(
        "fig-ma-window",
        "MA: the window size, at lambda 5",
        "Figure 4 (c, d), Section 2.2",
        (BASELINE, *(modmul(FilterConfig(filter="ma", window_size=size)) for size in WINDOWS)),
        budget=ABLATION_STEPS,
    ),
    Experiment(
        "fig-ma-decay",
        "MA: weight decay, with the filter and without",
        "Figure 7, Section 2.3 Q3",
        # "The same weight decay" without the filter is that of the best run with it.
        (BASELINE, modmul(NO_FILTER, 0.01), *(modmul(MA, decay) for decay in DECAYS)),
        budget=ABLATION_STEPS,
    ),
    Experiment("fig-ema", "Grokfast-EMA against the baseline", "Figure 8 (a, b), Section 4.1", (BASELINE, BEST_EMA)),
    Experiment(
        "fig-ema-ablations",
        "EMA: lambda and alpha without weight decay, and weight decay",
        "Figure 8 (c, d, e), Section 4.1",
        (
            BASELINE,
            *(modmul(FilterConfig(filter="ema", lamb=lamb)) for lamb in GAINS_OF_EMA),
            *(modmul(FilterConfig(filter="ema", alpha=alpha)) for alpha in ALPHAS),
            *(modmul(EMA, decay) for decay in DECAYS),
        ),
        budget=ABLATION_STEPS,
    ),
    Experiment(FILTERS, "Responses of MA and EMA in time and frequency", "Figure 3, Sections 2.1 and 3", ()),
    Experiment(
        "fig-slow-only",
        "The slow part alone, from the beginning and after overfitting",
        "Figure 5, Section 2.3 Q1",
        (BASELINE, modmul(FilterConfig(filter="ma", slow_only=True)), modmul(LATE_SLOW_MA)),
    ),
    Experiment("mnist", "MNIST, and matched weight decay", "Figure 9, Section 4.2", tuple(map(of_arm, arms("mnist")))),
    Experiment("qm9", "QM9, and matched weight decay", "Figure 10, Section 4.3", tuple(map(of_arm, arms("qm9")))),
    Experiment("imdb", "IMDb, and matched weight decay", "Figure 11, Section 4.4", tuple(map(of_arm, arms("imdb")))),
    Experiment(
        "trajectories",
        "Weights on their way: principal axes, distances between states",
        "Figures 12 and 13, Table 2, Section 5.2",
        # The paper says Grokfast, which is its word for EMA, and the experiment of "figure one", which is MA: both.
        (BASELINE, BEST_MA, BEST_EMA),
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
        (BASELINE, BEST_MA, BEST_EMA, *PUBLISHED),
    ),
)

NAMES = (*(experiment.name for experiment in EXPERIMENTS), ALL)


def find_experiments(names: list[str]) -> list[Experiment]:
    """The experiments of these names, in the order of the list; ValueError for a name that is not known."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ValueError(f"an experiment must be one of {', '.join(NAMES)}, got {unknown[0]}")
    return [e for e in EXPERIMENTS if ALL in names or e.name in names]


def configurations(
    experiment: Experiment,
    *,
    seeds: int | None = None,
    budget: int | None = None,
    data_dir: str | None = None,
    threads: int | None = None,
) -> list[RunConfig]:
    """The runs of an experiment, seed by seed: a figure is whole, if thin, after the first."""
    count = experiment.seeds if seeds is None else seeds
    if count < 1:
        raise ValueError(f"seeds must be >= 1, got {count}")
    return [
        configuration(experiment, point, LoopConfig(seed=seed, steps=budget, data_dir=data_dir, threads=threads))
        for seed in range(count)
        for point in experiment.points
    ]


def configuration(experiment: Experiment, point: Point, loop: LoopConfig) -> RunConfig:
    """The run of one point; `loop` brings the seed, and the budget if it is not the experiment's own."""
    optim = OptimConfig(weight_decay=point.weight_decay)
    plain = RunConfig(TASKS[point.task](), point.filter, optim)
    told = point.filter.filter is None or find_arm(resolve(plain)) is not None
    whole = LoopConfig(
        seed=loop.seed,
        steps=loop.steps if loop.steps is not None or told else experiment.budget,
        until=UNTIL.get(point.task),
        extra_steps=experiment.extra_steps,
        snapshots=experiment.snapshots,
        gradients=experiment.gradients,
        data_dir=loop.data_dir,
        threads=loop.threads,
    )
    return resolve(RunConfig(plain.task, plain.filter, optim, whole))
