"""The duels that are kept in results/: what each arm took, the verdicts on them, and their rows on our pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from page_tables import Columns, count_text, markdown

from grokfast.lab import stats
from grokfast.lab.runs.archive import read_csv
from grokfast.lab.stats import Spread, Steps, Verdict, spread_of, verdict

STEADY = 1.25  # how much the time of a step may vary within an arm; more than that is other work on the machine
REGIMES = {
    "paper": "at the published settings, nothing tuned",
    "tuned": "with everything tuned",
    "no-decay": "without weight decay, everything else tuned",
    "small-batch": "with batches of 64",
    "full-batch": "with all examples in each batch",
    "little-data": "with 30% of the equations to train on",
    "noise": "with 5% of the training answers wrong",
}
OF_TASK = {("addition", "little-data"): "with 40% of the pairs to train on"}  # another share than usual
ORDER = ("modmul", "mnist", "parity", "addition")  # of the tasks


class Fighter(NamedTuple):
    """An arm of a duel: what it took on fresh seeds, tuning by tuning."""

    arm: str
    settings_of: str | None  # a control: the arm whose settings it uses
    about: Sequence[Mapping[str, Any]]  # a row of duel_arms.csv for each tuning
    runs: Sequence[Sequence[Mapping[str, Any]]]  # rows of duels.csv for each tuning

    @property
    def name(self) -> str:
        return self.arm if self.settings_of is None else f"{self.arm} at the settings of {self.settings_of}"

    def numbers(self, by: str) -> list[list[Steps]]:
        """Steps, seconds or samples of each run, for each tuning; a run that diverged never reaches its level."""
        return [
            [Steps(math.inf if row.get(by) is None else row[by], bool(row["reached"])) for row in rows]
            for rows in self.runs
        ]

    def spread(self, by: str) -> Spread:
        return spread_of([steps for rows in self.numbers(by) for steps in rows])

    @property
    def paces(self) -> list[float]:
        """Seconds of a step in each run."""
        return [
            row["seconds"] / row["steps"] for rows in self.runs for row in rows if row["steps"] and row.get("seconds")
        ]


class Duel(NamedTuple):
    """Two arms or more on one task, tuned alike; the first is the one that the others are compared with."""

    name: str
    task: str
    regime: str
    fighters: list[Fighter]

    @property
    def title(self) -> str:
        return f"{self.task} {self.how}"

    @property
    def how(self) -> str:
        """What was tuned, and how the task was changed."""
        return OF_TASK.get((self.task, self.regime), REGIMES[self.regime])

    def find(self, arm: str, settings_of: str | None = None) -> Fighter | None:
        return next((f for f in self.fighters if (f.arm, f.settings_of) == (arm, settings_of)), None)

    @property
    def reference(self) -> Fighter:
        return self.fighters[0]

    @property
    def challengers(self) -> list[Fighter]:
        return [fighter for fighter in self.fighters[1:] if fighter.settings_of is None]

    def control(self, challenger: Fighter) -> Fighter | None:
        """The reference at the settings of a challenger: what the challenger's settings do without the filter."""
        return self.find(self.reference.arm, challenger.arm)


def load_duels(folder: Path) -> dict[str, Duel]:
    """All duels by name, in the order of tasks and regimes."""
    about, runs = read_csv(folder / "duel_arms.csv"), read_csv(folder / "duels.csv")
    found: dict[str, Duel] = {}
    for name in dict.fromkeys(row["duel"] for row in about):
        mine = [row for row in about if row["duel"] == name]
        keys = dict.fromkeys((row["arm"], row["settings_of"]) for row in mine)
        fighters = [make_fighter(key, mine, [row for row in runs if row["duel"] == name]) for key in keys]
        found[name] = Duel(name, mine[0]["task"], mine[0]["regime"], fighters)
    place = {name: (ORDER.index(duel.task), list(REGIMES).index(duel.regime)) for name, duel in found.items()}
    return {name: found[name] for name in sorted(found, key=lambda name: place[name])}


def make_fighter(
    key: tuple[str, str | None], about: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]
) -> Fighter:
    mine, rows = ([row for row in table if (row["arm"], row["settings_of"]) == key] for table in (about, runs))
    return Fighter(*key, mine, [[row for row in rows if row["tuning"] == each["tuning"]] for each in mine])


def judge(challenger: Fighter, reference: Fighter, by: str = "steps") -> Verdict:
    return verdict(challenger.numbers(by), reference.numbers(by))


def unsteadiness(challenger: Fighter, reference: Fighter) -> float:
    """How far the times of steps differ that should be equal: within an arm, or if an arm that does more is faster."""
    paces = challenger.paces, reference.paces
    medians = [spread_of([Steps(pace) for pace in each]).median.value for each in paces]
    return max(*(max(each) / min(each) for each in paces), medians[1] / medians[0])


# Rows ---------------------------------------------------------------------------------------------------------------


