"""What a run is made of: frozen dataclasses, the one place where a default stands.

None means "the paper's value for this task and filter"; `resolve` puts it in, so that a saved configuration holds
every number that went into its run.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

import torch

import grokfast
from grokfast.lab.tasks.base import setting
from grokfast.lab.tasks.modular import ModularConfig

FilterName = Literal["ema", "ma", "fir", "iir", "butterworth"]
OptimizerName = Literal["adam", "adamw", "sgd", "nadam", "muon"]
TaskConfig = ModularConfig
TASKS: dict[str, type[TaskConfig]] = {"modmul": ModularConfig}


SATURATED = 0.99  # --two-stage auto: filter once the training accuracy was this high ...
PATIENCE = 3  # ... at so many evaluations in a row


@dataclass(frozen=True)
class FilterConfig:
    """Which gradient filter, and its values."""

    filter: FilterName | None = setting(None, "gradient filter to attach; none for the baseline")
    alpha: float = setting(0.98, "memory of ema, in [0, 1)")
    lamb: float | None = setting(None, "gain of the slow part (default: 5 for ma, else 2)")
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
    clip_norm: float | None = setting(None, "clip the gradient norm to this, before the filter")


@dataclass(frozen=True)
class LoopConfig:
    """How long to train, when to look, where to run."""

    seed: int = setting(0, "seed of everything random")
    steps: int | None = setting(None, "budget in steps")
    until: float | None = setting(None, "stop once the validation accuracy has reached this level")
    extra_steps: int = setting(0, "go on for this many steps after --until was reached")
    eval_every: int | None = setting(None, "evaluate every n steps (default: once per epoch, as the paper)")
    eval_log: int | None = setting(None, "evaluate this many times per decade of steps instead")
    checkpoint_seconds: float = setting(30.0, "seconds between checkpoints; does not influence the result")
    device: str = setting("auto", "cpu, cuda, mps, or auto for the best there is")
    threads: int | None = setting(None, "CPU threads (default: as torch finds)")


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


@dataclass(frozen=True)
class TaskDefaults:
    """The paper's setting of one task: what stands for None elsewhere."""

    optimizer: OptimizerName
    lr: float
    betas: tuple[float, float]
    warmup_steps: int
    steps: int
    weight_decay: dict[str | None, float]  # by filter; 0 for those the paper does not know


DEFAULTS: dict[str, TaskDefaults] = {
    "modmul": TaskDefaults(
        optimizer="adam",
        lr=1e-3,
        betas=(0.9, 0.98),
        warmup_steps=10,
        steps=50_000,
        weight_decay={None: 0.0, "ema": 0.005, "ma": 0.01},  # Figures 1 and 4
    ),
}


def resolve(config: RunConfig) -> RunConfig:
    """Put the paper's values where None stands, and refuse what cannot be run."""
    resolved = complete(config)
    check(resolved)
    return resolved


def complete(config: RunConfig) -> RunConfig:
    """Put the paper's values where None stands."""
    name = config.filter.filter
    defaults = DEFAULTS[config.task_name]
    filter = config.filter
    if filter.lamb is None:
        filter = dataclasses.replace(filter, lamb=5.0 if name == "ma" else 2.0)
    optim = fill(config.optim, defaults, "optimizer", "lr", "betas", "warmup_steps")
    if optim.weight_decay is None:
        optim = dataclasses.replace(optim, weight_decay=defaults.weight_decay.get(name, 0.0))
    loop = fill(config.loop, defaults, "steps")
    if loop.device == "auto":
        loop = dataclasses.replace(loop, device=best_device())
    return RunConfig(config.task, filter, optim, loop)


def fill(config: Any, defaults: TaskDefaults, *names: str) -> Any:
    missing = {name: getattr(defaults, name) for name in names if getattr(config, name) is None}
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
        ("warmup_steps", optim.warmup_steps, 0),
    ]
    for name, value, low in ranges:
        if value is not None and not value >= low:
            raise ValueError(f"{name} must be >= {low}, got {value}")
    if loop.until is not None and not 0 < loop.until <= 1:
        raise ValueError(f"until must be in (0, 1], got {loop.until}")
    if loop.eval_every is not None and loop.eval_log is not None:
        raise ValueError(f"give one of eval_every and eval_log, got {loop.eval_every} and {loop.eval_log}")
    check_device(loop.device)
    if optim.clip_norm is not None and not optim.clip_norm > 0:
        raise ValueError(f"clip_norm must be > 0, got {optim.clip_norm}")
    if config.filter.filter is None and (config.filter.slow_only or config.filter.two_stage is not None):
        raise ValueError("slow_only and two_stage need a filter, got none")
    make_filter(config.filter)


def check_device(name: str) -> None:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not available.get(name.split(":")[0], False):
        usable = ", ".join(["auto", *(kind for kind, yes in available.items() if yes)])
        raise ValueError(f"device must be one of {usable} here, got {name}")


def make_filter(config: FilterConfig) -> grokfast.Filter | None:
    """The filter a resolved configuration describes."""
    assert config.lamb is not None
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
    loop = dataclasses.replace(config.loop, checkpoint_seconds=0.0)
    text = json.dumps(to_json(dataclasses.replace(config, loop=loop)), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


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
