"""Which filter to try first, from one run without: N = steps to generalise / steps to overfit; w = N, alpha^N = 0.1.

The rule is that of the authors' README ("Choosing the right hyperparameters"): N is the acceleration one hopes for. The
paper itself gives ranges only: lamb in [0.1, 5] and alpha in [0.8, 0.99] (section 4.1). For lamb there is no rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import grokfast
from grokfast.lab.analysis.spectrum import power, slow_share
from grokfast.lab.config import FilterName, RunConfig
from grokfast.lab.commands.flags import command_line
from grokfast.lab.runs.metrics import Crossing, Row, first_crossing
from grokfast.lab.runs.recording import load_gradients
from grokfast.lab.compare.results import crossing, progress_text
from grokfast.lab.runs.directory import Run, RunError

OVERFIT = 0.99  # training accuracy
FEWEST = 5  # evaluations
SHORTEST = 2.0  # N below which there is no delay to shorten
ALPHA, LAMB = (0.8, 0.99), (0.1, 5.0)  # section 4.1
WINDOW = (10, 229)  # of the same reach as these alphas
SEGMENT = 1024


class Proposal(NamedTuple):
    """A filter to try, and the command that does."""

    filter: FilterName
    alpha: float | None
    window_size: int | None
    lamb: float
    command: str


class Advice(NamedTuple):
    """What a run without a filter suggests. Without proposals `why` says why there are none."""

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
    """Propose an EMA and an MA for a run without a filter."""
    overfit, generalised = training_crossing(run.rows), crossing(run)
    refusal = why_not(run, overfit, generalised)
    if refusal is not None:
        return Advice(run.name, overfit, generalised, None, None, None, [], [refusal], [])
    assert overfit.step is not None
    end = generalised.after if generalised.step is None else generalised.step
    ratio = end / overfit.step
    latest = None if generalised.step is None else end / max(1, overfit.after)
    limits = (generalised.after / overfit.step, latest)
    proposals = propose(run.config, ratio)
    slow, heard = listen(run, proposals[0])
    why = [*reasons(run, overfit, generalised, ratio), *explain(proposals, ratio), *heard]
    doubts = uncertainties(run, generalised, limits, ratio)
    return Advice(run.name, overfit, generalised, ratio, limits, slow, proposals, why, doubts)


def training_crossing(rows: Sequence[Row]) -> Crossing:
    learnt = [row.train_accuracy is not None and row.train_accuracy >= OVERFIT for row in rows]
    return first_crossing([row.step for row in rows], learnt)


def why_not(run: Run, overfit: Crossing, generalised: Crossing) -> str | None:
    """Why the rule has nothing to say of a run; None where it has."""
    rows, config = run.rows, run.config
    if config.filter.filter is not None:
        return f"It was trained with a filter already ({config.filter.filter}): the rule starts from a run without one."
    if config.task.defaults().measure == "loss":
        return "Its task has a loss but no accuracy: when it has overfitted, which the rule needs, is not defined."
    if len(rows) < FEWEST:
        return f"It has {len(rows)} evaluations, and {FEWEST} are the least to date anything by: train it longer."
    if overfit.step is None:
        highest = max((row.train_accuracy or 0.0 for row in rows), default=0.0)
        return (
            f"It has not overfitted: its training accuracy was {highest:.3f} at most in {overfit.after:,} steps, below "
            f"{OVERFIT}. Grokking begins only after that: train it longer."
        )
    if (generalised.step or generalised.after) < SHORTEST * overfit.step:
        when = (
            f"generalised at step {generalised.step:,}"
            if generalised.step
            else f"was run for {generalised.after:,} steps"
        )
        late = "there is no delay to shorten" if generalised.step else "whether there is a delay cannot be said yet"
        return f"It overfitted at step {overfit.step:,} and {when}: {late}."
    return None


def propose(config: RunConfig, ratio: float) -> list[Proposal]:
    """EMA first: it needs the memory of one gradient, MA that of a window."""
    d = config.task.defaults()
    alpha = round(clamp(grokfast.EMA.from_speedup(ratio).alpha, ALPHA), 4)
    window = int(clamp(grokfast.MA.from_speedup(ratio).window_size, WINDOW))
    values = [("ema", alpha, None, clamp(d.lamb, LAMB)), ("ma", None, window, clamp(d.lamb_of_ma, LAMB))]
    return [Proposal(*each, command_for(config, *each)) for each in values]  # type: ignore[arg-type]


def command_for(config: RunConfig, name: FilterName, alpha: float | None, window: int | None, lamb: float) -> str:
    """The command that trains the same run with a filter: all its other flags stay, its weight decay too."""
    changes = {"alpha": alpha, "window_size": window}
    known = {key: value for key, value in changes.items() if value is not None}
    filter = dataclasses.replace(config.filter, filter=name, lamb=lamb, **known)
    return command_line(dataclasses.replace(config, filter=filter))


def clamp(value: float, limits: tuple[float, float]) -> float:
    return min(max(value, limits[0]), limits[1])


def reasons(run: Run, overfit: Crossing, generalised: Crossing, ratio: float) -> list[str]:
    level = f"{run.config.task.defaults().level:g}"
    learnt = f"It overfitted at step {overfit.step:,}: there its training accuracy is first {OVERFIT} or more."
    if generalised.step is None:
        late = f"It has not generalised: up to step {generalised.after:,} its validation accuracy is below {level}."
        return [learnt, late, f"So N is at least {generalised.after:,} / {overfit.step:,} = {ratio:.3g}."]
    late = f"It generalised at step {generalised.step:,}: there its validation accuracy is first {level} or more."
    return [learnt, late, f"So N = {generalised.step:,} / {overfit.step:,} = {ratio:.3g} times as long."]


def explain(proposals: Sequence[Proposal], ratio: float) -> list[str]:
    """Where the numbers come from."""
    ema, ma = proposals
    exact = grokfast.EMA.from_speedup(ratio).alpha
    rule = f"The authors' README starts from alpha^N = 0.1, here alpha = {exact:.4g}, and from a window of N gradients."
    found = [rule]
    if not ALPHA[0] <= exact <= ALPHA[1]:
        low, high = ALPHA
        found.append(
            f"The paper recommends alpha in [{low}, {high}] (section 4.1), so it is {ema.alpha:g}, "
            f"and the window {ma.window_size}."
        )
    lambs = f"lamb is {ema.lamb:g} with ema, the paper's for this task, and {ma.lamb:g} with ma, the paper's for modmul"
    return [*found, f"{lambs}, the only task it has that for."]


def listen(run: Run, proposal: Proposal) -> tuple[float | None, list[str]]:
    """How much of the recorded gradients is slow enough to be amplified."""
    if run.config.loop.gradients is None:
        return None, []
    assert proposal.alpha is not None
    cutoff = grokfast.EMA(alpha=proposal.alpha, lamb=proposal.lamb).cutoff_frequency()
    try:
        assert cutoff is not None
        share = slow_share(power(load_gradients(run).before, segment=SEGMENT), cutoff)
    except (RunError, ValueError) as error:
        return None, [f"Its recorded gradients say nothing yet: {error}."]
    noise = cutoff / 0.5
    heard = f"Of the power of its recorded gradients {share:.2%} is below the cutoff of that ema, of noise {noise:.2%}."
    little = ["That is hardly more than of noise: a filter may find little to amplify."] if share < 2 * noise else []
    return share, [heard, *little]


def uncertainties(run: Run, generalised: Crossing, limits: tuple[float, float | None], ratio: float) -> list[str]:
    low, high = limits
    found = ["This is one run with one seed: crossings differ between seeds, often by a third and more."]
    if generalised.step is None:
        found.append("N is a lower bound, as the run has not generalised: a larger alpha or window may be right.")
    elif high is not None and high - low > 0.2 * ratio:
        found.append(f"By its evaluation grid N lies between {low:.3g} and {high:.3g}.")
    if run.status == "incomplete":
        found.append(f"The run is not finished ({progress_text(run)}).")
    found.append("The rule is a start for a search around it, by its authors' own words; for lamb there is none.")
    decay = run.config.optim.weight_decay or 0.0
    more = ", ".join(f"{factor * decay:g}" for factor in (2, 5, 10)) if decay else "the values of the paper's arms"
    found.append(
        f"Weight decay stays at {decay:g}. Once the filter is found, the README goes on with more of it: {more}."
    )
    return found
