"""The specification of a sweep: fixed settings, varied settings, the objective. sweep.json holds it, unchanged."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from grokfast.lab.config import OPTIMIZERS, RunConfig, find_optimizer
from grokfast.lab.filters import FILTERS, find_filter
from grokfast.lab.own_code import is_own_code
from grokfast.lab.request import Request, resolve
from grokfast.lab.runs.directory import RunError
from grokfast.lab.runs.files import read_json, write_json
from grokfast.lab.runs.names import plain_word, short_hash
from grokfast.lab.sweep.space import Choices, Dimension, Point, Range, ends
from grokfast.lab.tasks import TASKS, find_task
from grokfast.lab.values import tuples

Objective = str  # one of these, or the name of a number that the task records with --measures
OBJECTIVES = ("stable", "first", "accuracy", "loss", "seconds")
Search = Literal["grid", "tpe"]
FILE = "sweep.json"
VERSION = 2  # of sweep.json


class OwnCode(NamedTuple):
    """Classes of the user's own, by the names that a person typed."""

    tasks: tuple[str, ...] = ()
    filters: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()

    def load(self) -> None:
        for names, find in zip(self, (find_task, find_filter, find_optimizer), strict=True):
            for name in names:
                find(name)

    @property
    def flags(self) -> list[str]:
        """The words that name them on a command line."""
        named = {"--task": self.tasks, "--filter": self.filters, "--optimizer": self.optimizers}
        return [word for flag, names in named.items() for name in names for word in (flag, name)]


@dataclass(frozen=True)
class Spec:
    """Everything that determines which runs a sweep consists of."""

    base: Request
    dimensions: tuple[Dimension, ...]
    seeds: tuple[int, ...] = (0,)
    objective: Objective = "stable"
    search: Search = "grid"
    trials: int | None = None  # settings that a search tries
    prune: bool = False

    def settings(self) -> list[tuple[tuple[str, Any], ...]]:
        """All settings of a grid, or the corners of a search."""
        return list(itertools.product(*([(d.name, value) for value in ends(d)] for d in self.dimensions)))

    def points(self) -> list[Point]:
        """All runs of a grid, seed by seed: the picture is complete, if thin, after the first."""
        return [Point(setting, seed) for seed in self.seeds for setting in self.settings()]

    def config(self, point: Point) -> RunConfig:
        """The configuration of one run."""
        return resolve(self.base.having(**dict(point.setting), seed=point.seed))

    @property
    def total(self) -> int:
        """The number of runs."""
        return len(self.points()) if self.search == "grid" else len(self.seeds) * (self.trials or 0)

    @property
    def own_code(self) -> OwnCode:
        """The classes of the user's own that its runs need."""

        def named(setting: str) -> tuple[str, ...]:
            varied = [value for d in self.dimensions if d.name == setting for value in ends(d)]
            return tuple(n for n in (self.base.get(setting), *varied) if n is not None and is_own_code(n))

        tasks = (self.base.task,) if is_own_code(self.base.task) else ()
        return OwnCode(tasks, named("filter"), named("optimizer"))


def settle(spec: Spec) -> Spec:
    """Check a sweep and fix what must be the same in every process that joins: device, threads, place of the data."""
    check(spec)
    loop = spec.config(spec.points()[0]).loop
    same = {"device": loop.device, "threads": loop.threads, "data_dir": loop.data_dir}
    base = spec.base.having(**{name: value for name, value in same.items() if value is not None})
    return dataclasses.replace(spec, base=Request(base.task, tuple(sorted(base.values))))


def with_threads(spec: Spec, threads: int) -> Spec:
    return dataclasses.replace(spec, base=spec.base.having(threads=threads))


def check(spec: Spec) -> None:
    """Raise ValueError where a sweep cannot be run: each setting of a grid is checked, or the corners of a search."""
    names = [d.name for d in spec.dimensions]
    if not names:
        raise ValueError("a sweep needs --grid, --range or --preset, got none")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{twice[0]} must be varied once, got it twice")
    if fixed := [name for name in names if name in dict(spec.base.values)]:
        raise ValueError(f"{fixed[0]} must be either fixed or varied, got --{fixed[0].replace('_', '-')} as well")
    if not spec.seeds:
        raise ValueError("seeds must be >= 1, got 0")
    check_search(spec)
    check_objective(spec)
    if spec.objective == "accuracy" and find_task(spec.base.task).measure != "accuracy":
        raise ValueError(f"objective accuracy needs a task with an accuracy, got {spec.base.task}")
    for setting in spec.settings():
        spec.config(Point(setting, spec.seeds[0]))


def check_objective(spec: Spec) -> None:
    known = (*OBJECTIVES, *find_task(spec.base.task).recorded)
    if spec.objective not in known:
        raise ValueError(f"objective must be one of {', '.join(known)}, got {spec.objective}")
    if spec.objective not in OBJECTIVES and not spec.base.get("measures"):
        raise ValueError(f"objective {spec.objective} needs --measures, got it without")


