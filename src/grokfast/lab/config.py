"""What a run is made of, down to every number that decides its result: frozen dataclasses without gaps.

`request.py` makes one of these from what a person asks for. As JSON it stands in the run directory as config.json.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

import grokfast
from grokfast.lab import filters, tasks
from grokfast.lab.own_code import find_class, is_own_code
from grokfast.lab.tasks.base import TaskConfig, setting
from grokfast.lab.values import Pairs, tuples

VERSION = 2  # of config.json
SATURATED = 0.99  # --two-stage auto: filter once the training accuracy was this high ...
PATIENCE = 3  # ... at this many evaluations in a row
TwoStage = int | Literal["auto"] | None
MuonParams = Literal["all", "matrices", "hidden"]
# Where a run was computed, how often it was saved and what it was allowed; none changes its result.
INCIDENTAL = ("checkpoint_seconds", "data_dir", "memory_limit")
LARGEST = 2**63  # random streams and tensors count up to here
MANY = 1024  # threads, evaluations or snapshots per decade: more is a mistake
FUSED = ("adam", "adamw", "muon")  # optimizers with a fused kernel on every device


def by_task(help: str) -> Any:
    """A field without a default of its own: the task decides."""
    return field(metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class OptimConfig:
    """Optimizer and rival methods"""

    optimizer: str = by_task("one of torch's by name, or a class by path, such as pytorch_optimizer:Lion")
    lr: float = by_task("learning rate")
    weight_decay: float = by_task("weight decay; it differs between the paper's arms")
    betas: tuple[float, ...] = by_task("betas of the Adam family")
    momentum: float = setting(0.0, "momentum of sgd")
    nesterov: bool = setting(False, "Nesterov momentum for sgd")
    warmup_steps: int = by_task("linear warm-up of the learning rate, which is 0 at the first update")
    clip_norm: float = by_task("clip the gradient norm to this, before the filter; 0: do not clip")
    fused: bool = by_task("use the optimizer's fused kernel, which rounds differently (default: with fast paths)")
    optimizer_option: Pairs = setting((), "another argument of the optimizer's class; repeatable")
    muon_params: MuonParams = setting(
        "matrices",
        "what muon trains: all matrices, all but embedding tables, or hidden ones; adamw trains the rest",
    )
    companion_lr: float | None = setting(None, "learning rate of adamw beside muon (default: the same)")
    companion_decay: float | None = setting(None, "weight decay of adamw beside muon (default: the same)")
    row_norm: float | None = setting(None, "clip rows of matrices to this norm after each step; rows begin there")
    perp_grad: bool = setting(False, "use only the part of each gradient that is orthogonal to its weights")
    equal_grad: bool = setting(False, "give the gradients of MLP matrices equal singular values, U S V' -> U V'")
    late_decay: float | None = setting(None, "add this times |w|^2 to the loss once training has saturated")


@dataclass(frozen=True, kw_only=True)
class LoopConfig:
    """Length, evaluation, recording, machine"""

    seed: int = setting(0, "seed of everything random")
    steps: int = by_task("budget in steps")
    until: float | None = setting(None, "stop once the validation accuracy (qm9: loss) has reached this level")
    extra_steps: int = setting(0, "continue for this many steps after --until was reached")
    eval_every: int | None = by_task("evaluate every n steps")
    eval_log: int | None = setting(None, "evaluate this many times per decade of steps instead")
    checkpoint_seconds: float = setting(30.0, "seconds between checkpoints; does not influence the result")
    device: str = by_task("cpu, cuda, mps, or auto for the best available (default: auto)")
    threads: int = by_task("CPU threads; their number changes the rounding (default: torch's choice)")
    snapshots: int | None = setting(None, "keep the weights this many times per decade of steps, for trajectories")
    gradients: int | None = setting(None, "record the gradients of about this many scalars at every step, for spectra")
    memory_limit: float | None = setting(None, "gigabytes of memory that the run may use (default: all that is free)")
    data_dir: str | None = setting(
        None, "directory of the data sets (default: $GROKFAST_DATA, else a cache that they are downloaded to)"
    )


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run."""

    task: TaskConfig
    filter: grokfast.Filter | None
    two_stage: TwoStage
    optim: OptimConfig
    loop: LoopConfig

    def __post_init__(self) -> None:
        check(self)

    @property
    def task_name(self) -> str:
        return tasks.name_of(self.task)

    @property
    def level(self) -> float:
        """Where this run counts as having generalised."""
        return self.task.defaults().level if self.loop.until is None else self.loop.until


# Optimizers ---------------------------------------------------------------------------------------------------------

