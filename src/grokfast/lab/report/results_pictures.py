"""The pictures of docs/results.md, as data: curves, sweeps, filters, gradients and weights of the paper's arms."""

from __future__ import annotations

from collections.abc import Sequence

import grokfast
from grokfast.lab.analysis.spectrum import has_spectra
from grokfast.lab.analysis.weights import products_by_model
from grokfast.lab.compare.arms import paper_arms
from grokfast.lab.compare.controls import controls, fastest
from grokfast.lab.compare.seeds import Arm, make_arms
from grokfast.lab.paper.published import EMA, MA, find_arm
from grokfast.lab.report.colours import PAPER
from grokfast.lab.report.curves import curves_plot
from grokfast.lab.report.pictures import Parallel, Picture
from grokfast.lab.report.plots import gradient_plots, response_plot, theorem_plot, weight_plots
from grokfast.lab.report.results import in_order
from grokfast.lab.report.sweeps import sweep_plots
from grokfast.lab.request import resolve
from grokfast.lab.runs.directory import Run


def results_plots(runs: Sequence[Run]) -> list[Picture]:
    """Every picture of the page, in its order."""
    tasks = in_order(runs)
    kept = [run for members in tasks.values() for run in members if find_arm(run.settings) is not None]
    # Where every setting stands beside its numbers, the parallel coordinates say nothing more.
    maps = [plot for plot in sweep_plots(tasks.values()) if not isinstance(plot, Parallel)]
    curves = [curves_plot(arms, task) for task, runs in tasks.items() if (arms := curve_arms(runs))]
    filters = [response_plot(paper_filters()), theorem_plot(paper_filters())]
    spectra = gradient_plots(one_of_each([run for run in kept if has_spectra(run)]))
    return [*curves, *maps, *filters, *spectra, *weight_plots(kept, products_by_model(kept))]


def curve_arms(runs: Sequence[Run]) -> list[Arm]:
    """The paper's arms, and the fastest baseline where that is another."""
    arms = paper_arms(runs)
    best = fastest(controls(runs), "no filter") if arms and runs[0].task == "modmul" else None
    if best is None or best[1].paper is not None:
        return arms
    return [*arms, best[1]._replace(name=f"{best[0].words}, no filter")]


def one_of_each(runs: Sequence[Run]) -> list[Run]:
    """One run of each arm."""
    return [arm.runs[0] for arm in make_arms(runs)]


def paper_filters() -> dict[grokfast.Filter, int]:
    """The two filters of the paper, as it uses them on modular arithmetic, with the numbers of their arms."""
    pairs = ((resolve(request).filter, PAPER[name]) for request, name in ((MA, "Grokfast-MA"), (EMA, "Grokfast-EMA")))
    return {filter: number for filter, number in pairs if filter is not None}
