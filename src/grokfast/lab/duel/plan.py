"""What a duel consists of: for each arm a search on tuning seeds, then its best setting on fresh seeds.

    DIR/duel.json          the specification; arms are not part of it, so that others can join later
    DIR/ARM/tuning         a sweep: the search
    DIR/ARM/verdict        a sweep: the best setting with every fresh seed

Both are ordinary sweeps, so a duel that was killed continues where it stopped. An arm that beats its reference may owe
that to luckier tuning. Then the reference is run at the arm's settings too, as its control, with a folder of its own.
"""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from grokfast.lab.compare.seeds import Bound, spread_of
from grokfast.lab.duel.arms import REGIMES, Contender
from grokfast.lab.request import Request, options, resolve
from grokfast.lab.request import value_of as option_value
from grokfast.lab.runs.directory import RunError
from grokfast.lab.runs.files import read_json, write_json
from grokfast.lab.runs.names import plain_word, short_hash
from grokfast.lab.sweep.objective import value_of
from grokfast.lab.sweep.space import Choices
from grokfast.lab.sweep.spec import FILE as SWEEP_FILE
from grokfast.lab.sweep.spec import Spec, load_spec, save_spec, settle
from grokfast.lab.sweep.study import Sweep
from grokfast.lab.tasks import find_task

FILE = "duel.json"
STEPS = 3000  # budget of a run, unless the task's own is smaller
HOLDERS = ("lr", "weight_decay", "warmup_steps", "clip_norm")  # settings of every run: a sweep must vary something

Setting = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Duel:
    """Everything that all arms of a duel share."""

    base: Request
    regime: str = "tuned"
    trials: int = 40
    tuning_seeds: int = 1
    seed: int = 0
    objective: Literal["first", "stable"] = "first"

    @property
    def tuning(self) -> tuple[int, ...]:
        """The seeds that settings are chosen by."""
        return tuple(range(self.seed, self.seed + self.tuning_seeds))

    def fresh(self, count: int) -> tuple[int, ...]:
        """The seeds of the verdict: none of them was used for tuning."""
        first = self.seed + self.tuning_seeds
        return tuple(range(first, first + count))


def make_duel(base: Request, regime: str, **changes: Any) -> Duel:
    """A duel with everything that its arms share: the regime, where runs stop, one thread."""
    for name in ("optimizer", "filter", "seed", *REGIMES[regime][0]):
        if base.get(name) is not None:
            raise ValueError(f"{name} must not be fixed for all arms of this duel, got {base.get(name)}")
    asked = base.having(**REGIMES[regime][0])
    # Without what is not the task's own: other settings may suit the optimizers of some arms only.
    others = [name for name, option in options(find_task(asked.task)).items() if option.part != "task"]
    usual = resolve(asked.without(*others)).task.defaults()
    shared = {"until": usual.level, "steps": min(usual.steps, STEPS), "threads": 1}
    given = {name: value for name, value in shared.items() if asked.get(name) is None}
    duel = Duel(asked.having(**given), regime, **changes)
    for name in ("trials", "tuning_seeds"):
        if getattr(duel, name) < 1:
            raise ValueError(f"{name} must be >= 1, got {getattr(duel, name)}")
    if duel.objective == "stable" and not duel.base.get("extra_steps"):
        raise ValueError("objective stable needs extra_steps >= 1, got none: runs stop where they reach the level")
    return duel


def tuning_spec(duel: Duel, arm: Contender) -> Spec | None:
    """The search of an arm; None where there is nothing to tune."""
    if not arm.knobs:
        return None
    search: dict[str, Any] = {"objective": duel.objective, "search": "tpe", "trials": duel.trials, "prune": True}
    return settle(Spec(arm.request, arm.knobs, duel.tuning, **search))


def verdict_spec(duel: Duel, arm: Contender, best: Setting, seeds: int) -> Spec:
    """The best setting of an arm with every fresh seed."""
    if not best:
        holder = next(name for name in HOLDERS if arm.request.get(name) is None)
        best = ((holder, getattr(resolve(arm.request).optim, holder)),)
    dimensions = tuple(Choices(name, (value,)) for name, value in best)
    return settle(Spec(arm.request, dimensions, duel.fresh(seeds), duel.objective))


def control_setting(arm: Contender, best: Setting, reference: Contender) -> Setting:
    """What an arm has changed about its reference, apart from what the arm's name adds to it."""
    found, plain = resolve(arm.request.having(**dict(best))), resolve(reference.request)
    filter, added = reference.request.get("filter"), names_of(arm) - names_of(reference)
    known = options(find_task(reference.request.task), [filter] if filter else [])
    values = {name: option_value(found, option) for name, option in known.items() if name not in added}
    return tuple((name, value) for name, value in values.items() if value != option_value(plain, known[name]))


def names_of(arm: Contender) -> set[str]:
    """The settings that the name of an arm decides or leaves to tuning."""
    return {name for name, _ in arm.request.values} | {knob.name for knob in arm.knobs}


def best_setting(sweep: Sweep) -> Setting:
    """The setting with the smallest median of what the search minimises, among those with every seed complete."""
    found: dict[Setting, list[Bound]] = {}
    for point in sweep.points(sweep.trials()):
        run = sweep.run(point)
        if run.status == "complete":
            found.setdefault(point.setting, []).append(Bound(value_of(run, sweep.spec.objective)))
    whole = {setting: spread_of(b) for setting, b in found.items() if len(b) == len(sweep.spec.seeds)}
    if not whole:
        raise RunError(f"no trial in {sweep.folder} ran to its end: there is nothing to choose from")
    return min(whole, key=lambda setting: whole[setting].median.value)


# In a directory -----------------------------------------------------------------------------------------------------


def to_json(duel: Duel) -> dict[str, Any]:
    base = {"task": duel.base.task, "values": dict(sorted(duel.base.values))}
    return {"version": 1, **dataclasses.asdict(duel), "base": base}


def is_same(duel: Duel, data: Any) -> bool:
    """Whether this is what `to_json` gave for the duel, before it went through a file."""
    return data == json.loads(json.dumps(to_json(duel)))


def directory_name(duel: Duel) -> str:
    return "-".join([plain_word(duel.base.task), duel.regime, short_hash(to_json(duel))])


def save_duel(duel: Duel, folder: Path) -> None:
    """Begin a duel in a directory, or make sure that it is the one begun there."""
    path = folder / FILE
    if path.exists():
        try:
            begun = read_json(path)
        except ValueError as error:
            raise RunError(f"{path}: {error}") from error
        if not is_same(duel, begun):
            raise RunError(f"{folder} holds another duel: see {path}")
        return
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, to_json(duel))


def arm_folder(folder: Path, name: str) -> Path:
    return folder / re.sub(r"[^\w+.-]+", "_", name.replace("/", "_"))


def prepare(spec: Spec, folder: Path) -> Path:
    """Write the specification of a sweep of a duel. Where only seeds were added, its complete runs stay."""
    if (folder / SWEEP_FILE).exists():
        begun = load_spec(folder)
        shorter, longer = sorted((begun.seeds, spec.seeds), key=len)
        if begun != spec and dataclasses.replace(begun, seeds=spec.seeds) == spec and longer[: len(shorter)] == shorter:
            (folder / SWEEP_FILE).unlink()
            (folder / "study.db").unlink(missing_ok=True)
    save_spec(spec, folder)
    return folder
