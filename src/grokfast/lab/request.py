"""From what a person asks for to a configuration: the paper's values wherever nothing was said.

A `Request` names a task and the settings that depart from the task's usual ones. Flags, grids of sweeps and the
paper's experiments are all requests; `resolve` is the one way to a `RunConfig`.
"""

from __future__ import annotations

import dataclasses
import functools
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_type_hints

import torch

from grokfast.lab import filters
from grokfast.lab.config import (
    FUSED,
    INCIDENTAL,
    LoopConfig,
    OptimConfig,
    RunConfig,
    TwoStage,
    check_device,
    check_keyword,
    find_optimizer,
    own_defaults,
)
from grokfast.lab.tasks import find_task
from grokfast.lab.tasks.base import TaskConfig, TaskDefaults, usual_of
from grokfast.lab.values import is_pairs, literal_text


@dataclass(frozen=True)
class Request:
    """A task by name, and the settings asked for, by the names of their flags."""

    task: str
    values: tuple[tuple[str, Any], ...] = ()

    def get(self, name: str) -> Any:
        return dict(self.values).get(name)

    def having(self, **values: Any) -> Request:
        """The same with other settings."""
        return Request(self.task, tuple({**dict(self.values), **values}.items()))

    def without(self, *names: str) -> Request:
        """The same without some settings."""
        return Request(self.task, tuple(pair for pair in self.values if pair[0] not in names))


def ask(task: str, **values: Any) -> Request:
    """A request, as short as it reads: `ask("modmul", filter="ema", lr=3e-3)`."""
    return Request(task, tuple(values.items()))


class Option(NamedTuple):
    """One setting as a person gives it: a flag, or an axis of a sweep."""

    part: Literal["run", "filter", "optim", "loop", "task"]
    field: str
    type: Any
    default: Any  # MISSING where it depends on the task or the filter
    help: str


def options(task: type[TaskConfig], kinds: Iterable[str] = ()) -> dict[str, Option]:
    """Everything that can be asked of a task, with the fields of these filters, by the name of its flag."""
    about_filter = "gradient filter to attach, or none (default: none)"
    about_stages = "leave gradients alone before this step; auto: until the training accuracy has saturated"
    found = {
        "filter": Option("run", "filter", str | None, None, about_filter),
        "two_stage": Option("run", "two_stage", TwoStage, None, about_stages),
    }
    shared, own = {**fields_of("optim", OptimConfig), **fields_of("loop", LoopConfig)}, fields_of("task", task)
    for name in own:
        if name in shared or name in (*found, "name"):
            raise ValueError(f"a task must not have a field called like a setting of every run, got {name}")
    shared |= own
    owners: dict[str, list[str]] = {}
    for name in kinds:
        kind = filters.find_filter(name)
        for field in filters.fields_of(kind):
            flag = f"filter_{field.name}" if field.name in shared else field.name
            owners.setdefault(flag, []).append(name)
            words = filters.help_of(kind, field.name)
            found.setdefault(flag, Option("filter", field.name, filters.types_of(kind)[field.name], MISSING, words))
    for flag, names in owners.items():
        found[flag] = found[flag]._replace(help=f"{found[flag].help} [{', '.join(names)}]")
    return {**found, **shared}


@functools.cache
def fields_of(part: Literal["optim", "loop", "task"], kind: type[Any]) -> dict[str, Option]:
    hints = get_type_hints(kind)
    return {
        f.name: Option(part, f.name, hints[f.name], f.default, f.metadata.get("help", ""))
        for f in dataclasses.fields(kind)
    }


# Resolving ----------------------------------------------------------------------------------------------------------


def resolve(request: Request) -> RunConfig:
    """The configuration that a request means; ValueError where a setting is unknown, has no effect or cannot be run."""
    kind, name = find_task(request.task), request.get("filter")
    given = split_by_part(request, options(kind, [name] if name else []))
    task = kind(**given["task"])
    usual = usual_of(task)
    filter = None if name is None else filters.make_filter(name, {**usual.filters.get(name, {}), **given["filter"]})
    optim = resolve_optim(task, usual, name, given["optim"])
    return RunConfig(task, filter, request.get("two_stage"), optim, resolve_loop(usual, given["loop"]))