# Torch's. One by path, `package:Class` or `my.py:Class`, needs no line: it gets the task's learning rate and decay, and
# keeps its own betas and momentum unless they are given.
OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
    "nadam": torch.optim.NAdam,
    "muon": torch.optim.Muon,
    "radam": torch.optim.RAdam,
    "adamax": torch.optim.Adamax,
    "rmsprop": torch.optim.RMSprop,
    "adagrad": torch.optim.Adagrad,
}
OF_MUON = ("muon_params", "companion_lr", "companion_decay")
KEYWORDS = ("betas", "momentum", "nesterov", *OF_MUON)  # settings that some optimizers have and others do not
FLAGS = ("lr", "weight_decay", "fused", *KEYWORDS)  # these have flags of their own and are no options


def find_optimizer(name: str) -> type[torch.optim.Optimizer]:
    """The class of that name; a class by path is imported and known from then on."""
    return find_class(name, OPTIMIZERS, torch.optim.Optimizer, "optimizer")


def parameters_of(name: str) -> dict[str, Any]:
    """What the constructor of a known optimizer takes by name, with the defaults."""
    found = inspect.signature(OPTIMIZERS[name]).parameters.values()
    return {p.name: p.default for p in found if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}


def keywords_of(name: str) -> set[str]:
    """Which of our settings a known optimizer has. Muon's momentum is an option: the betas are its companion's."""
    return {"betas", *OF_MUON} if name == "muon" else {word for word in KEYWORDS if word in parameters_of(name)}


def own_defaults(name: str) -> dict[str, Any]:
    """The default values that a class by path has for our settings."""
    if not is_own_code(name):
        return {}
    known = {word: parameters_of(name)[word] for word in keywords_of(name)}
    return {word: value for word, value in known.items() if isinstance(value, (tuple, float, bool))}


def check_keyword(word: str, name: str) -> None:
    """Raise ValueError where a setting has no effect on an optimizer."""
    if word in KEYWORDS and word not in keywords_of(name):
        others = ", ".join(other for other in OPTIMIZERS if word in keywords_of(other))
        raise ValueError(f"{word} has no effect on {name}: it is for {others}")


def check_option(word: str, name: str) -> None:
    """Raise ValueError unless the constructor of an optimizer names this option."""
    if word in FLAGS and (name, word) not in {("muon", "momentum"), ("muon", "nesterov")}:
        raise ValueError(f"optimizer_option must not be a setting that has a flag, got {word}: give --{word}")
    known = [other for other in parameters_of(name) if other not in (*FLAGS, "params")]
    if word not in parameters_of(name):
        raise ValueError(f"optimizer_option must be one of {', '.join(known)} for {name}, got {word}")


# Checks -------------------------------------------------------------------------------------------------------------


def check(config: RunConfig) -> None:
    """Raise ValueError where a value is out of range; filters, optimizers and tasks check their own."""
    loop, optim = config.loop, config.optim
    lowest = {"seed": 0, "steps": 1, "extra_steps": 0, "eval_every": 1, "eval_log": 1, "checkpoint_seconds": 0}
    lowest |= {"threads": 1, "snapshots": 1, "gradients": 1, "warmup_steps": 0, "clip_norm": 0, "lr": 0}
    lowest |= {"weight_decay": 0, "momentum": 0, "companion_decay": 0}
    for name, low in lowest.items():
        value = getattr(optim if hasattr(optim, name) else loop, name)
        high, text = (math.inf, "inf") if isinstance(value, float) else (LARGEST, "2^63")
        if value is not None and not low <= value < high:
            raise ValueError(f"{name} must be in [{low}, {text}), got {value}")
    if not all(0 <= beta < 1 for beta in optim.betas):
        raise ValueError(f"betas must be in [0, 1), got {' '.join(map(str, optim.betas))}")
    for name in ("threads", "eval_log", "snapshots"):
        if (getattr(loop, name) or 1) > MANY:
            raise ValueError(f"{name} must be in [1, {MANY}], got {getattr(loop, name)}")
    if loop.memory_limit is not None and not 0 < loop.memory_limit < math.inf:
        raise ValueError(f"memory_limit must be > 0 and finite, got {loop.memory_limit}")
    highest = 1.0 if config.task.measure == "accuracy" else math.inf
    if loop.until is not None and not 0 < loop.until <= highest:
        raise ValueError(f"until must be in (0, {highest:g}], got {loop.until}")
    if loop.eval_every is not None and loop.eval_log is not None:
        raise ValueError(f"give one of eval_every and eval_log, got {loop.eval_every} and {loop.eval_log}")
    if loop.extra_steps and loop.until is None:
        raise ValueError(f"extra_steps needs until, got {loop.extra_steps} without it")
    check_optim(config)
    check_stages(config)


