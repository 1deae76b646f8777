"""The outcome of a duel: what the runs of each arm took, and a verdict on each pair. verdict.json holds it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from grokfast.lab.compare.seeds import Bound, Spread, seconds_of, spread_of, steps_of
from grokfast.lab.duel.arms import REGIMES, adds_to, control_name, name_of_plain, reference_of
from grokfast.lab.duel.verdict import Comparison, Numbers, compare, sentence
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.files import read_json, write_json
from grokfast.lab.runs.metrics import Kind, finite

FILE = "verdict.json"
By = Literal["steps", "seconds"]
STEADY = 1.25  # how much the time of a step may vary within an arm; more than that is other work on the machine
CAVEAT = "The intervals are over seeds. They do not cover the luck of tuning: each arm was tuned once."


class Result(NamedTuple):
    """What an arm took on fresh seeds, with the setting that tuning found."""

    name: str
    setting: Mapping[str, Any]
    command: str
    tuning: Mapping[str, int]  # how many trials were complete, pruned, failed
    steps: Numbers
    seconds: Numbers
    samples: Numbers

    def numbers(self, by: By) -> Numbers:
        return self.steps if by == "steps" else self.seconds

    @property
    def paces(self) -> list[float]:
        """Seconds of a step in each run."""
        known = [seed for seed in self.steps if math.isfinite(self.steps[seed].value)]
        return [self.seconds[seed].value / self.steps[seed].value for seed in known]


class Verdict(NamedTuple):
    """One arm beside another, by one measure."""

    arm: str
    reference: str
    by: By
    found: Comparison
    unsteadiness: float = 1.0

    @property
    def is_judged(self) -> bool:
        return self.by == "steps" or self.unsteadiness <= STEADY

    @property
    def word(self) -> str:
        return self.found.word if self.is_judged else "not judged"

    @property
    def text(self) -> str:
        if not self.is_judged:
            why = f"steps that should take equally long differ by {self.unsteadiness:.1f}x"
            return f"by {self.by}: {self.arm} is not judged, as the machine did other work: {why}"
        return f"by {self.by}: {sentence(self.found, self.arm, self.reference)}"


def make_result(
    name: str, setting: Mapping[str, Any], command: str, tuning: Mapping[str, int], runs: Sequence[Run], kind: Kind
) -> Result:
    """The numbers of an arm's complete runs."""
    done = {run.loop["seed"]: run for run in runs if run.status == "complete"}
    steps = {seed: steps_of(run, kind) for seed, run in done.items()}
    seconds = {seed: seconds_of(run, kind) for seed, run in done.items()}
    samples = {seed: samples_of(run, kind) for seed, run in done.items()}
    return Result(name, setting, command, tuning, steps, seconds, samples)


def samples_of(run: Run, kind: Kind) -> Bound:
    """How many training examples a run has seen when it reaches its level."""
    bound = steps_of(run, kind)
    if math.isinf(bound.value):
        return bound
    return bound._replace(value=max(row.samples for row in run.rows if row.step <= bound.value))


def verdicts(results: Sequence[Result]) -> Iterator[Verdict]:
    """Each arm beside its reference and, if there is one, its control, by steps and by seconds."""
    known = {result.name: result for result in results}
    for name in known:
        reference = reference_of(name, list(known))
        for other in () if reference is None else (reference, control_name(reference, name)):
            for by in ("steps", "seconds") if other in known else ():
                found = compare(known[other].numbers(by), known[name].numbers(by))
                yield Verdict(name, other, by, found, unsteadiness(known[name], known[other]))


def unsteadiness(arm: Result, reference: Result) -> float:
    """How far the times of steps differ that should be equal: within an arm, or where an arm that does more is faster.

    >>> plain, filtered = (Result(name, {}, "", {}, {0: Bound(10)}, {0: Bound(10)}, {}) for name in ("sgd", "sgd+ema"))
    >>> unsteadiness(filtered._replace(seconds={0: Bound(5)}), plain)
    2.0
    """
    if not arm.paces or not reference.paces or min(*arm.paces, *reference.paces) <= 0:
        return 1.0
    found = [max(result.paces) / min(result.paces) for result in (arm, reference)]
    if adds_to(arm.name, name_of_plain(reference.name)):
        slower, faster = (spread_of([Bound(pace) for pace in paces]) for paces in (reference.paces, arm.paces))
        found.append(slower.median.value / faster.median.value)
    return max(found)


