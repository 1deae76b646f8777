"""Which filter to try first, from one run without: N = steps to generalise / steps to overfit; w = N, alpha^N = 0.1.

The rule is that of the authors' README ("Choosing the right hyperparameters"): N is the acceleration one hopes for. The
paper itself gives ranges only: lamb in [0.1, 5] and alpha in [0.8, 0.99] (section 4.1). For lamb there is no rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import grokfast
from grokfast.lab import filters
from grokfast.lab.analysis.spectrum import power, slow_share
from grokfast.lab.config import RunConfig
from grokfast.lab.request import command_line
from grokfast.lab.runs.describe import progress_text
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.metrics import Crossing, first_crossing
from grokfast.lab.runs.recording import load_gradients

OVERFIT = 0.99  # training accuracy
FEWEST = 5  # evaluations
SHORTEST = 2.0  # N below which there is no delay to shorten
# Section 4.1; a window of the same reach as these alphas.
RANGES = {"alpha": (0.8, 0.99), "window_size": (10, 229), "lamb": (0.1, 5.0)}


class Proposal(NamedTuple):
    """A filter to try, and the command that does."""

    filter: dict[str, Any]  # as plain data
    text: str
    command: str


class Advice(NamedTuple):
    """What a run without a filter suggests. Without proposals, `why` says why there are none."""

    run: str
    overfit: Crossing
    generalised: Crossing
    ratio: float | None  # N; a lower bound where the run has not generalised
    ratio_range: tuple[float, float | None] | None  # by the evaluation grid; None: no upper end
    slow_power: float | None  # part of the recorded gradients' power below the cutoff of the first proposal
    proposals: list[Proposal]
    why: list[str]
    uncertain: list[str]


def advise(run: Run) -> Advice:
    """Propose filters for a run without one."""
    learnt = [row.train_accuracy is not None and row.train_accuracy >= OVERFIT for row in run.rows]
    overfit, generalised = first_crossing([row.step for row in run.rows], learnt), run.crossing()
    refusal = why_not(run, overfit, generalised)
    if refusal is not None:
        return Advice(run.name, overfit, generalised, None, None, None, [], [refusal], [])
    assert overfit.step is not None
    end = generalised.after if generalised.step is None else generalised.step
    ratio = end / overfit.step
    latest = None if generalised.step is None else end / max(1, overfit.after)
    limits = (generalised.after / overfit.step, latest)
    proposed = propose(run.config, ratio)
    slow, heard = measure_slow_power(run, proposed[0])
    why = [*reasons(run, overfit, generalised, ratio), *explain(proposed, ratio), *heard]
    doubts = uncertainties(run, generalised, limits, ratio)
    proposals = [make_proposal(run.config, filter) for filter in proposed]
    return Advice(run.name, overfit, generalised, ratio, limits, slow, proposals, why, doubts)


def why_not(run: Run, overfit: Crossing, generalised: Crossing) -> str | None:
    """Why the rule has nothing to say about a run; None where it has."""
    rows = run.rows
    if run.filter is not None:
        return f"It was trained with a filter already ({run.filter}): the rule starts from a run without one."
    if run.measure == "loss":
        return "Its task has a loss but no accuracy, so the step at which it overfits is not defined."
    if len(rows) < FEWEST:
        return f"It has {len(rows)} evaluations, and the rule needs at least {FEWEST}: train it longer."
    if overfit.step is None:
        highest = max(row.train_accuracy or 0.0 for row in rows)
        return (
            f"It has not overfitted: its training accuracy was at most {highest:.3f} in {overfit.after:,} steps, below "
            f"{OVERFIT}. Grokking begins only after that: train it longer."
        )
    begin = f"It overfitted at step {overfit.step:,} and"
    if generalised.step is None and generalised.after < SHORTEST * overfit.step:
        return f"{begin} was run for {generalised.after:,} steps: it is too early to see a delay."
    if generalised.step is not None and generalised.step < SHORTEST * overfit.step:
        return f"{begin} generalised at step {generalised.step:,}: there is no delay to shorten."
    return None


def propose(config: RunConfig, ratio: float) -> list[grokfast.Filter]:
    """The filters that have a rule for N, within the paper's ranges; EMA, which keeps one gradient only, is first."""
    usual, found = config.task.defaults().filters, list[grokfast.Filter]()
    for name, kind in filters.FILTERS.items():
        rule = getattr(kind, "from_speedup", None)
        if rule is not None:
            filter = rule(ratio)
            gain = usual.get(name, {}).get("lamb", filter.lamb)
            found.append(keep_in_range(dataclasses.replace(filter, lamb=gain)))
    return found


