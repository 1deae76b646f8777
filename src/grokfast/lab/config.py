"""What a run is made of: frozen dataclasses, the one place where a default stands.

None means "the paper's value for this task and filter"; `resolve` puts it in, so that a saved configuration holds
every number that went into its run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

import grokfast
from grokfast.lab.tasks import TASKS
from grokfast.lab.tasks.base import OptimizerName, TaskConfig, setting

FilterName = Literal["ema", "ma", "fir", "iir", "butterworth"]


Part = TypeVar("Part", "FilterConfig", "OptimConfig", "LoopConfig")
SATURATED = 0.99  # --two-stage auto: filter once the training accuracy was this high ...
PATIENCE = 3  # ... at so many evaluations in a row


@dataclass(frozen=True)
class FilterConfig:
    """Which gradient filter, and its values."""

    filter: FilterName | None = setting(None, "gradient filter to attach (default: none, the baseline)", none=True)
    alpha: float | None = setting(None, "memory of ema, in [0, 1)")
    lamb: float | None = setting(None, "gain of the slow part")
    window_size: int = setting(100, "number of gradients in ma")
    partial_window: bool = setting(False, "let ma average a window that is not full yet, as Algorithm 1 reads")
    taps: tuple[float, ...] = setting((), "impulse response of fir, newest gradient first")
    b: tuple[float, ...] = setting((), "numerator of iir")
    a: tuple[float, ...] = setting((), "denominator of iir")
    order: int = setting(1, "order of butterworth")
    cutoff: float = setting(0.0032, "cutoff of butterworth in cycles per step; 0.0032 is that of ema at 0.98")
    slow_only: bool = setting(False, "replace the gradient by its slow part instead of adding it (the paper's Q1)")
    two_stage: int | Literal["auto"] | None = setting(
        None, "leave gradients alone before this step; auto: until the training accuracy has saturated"
    )


@dataclass(frozen=True)
class OptimConfig:
    """Which optimizer, and its values."""

    optimizer: OptimizerName | None = setting(None, "muon takes the matrices and leaves the rest to adamw")
    lr: float | None = setting(None, "learning rate")
    weight_decay: float | None = setting(None, "weight decay; the paper's arms differ in it")
    betas: tuple[float, float] | None = setting(None, "betas of the Adam family")
    momentum: float = setting(0.0, "momentum of sgd")
    nesterov: bool = setting(False, "Nesterov momentum for sgd")
    warmup_steps: int | None = setting(None, "linear warm-up of the learning rate, which is 0 at the first update")
    clip_norm: float | None = setting(None, "clip the gradient norm to this, before the filter; 0: do not")


@dataclass(frozen=True)
class LoopConfig:
    """How long to train, when to look, where to run."""

    seed: int = setting(0, "seed of everything random")
    steps: int | None = setting(None, "budget in steps")
    until: float | None = setting(None, "stop once the validation accuracy (qm9: loss) has reached this level")
    extra_steps: int = setting(0, "go on for this many steps after --until was reached")
    eval_every: int | None = setting(None, "evaluate every n steps")
    eval_log: int | None = setting(None, "evaluate this many times per decade of steps instead")
    checkpoint_seconds: float = setting(30.0, "seconds between checkpoints; does not influence the result")
    device: str = setting("auto", "cpu, cuda, mps, or auto for the best there is")
    threads: int | None = setting(None, "CPU threads (default: as torch finds)")
    snapshots: int | None = setting(None, "keep the weights this many times per decade of steps, for trajectories")
    gradients: int | None = setting(None, "record the gradients of about this many scalars at every step, for spectra")
    data_dir: str | None = setting(
        None, "where data sets lie (default: $GROKFAST_DATA, else a cache that they are downloaded to)"
    )


@dataclass(frozen=True)
class RunConfig:
    """Everything that determines a run."""

    task: TaskConfig
    filter: FilterConfig = dataclasses.field(default_factory=FilterConfig)
    optim: OptimConfig = dataclasses.field(default_factory=OptimConfig)
    loop: LoopConfig = dataclasses.field(default_factory=LoopConfig)

    @property
    def task_name(self) -> str:
        return next(name for name, kind in TASKS.items() if isinstance(self.task, kind))

    @property
    def level(self) -> float:
        """Where this run counts as having generalised."""
        return self.loop.until if self.loop.until is not None else self.task.defaults().level

    @property
    def plain(self) -> bool:
        """Whether the task computes in the obvious way, where it knows a faster one that rounds differently."""
        return not getattr(self.task, "fast", True)


def resolve(config: RunConfig) -> RunConfig:
    """Put the paper's values where None stands, and refuse what cannot be run."""
    resolved = complete(config)
    check(resolved)
    return resolved


def complete(config: RunConfig) -> RunConfig:
    """Put the paper's values where None stands."""
    name, d = config.filter.filter, config.task.defaults()
    filter = fill(config.filter, alpha=d.alpha, lamb=d.lamb_of_ma if name == "ma" else d.lamb)
    decay = d.weight_decay.get(name, d.weight_decay[None])
    optim = fill(config.optim, optimizer=d.optimizer, lr=d.lr, betas=d.betas, warmup_steps=d.warmup_steps)
    optim = fill(optim, weight_decay=decay, clip_norm=d.clip_norm)
    loop = fill(config.loop, steps=d.steps)
    if loop.eval_log is None:
        loop = fill(loop, eval_every=d.eval_every)
    if loop.device == "auto":
        loop = dataclasses.replace(loop, device=best_device())
    if loop.data_dir is not None:
        loop = dataclasses.replace(loop, data_dir=str(Path(loop.data_dir).absolute()))
    return RunConfig(config.task, filter, optim, loop)