def word_for(verdict: Verdict, found: Sequence[Verdict]) -> str:
    """The verdict on an arm in the light of its control.

    Its word, but where it helps: "luck" if its settings do as much without what it adds, "unclear" if they may.
    """
    control = control_name(verdict.reference, verdict.arm)
    beside = next((v for v in found if (v.arm, v.reference, v.by) == (verdict.arm, control, verdict.by)), None)
    if verdict.word != "helps" or beside is None or beside.word == "helps":
        return verdict.word
    return "unclear" if beside.word == "not decided" else "luck"


# As JSON ------------------------------------------------------------------------------------------------------------


def save_outcome(path: Path, duel: dict[str, Any], results: Sequence[Result]) -> dict[str, Any]:
    """Write what a duel found; numbers of runs that never get there are null."""
    data = {
        "version": 1,
        "duel": duel,
        "arms": [result_to_json(result) for result in results],
        "verdicts": [verdict_to_json(verdict) for verdict in verdicts(results)],
        "caveat": CAVEAT,
    }
    write_json(path, data)
    return data


def load_outcome(path: Path) -> tuple[dict[str, Any], list[Result]]:
    """The duel of a file, as plain data, and the results of its arms."""
    try:
        data = read_json(path)
        described(data["duel"])
        return data["duel"], [result_from_json(arm) for arm in data["arms"]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is not the outcome of a duel of this version: {error}") from error


def described(duel: dict[str, Any]) -> tuple[Any, ...]:
    """Everything that a page says about a duel; KeyError where some of it is missing."""
    base, values = duel["base"], duel["base"]["values"]
    return base["task"], values["until"], values["steps"], REGIMES[duel["regime"]], duel["trials"], duel["tuning_seeds"]


def load_outcomes(folder: Path) -> dict[str, tuple[dict[str, Any], list[Result]]]:
    """All outcomes that are kept in a directory, by name."""
    return {path.stem: load_outcome(path) for path in sorted(folder.glob("*.json"))}


def result_to_json(result: Result) -> dict[str, Any]:
    parts = {name: numbers_to_json(getattr(result, name)) for name in ("steps", "seconds", "samples")}
    return {**result._asdict(), "setting": dict(result.setting), "tuning": dict(result.tuning), **parts}


def result_from_json(data: dict[str, Any]) -> Result:
    parts: dict[str, Any] = {name: numbers_from_json(data[name]) for name in ("steps", "seconds", "samples")}
    return Result(**{**data, **parts})


def numbers_to_json(numbers: Numbers) -> dict[str, Any]:
    return {str(seed): [finite(bound.value), bound.exact] for seed, bound in sorted(numbers.items())}


def numbers_from_json(data: dict[str, Any]) -> Numbers:
    return {int(seed): Bound(math.inf if value is None else value, exact) for seed, (value, exact) in data.items()}


def verdict_to_json(verdict: Verdict) -> dict[str, Any]:
    found = verdict.found
    ends = {name: [finite(end) for end in getattr(found, name)] for name in ("ratio", "interval")}
    rest = {"word": verdict.word, "seeds": found.seeds, "paired": found.paired, "more_seeds": found.more_seeds}
    return {"arm": verdict.arm, "reference": verdict.reference, "by": verdict.by, **ends, **rest, "text": verdict.text}


def arm_rows(results: Sequence[Result]) -> list[list[str]]:
    """The headings and one line for each arm: what it took, over seeds."""
    lines = [["arm", "steps", "seconds", "samples", "reached", "best setting"]]
    for result in results:
        spreads = [spread_of(list(numbers.values())) for numbers in (result.steps, result.seconds, result.samples)]
        reached = f"{spreads[0].count - spreads[0].censored} of {spreads[0].count}"
        lines.append([result.name, *map(spread_text, spreads), reached, setting_text(result.setting)])
    return lines


def spread_text(spread: Spread) -> str:
    """Median and range; seconds are few, so they have digits behind the point."""
    if spread.high.value >= 1000 or not spread.count:
        return str(spread)
    if spread.low == spread.high:
        return short(spread.median)
    return f"{short(spread.median)} ({short(spread.low)} to {short(spread.high)})"


def short(bound: Bound) -> str:
    return "never" if math.isinf(bound.value) else f"{'' if bound.exact else '> '}{bound.value:.3g}"


def setting_text(setting: Mapping[str, Any]) -> str:
    """
    >>> setting_text({"lr": 0.00123456, "betas": [0.9, 0.98]})
    'lr 0.00123, betas 0.9 0.98'
    """
    return ", ".join(f"{name} {value_text(value)}" for name, value in setting.items())


def value_text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(value_text, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
