"""What our pages say of the small task: its runs are rows of results/addition_runs.parquet."""

from __future__ import annotations

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
}
HEADS = {
    "MA": "MA, window 50, lamb 2",
    "late EMA": "EMA, alpha 0.96, lamb 2, from step 150",
    "paper's EMA": "EMA, alpha 0.98, lamb 2 (the paper's)",
}
USUAL = {"stage": "map", "lr": 0.01, "p": 23, "batch_size": 64, "loss": "mse", "clip_norm": 0.0}


class Addition:
    """The runs of the small task."""

    def __init__(self, folder: Path) -> None:
        self.runs = pl.read_parquet(folder / "addition_runs.parquet")

    def select(self, **given: Any) -> pl.DataFrame:
        """The rows with these values; None is an empty cell, or a stage that begins at once."""
        found = self.runs
        for name, value in given.items():
            column = pl.col(name)
            if value is None:
                empty = column.is_null() | (column == 0) if name == "two_stage" else column.is_null()
                found = found.filter(empty)
            else:
                found = found.filter(column == value)
        return found

    def steps(self, arm: str, decay: float) -> list[Steps]:
        """Steps until the target accuracy is held, one for each seed."""
        return steps_of(self.select(**USUAL, **ARMS[arm], weight_decay=decay))

    def word(self, arm: str, decay: float) -> str:
        """The verdict on an arm against no filter at the same weight decay."""
        return self.compare(arm, decay).word

    def compare(self, arm: str, decay: float) -> Verdict:
        return verdict([self.steps(arm, decay)], [self.steps("no filter", decay)])

    def table(self) -> list[dict[str, str]]:
        """Medians by weight decay, with the verdict against no filter."""
        rows: list[dict[str, str]] = []
        for decay in (0.0, 0.1, 0.3, 1.0, 3.0):
            cells = {HEADS[arm]: f"{median(self.steps(arm, decay))}, {self.word(arm, decay)}" for arm in HEADS}
            rows.append({"weight decay": f"{decay:g}", "no filter": median(self.steps("no filter", decay)), **cells})
        return rows

    # Duels ------------------------------------------------------------------------------------------------------------

    def tunings(self, regime: str, arm: str, role: str = "fresh") -> list[list[Steps]]:
        """The fresh runs of each tuning of an arm."""
        found = self.select(stage="duels", regime=regime, arm=arm, role=role)
        return [steps_of(found.filter(pl.col("replicate") == k)) for k in found["replicate"].unique().sort()]

    def duel(self, regime: str, arm: str) -> Verdict:
        """As tuned: an arm against AdamW."""
        return verdict(self.tunings(regime, arm), self.tunings(regime, "adamw"))

    def duel_table(self) -> list[dict[str, str]]:
        return duel_rows(self)

    def words(self, arm: str) -> set[str]:
        """The verdicts on an arm as tuned, over all regimes."""
        return {self.duel(regime, arm).word for regime in REGIMES}

    def control(self, regime: str, arm: str) -> Verdict:
        """An arm against AdamW at the same settings without the addition."""
        return verdict(self.tunings(regime, arm), self.tunings(regime, arm, "without"))


REGIMES = {
    "tuned": "everything tuned",
    "no-decay": "no weight decay allowed",
    "noise": "5% wrong training answers",
    "little-data": "40% of the pairs to train on",
    "full-batch": "all pairs in one batch",
}
DUELISTS = {"adamw+ema": "with EMA", "adamw+ma": "with MA", "adamw+average": "averaged weights"}


def duel_rows(addition: Addition) -> list[dict[str, str]]:
    """A row for each regime: the medians, the verdicts as tuned, and what the addition itself does."""
    rows: list[dict[str, str]] = []
    for regime, words in REGIMES.items():
        plain = spread_of([run for tuning in addition.tunings(regime, "adamw") for run in tuning])
        row = {"regime": words, "AdamW": str(plain.median)}
        for arm, head in DUELISTS.items():
            found, control = addition.duel(regime, arm), addition.control(regime, arm)
            row[head] = f"{found.challenger.median}, {found.word} ({interval_text(found)})"
            row[f"{head}: its own share"] = f"{control.word} ({interval_text(control)})"
        rows.append(row)
    return rows


def steps_of(rows: pl.DataFrame) -> list[Steps]:
    return [
        Steps(held, True) if held is not None else Steps(float("inf") if diverged else after, False)
        for held, after, diverged in rows.select("held", "held_after", "diverged").iter_rows()
    ]


def median(found: Sequence[Steps]) -> str:
    """The median as text; "never" if no run holds."""
    spread = spread_of(found)
    return "never" if spread.censored == spread.count else str(spread.median)


def answer_row(task: str, settings: str, found: Verdict, kind: str) -> list[str]:
    """A row of the README's table: both medians and the verdict with its interval."""
    texts = [f"{side.median} steps" for side in (found.reference, found.challenger)]
    return [task, settings, *texts, f"{found.word} ({interval_text(found)}); {kind}"]
