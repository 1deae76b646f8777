"""What our pages say of the small task: its runs are rows of results/addition_runs.parquet."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import polars as pl

from grokfast.lab.stats import Steps, Verdict, interval_text, spread_of, verdict

# The columns of the table of weight decays, at learning rate 0.01 and batches of 64: a name, and its settings.
ARMS: dict[str, dict[str, Any]] = {
    "no filter": {"filter": None, "average": None},
    "MA": {"filter": "ma", "window_size": 50, "lamb": 2.0},
    "late EMA": {"filter": "ema", "alpha": 0.96, "lamb": 2.0, "two_stage": 150},
    "paper's EMA": {"filter": "ema", "alpha": 0.98, "lamb": 2.0, "two_stage": None},
    "early EMA": {"filter": "ema", "alpha": 0.96, "lamb": 2.0, "two_stage": None},
    "averaged weights": {"filter": None, "average": 0.95},
}
HEADS = {
    "MA": "MA, window 50, lamb 2",
    "late EMA": "EMA, alpha 0.96, lamb 2, from step 150",
    "paper's EMA": "EMA, alpha 0.98, lamb 2 (the paper's)",
}
FIXED = {  # what one can add without tuning it
    "MA": "MA (50, 2)",
    "late EMA": "EMA (0.96, 2) from step 150",
    "early EMA": "EMA (0.96, 2)",
    "paper's EMA": "EMA (0.98, 2), the paper's",
    "averaged weights": "averaged weights (0.95)",
    "larger learning rate": "3 times the learning rate, a third of the weight decay",
}
USUAL = {"stage": "map", "lr": 0.01, "p": 23, "batch_size": 64, "loss": "mse", "clip_norm": 0.0}
VERSIONS: dict[str, dict[str, Any]] = {
    "as usual": {},
    "learning rate 0.003": {"lr": 0.003},
    "learning rate 0.03": {"lr": 0.03},
    "gradients clipped at 1": {"clip_norm": 1.0},
    "modulus 31": {"p": 31},
    "modulus 17": {"p": 17},
    "cross-entropy": {"loss": "cross-entropy"},
    "all examples in one batch": {"batch_size": 0},
}
MAP_DECAYS = (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
TRIPLED = {"learning rate 0.003": "as usual", "as usual": "learning rate 0.03"}  # the version at 3 times the rate
THIRDS = {0.0: 0.0, 0.1: 0.03, 0.3: 0.1, 1.0: 0.3, 3.0: 1.0, 10.0: 3.0}  # about a third of a decay, among MAP_DECAYS


class Addition:
    """The runs of the small task."""

    def __init__(self, folder: Path) -> None:
        self.runs = pl.read_parquet(folder / "addition_runs.parquet")

    def select(self, **given: Any) -> pl.DataFrame:
        return select(self.runs, **given)

    def steps(self, arm: str, decay: float, version: str = "as usual") -> list[Steps]:
        """Steps until the target accuracy is held, one for each seed."""
        return steps_of(self.select(**{**USUAL, **VERSIONS[version], **ARMS[arm]}, weight_decay=decay))

    def word(self, arm: str, decay: float, version: str = "as usual") -> str:
        """The verdict on an arm against no filter at the same weight decay."""
        return self.compare(arm, decay, version).word

    def compare(self, arm: str, decay: float, version: str = "as usual") -> Verdict:
        return verdict([self.steps(arm, decay, version)], [self.steps("no filter", decay, version)])

    def best_decay(self, version: str) -> float:
        """The weight decay with the lowest median without a filter."""
        return min(MAP_DECAYS, key=lambda decay: spread_of(self.steps("no filter", decay, version)).median)

    def words_beside(self, arm: str, version: str) -> tuple[list[str], list[str]]:
        """The verdicts on an arm at the weight decays below the best one, and at those above."""
        best = self.best_decay(version)
        below, above = (d for d in MAP_DECAYS if d < best), (d for d in MAP_DECAYS if d > best)
        return [self.word(arm, d, version) for d in below], [self.word(arm, d, version) for d in above]

    def fixed_words(self, arm: str) -> dict[str, list[str]]:
        """The verdicts on fixed values in all versions that were run: below, at and above the best weight decay."""
        found: dict[str, list[str]] = {"less decay": [], "best decay": [], "more decay": []}
        for version in VERSIONS:
            best = self.best_decay(version)
            for decay in MAP_DECAYS:
                place = "less decay" if decay < best else "best decay" if decay == best else "more decay"
                found[place] += self._fixed_word(arm, decay, version)
        return found

    def _fixed_word(self, arm: str, decay: float, version: str) -> list[str]:
        if arm in ARMS:
            return [self.word(arm, decay, version)] if self.steps(arm, decay, version) else []
        if version not in TRIPLED or decay not in THIRDS:
            return []
        return [verdict([self._tripled(version, decay)], [self.steps("no filter", decay, version)]).word]

    def tripled_against(self, arm: str) -> list[str]:
        """The verdicts on 3 times the learning rate and a third of the weight decay, against an arm without both."""
        pairs = [(version, decay) for version in TRIPLED for decay in THIRDS]
        return [verdict([self._tripled(*pair)], [self.steps(arm, pair[1], pair[0])]).word for pair in pairs]

    def _tripled(self, version: str, decay: float) -> list[Steps]:
        return self.steps("no filter", THIRDS[decay], TRIPLED[version])

    def fixed_count(self, arm: str, word: str) -> int:
        return sum(words.count(word) for words in self.fixed_words(arm).values())

    def fixed_rows(self) -> list[dict[str, str]]:
        """A row for each fixed addition: how often it is faster and slower than nothing added."""
        rows: list[dict[str, str]] = []
        for arm, title in FIXED.items():
            found = self.fixed_words(arm)
            cells = {
                place: f"{words.count('faster')} faster, {words.count('slower')} slower of {len(words)}"
                for place, words in found.items()
            }
            rows.append({"what is added": title, **cells})
        return rows

    def version_table(self) -> list[dict[str, str]]:
        """For each version of the task: MA and late EMA at the best weight decay, below it and above it."""
        rows: list[dict[str, str]] = []
        for version in VERSIONS:
            best = self.best_decay(version)
            row = {"version": version, "best decay": f"{best:g}"}
            for arm in ("MA", "late EMA"):
                below, above = self.words_beside(arm, version)
                row[f"{arm}: less decay"] = count_words(below)
                row[f"{arm}: best decay"] = self.word(arm, best, version)
                row[f"{arm}: more decay"] = count_words(above)
            rows.append(row)
        return rows

    def table(self) -> list[dict[str, str]]:
        """Medians by weight decay, with the verdict against no filter."""
        rows: list[dict[str, str]] = []
        for decay in (0.0, 0.1, 0.3, 1.0, 3.0):
            cells = {HEADS[arm]: f"{median(self.steps(arm, decay))}, {self.word(arm, decay)}" for arm in HEADS}
            rows.append({"weight decay": f"{decay:g}", "no filter": median(self.steps("no filter", decay)), **cells})
        return rows

    def surrogate(self, kind: str, batch: int, memory: int, lamb: float) -> Verdict:
        return against_surrogate(self, kind, batch, memory, lamb, decay=1.0)

    def surrogate_table(self) -> list[dict[str, str]]:
        return surrogate_rows(self)

    def surrogate_count(self, word: str) -> int:
        """How many filters have this verdict against a larger learning rate."""
        return sum(surrogate_words(self, batch, memory).count(word) for batch in BATCHES for memory in MEMORIES)


def count_words(words: Sequence[str]) -> str:
    """`faster in 4 of 5`, and the same of slower."""
    found = [f"{word} in {words.count(word)}" for word in ("faster", "slower") if word in words]
    return f"{', '.join(found)} of {len(words)}" if found else f"undecided in {len(words)} of {len(words)}"


# Is a filter only a larger learning rate? ----------------------------------------------------------------------------

BATCHES, DECAYS = (16, 64, 0), (0.3, 1.0)  # batch 0: all pairs
LAMBS, MEMORIES = (0.5, 1.0, 2.0, 5.0), (3, 10, 50, 200)


KINDS = "ema", "ma"


def against_surrogate(addition: Addition, kind: str, batch: int, memory: int, lamb: float, decay: float) -> Verdict:
    """A filter against 1 + lamb times the learning rate and as much less decay. An MA has the same mean delay."""
    rows = addition.runs.filter((pl.col("stage") == "surrogate") & (pl.col("batch_size") == batch))
    size = {"alpha": 1 - 1 / memory} if kind == "ema" else {"window_size": 2 * memory - 1}
    mine = select(rows, lr=0.01, weight_decay=decay, lamb=lamb, filter=kind, **size)
    other = select(rows, lr=0.01 * (1 + lamb), weight_decay=decay / (1 + lamb), filter=None)
    return verdict([steps_of(mine)], [steps_of(other)])


def surrogate_words(addition: Addition, batch: int, memory: int) -> list[str]:
    """The verdicts on all filters of one memory."""
    cases = itertools.product(KINDS, LAMBS, DECAYS)
    return [against_surrogate(addition, kind, batch, memory, lamb, decay).word for kind, lamb, decay in cases]


def surrogate_rows(addition: Addition) -> list[dict[str, str]]:
    rows: list[dict[str, str]] = []
    for batch in BATCHES:
        row = {"batch": str(batch or "all")}
        for memory in MEMORIES:
            words = surrogate_words(addition, batch, memory)
            row[f"memory {memory}"] = f"{words.count('faster')} faster, {words.count('slower')} slower"
        rows.append(row)
    return rows


def select(runs: pl.DataFrame, **given: Any) -> pl.DataFrame:
    """The rows with these values; None is an empty cell, and floats are compared to nine digits."""
    for name, value in given.items():
        column = pl.col(name)
        if value is None:
            # A stage that begins at once is an empty cell or 0.
            runs = runs.filter(column.is_null() | (column == 0) if name == "two_stage" else column.is_null())
        elif isinstance(value, float):
            runs = runs.filter((column - value).abs() <= 1e-9 * abs(value))
        else:
            runs = runs.filter(column == value)
    return runs


def steps_of(rows: pl.DataFrame) -> list[Steps]:
    return [
        Steps(held, True) if held is not None else Steps(float("inf") if diverged else after, False)
        for held, after, diverged in rows.select("held", "held_after", "diverged").iter_rows()
    ]


def median(found: Sequence[Steps]) -> str:
    """The median as text; "never" if no run holds."""
    spread = spread_of(found)
    return "never" if spread.censored == spread.count else str(spread.median)


def answer_row(task: str, settings: str, found: Verdict) -> list[str]:
    """A row of the README's table: both medians and the verdict with its interval."""
    return [
        task,
        settings,
        str(found.reference.median),
        str(found.challenger.median),
        f"{found.word} ({interval_text(found)})",
    ]