def check_optim(config: RunConfig) -> None:
    optim = config.optim
    if optim.fused and optim.optimizer not in FUSED:
        raise ValueError(f"fused must be False with {optim.optimizer}, got True")
    if len(optim.betas) < 2:
        raise ValueError(f"betas must be two values or more, got {optim.betas}")
    for name, _ in optim.optimizer_option:
        check_option(name, optim.optimizer)
    for name in ("companion_lr", "row_norm", "late_decay"):
        value = getattr(optim, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} must be > 0 and finite, got {value}")
    for name in OF_MUON:
        if name in departures(optim):
            check_keyword(name, optim.optimizer)
    if optim.late_decay is not None and config.task.measure != "accuracy":
        raise ValueError(f"late_decay needs a task with an accuracy, got {optim.late_decay} on one without")


def check_stages(config: RunConfig) -> None:
    two_stage = config.two_stage
    if two_stage is None:
        return
    if config.filter is None:
        raise ValueError("two_stage needs a filter, got none")
    if two_stage == "auto" and config.task.measure != "accuracy":
        raise ValueError("two_stage auto needs a task with an accuracy, got one without: give a step")
    if two_stage != "auto" and not (isinstance(two_stage, int) and two_stage >= 0):
        raise ValueError(f"two_stage must be a step >= 0 or auto, got {two_stage}")


def check_device(name: str) -> None:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not re.fullmatch(r"[a-z]+(:\d+)?", name) or not available.get(name.split(":")[0], False):
        usable = ", ".join(["auto", *(kind for kind, yes in available.items() if yes)])
        raise ValueError(f"device must be one of {usable} here, got {name}")


# As plain data ------------------------------------------------------------------------------------------------------


def to_json(config: RunConfig) -> dict[str, Any]:
    """A configuration as plain data: task and filter by name, and how to judge it without knowing the task."""
    data = {
        "version": VERSION,
        "task": {"name": config.task_name, **dataclasses.asdict(config.task)},
        "filter": None if config.filter is None else filters.to_plain(config.filter),
        "two_stage": config.two_stage,
        "optim": dataclasses.asdict(config.optim),
        "loop": dataclasses.asdict(config.loop),
        "judged": {"measure": config.task.measure, "level": config.task.defaults().level},
    }
    return json.loads(json.dumps(data))  # tuples become lists, as they will be when read


def from_json(data: dict[str, Any]) -> RunConfig:
    """The configuration that `to_json` wrote; ValueError if it is damaged or its code is not known here."""
    try:
        task = tuples(data["task"])
        name = task.pop("name")
        if name not in tasks.TASKS:
            raise ValueError(f"the task {name} is not known here: name it with --task {name}")
        if (optimizer := data["optim"]["optimizer"]) not in OPTIMIZERS:
            raise ValueError(f"the optimizer {optimizer} is not known here: name it with --optimizer {optimizer}")
        filter = None if data["filter"] is None else filters.from_plain(data["filter"])
        parts = OptimConfig(**tuples(data["optim"])), LoopConfig(**tuples(data["loop"]))
        return RunConfig(tasks.TASKS[name](**task), filter, data["two_stage"], *parts)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not a configuration of this version: {error}") from error


def flatten(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run by dotted name, `optim.lr` say."""
    parts = {part: settings[part] or {} for part in ("task", "filter", "optim", "loop")}
    nested = {f"{part}.{key}": value for part, values in parts.items() for key, value in values.items()}
    return {**nested, "filter.name": nested.get("filter.name"), "two_stage": settings.get("two_stage")}


def experiment_key(settings: dict[str, Any]) -> str:
    """What runs share that repeat one experiment: all settings but seed, length, recording, machine and compilation.

    Settings that were added since a run was made have their defaults, so old runs keep their experiment.
    """
    known = settings["task"]["name"] in tasks.TASKS
    known = known and (settings["filter"] is None or settings["filter"]["name"] in filters.FILTERS)
    known = known and settings["optim"]["optimizer"] in OPTIMIZERS
    flat = flatten(to_json(from_json(settings)) if known else settings)
    left_out = (".compile", ".fused", ".measures")
    kept = {k: v for k, v in flat.items() if not k.startswith("loop.") and not k.endswith(left_out)}
    return json.dumps(kept, sort_keys=True)


def departures(part: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not at their default."""
    fields = [] if part is None else [f for f in dataclasses.fields(part) if f.init and f.name not in INCIDENTAL]
    return {f.name: value for f in fields if (value := getattr(part, f.name)) != f.default}
