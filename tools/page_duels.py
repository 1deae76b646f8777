"""The duels that are kept in results/: what each arm took, the verdicts on them, and their tables on our pages."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from page_tables import Columns

from grokfast.lab import stats
from grokfast.lab.runs.archive import read_csv, read_parquet
from grokfast.lab.search.space import Range, edge_of
from grokfast.lab.stats import Crossing, Spread, Steps, Verdict, spread_of, steps_to, verdict

TASKS = {  # in the order of the pages
    "modmul": "modular multiplication",
    "addition": "modular addition",
    "parity": "sparse parity",
    "mnist": "MNIST, 1,000 digits",
    "gpt_task.py:Gpt": "character-level GPT",
    "lora_task.py:Lora": "low-rank adapters on a small GPT",
    "cnn_task.py:Cnn": "convolutional network on MNIST",
}
REGIMES = {
    "paper": "the paper's settings",
    "tuned": "",
    "no-decay": "no weight decay",
    "small-batch": "batches of 64",
    "full-batch": "all in one batch",
    "little-data": "30% of the data",
    "noise": "5% wrong answers",
}
TOGETHER = {  # one setting for all of these (docs/plan.md, M)
    "several-17": "modulus 17",
    "several-31": "modulus 31",
    "several-entropy": "cross-entropy",
    "several-batch": "all in one batch",
    "several-unseen": "modulus 23, which no search has seen",
}
OF_TASK = {("addition", "little-data"): "40% of the data"}  # another share than usual
NAMES = {
    "adamw+ema": "EMA",
    "adamw+ma": "MA",
    "adamw+average": "averaged weights",
    "nadam": "NAdam",
    "ademamix": "AdEMAMix",
    "muon": "Muon",
}
FILTERS = ("adamw+ema", "adamw+ma", "adamw+average")
OTHERS = ("nadam", "ademamix", "muon")
TRIALS, RATE = 30, Range("lr", 1e-3, 0.3, "log")  # of each tuning of the small task (docs/plan.md, D)
LINES = ("README's line", "MA (50, 2)", "larger learning rate")  # of tools/tuned_line.py


class Fighter(NamedTuple):
    """An arm of a duel: what it took on fresh seeds, tuning by tuning."""

    arm: str
    settings_of: str | None  # a control: the arm whose settings it uses
    about: Sequence[Mapping[str, Any]]  # a row of duel_arms.csv for each tuning
    runs: Sequence[Sequence[Mapping[str, Any]]]  # rows of duels.csv for each tuning

    def numbers(self, by: str = "steps") -> list[list[Steps]]:
        """What each run took, for each tuning; `by`: "steps" for the measure that was tuned for, or "first"."""
        exact = "reached" if by == "steps" else f"{by}_exact"
        return [
            [Steps(math.inf if row.get(by) is None else row[by], bool(row[exact])) for row in rows]
            for rows in self.runs
        ]

    def at_upper_end(self, name: str) -> int:
        """In how many tunings the best value of a setting was near the upper end of its range."""
        return sum(about["edges"].get(name) == "upper" for about in self.about)

    @property
    def spread(self) -> Spread:
        return spread_of([steps for rows in self.numbers() for steps in rows])


class Duel(NamedTuple):
    """Two arms or more on one task, tuned alike; the first is the one that the others are compared with."""

    name: str
    task: str
    regime: str
    objective: str
    trials: int  # of each tuning
    fighters: list[Fighter]

    @property
    def title(self) -> str:
        """The task, and how it was changed."""
        how = OF_TASK.get((self.task, self.regime), {**REGIMES, **TOGETHER}[self.regime])
        return f"{TASKS[self.task]}, {how}" if how else TASKS[self.task]

    @property
    def group(self) -> str:
        """The tables that it is for: by the held target, by the final loss, or one setting for several tasks."""
        return "together" if self.regime in TOGETHER else self.objective

    @property
    def of(self) -> Any:
        return "loss" if self.objective == "loss" else "steps"

    def find(self, arm: str, settings_of: str | None = None) -> Fighter | None:
        return next((f for f in self.fighters if (f.arm, f.settings_of) == (arm, settings_of)), None)

    @property
    def reference(self) -> Fighter:
        return self.fighters[0]

    @property
    def challengers(self) -> list[Fighter]:
        return [fighter for fighter in self.fighters[1:] if fighter.settings_of is None]

    @property
    def tunings(self) -> int:
        return len(self.reference.runs)

    def judge(self, arm: str, settings_of: str | None = None, by: str = "steps") -> Verdict | None:
        """An arm as tuned, or a control, against the reference as tuned."""
        found = self.find(arm, settings_of)
        return None if found is None else verdict(found.numbers(by), self.reference.numbers(by), of=self.of)

    def share(self, arm: str) -> Verdict | None:
        """What the addition itself does: an arm against its own settings without it."""
        found, control = self.find(arm), self.find(self.reference.arm, arm)
        if found is None or control is None:
            return None
        return verdict(found.numbers(), control.numbers(), of=self.of)


def load_duels(folder: Path) -> list[Duel]:
    """All duels, in the order of tasks and regimes; those of the small task come from its own table."""
    about, runs = read_csv(folder / "duel_arms.csv"), read_csv(folder / "duels.csv")
    found: list[Duel] = []
    for name in dict.fromkeys(row["duel"] for row in about):
        mine = [row for row in about if row["duel"] == name]
        keys = dict.fromkeys((row["arm"], row["settings_of"]) for row in mine)
        fighters = [make_fighter(key, mine, [row for row in runs if row["duel"] == name]) for key in keys]
        about_all = (mine[0][key] for key in ("task", "regime", "objective", "trials"))
        found.append(Duel(name, *about_all, fighters))
    if (folder / "addition_runs.parquet").exists():
        found += small_duels(read_parquet(folder / "addition_runs.parquet"))
    regimes = [*REGIMES, *TOGETHER]
    return sorted(found, key=lambda duel: (list(TASKS).index(duel.task), regimes.index(duel.regime)))


def make_fighter(
    key: tuple[str, str | None], about: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]
) -> Fighter:
    mine, rows = ([row for row in table if (row["arm"], row["settings_of"]) == key] for table in (about, runs))
    return Fighter(*key, mine, [[row for row in rows if row["tuning"] == each["tuning"]] for each in mine])


def small_duels(runs: pl.DataFrame) -> list[Duel]:
    """The replicated duels of the small task, one for each regime."""
    kept = runs.filter(pl.col("role").is_not_null() & (pl.col("role") != "trial"))
    found: list[Duel] = []
    for regime in (*REGIMES, *TOGETHER):
        sides: dict[tuple[str, str | None], dict[int, list[dict[str, Any]]]] = {}
        for row in kept.filter(pl.col("regime") == regime).iter_rows(named=True):
            side = {"fresh": (row["arm"], None), "without": ("adamw", row["arm"])}.get(
                row["role"], (row["arm"], "adamw")
            )
            sides.setdefault(side, {}).setdefault(row["replicate"], []).append(small_row(row))
        fighters = [
            Fighter(*side, [{"edges": rows[0]["edges"]} for rows in tunings.values()], list(tunings.values()))
            for side, tunings in sides.items()
        ]
        if fighters:
            found.append(Duel(f"addition-{regime}", "addition", regime, "held", TRIALS, fighters))
    return found


def small_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A run of the small task as a row of duels.csv."""
    held, first = (
        steps_to(Crossing(row["held_after"], row[name]), diverged=row["diverged"]) for name in ("held", "first")
    )
    edges = {RATE.name: end} if (end := edge_of(RATE, row["lr"])) else {}
    numbers = {"steps": held.value, "reached": held.exact, "first": first.value, "first_exact": first.exact}
    return {**numbers, "edges": edges}


