"""The outcome of a duel: its tables, its verdicts, and its files.

Each arm is compared with its reference. If it adds something to the reference, there are always two controls: the
reference at the arm's settings, and the arm at the reference's settings. `stats.verdict` alone decides which of two is
better.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from grokfast.lab import stats
from grokfast.lab.runs.archive import read_csv, seal, write_csv
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.files import read_json, write_json
from grokfast.lab.runs.metrics import finite
from grokfast.lab.search.contest import Contest, Duel, Which
from grokfast.lab.search.objective import LEVEL, number_of
from grokfast.lab.search.search import Search
from grokfast.lab.search.space import REGIMES, edge_of
from grokfast.lab.settings import short_hash
from grokfast.lab.stats import Steps

FILE = "verdicts.json"
TABLES = "trials.csv", "fresh.csv", "arms.csv"  # of an outcome, with their digests in SHA256SUMS
VERSION = 1  # of the outcome
POWER = 1.43  # (1.96 + 0.84) / 1.96: how much narrower an interval must be to decide four times out of five
MOST = 100  # more tunings than that are no advice
STEADY = 1.25  # seconds are not judged if the time of a step varies by more within an arm
HEADINGS = {
    "held": "Steps until the validation measure reaches {level} and holds it",
    "first": "Steps until the validation measure reaches {level}",
    "loss": "Validation loss at the end",
    "best_loss": "Lowest validation loss",
    "accuracy": "Validation error at the end",
}
SHOWN = {"accuracy": "error", "best_loss": "lowest loss"}  # what is compared has another name than the objective
RESULT = "steps to "  # and the level that the reference ends at


def quantity_of(by: str) -> stats._Quantity:
    """What a measure counts, which decides the words and the margin of a verdict."""
    return "seconds" if by == "seconds" else "steps" if by in LEVEL or by.startswith(RESULT) else "loss"


def title_of(arm: str, settings_of: str | None) -> str:
    """The name of an arm, or of a control."""
    return arm if settings_of is None else f"{arm} at the settings of {settings_of}"


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
        """The verdicts on the tuned arms in words, by the measure that was tuned for, with the first controls."""
        return [row["text"] for row in self._as_tuned()]

    @property
    def answer(self) -> str:
        """The same verdicts as short as possible."""
        pairs = [(f"{row['arm']} against {row['reference']}", row) for row in self._as_tuned()]
        return "; ".join(f"{pair}: {row['word']} ({interval_of(row)})" for pair, row in pairs)

    def _as_tuned(self) -> list[dict[str, Any]]:
        tuned = [row for row in self.verdicts if row["settings_of"] is None is row["reference_settings_of"]]
        return [row for row in tuned if row["by"] == self.duel["objective"]]

    def comparisons(self) -> list[list[str]]:
        """The headings and a line for each pair that is compared: the verdict and its interval by each measure."""
        measures = [by for by in measures_of(self.duel["objective"]) if any(row["by"] == by for row in self.verdicts)]
        others = ["steps to the reference's result"] * any(row["by"] not in measures for row in self.verdicts)
        columns = [*(SHOWN.get(by, by) for by in measures), *others]
        pairs: dict[tuple[str, ...], dict[str, str]] = {}
        for row in self.verdicts:
            of = row["settings_of"] or row["reference_settings_of"]
            pair = row["arm"], row["reference"], "as tuned" if of is None else f"those of {of}"
            by: str = row["by"]
            column, level = SHOWN.get(by, by), ""
            if by not in measures:
                column, level = columns[-1], f", to {by.removeprefix(RESULT)}"
            pairs.setdefault(pair, {})[column] = f"{row['word']} ({interval_of(row)}){level}"
        tuned_first = sorted(pairs, key=lambda pair: (list(self.duel["arms"]).index(pair[0]), pair[2] != "as tuned"))
        lines = ([*pair, *(pairs[pair].get(column, "") for column in columns)] for pair in tuned_first)
        return [["arm", "compared with", "settings", *columns], *lines]

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

    def _names(self) -> list[Which]:
        return list(dict.fromkeys((row["arm"], row["settings_of"]) for row in self.runs))

    def _runs_of(self, name: Which) -> list[dict[str, Any]]:
        return [row for row in self.runs if (row["arm"], row["settings_of"]) == name and row["error"] is None]

    @property
    def failed(self) -> list[str]:
        """Runs on fresh seeds that failed, with the reason."""
        return [f"{row['arm']}, seed {row['seed']}: {row['error']}" for row in self.runs if row["error"]]

    def edges(self) -> list[str]:
        """Settings that were best at an end of their range, in words."""
        found: dict[tuple[str, str], Counter[str]] = {}
        for row in self.settings:
            for place in row["edges"].items():
                found.setdefault(place, Counter())[row["arm"]] += 1
        total = self.duel["tunings"]
        return [
            f"best {name} near the {end} end of its range: "
            + ", ".join(f"{arm} in {count} of {total} tunings" for arm, count in arms.items())
            for (name, end), arms in found.items()
        ]

    def table(self) -> list[list[str]]:
        """The headings and a line for each arm and control: medians over all tunings and seeds."""
        measures = measures_of(self.duel["objective"])
        lines = [["arm", *(SHOWN.get(by, by) for by in measures), "reached"]]
        for name in self._names():
            rows = self._runs_of(name)
            spreads = [spread_text(stats.spread_of([steps_from(row, by) for row in rows])) for by in measures]
            lines.append([title_of(*name), *spreads, f"{sum(row['reached'] for row in rows)} of {len(rows)}"])
        return lines

    def __str__(self) -> str:
        head, *rows = self.table()
        lines = [f"{row[0]}: " + ", ".join(f"{n} {v}" for n, v in zip(head[1:], row[1:], strict=True)) for row in rows]
        head, *rows = self.comparisons()
        for arm, other, settings, *words in rows:
            known = [f"{name} {word}" for name, word in zip(head[3:], words, strict=True) if word]
            lines.append(f"{arm} against {other}, settings {settings}: {', '.join(known)}")
        return "\n".join([*lines, *self.sentences, *self.edges()])


def interval_of(row: Mapping[str, Any]) -> str:
    """The interval of a row of the verdicts, in words."""
    low, high = (math.inf if end is None else end for end in (row["low"], row["high"]))
    return stats.range_text(low, high, quantity_of(row["by"]))


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


def fresh_row(side: Which, k: int, seed: int, run: Run | str, measures: Sequence[str]) -> dict[str, Any]:
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
        as_tuned: tuple[Which, Which] = ((arm, None), (reference, None))
        first: tuple[Which, Which] = ((arm, None), (reference, arm))
        second: tuple[Which, Which] = ((arm, reference), (reference, None))
        beside = [first, as_tuned, second] if arm.startswith(f"{reference}+") else [as_tuned]
        controls: dict[str, stats.Verdict] = {}
        for pair in beside:
            for by, numbers in compared(duel, contest, *pair):
                verdict = stats.verdict(*numbers, of=quantity_of(by))
                if pair == first:
                    controls[by] = verdict
                why = controls.get(by) if pair == as_tuned else None
                titles = title_of(*pair[0]), title_of(*pair[1])
                text = stats.sentence(verdict, *titles, why, measure=SHOWN.get(by, by.replace("_", " ")))
                ends = {name: finite(getattr(verdict, name)) for name in ("ratio", "low", "high")}
                counts = {"seeds": verdict.seeds, "tunings": verdict.tunings, "more": more_units(verdict)}
                sides = dict(zip(names, (*pair[0], *pair[1]), strict=True))
                found.append({**sides, "by": by, "word": verdict.word, **ends, **counts, "text": text})
    return found


def more_units(verdict: stats.Verdict) -> int | None:
    """How many more tunings, or seeds of one tuning, would probably decide; None if it is decided, or above MOST.

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
    more = max(1, math.ceil(units * (POWER * half / room) ** 2) - units)
    return more if more <= MOST else None


def compared(duel: Duel, contest: Contest, challenger: Which, reference: Which) -> Iterable[tuple[str, list[Any]]]:
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
            yield by, numbers(lambda run, by=by: judged_number(run, by))
    if duel.objective in ("loss", "accuracy"):  # steps until the challenger reaches the final result of the reference
        finals = [number_of(run, duel.objective).value for runs in sides[1] for run in runs]
        level = abs(stats.baseline_level(finals))
        if 0 < level < math.inf:
            yield f"{RESULT}{level:.4g}", numbers(lambda run: number_of(run.judged_at(level), "first"))


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


# In files -----------------------------------------------------------------------------------------------------------


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