def verdict_row(duel: Duel, challenger: Fighter) -> Columns:
    found, control = judge(challenger, duel.reference), duel.control(challenger)
    same = None if control is None else judge(challenger, control)
    seconds = ""
    if challenger.paces and duel.reference.paces:
        steady = unsteadiness(challenger, duel.reference) <= STEADY
        seconds = judge(challenger, duel.reference, "seconds").word if steady else "not judged"
    return {
        "task": duel.task,
        "regime": duel.how,
        "arm": challenger.arm,
        "compared with": duel.reference.arm,
        "by steps": f"**{found.word}**",
        "ratio": ratio_text(found),
        "95% interval": stats.interval_text(found),
        "at the same settings": "" if same is None else f"{ratio_text(same)}, {stats.interval_text(same)}",
        "by seconds": seconds,
        "tunings": str(found.tunings),
        "seeds": str(found.seeds),
    }


def arm_row(fighter: Fighter) -> Columns:
    steps = fighter.spread("steps")
    return {
        "arm": fighter.name,
        "steps": spread_text(steps),
        "seconds": spread_text(fighter.spread("seconds")) if fighter.paces else "",
        "samples": spread_text(fighter.spread("samples")) if fighter.paces else "",
        "reached": f"{steps.count - steps.censored} of {steps.count}",
        "best setting": setting_text(fighter.about[0]["setting"]) if len(fighter.about) == 1 else "one for each tuning",
    }


def spread_text(found: Spread) -> str:
    """Median and range; seconds are few, so they have digits behind the point."""
    if found.high.value >= 1000:
        return str(found)
    low, middle, high = (short(end) for end in (found.low, found.median, found.high))
    return middle if found.low == found.high else f"{middle} ({low} to {high})"


def short(steps: Steps) -> str:
    return "never" if math.isinf(steps.value) else f"{'' if steps.exact else '> '}{steps.value:.3g}"


def setting_text(setting: Mapping[str, Any]) -> str:
    """
    >>> setting_text({"lr": 0.00123456, "betas": [0.9, 0.98]})
    'lr 0.00123, betas 0.9 0.98'
    """
    return ", ".join(f"{name} {value_text(value)}" for name, value in setting.items())


def value_text(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(value_text, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)


# What templates say of a duel ------------------------------------------------------------------------------------


def judged(duel: Duel) -> stats.Verdict:
    """The verdict on the first challenger."""
    return judge(duel.challengers[0], duel.reference)


def word(duel: Duel) -> str:
    return judged(duel).word


def same_settings(duel: Duel) -> str:
    """The verdict on the first challenger against its own settings without the filter."""
    control = duel.control(duel.challengers[0])
    assert control is not None, f"{duel.name} has no control"
    return judge(duel.challengers[0], control).word


def sentence(duel: Duel) -> str:
    return stats.sentence(judge(duel.challengers[0], duel.reference), duel.challengers[0].name, duel.reference.name)


def ratio(duel: Duel) -> str:
    return ratio_text(judge(duel.challengers[0], duel.reference))


def interval(duel: Duel) -> str:
    return stats.interval_text(judge(duel.challengers[0], duel.reference))


def verdict_sentences(duel: Duel) -> list[str]:
    """Each challenger against the reference, and against its own settings without the filter."""
    pairs = [(c, other) for c in duel.challengers for other in (duel.reference, duel.control(c)) if other is not None]
    return [stats.sentence(judge(*pair), *(fighter.name for fighter in pair)) for pair in pairs]


def budget(duel: Duel) -> str:
    """What was measured, for how long at most, and how the arms were tuned."""
    about, count = duel.reference.about[0], len(duel.reference.about)
    how_often = "once" if count == 1 else f"{count} times"
    trials = f"{about['trials']} trials of {count_text(about['tuning_seeds'], 'seed')}"
    tuned = "Nothing was tuned." if duel.regime == "paper" else f"Each arm was tuned {how_often}, with {trials}."
    held = " and stays there for 30 further evaluations" if about["objective"] == "held" else ""
    goal = f"Steps until the validation accuracy reaches {about['until']:g}{held}"
    return f"{goal}; runs of at most {about['steps']:,} steps. {tuned}"


def duel_table(duel: Duel) -> str:
    return markdown([arm_row(fighter) for fighter in duel.fighters])


def commands(duel: Duel) -> list[str]:
    """The command of each arm; if it was tuned many times, that of its first tuning."""
    return [fighter.about[0]["command"] for fighter in duel.fighters]


TEXTS = (word, same_settings, sentence, ratio, interval, verdict_sentences, budget, duel_table, commands)


# Ratios -------------------------------------------------------------------------------------------------------------


def ratio_text(found: Verdict) -> str:
    """Median of the reference / median of the challenger, or on which side of a number it is known to be."""
    above, below = found.reference.median, found.challenger.median
    if math.isinf(below.value) or not (above.exact or below.exact):
        return "unknown"
    ratio = above.value / below.value
    if above.exact and below.exact:
        return times_text(ratio)
    if f"{ratio:.3g}" == "1":
        return "not slower" if below.exact else "not faster"
    return f"at {'least' if (ratio > 1) == below.exact else 'most'} {times_text(ratio)}"


def times_text(ratio: float) -> str:
    if f"{max(ratio, 1 / ratio):.3g}" == "1":
        return "as fast"
    return f"{ratio:.3g}x faster" if ratio > 1 else f"{1 / ratio:.3g}x slower"
