"""Duels: arms are tuned alike, several times, and compared on fresh seeds.

Tuning k of every arm is a search of its own, with a sampler seed and tuning seeds of its own; the arms of one tuning
share both. The best setting of each search is run on fresh seeds. Each arm is compared with its reference. If it adds
something to the reference, there are always two controls: the reference at the arm's settings, and the arm at the
reference's settings. `stats.verdict` alone decides which of two is better.

    DIR/duel.json       what all arms share; arms, tunings and seeds may be added later
    DIR/trials.jsonl    what the searches proposed
    DIR/tuning/         run directories of the searches
    DIR/runs/           run directories of the fresh seeds
    DIR/trials.csv, fresh.csv, arms.csv, SHA256SUMS, verdicts.json    the outcome, as plain tables

Seeds of tuning k, counted from S = seed + 1000 k: tuning seeds S, S + 1, ...; fresh seeds S + 100, S + 101, ...
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from grokfast.lab import stats
from grokfast.lab.runs.archive import read_csv, seal, write_csv
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.files import read_json, write_json
from grokfast.lab.runs.metrics import finite
from grokfast.lab.search.search import (
    LEVEL,
    OBJECTIVES,
    Ask,
    Journal,
    Search,
    Sweep,
    Watch,
    begin_in,
    carry_out,
    check_objective,
    check_sweep,
    line_watch,
    more_is_better,
    number_of,
    time_text,
)
from grokfast.lab.search.space import REGIMES, Dimension, Part, edge_of, read_arm, read_varied, reference_of
from grokfast.lab.search.workers import Job, Limits, Tell, check_engine, count_workers, leading, open_pool
from grokfast.lab.settings import Settings, command_line, name_of, plain_word, resolve, settings_of, short_hash
from grokfast.lab.stats import HOLD, Steps
from grokfast.lab.tasks import find_task
from grokfast.lab.training.run import make_task, rehearse

STEPS = 3000  # budget of a run, unless the task's own is smaller
BLOCK, FRESH = 1000, 100  # seeds of one tuning, and where its fresh ones begin
DUEL, FILE = "duel.json", "verdicts.json"
TABLES = "trials.csv", "fresh.csv", "arms.csv"  # of an outcome, with their digests in SHA256SUMS
VERSION = 1  # of the outcome
START = 10.0  # seconds until the workers have started
POWER = 1.43  # (1.96 + 0.84) / 1.96: how much narrower an interval must be to decide four times out of five
STEADY = 1.25  # seconds are not judged if the time of a step varies by more within an arm

_Which = tuple[str, str | None]  # an arm, and the arm whose settings it uses if they are not its own
HEADINGS = {
    "held": "Steps until the validation measure reaches {level} and holds it",
    "first": "Steps until the validation measure reaches {level}",
    "loss": "Validation loss at the end",
    "best_loss": "Lowest validation loss",
    "accuracy": "Validation error at the end",
}


def title_of(arm: str, settings_of: str | None) -> str:
    """The name of an arm, or of a control."""
    return arm if settings_of is None else f"{arm} at the settings of {settings_of}"


@dataclass(frozen=True)
class Duel:
    """The definition of a duel."""

    given: Settings  # the task, and what all arms share
    arms: dict[str, Part]  # by name: what an arm fixes, with what all share, and what it tunes
    regime: str = "tuned"
    objective: str = "held"
    tunings: int = 8  # of each arm
    trials: int = 15  # of each tuning
    seeds: int = 5  # fresh ones of each tuning
    tuning_seeds: int = 1  # of each trial
    seed: int = 0
    at_once: int = 1
    typed: tuple[Dimension, ...] = ()  # ranges that replace those of the arms

    def tuning(self, k: int) -> tuple[int, ...]:
        """The seeds by which the settings of a tuning are chosen."""
        first = self.seed + BLOCK * k
        return tuple(range(first, first + self.tuning_seeds))

    def fresh(self, k: int) -> tuple[int, ...]:
        """The seeds on which the best settings of a tuning are judged."""
        first = self.seed + BLOCK * k + FRESH
        return tuple(range(first, first + self.seeds))

    def search(self, name: str, k: int) -> Sweep:
        given, ranges = self.arms[name]
        rest = {"search": "tpe", "trials": self.trials, "prune": True, "sampler_seed": self.seed + k}
        return Sweep(given, ranges, self.tuning(k), self.objective, at_once=self.at_once, **rest)  # type: ignore[arg-type]

    def pairs(self) -> list[tuple[str, str]]:
        """Each arm with its reference."""
        names = list(self.arms)
        return [(name, other) for name in names if (other := reference_of(name, names)) is not None]

    def sides(self) -> list[_Which]:
        """All that is trained on fresh seeds: the tuned arms, then the controls."""
        added = [(name, other) for name, other in self.pairs() if name.startswith(f"{other}+")]
        controls = [side for name, other in added for side in ((other, name), (name, other))]
        return [*((name, None) for name in self.arms), *controls]

    @property
    def total(self) -> int:
        """The number of runs, at most."""
        searched = sum(bool(ranges) for _, ranges in self.arms.values())
        return self.tunings * (searched * self.trials * self.tuning_seeds + len(self.sides()) * self.seeds)

    def shared(self) -> dict[str, Any]:
        """The settings that arms, tunings and seeds share if they are added later, as plain data."""
        kept = ("given", "regime", "objective", "trials", "tuning_seeds", "seed", "at_once")
        typed = [dataclasses.asdict(dimension) for dimension in self.typed]
        return json.loads(json.dumps({**{name: getattr(self, name) for name in kept}, "dimensions": typed}))


def make_duel(
    task: str,
    arms: Sequence[str],
    *,
    regime: str = "tuned",
    objective: str = "held",
    typed: Sequence[Dimension] = (),
    given: Mapping[str, Any] | None = None,
    **sizes: int,
) -> Duel:
    """A duel on a task of the lab, checked: the regime, where runs stop, one thread each."""
    if regime not in REGIMES:
        raise ValueError(f"regime must be one of {', '.join(REGIMES)}, got {regime}")
    if len(set(arms)) < max(2, len(arms)):
        raise ValueError(f"a duel needs at least two different arms, got {' '.join(arms)}")
    asked = dict(given or {})
    for name in ("optimizer", "filter", "seed", *REGIMES[regime][0]):
        if name in asked:
            raise ValueError(f"{name} must not be fixed for all arms of this duel, got {asked[name]}")
    asked = {"task": task, **asked, **REGIMES[regime][0]}
    table = settings_of(task)
    # With the settings of the task only: others may not exist for the optimizers of some arms.
    usual = resolve(**{n: v for n, v in asked.items() if n == "task" or table[n].group == "task"})
    check_objective(objective, find_task(task), measures=bool(asked.get("measures")))
    if objective in ("stable", "seconds") or (objective not in OBJECTIVES and more_is_better(objective, task)):
        raise ValueError(f"objective of a duel must be held, first, accuracy, loss or best_loss, got {objective}")
    shared: Settings = {"steps": min(usual["steps"], STEPS), "threads": 1, "device": usual["device"]}
    if objective in LEVEL:  # runs go on until it is known whether they hold the level
        shared |= {"until": usual["level"], "hold": HOLD}
    asked = {**shared, **asked}
    if objective == "held" and not asked["hold"]:
        raise ValueError("objective held needs hold >= 1, got 0: use objective first")
    if typed and regime == "paper":
        raise ValueError(f"regime paper tunes nothing: no range must be given, got {typed[0].name}")
    found = {name: read_arm(name, asked, typed, tuned=regime != "paper") for name in arms}
    used = {each.name for _, ranges in found.values() for each in ranges}
    if unused := [each.name for each in typed if each.name not in used]:
        raise ValueError(f"{unused[0]} must be a setting of one of the arms, got {' '.join(arms)}")
    if regime == "paper":  # nothing differs between tunings: one of them, with all the seeds
        sizes = {**sizes, "tunings": 1}
    duel = Duel(asked, found, regime, objective, typed=tuple(typed), **sizes)
    check_sizes(duel)
    for name, (fixed, ranges) in found.items():
        settings = resolve(**fixed)
        rehearse(settings, make_task(settings))  # before anything is written
        if ranges:
            check_sweep(duel.search(name, 0))
    return duel


def check_sizes(duel: Duel) -> None:
    for name, high in (("tunings", None), ("trials", None), ("seeds", BLOCK - FRESH), ("tuning_seeds", FRESH)):
        value = getattr(duel, name)
        if value < 1 or (high is not None and value > high):
            raise ValueError(f"{name} must be {'>= 1' if high is None else f'in [1, {high}]'}, got {value}")
    if duel.seed < 0:
        raise ValueError(f"seed must be >= 0, got {duel.seed}")


# In progress --------------------------------------------------------------------------------------------------------


class Contest:
    """A duel in progress: its searches, the settings they found, and the runs on fresh seeds.

    `job_of(arm, part, given, seed, limits)` makes the job of a run, and `complete(given)` gives all settings of an arm:
    both differ between tasks of the lab and a training function of the user's.
    """

    def __init__(
        self,
        duel: Duel,
        job_of: Callable[[str, str, dict[str, Any], int, Limits | None], Job],
        complete: Callable[[dict[str, Any]], Mapping[str, Any]],
        journal: Journal,
    ) -> None:
        self.duel, self._job_of, self._complete, self._journal = duel, job_of, complete, journal
        self.searches: dict[tuple[str, int], Search] = {}
        self.settings: dict[tuple[_Which, int], dict[str, Any]] = {}
        self.runs: dict[tuple[_Which, int, int], Run | str] = {}
        self._jobs: dict[tuple[_Which, int, int], Job] = {}

    def advance(self, ask: Ask) -> bool:
        """Ask for all runs that are known to be needed; True once none is missing. The first tunings come first."""
        whole = True
        for k in range(self.duel.tunings):
            for name in self.duel.arms:
                if ((name, None), k) not in self.settings:
                    whole &= self._tune(name, k, ask)
            for side in self.duel.sides():
                if (side, k) not in self.settings:
                    whole &= self._cross(side, k)
                for seed in self.duel.fresh(k) if (side, k) in self.settings else ():
                    whole &= self._judge(side, k, seed, ask)
        return whole

    def _tune(self, name: str, k: int, ask: Ask) -> bool:
        given, ranges = self.duel.arms[name]
        if not ranges:
            self.settings[(name, None), k] = given
            return True
        search = self.searches.get((name, k))
        if search is None:

            def make_job(setting: dict[str, Any], seed: int, limits: Limits | None) -> Job:
                return self._job_of(name, "tuning", {**given, **setting}, seed, limits)

            search = Search(self.duel.search(name, k), make_job, self._journal, f"{name}, tuning {k}")
            self.searches[name, k] = search
        if not search.advance(ask):
            return False
        self.settings[(name, None), k] = {**given, **search.best().setting}
        return True

    def _judge(self, side: _Which, k: int, seed: int, ask: Ask) -> bool:
        place = side, k, seed
        if place not in self._jobs:
            self._jobs[place] = self._job_of(side[0], "runs", self.settings[side, k], seed, None)
        if place not in self.runs and (run := ask(self._jobs[place])) is not None:
            self.runs[place] = run
        return place in self.runs

    def _cross(self, side: _Which, k: int) -> bool:
        """The settings of a control, if both arms are tuned: its own, with what the other arm has otherwise."""
        arm, other = side
        if other is None or any(((name, None), k) not in self.settings for name in side if name):
            return False
        both = {name: self.settings[(name, None), k] for name in (arm, other)}
        long, short = sorted(both, key=len, reverse=True)
        (fixed, ranges), (_, tuned) = self.duel.arms[long], self.duel.arms[short]
        own = {*fixed, *({each.name for each in ranges} - {each.name for each in tuned})}  # what the longer one adds
        mine, theirs = self._complete(both[arm]), self._complete(both[other])
        changed = {n: theirs[n] for n in theirs if n in mine and theirs[n] != mine[n] and n not in own}
        self.settings[side, k] = {**both[arm], **changed}
        return True


# The outcome --------------------------------------------------------------------------------------------------------


class _Side(NamedTuple):
    """An arm or a control as a page shows it: the settings of its first tuning, and the numbers of all its runs."""

    name: str
    setting: dict[str, Any]
    command: str
    steps: list[Steps]
    seconds: list[Steps]


class Outcome(NamedTuple):
    """The outcome of a duel, as plain rows. `print(outcome)` shows it in words.

    `trials`: a row for each tuning run. `runs`: a row for each run on a fresh seed. `settings`: a row for each arm or
    control and tuning. `verdicts`: a row for each pair and measure.
    """

    duel: dict[str, Any]
    trials: list[dict[str, Any]]
    runs: list[dict[str, Any]]
    settings: list[dict[str, Any]]
    verdicts: list[dict[str, Any]]
    looks: list[list[int]] = []  # tunings and seeds at each verdict so far

    @property
    def title(self) -> str:
        """The task and its condition, in a few words."""
        regime = self.duel["regime"]
        return f"{self.duel['given']['task']} {REGIMES[regime][1] if regime in REGIMES else ''}".strip()

    @property
    def budget(self) -> str:
        """Measure, budget and tuning, in one or two sentences."""
        given, duel = self.duel["given"], self.duel
        goal = HEADINGS.get(duel["objective"], f"Final {duel['objective']}").format(level=given.get("until"))
        tuned = (
            f"Each arm was tuned {duel['tunings']} times with {duel['trials']} trials of {duel['tuning_seeds']} seed"
        )
        added = len(self.looks) - 1
        looks = f" Tunings or seeds were added after {added} verdict{'s' * (added > 1)}." if added > 0 else ""
        return f"{goal}; runs of at most {given['steps']:,} steps. {tuned}{'s' * (duel['tuning_seeds'] > 1)}.{looks}"

    @property
    def sentences(self) -> list[str]:
        """The verdicts in words, those by the measure that was tuned for first; they include the first controls."""
        first = self.duel["objective"]
        shown = [row for row in self.verdicts if row["reference_settings_of"] is None]
        return [row["text"] for row in sorted(shown, key=lambda row: row["by"] != first)]

    @property
    def arms(self) -> list[_Side]:
        """The arms as tuned, then the controls."""
        found: list[_Side] = []
        measure = self.duel["objective"]
        for name in self._names():
            first = next(row for row in self.settings if (row["arm"], row["settings_of"]) == name)
            rows = self._runs_of(name)
            numbers = [[steps_from(row, by) for row in rows] for by in (measure, "seconds")]
            found.append(_Side(title_of(*name), first["setting"], first["command"], *numbers))
        return found

    def _names(self) -> list[_Which]:
        return list(dict.fromkeys((row["arm"], row["settings_of"]) for row in self.runs))

    def _runs_of(self, name: _Which) -> list[dict[str, Any]]:
        return [row for row in self.runs if (row["arm"], row["settings_of"]) == name and row["error"] is None]

    @property
    def failed(self) -> list[str]:
        """Runs on fresh seeds that failed, with the reason."""
        return [f"{row['arm']}, seed {row['seed']}: {row['error']}" for row in self.runs if row["error"]]

    def edges(self) -> list[str]:
        """Settings that were best at an end of their range, in words."""
        found = Counter((row["arm"], name, end) for row in self.settings for name, end in row["edges"].items())
        total = self.duel["tunings"]
        return [
            f"{arm}: the best {name} is at the {end} end of its range in {count} of {total} tunings"
            for (arm, name, end), count in found.items()
        ]

    def table(self) -> list[list[str]]:
        """The headings and a line for each arm and control: medians over all tunings and seeds."""
        measures = measures_of(self.duel["objective"])
        lines = [["arm", *measures, "reached"]]
        for name in self._names():
            rows = self._runs_of(name)
            spreads = [spread_text(stats.spread_of([steps_from(row, by) for row in rows])) for by in measures]
            lines.append([title_of(*name), *spreads, f"{sum(row['reached'] for row in rows)} of {len(rows)}"])
        return lines

    def __str__(self) -> str:
        head, *rows = self.table()
        lines = [f"{row[0]}: " + ", ".join(f"{n} {v}" for n, v in zip(head[1:], row[1:], strict=True)) for row in rows]
        return "\n".join([*lines, *self.sentences, *self.edges()])


def spread_text(spread: stats.Spread) -> str:
    """Median and range; small numbers, such as losses and seconds, have decimals."""
    if not spread.count or spread.high.value >= 1000:
        return str(spread)
    low, median, high = (
        "never" if math.isinf(end.value) else f"{'' if end.exact else '> '}{end.value:.3g}"
        for end in (spread.low, spread.median, spread.high)
    )
    return median if spread.low == spread.high else f"{median} ({low} to {high})"


def measures_of(objective: str) -> list[str]:
    """The columns that a duel is judged by; the first one is what the searches made smaller."""
    if objective not in LEVEL:
        return [objective, "seconds"]
    return [*dict.fromkeys([objective, "held", "first", "seconds"])]


def steps_from(row: Mapping[str, Any], measure: str) -> Steps:
    """A number in a row of the table."""
    exact = row["reached"] if measure == "seconds" else row[f"{measure}_exact"]
    return Steps(math.inf if row[measure] is None else row[measure], exact)


def outcome_of(contest: Contest, describe: Callable[[dict[str, Any]], str]) -> Outcome:
    """The outcome of a duel whose runs have all ended. `describe` gives the command of a setting."""
    duel = contest.duel
    measures = measures_of(duel.objective)
    trials = [row for (name, k), search in contest.searches.items() for row in trial_rows(name, k, search)]
    runs = [fresh_row(side, k, seed, run, measures) for (side, k, seed), run in contest.runs.items()]
    runs.sort(key=lambda row: (duel.sides().index((row["arm"], row["settings_of"])), row["tuning"], row["seed"]))
    settings: list[dict[str, Any]] = []
    for side in duel.sides():
        for k in range(duel.tunings):
            given, ranges = contest.settings[side, k], duel.arms[side[0]][1]
            tuned = {each.name: given[each.name] for each in ranges}
            ends = {each.name: end for each in ranges if (end := edge_of(each, given[each.name]))}
            setting = tuned if side[1] is None else given
            settings.append(
                {
                    "arm": side[0],
                    "settings_of": side[1],
                    "tuning": k,
                    "setting": setting,
                    "edges": ends if side[1] is None else {},
                    "command": describe(given),
                }
            )
    sizes = {"tunings": duel.tunings, "seeds": duel.seeds}
    shared = {**duel.shared(), **sizes, "arms": list(duel.arms)}
    return Outcome(shared, trials, runs, settings, verdict_rows(duel, contest))


def trial_rows(name: str, k: int, search: Search) -> Iterable[dict[str, Any]]:
    for number, trial in enumerate(search.trials):
        results = iter(trial.results())
        for seed, job, run in zip(search.sweep.seeds, trial.jobs, trial.runs, strict=True):
            failed = isinstance(run, str)
            seen, pruned = (None, False) if failed else next(results)
            yield {
                "arm": name,
                "tuning": k,
                "trial": number,
                "seed": seed,
                "status": "failed" if failed else "pruned" if pruned else "complete",
                "value": search.value(number),
                "steps": None if seen is None or not seen.rows else seen.rows[-1].step,
                "run": job.path.name,
                "setting": trial.setting,
            }


def fresh_row(side: _Which, k: int, seed: int, run: Run | str, measures: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {"arm": side[0], "settings_of": side[1], "tuning": k, "seed": seed}
    numbers = {name: judged_number(run, name) if isinstance(run, Run) else Steps(math.inf, False) for name in measures}
    for name, found in numbers.items():
        row[name] = finite(found.value)
        if name != "seconds":
            row[f"{name}_exact"] = found.exact
    judged = numbers[measures[0]]
    row |= {"steps": row[measures[0]], "reached": judged.exact, "samples": None}
    if isinstance(run, Run) and math.isfinite(judged.value):
        row["samples"] = max((each.samples for each in run.rows if each.step <= judged.value), default=None)
    return {**row, "run": "" if isinstance(run, str) else run.name, "error": run if isinstance(run, str) else None}


def verdict_rows(duel: Duel, contest: Contest) -> list[dict[str, Any]]:
    """Each arm against its reference, and both against their controls, by each measure.

    The answer has two parts: is the tuned arm better than the tuned reference, and is its addition the reason? The
    first control, the reference at the arm's settings, is part of the sentence about the arm.
    """
    found: list[dict[str, Any]] = []
    names = ("arm", "settings_of", "reference", "reference_settings_of")
    for arm, reference in duel.pairs():
        as_tuned: tuple[_Which, _Which] = ((arm, None), (reference, None))
        first: tuple[_Which, _Which] = ((arm, None), (reference, arm))
        second: tuple[_Which, _Which] = ((arm, reference), (reference, None))
        beside = [first, as_tuned, second] if arm.startswith(f"{reference}+") else [as_tuned]
        controls: dict[str, stats.Verdict] = {}
        for pair in beside:
            for by, of, numbers in compared(duel, contest, *pair):
                verdict = stats.verdict(*numbers, of=of)
                if pair == first:
                    controls[by] = verdict
                why = controls.get(by) if pair == as_tuned else None
                text = f"By {by}: {stats.sentence(verdict, title_of(*pair[0]), title_of(*pair[1]), why)}"
                ends = {name: finite(getattr(verdict, name)) for name in ("ratio", "low", "high")}
                counts = {"seeds": verdict.seeds, "tunings": verdict.tunings, "more": more_units(verdict)}
                sides = dict(zip(names, (*pair[0], *pair[1]), strict=True))
                found.append({**sides, "by": by, "word": verdict.word, **ends, **counts, "text": text})
    return found


def more_units(verdict: stats.Verdict) -> int | None:
    """How many more tunings, or seeds of one tuning, would probably decide; None if it is decided or they do not help.

    A rough guess: intervals shrink with the root of the number of tunings.
    """
    tuned = verdict.tunings > 1
    units, least = (verdict.tunings, stats.LEAST_TUNINGS) if tuned else (verdict.seeds, stats.LEAST_SEEDS)
    if verdict.word != "undecided" or units < least:
        return least - units if verdict.word == "undecided" else None
    if verdict.ratio is None or not 0 < verdict.low < verdict.high < math.inf:
        return None  # longer runs are needed instead
    half, away = math.log(verdict.high / verdict.low) / 2, abs(math.log(verdict.ratio))
    room = max(away, math.log(stats.MARGINS[verdict.of]) - away)
    return max(1, math.ceil(units * (POWER * half / room) ** 2) - units)


def compared(
    duel: Duel, contest: Contest, challenger: _Which, reference: _Which
) -> Iterable[tuple[str, stats._Quantity, list[Any]]]:
    """The measures by which two sides are compared, each with the numbers of both: a list for each tuning."""
    sides = [
        [
            [run for seed in duel.fresh(k) if isinstance(run := contest.runs[side, k, seed], Run)]
            for k in range(duel.tunings)
        ]
        for side in (challenger, reference)
    ]

    def numbers(number: Callable[[Run], Steps]) -> list[list[list[Steps]]]:
        return [[[number(run) for run in runs] for runs in side] for side in sides]

    for by in measures_of(duel.objective):
        if by != "seconds" or is_steady(sides):
            of = by if by == "seconds" else "steps" if by in LEVEL else "loss"
            yield by, of, numbers(lambda run, by=by: judged_number(run, by))
    if duel.objective in ("loss", "accuracy"):  # steps until the challenger reaches the final result of the reference
        finals = [number_of(run, duel.objective).value for runs in sides[1] for run in runs]
        level = abs(stats.baseline_level(finals))
        if 0 < level < math.inf:
            yield f"steps to {level:.4g}", "steps", numbers(lambda run: number_of(run.judged_at(level), "first"))


def judged_number(run: Run, measure: str) -> Steps:
    """The number of a run by a measure, positive and smaller is better: of an accuracy, the error."""
    found = number_of(run, measure)
    if measure in LEVEL or math.isinf(found.value):
        return found
    return Steps(max(1.0 + found.value if measure == "accuracy" else found.value, 1e-9), found.exact)


def is_steady(sides: Sequence[Sequence[Sequence[Run]]]) -> bool:
    """Whether seconds can be compared: not if the time per step varies within a side, because of other work."""
    for side in sides:
        paces = [run.rows[-1].seconds / run.rows[-1].step for runs in side for run in runs if run.rows]
        if not paces or min(paces) <= 0 or max(paces) / min(paces) > STEADY:
            return False
    return True


# In a directory -----------------------------------------------------------------------------------------------------


def write_outcome(outcome: Outcome, folder: Path) -> Outcome:
    """Write the tables and their digests, then the verdicts; gives the outcome with all looks so far."""
    path = folder / FILE
    before = read_verdicts(path)["looks"] if path.exists() else []
    look = [outcome.duel["tunings"], outcome.duel["seeds"]]
    looks = [*before, *([] if look in before else [look])]
    for file, rows in zip(TABLES, (outcome.trials, outcome.runs, outcome.settings), strict=True):
        write_csv(folder / file, rows)
    seal(folder)
    data = {"version": VERSION, "duel": outcome.duel, "looks": looks, "verdicts": outcome.verdicts}
    write_json(path, {**data, "digest": short_hash(data)})
    return outcome._replace(looks=looks)


def read_verdicts(path: Path) -> dict[str, Any]:
    data = read_json(path)
    digest = data.pop("digest", None)
    if data.get("version") != VERSION or digest != short_hash(data):
        raise ValueError(f"{path} was changed, or is of another version")
    return data


def load_outcome(path: Path) -> Outcome:
    """The outcome in a duel's folder, or its file verdicts.json; ValueError if it is damaged or was changed."""
    path = path / FILE if path.is_dir() else path
    try:
        data = read_verdicts(path)
        trials, runs, settings = (read_csv(path.with_name(file)) for file in TABLES)
        return Outcome(data["duel"], trials, runs, settings, data["verdicts"], data["looks"])
    except (ValueError, KeyError, TypeError, RunError) as error:
        raise ValueError(f"{path} is not the outcome of a duel of this version: {error}") from error