def split_by_part(request: Request, known: Mapping[str, Option]) -> dict[str, dict[str, Any]]:
    """The settings asked for, by the part of the configuration that they belong to."""
    found: dict[str, dict[str, Any]] = {part: {} for part in ("run", "filter", "optim", "loop", "task")}
    for name, value in request.values:
        if name not in known:
            raise ValueError(why_unknown(name, request))
        found[known[name].part][known[name].field] = value
    return found


def why_unknown(name: str, request: Request) -> str:
    filter = request.get("filter")
    if any(name == field.name for kind in filters.FILTERS.values() for field in filters.fields_of(kind)):
        return f"{name} needs a filter that has it, got {filter or 'none'}"
    return f"{name} must be a setting of {request.task}: see grokfast train {request.task} --help"


def resolve_optim(task: TaskConfig, usual: TaskDefaults, filter: str | None, given: dict[str, Any]) -> OptimConfig:
    names = ("optimizer", "lr", "betas", "warmup_steps", "clip_norm")
    decay = usual.weight_decay.get(filter, usual.weight_decay[None])
    values: dict[str, Any] = {**{name: getattr(usual, name) for name in names}, "weight_decay": decay}
    optimizer = given.get("optimizer", usual.optimizer)
    find_optimizer(optimizer)
    values |= {**own_defaults(optimizer), **given}
    for name in given:
        check_keyword(name, optimizer)
    values.setdefault("fused", not task.plain and optimizer in FUSED)
    return OptimConfig(**values)


def resolve_loop(usual: TaskDefaults, given: dict[str, Any]) -> LoopConfig:
    every = None if given.get("eval_log") is not None else usual.eval_every
    values: dict[str, Any] = {"steps": usual.steps, "eval_every": every, "device": "auto", **given}
    values.setdefault("threads", torch.get_num_threads())
    if values["device"] == "auto":
        values["device"] = best_device()
    check_device(values["device"])
    if values.get("data_dir") is not None:
        values["data_dir"] = str(Path(values["data_dir"]).absolute())
    return LoopConfig(**values)


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


# And back -----------------------------------------------------------------------------------------------------------


def request_of(config: RunConfig) -> Request:
    """The shortest request that gives this configuration: the settings that depart from the task's usual ones."""
    filter = None if config.filter is None else filters.name_of(config.filter)
    known = options(type(config.task), [filter] if filter else [])
    # Other defaults depend on these.
    first = {"filter": filter, "optimizer": config.optim.optimizer}
    first |= {name: getattr(config.task, name) for name in ("variant", "fast") if hasattr(config.task, name)}
    required = [] if config.filter is None else filters.required_of(type(config.filter))
    needed = {n: value_of(config, o) for n, o in known.items() if o.part == "filter" and o.field in required}
    start = Request(config.task_name, tuple((k, v) for k, v in {**first, **needed}.items() if v is not None))
    usual = resolve(start)
    values = {name: value_of(config, o) for name, o in known.items() if o.field not in INCIDENTAL}
    changed = {n: v for n, v in values.items() if v is not None and v != value_of(usual, known[n])}
    # What had to be said to find the usual values is said again only where it is not usual itself.
    plain = resolve(Request(config.task_name))
    said = {n: v for n, v in start.values if n in needed or v != value_of(plain, known[n])}
    return Request(config.task_name, tuple({**said, **changed}.items()))


def value_of(config: RunConfig, option: Option) -> Any:
    if option.field == "filter":
        return None if config.filter is None else filters.name_of(config.filter)
    return getattr(config if option.part == "run" else getattr(config, option.part), option.field)


def command_line(config: RunConfig) -> str:
    """The shortest command that repeats a run."""
    return request_line(request_of(config))


def request_line(request: Request) -> str:
    """The command that trains what is asked for."""
    words = [word for name, value in request.values if value is not None for word in flag_words(name, value)]
    return shlex.join(["grokfast", "train", request.task, *words])


def flag_words(name: str, value: Any) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if value is True:
        return [flag]
    if value is False:
        return ["--no-" + flag[2:]]
    if is_pairs(value):
        return [word for key, part in value for word in (flag, f"{key}={literal_text(part)}")]
    plain = value if isinstance(value, tuple) else (value,)
    return [flag, *(filters.dtype_name(v) if isinstance(v, torch.dtype) else str(v) for v in plain)]