def fill(config: Part, **defaults: Any) -> Part:
    """`config` with these values where it has None."""
    missing = {name: value for name, value in defaults.items() if getattr(config, name) is None}
    return dataclasses.replace(config, **missing)


def best_device() -> str:
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def check(config: RunConfig) -> None:
    """Raise ValueError where a value is out of range; filters, optimizers and tasks check their own."""
    loop, optim = config.loop, config.optim
    ranges = [
        ("seed", loop.seed, 0),
        ("steps", loop.steps, 1),
        ("extra_steps", loop.extra_steps, 0),
        ("eval_every", loop.eval_every, 1),
        ("eval_log", loop.eval_log, 1),
        ("checkpoint_seconds", loop.checkpoint_seconds, 0),
        ("threads", loop.threads, 1),
        ("snapshots", loop.snapshots, 1),
        ("gradients", loop.gradients, 1),
        ("warmup_steps", optim.warmup_steps, 0),
    ]
    for name, value, low in ranges:
        if value is not None and not value >= low:
            raise ValueError(f"{name} must be >= {low}, got {value}")
    highest = 1.0 if config.task.defaults().measure == "accuracy" else math.inf
    if loop.until is not None and not 0 < loop.until <= highest:
        raise ValueError(f"until must be in (0, {highest:g}], got {loop.until}")
    if loop.eval_every is not None and loop.eval_log is not None:
        raise ValueError(f"give one of eval_every and eval_log, got {loop.eval_every} and {loop.eval_log}")
    check_device(loop.device)
    if optim.clip_norm is not None and not optim.clip_norm >= 0:
        raise ValueError(f"clip_norm must be >= 0, got {optim.clip_norm}")
    if loop.extra_steps and loop.until is None:
        raise ValueError(f"extra_steps needs until, got {loop.extra_steps} without it")
    if config.filter.two_stage == "auto" and config.task.defaults().measure != "accuracy":
        raise ValueError("two_stage auto needs a task with an accuracy, got one without: give a step")
    if config.filter.filter is None and (config.filter.slow_only or config.filter.two_stage is not None):
        raise ValueError("slow_only and two_stage need a filter, got none")
    make_filter(config.filter)


def check_device(name: str) -> None:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not re.fullmatch(r"[a-z]+(:\d+)?", name) or not available.get(name.split(":")[0], False):
        usable = ", ".join(["auto", *(kind for kind, yes in available.items() if yes)])
        raise ValueError(f"device must be one of {usable} here, got {name}")


def make_filter(config: FilterConfig) -> grokfast.Filter | None:
    """The filter a resolved configuration describes."""
    assert config.lamb is not None
    assert config.alpha is not None
    lamb, slow_only = config.lamb, config.slow_only
    match config.filter:
        case None:
            return None
        case "ema":
            return grokfast.EMA(alpha=config.alpha, lamb=lamb, slow_only=slow_only)
        case "ma":
            warmup = not config.partial_window
            return grokfast.MA(window_size=config.window_size, lamb=lamb, warmup=warmup, slow_only=slow_only)
        case "fir":
            return grokfast.FIR(config.taps, lamb, slow_only=slow_only)
        case "iir":
            return grokfast.IIR(config.b, config.a, lamb, slow_only=slow_only)
        case "butterworth":
            return grokfast.Butterworth(config.order, config.cutoff, lamb, slow_only=slow_only)


def to_json(config: RunConfig) -> dict[str, Any]:
    """A configuration as plain data, the task by name."""
    return {
        "task_name": config.task_name,
        "task": dataclasses.asdict(config.task),
        "filter": dataclasses.asdict(config.filter),
        "optim": dataclasses.asdict(config.optim),
        "loop": dataclasses.asdict(config.loop),
    }


def from_json(data: dict[str, Any]) -> RunConfig:
    """The configuration that `to_json` wrote; ValueError if it is none of ours."""
    try:
        parts = {key: tuples(data[key]) for key in ("task", "filter", "optim", "loop")}
        return RunConfig(
            TASKS[data["task_name"]](**parts["task"]),
            FilterConfig(**parts["filter"]),
            OptimConfig(**parts["optim"]),
            LoopConfig(**parts["loop"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a configuration of this version: {error}") from error


def tuples(values: dict[str, Any]) -> dict[str, Any]:
    """JSON knows no tuples."""
    return {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}


def fingerprint(config: RunConfig) -> str:
    """Eight hex digits that differ for configurations that may give different results."""
    data = to_json(dataclasses.replace(config, loop=dataclasses.replace(config.loop, checkpoint_seconds=0.0)))
    # Neither where the data lies makes another run, nor a recording that was not asked for.
    for name in ("data_dir", *(name for name in ("snapshots", "gradients") if data["loop"][name] is None)):
        del data["loop"][name]
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:8]


def title(config: RunConfig) -> str:
    """A short name a person can read: task, filter, what departs from the defaults of the filter."""
    f, parts = config.filter, [config.task_name]
    match f.filter:
        case None:
            parts.append("baseline")
        case "ema":
            parts += ["ema", f"a{f.alpha:g}", f"l{f.lamb:g}"]
        case "ma":
            parts += ["ma", f"w{f.window_size}", f"l{f.lamb:g}"]
        case name:
            parts += [name, f"l{f.lamb:g}"]
    parts += ["slow"] if f.slow_only else []
    parts += [f"from{f.two_stage}"] if f.two_stage is not None else []
    return "-".join([*parts, f"wd{config.optim.weight_decay:g}", f"s{config.loop.seed}"])
