"""What to try after a run without a filter: tuned weight decay and learning rate first, then a filter on top.

The evidence is the duels that are kept in results/, in which both were tuned. For a task without such a duel the
paper's EMA is proposed, with the weight decay that the paper pairs it with.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from grokfast.lab import filters
from grokfast.lab.config import OptimConfig, RunConfig
from grokfast.lab.request import command_line, request_of, resolve
from grokfast.lab.runs.describe import progress_text
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Crossing, first_crossing

OVERFIT = 0.99  # training accuracy
FEWEST = 5  # evaluations
SHORTEST = 2.0  # times as long to generalise as to overfit; below it there is no delay to shorten
OPTIM = {field.name for field in dataclasses.fields(OptimConfig)}


class Tuned(NamedTuple):
    """What tuning found: settings by the names of their flags, and the steps that they took."""

    values: dict[str, Any]
    took: str


class Evidence(NamedTuple):
    """AdamW tuned on one task, without a filter and with one, and how the two compare."""

    plain: Tuned
    filtered: Tuned
    verdict: str


class Proposal(NamedTuple):
    """Settings to try, and the command that does."""

    values: dict[str, Any]
    text: str
    command: str


class Advice(NamedTuple):
    """What a run without a filter suggests. Without proposals, `why` says why there are none."""

    run: str
    overfit: Crossing
    generalised: Crossing
    proposals: list[Proposal]
    why: list[str]
    uncertain: list[str]


def advise(run: Run, evidence: Evidence | None) -> Advice:
    """Propose what to try after a run without a filter; `evidence` is about its task."""
    learnt = [row.train_accuracy is not None and row.train_accuracy >= OVERFIT for row in run.rows]
    overfit, generalised = first_crossing([row.step for row in run.rows], learnt), run.crossing()
    refusal = why_not(run, overfit, generalised)
    if refusal is not None:
        return Advice(run.name, overfit, generalised, [], [refusal], [])
    tried = [{"filter": "ema"}] if evidence is None else [evidence.plain.values, evidence.filtered.values]
    why = [*reasons(run, overfit, generalised), *explain(run.task, evidence)]
    return Advice(run.name, overfit, generalised, [propose(run, values) for values in tried], why, uncertainties(run))


def why_not(run: Run, overfit: Crossing, generalised: Crossing) -> str | None:
    """Why there is nothing to say about a run; None where there is."""
    rows = run.rows
    if run.filter is not None:
        return f"It was trained with a filter already ({run.filter}): advice starts from a run without one."
    if run.measure == "loss":
        return "Its task has a loss but no accuracy, so the step at which it overfits is not defined."
    if len(rows) < FEWEST:
        return f"It has {len(rows)} evaluations, and advice needs at least {FEWEST}: train it longer."
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


def propose(run: Run, values: dict[str, Any]) -> Proposal:
    """The same run with other settings of its optimizer and filter; what was not tried is as usual for the task."""
    dropped = OPTIM if "optimizer" in values else {"weight_decay"}
    config = resolve(request_of(run.config).without(*dropped).having(**values))
    return Proposal(values, describe(config), command_line(config))


def describe(config: RunConfig) -> str:
    optim, filter = config.optim, config.filter
    with_filter = "no filter" if filter is None else filters.describe(filter)
    return f"{optim.optimizer}, weight decay {optim.weight_decay:g}, learning rate {optim.lr:g}, {with_filter}"


def reasons(run: Run, overfit: Crossing, generalised: Crossing) -> list[str]:
    assert overfit.step is not None
    learnt = f"It overfitted at step {overfit.step:,}, where its training accuracy first is {OVERFIT} or more."
    if generalised.step is None:
        times = f"after {generalised.after / overfit.step:.3g} times as many steps"
        return [learnt, f"It has not generalised {times}: its validation accuracy is below {run.level:g}."]
    times = f"{generalised.step / overfit.step:.3g} times as many"
    return [learnt, f"It generalised at step {generalised.step:,}, {times}: its validation accuracy is {run.level:g}."]


def explain(task: str, evidence: Evidence | None) -> list[str]:
    """Where the proposals come from."""
    if evidence is None:
        return [
            f"No tuned duel of {task} is kept, so this is the paper's filter with the paper's weight decay.",
            f"Weight decay and learning rate matter more: `grokfast duel {task} adamw adamw+ema` tunes them.",
        ]
    return [
        f"Weight decay and learning rate come first: tuned on {task}, without a filter, it took {evidence.plain.took}.",
        f"A filter comes second: tuned alike, with a filter, it took {evidence.filtered.took}.",
        f"The verdict on the filter {evidence.verdict}.",
    ]


def uncertainties(run: Run) -> list[str]:
    found = ["This is one run with one seed: crossings differ between seeds, often by a third or more."]
    if run.status == "incomplete":
        found.append(f"The run is not finished ({progress_text(run)}).")
    return [*found, "The settings fit the task as it usually is: other sizes or data may need others."]
