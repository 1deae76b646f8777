"""Duels: arms are tuned alike, several times, and compared on fresh seeds.

`contest.py` has what is trained, `outcome.py` what comes out.

    DIR/duel.json       what all arms share; arms, tunings and seeds may be added later
    DIR/trials.jsonl    what the searches proposed
    DIR/tuning/         run directories of the searches
    DIR/runs/           run directories of the fresh seeds
    DIR/trials.csv, fresh.csv, arms.csv, SHA256SUMS, verdicts.json    the outcome, as plain tables
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grokfast.lab.search.contest import Contest, Duel, check_sizes
from grokfast.lab.search.objective import LEVEL, OBJECTIVES, check_objective, more_is_better
from grokfast.lab.search.outcome import Outcome, outcome_of, write_outcome
from grokfast.lab.search.progress import Watch, begin_in, carry_out, line_watch, time_text
from grokfast.lab.search.search import Journal, check_sweep
from grokfast.lab.search.space import REGIMES, Dimension, Part, read_arm, read_varied
from grokfast.lab.search.workers import Job, Limits, Tell, check_engine, count_workers, leading, open_pool
from grokfast.lab.settings import Settings, command_line, name_of, plain_word, resolve, settings_of, short_hash
from grokfast.lab.stats import HOLD
from grokfast.lab.tasks import find_task
from grokfast.lab.training.run import make_task, rehearse, run_seconds

STEPS = 3000  # budget of a run, unless the task's own is smaller
DUEL = "duel.json"
START = 10.0  # seconds until the workers have started


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
    for name, settings in settings_of_arms(found).items():
        rehearse(settings, make_task(settings))  # before anything is written
        if found[name][1]:
            check_sweep(duel.search(name, 0))
    return duel


def settings_of_arms(arms: Mapping[str, Part]) -> dict[str, Settings]:
    """The settings of each arm before it is tuned; ValueError if one that all arms share does not fit all of them."""
    found, errors = dict[str, Settings](), dict[str, ValueError]()
    for name, (fixed, _) in arms.items():
        try:
            found[name] = resolve(**fixed)
        except ValueError as error:
            errors[name] = error
    for name, error in errors.items():
        if not found:
            raise error
        only = "--grid NAME=VALUE fixes a setting for the arms that have it"
        raise ValueError(f"arm {name}: {error}; {only}") from error
    return found


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
    """The plan of a duel, and how long it may take on this machine."""
    searched = sum(bool(ranges) for _, ranges in duel.arms.values())
    tuned = f"{searched} arms x {duel.tunings} tunings x {duel.trials} trials x {duel.tuning_seeds} seeds"
    sides, steps = len(duel.sides()), duel.given["steps"]
    controls = f" (of them {sides - len(duel.arms)} controls)" if sides > len(duel.arms) else ""
    fresh = f"{sides} sides{controls} x {duel.tunings} tunings x {duel.seeds} fresh seeds"
    first, _ = next(iter(duel.arms.values()))
    seconds = START + duel.total * run_seconds(resolve(**first)) / workers
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
