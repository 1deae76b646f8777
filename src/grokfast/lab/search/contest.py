"""What a duel trains: searches of all arms, then their best settings on fresh seeds.

Tuning k of every arm is a search of its own, with a sampler seed and tuning seeds of its own; the arms of one tuning
share both. They are counted from S = seed + 1000 k: tuning seeds S, S + 1, ...; fresh seeds
S + 100, S + 101, ...
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from grokfast.lab.runs.directory import Run
from grokfast.lab.search.progress import Ask
from grokfast.lab.search.search import Journal, Search, Sweep
from grokfast.lab.search.space import Dimension, Part, reference_of
from grokfast.lab.search.workers import Job, Limits
from grokfast.lab.settings import Settings

BLOCK, FRESH = 1000, 100  # seeds of one tuning, and where its fresh ones begin

Which = tuple[str, str | None]  # an arm, and the arm whose settings it uses if they are not its own


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

    def sides(self) -> list[Which]:
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


def check_sizes(duel: Duel) -> None:
    for name, high in (("tunings", None), ("trials", None), ("seeds", BLOCK - FRESH), ("tuning_seeds", FRESH)):
        value = getattr(duel, name)
        if value < 1 or (high is not None and value > high):
            raise ValueError(f"{name} must be {'>= 1' if high is None else f'in [1, {high}]'}, got {value}")
    if duel.seed < 0:
        raise ValueError(f"seed must be >= 0, got {duel.seed}")


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
        self.settings: dict[tuple[Which, int], dict[str, Any]] = {}
        self.runs: dict[tuple[Which, int, int], Run | str] = {}
        self._jobs: dict[tuple[Which, int, int], Job] = {}

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

    def _judge(self, side: Which, k: int, seed: int, ask: Ask) -> bool:
        place = side, k, seed
        if place not in self._jobs:
            self._jobs[place] = self._job_of(side[0], "runs", self.settings[side, k], seed, None)
        if place not in self.runs and (run := ask(self._jobs[place])) is not None:
            self.runs[place] = run
        return place in self.runs

    def _cross(self, side: Which, k: int) -> bool:
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