def more_is_better(objective: Objective) -> bool:
    """Whether more is better: such a number is minimised with its sign changed."""
    return objective == "accuracy" or any(task.recorded.get(objective, False) for task in TASKS.values())


def check_search(spec: Spec) -> None:
    ranges = [d.name for d in spec.dimensions if isinstance(d, Range)]
    if spec.search == "grid" and ranges:
        raise ValueError(f"range needs --search tpe, got {ranges[0]} without it")
    if spec.search == "grid" and spec.trials is not None:
        raise ValueError(f"trials needs --search tpe, got {spec.trials} without it")
    if spec.search == "tpe" and (spec.trials is None or spec.trials < 1):
        raise ValueError(f"search tpe needs trials >= 1, got {spec.trials}")


# As JSON ------------------------------------------------------------------------------------------------------------


def spec_to_json(spec: Spec) -> dict[str, Any]:
    base = {"task": spec.base.task, "values": dict(spec.base.values)}
    return {"version": VERSION, **dataclasses.asdict(spec), "base": base}


def spec_from_json(data: dict[str, Any]) -> Spec:
    """The specification that `spec_to_json` made; ValueError if it is none of ours."""
    check_version(data)
    try:
        plain = {name: value for name, value in tuples(data).items() if name != "version"}
        plain["base"] = Request(data["base"]["task"], tuple(tuples(data["base"]["values"]).items()))
        plain["dimensions"] = tuple((Choices if "values" in d else Range)(**tuples(d)) for d in data["dimensions"])
        spec = Spec(**plain)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a sweep of this version: {error}") from error
    names = spec.base.task, spec.base.get("filter"), spec.base.get("optimizer")
    if not isinstance(names[0], str) or not all(isinstance(name, str | None) for name in names):
        raise ValueError("not a sweep of this version: task, filter and optimizer must be names")
    if not isinstance(spec.objective, str) or spec.search not in get_args(Search):
        raise ValueError(f"not a sweep of this version: {spec.search}, {spec.objective}")
    return spec


def check_version(data: dict[str, Any]) -> None:
    if "version" not in data and "base" in data and "dimensions" in data:
        remedy = "its runs can still be reported, the sweep itself must be started again"
        raise ValueError(f"not of this version but of 0.1: {remedy}")
    if data.get("version", VERSION) != VERSION:
        raise ValueError(f"not of this version: its version must be {VERSION}, got {data['version']}")


# In a directory -----------------------------------------------------------------------------------------------------


def directory_name(spec: Spec) -> str:
    """A name that is the same for the same command, whatever number of threads the machine suggests."""
    data = spec_to_json(spec)
    data["base"]["values"].pop("threads", None)
    return "-".join([plain_word(spec.base.task), *(d.name for d in spec.dimensions), short_hash(data)])


def load_spec(folder: Path) -> Spec:
    """The specification of the sweep in a directory. Code that it names must be loaded already: a file loads none."""
    path = folder / FILE
    if not path.exists():
        raise RunError(f"there is no sweep in {folder}: {path} is missing")
    try:
        spec = spec_from_json(read_json(path))
    except ValueError as error:
        raise RunError(f"{path}: {error}") from error
    code = spec.own_code
    if {*code.tasks} - {*TASKS} or {*code.filters} - {*FILTERS} or {*code.optimizers} - {*OPTIMIZERS}:
        raise RunError(f"{path} needs code of your own, which must be named again: give {shlex.join(code.flags)}")
    return spec


def save_spec(spec: Spec, folder: Path, *, threads_given: bool = True) -> Spec:
    """Begin a sweep in a directory, or make sure that it is the one begun there; the specification that holds.

    A sweep that was begun keeps its number of threads, which is part of each run, unless another one is demanded.
    """
    if (folder / FILE).exists():
        begun = load_spec(folder)
        if not threads_given:
            spec = with_threads(spec, begun.base.get("threads"))
        if spec != begun:
            raise RunError(f"{folder} holds another sweep: {describe_changes(begun, spec)}")
        return begun
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / FILE, spec_to_json(spec))
    return spec


def describe_changes(begun: Spec, asked: Spec) -> str:
    old, new = value_texts(spec_to_json(begun)), value_texts(spec_to_json(asked))
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return "; ".join(f"{key} is {old.get(key, 'not there')}, got {new.get(key, 'none')}" for key in differing)


def value_texts(data: dict[str, Any]) -> dict[str, str]:
    """The values of a specification by name, as text."""
    lists = {d["name"]: {k: v for k, v in d.items() if k != "name"} for d in data["dimensions"]}
    rest = {k: v for k, v in data.items() if k not in ("base", "dimensions")}
    merged = {"task": data["base"]["task"], **data["base"]["values"], **rest, **lists}
    return {key: json.dumps(value) for key, value in merged.items()}