# Carrying it out ----------------------------------------------------------------------------------------------------


def run_duel(
    duel: Duel,
    folder: Path | None = None,
    *,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    tell: Tell,
    watch: Watch,
    command: list[str] | None = None,
) -> Outcome:
    """Train the missing runs of a duel and write its outcome; KeyboardInterrupt if it is stopped."""
    folder = folder or duel_folder(duel)
    begin_in(folder, DUEL, duel.shared())
    contest = contest_in(duel, folder, tell)
    pool = open_pool(folder, duel.given, workers=workers, engine=engine, address=address, tell=tell, command=command)
    with pool, leading(folder):
        if carry_out(contest.advance, lambda: duel.total, pool, watch):
            return write_outcome(outcome_of(contest, lambda given: command_line(resolve(**given))), folder)
    raise KeyboardInterrupt


def duel_folder(duel: Duel) -> Path:
    """The default directory of a duel."""
    return Path("duels") / "-".join([plain_word(duel.given["task"]), duel.regime, short_hash(duel.shared())])


def contest_in(duel: Duel, folder: Path, tell: Tell) -> Contest:
    def job_of(arm: str, part: str, given: dict[str, Any], seed: int, limits: Limits | None) -> Job:
        asked: dict[str, Any] = {**given, "seed": seed}
        settings = resolve(**asked)
        return Job(folder / part / name_of(settings), settings, limits)

    return Contest(duel, job_of, lambda given: resolve(**given), Journal(folder / "trials.jsonl", tell))