# Tables -------------------------------------------------------------------------------------------------------------


def tuned_rows(duels: Iterable[Duel], arms: Sequence[str], by: str = "steps") -> list[Columns]:
    """A row for each duel: the median of AdamW, and each arm with its median and its verdict as tuned."""
    return rows_of(duels, arms, lambda duel, arm: duel.judge(arm, by=by), by)


def share_rows(duels: Iterable[Duel], arms: Sequence[str]) -> list[Columns]:
    """A row for each duel: each arm against its own settings without the addition."""
    return rows_of(duels, arms, Duel.share, None)


def line_rows(duels: Iterable[Duel]) -> list[Columns]:
    """A row for each duel: fixed values on top of the tuned AdamW, against the tuned AdamW."""
    return rows_of(duels, LINES, lambda duel, arm: duel.judge(arm, "adamw"), "steps")


def rows_of(
    duels: Iterable[Duel], arms: Sequence[str], judge: Callable[[Duel, str], Verdict | None], by: str | None
) -> list[Columns]:
    rows: list[Columns] = []
    for duel in duels:
        found = {arm: judged for arm in arms if (judged := judge(duel, arm)) is not None}
        if not found:
            continue
        row = {"task": duel.title, "tunings": f"{duel.tunings} x {duel.trials} trials"}
        if by is not None:
            row["AdamW"] = median_text(next(iter(found.values())).reference, duel)
        for arm, judged in found.items():
            median = "" if by is None else f"{median_text(judged.challenger, duel)}, "
            row[NAMES.get(arm, arm)] = f"{median}{verdict_text(judged)}"
        rows.append(row)
    return rows


def median_text(found: Spread, duel: Duel) -> str:
    if duel.of == "loss":
        return f"{found.median.value:.4f}"
    failed = f" ({found.censored} of {found.count} fail)" if found.censored else ""
    return f"{found.median}{failed}"


def verdict_text(found: Verdict) -> str:
    word = f"**{found.word}**" if found.decided else found.word
    return f"{word} ({stats.interval_text(found)})"


# Duels that were tuned once -------------------------------------------------------------------------------------------


def once_rows(duels: Iterable[Duel]) -> list[Columns]:
    """A row for each challenger of a duel whose arms were tuned once, or not at all."""
    rows: list[Columns] = []
    for duel in duels:
        for challenger in duel.challengers:
            found, share = duel.judge(challenger.arm), duel.share(challenger.arm)
            assert found is not None
            rows.append(
                {
                    "task": duel.title,
                    "compared": f"{challenger.arm} with {duel.reference.arm}",
                    "steps": f"{found.challenger.median} against {found.reference.median}",
                    "95% interval over seeds": stats.interval_text(found),
                    "at the same settings without the filter": "not run"
                    if share is None
                    else stats.interval_text(share),
                    "seeds": str(found.seeds),
                }
            )
    return rows