def keep_in_range(filter: Any) -> grokfast.Filter:
    kept: dict[str, Any] = {}
    for name in RANGES.keys() & filters.numbers_of(type(filter)):
        value, (low, high) = getattr(filter, name), RANGES[name]
        kept[name] = round(type(value)(min(max(value, low), high)), 4)
    return dataclasses.replace(filter, **kept)


def make_proposal(config: RunConfig, filter: grokfast.Filter) -> Proposal:
    """With the command that trains the same run with the filter: all its other flags stay, its weight decay too."""
    command = command_line(dataclasses.replace(config, filter=filter))
    return Proposal(filters.to_plain(filter), filters.describe(filter), command)


def reasons(run: Run, overfit: Crossing, generalised: Crossing, ratio: float) -> list[str]:
    level = f"{run.level:g}"
    learnt = f"It overfitted at step {overfit.step:,}, where its training accuracy first is {OVERFIT} or more."
    if generalised.step is None:
        late = f"It has not generalised: its validation accuracy is below {level} up to step {generalised.after:,}."
        return [learnt, late, f"So N is at least {generalised.after:,} / {overfit.step:,} = {ratio:.3g}."]
    late = f"It generalised at step {generalised.step:,}, where its validation accuracy first is {level} or more."
    return [learnt, late, f"So N = {generalised.step:,} / {overfit.step:,} = {ratio:.3g} times as long."]


def explain(proposed: Sequence[grokfast.Filter], ratio: float) -> list[str]:
    """Where the numbers come from."""
    exact, (low, high) = grokfast.EMA.from_speedup(ratio).alpha, RANGES["alpha"]
    rule = f"The authors' README starts from alpha^N = 0.1, here alpha = {exact:.4g}, and from a window of N gradients."
    found = [rule]
    if not low <= exact <= high:
        found.append(f"The paper recommends alpha in [{low}, {high}] (section 4.1); alpha and window are kept there.")
    gains = " and ".join(f"{filter.lamb:g} for {type(filter).__name__}" for filter in proposed)
    return [*found, f"lamb is {gains}: the paper's value for this task where it has one, else its value for modmul."]


def measure_slow_power(run: Run, filter: grokfast.Filter) -> tuple[float | None, list[str]]:
    """How much of the recorded gradients is slow enough to be amplified."""
    cutoff = filter.cutoff_frequency()
    if run.loop["gradients"] is None or cutoff is None:
        return None, []
    try:
        share = slow_share(power(load_gradients(run).before), cutoff)
    except (RunError, ValueError) as error:
        return None, [f"Its recorded gradients say nothing yet: {error}."]
    noise, name = cutoff / 0.5, type(filter).__name__
    found = f"{share:.1%} of the gradient power lies below this {name}'s cutoff (white noise: {noise:.1%})."
    few = "That is hardly more than white noise has: a filter may find little to amplify."
    return share, [found, few] if share < 2 * noise else [found]


def uncertainties(run: Run, generalised: Crossing, limits: tuple[float, float | None], ratio: float) -> list[str]:
    low, high = limits
    found = ["This is one run with one seed: crossings differ between seeds, often by a third or more."]
    if generalised.step is None:
        found.append("N is a lower bound because the run has not generalised: a larger alpha or window may be right.")
    elif high is not None and high - low > 0.2 * ratio:
        found.append(f"Its evaluation grid leaves N between {low:.3g} and {high:.3g}.")
    if run.status == "incomplete":
        found.append(f"The run is not finished ({progress_text(run)}).")
    found.append("Its authors call the rule a starting point for a search; there is no rule for lamb.")
    decay = run.weight_decay
    more = ", ".join(f"{factor * decay:g}" for factor in (2, 5, 10)) if decay else "the values of the paper's arms"
    last = f"Weight decay stays at {decay:g}. Once the filter is found, the README continues with more of it: {more}."
    return [*found, last]