def budget_lines(duel: Duel, workers: int) -> list[str]:
    """The plan of a duel, and how long it may take."""
    searched = sum(bool(ranges) for _, ranges in duel.arms.values())
    tuned = f"{searched} arms x {duel.tunings} tunings x {duel.trials} trials x {duel.tuning_seeds} seeds"
    sides, steps = len(duel.sides()), duel.given["steps"]
    controls = f" (of them {sides - len(duel.arms)} controls)" if sides > len(duel.arms) else ""
    fresh = f"{sides} sides{controls} x {duel.tunings} tunings x {duel.seeds} fresh seeds"
    seconds = START + duel.total * steps * find_task(duel.given["task"]).step_seconds / workers
    return [
        f"{duel.given['task']}, regime {duel.regime}: {' '.join(duel.arms)}",
        f"{tuned if searched else 'no tuning'}, then {fresh}: {duel.total:,} runs of at most {steps:,} steps",
        f"this may take up to {time_text(seconds)}; runs that hold their target or are pruned stop earlier",
    ]


def duel(
    task: str,
    arms: Sequence[str],
    folder: str | Path | None = None,
    *,
    regime: str = "tuned",
    objective: str = "held",
    vary: Mapping[str, Any] | None = None,
    tunings: int = 8,
    trials: int = 15,
    seeds: int = 5,
    tuning_seeds: int = 1,
    seed: int = 0,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    tell: Tell = print,
    **given: Any,
) -> Outcome:
    """Tune each arm several times, run the best settings on fresh seeds, and compare. The same call continues.

    Args:
        task: name of a task, or FILE.py:CLASS.
        arms: such as `["adamw", "adamw+ema"]`.
        folder: keeps the runs and the outcome.
        regime: what is tuned and how the task is changed.
        objective: "held" or "first" for steps to the level; "loss", "accuracy" or "best_loss" at a fixed budget.
        vary: ranges that replace those of the arms, as in `sweep`.
        tunings: independent searches of each arm.
        trials: settings that each search tries.
        seeds: fresh seeds of each tuning.
        tuning_seeds: seeds of each trial.
        seed: the first seed.
        workers: runs at once.
        engine: "local" or "ray", with the `address` of a cluster.
        tell: gets lines about the cost and the progress.
        given: settings of all arms, which are not tuned.

    Examples:
        >>> outcome = duel("addition", ["adamw", "adamw+ema"], "my-duel")  # doctest: +SKIP
        >>> print("\\n".join(outcome.sentences))  # trains hundreds of runs  # doctest: +SKIP
    """
    check_engine(engine, workers, address)
    typed = tuple(read_varied(name, value) for name, value in (vary or {}).items())
    sizes = {"tunings": tunings, "trials": trials, "seeds": seeds, "tuning_seeds": tuning_seeds, "seed": seed}
    asked = make_duel(task, arms, regime=regime, objective=objective, typed=typed, given=given, **sizes)
    for line in budget_lines(asked, count_workers(asked.given, workers)):
        tell(line)
    where = None if folder is None else Path(folder)
    engines: dict[str, Any] = {"workers": workers, "engine": engine, "address": address}
    return run_duel(asked, where, **engines, tell=tell, watch=line_watch(tell))
