"""The specification of a sweep: what is fixed, what varies, what is sought. It stands in sweep.json, unchanged."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from grokfast.lab.config import RunConfig, best_device, from_json, to_json, tuples
from grokfast.lab.runs.directory import RunError, read_json, write_json
from grokfast.lab.sweep.space import Choices, Dimension, Point, Range, check_influence, configure, ends

Objective = Literal["stable", "first", "accuracy", "loss", "seconds"]
Search = Literal["grid", "tpe"]
FILE = "sweep.json"


@dataclass(frozen=True)
class Spec:
    """Everything that determines which runs a sweep consists of."""

    base: RunConfig
    dimensions: tuple[Dimension, ...]
    seeds: tuple[int, ...] = (0,)
    objective: Objective = "stable"
    search: Search = "grid"
    trials: int | None = None  # settings that a search tries
    prune: bool = False

    def points(self) -> list[Point]:
        """All runs of a grid, seed by seed: the picture is whole, if thin, after the first."""
        lists = [[(d.name, value) for value in ends(d)] for d in self.dimensions]
        settings = list(itertools.product(*lists))
        return [Point(setting, seed) for seed in self.seeds for setting in settings]

    def config(self, point: Point) -> RunConfig:
        """The configuration of one run."""
        return configure(self.base, point)

    @property
    def total(self) -> int:
        """The number of runs."""
        return len(self.points()) if self.search == "grid" else len(self.seeds) * (self.trials or 0)


def settle(spec: Spec) -> Spec:
    """Put in what must be the same in every process that joins: the device, and where data lies; then check."""
    loop = spec.base.loop
    device = best_device() if loop.device == "auto" else loop.device
    data_dir = None if loop.data_dir is None else str(Path(loop.data_dir).absolute())
    base = dataclasses.replace(spec.base, loop=dataclasses.replace(loop, device=device, data_dir=data_dir))
    settled = dataclasses.replace(spec, base=base)
    check(settled)
    return settled


def check(spec: Spec) -> None:
    """Raise ValueError where a sweep cannot be run; each run of a grid is checked, of a search its corners."""
    names = [d.name for d in spec.dimensions]
    if not names:
        raise ValueError("a sweep needs --grid, --range or --preset, got none")
    if len(set(names)) < len(names):
        raise ValueError(f"each field must be varied once, got {', '.join(names)}")
    if not spec.seeds:
        raise ValueError("seeds must be >= 1, got 0")
    ranges = [d.name for d in spec.dimensions if isinstance(d, Range)]
    if spec.search == "grid" and ranges:
        raise ValueError(f"range needs --search tpe, got {ranges[0]} without it")
    if spec.search == "grid" and spec.trials is not None:
        raise ValueError(f"trials needs --search tpe, got {spec.trials} without it")
    if spec.search == "tpe" and (spec.trials is None or spec.trials < 1):
        raise ValueError(f"search tpe needs trials >= 1, got {spec.trials}")
    if spec.objective == "accuracy" and spec.base.task.defaults().measure != "accuracy":
        raise ValueError(f"objective accuracy needs a task with an accuracy, got {spec.base.task_name}")
    for point in spec.points():
        spec.config(point)
    check_influence(spec.base, spec.dimensions)


# As JSON ------------------------------------------------------------------------------------------------------------


def spec_to_json(spec: Spec) -> dict[str, Any]:
    plain = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}
    return {**plain, "base": to_json(spec.base), "dimensions": [dataclasses.asdict(d) for d in spec.dimensions]}


def spec_from_json(data: dict[str, Any]) -> Spec:
    """The specification that `spec_to_json` made; ValueError if it is none of ours."""
    try:
        dimensions = tuple(
            Choices(d["name"], tuple(tuple(v) if isinstance(v, list) else v for v in cast(list[Any], d["values"])))
            if "values" in d
            else Range(**d)
            for d in data["dimensions"]
        )
        values: dict[str, Any] = {**tuples(data), "base": from_json(data["base"]), "dimensions": dimensions}
        spec = Spec(**values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a sweep of this version: {error}") from error
    if spec.objective not in get_args(Objective) or spec.search not in get_args(Search):
        raise ValueError(f"not a sweep of this version: {spec.search}, {spec.objective}")
    return spec


def name_of(spec: Spec) -> str:
    """A directory name: the same for the same command, whatever number of threads the machine suggests."""
    data = spec_to_json(spec)
    del data["base"]["loop"]["threads"]
    digits = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:8]
    return "-".join([spec.base.task_name, *(d.name for d in spec.dimensions), digits])


def load_spec(folder: Path) -> Spec:
    """The specification of the sweep in a directory."""
    path = folder / FILE
    if not path.exists():
        raise RunError(f"there is no sweep in {folder}: {path} is missing")
    try:
        return spec_from_json(read_json(path))
    except ValueError as error:
        raise RunError(f"{path}: {error}") from error


def save_spec(spec: Spec, folder: Path, *, threads_given: bool = True) -> Spec:
    """Begin a sweep in a directory, or make sure that it is the one begun there; the specification that holds.

    A sweep that was begun keeps its number of threads, which is part of each run, unless another one is demanded.
    """
    if (folder / FILE).exists():
        begun = load_spec(folder)
        if not threads_given:
            loop = dataclasses.replace(spec.base.loop, threads=begun.base.loop.threads)
            spec = dataclasses.replace(spec, base=dataclasses.replace(spec.base, loop=loop))
        if spec != begun:
            raise RunError(f"{folder} holds another sweep: {differences(begun, spec)}")
        return begun
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / FILE, spec_to_json(spec))
    return spec


def differences(begun: Spec, asked: Spec) -> str:
    old, new = flat(spec_to_json(begun)), flat(spec_to_json(asked))
    differing = [key for key in {**old, **new} if old.get(key) != new.get(key)]
    return "; ".join(f"{key} is {old.get(key, 'not there')}, got {new.get(key, 'none')}" for key in differing)


def flat(data: dict[str, Any]) -> dict[str, str]:
    """The values of a specification by name, as text."""
    parts = {k: v for part in data["base"].values() if isinstance(part, dict) for k, v in part.items()}
    lists = {d["name"]: {k: v for k, v in d.items() if k != "name"} for d in data["dimensions"]}
    rest = {k: v for k, v in data.items() if k not in ("base", "dimensions")}
    merged = {**parts, "task": data["base"]["task_name"], **rest, **lists}
    return {key: json.dumps(value) for key, value in merged.items()}
