"""The interface of every task: settings, data, model and loss, drawn from one seed.

A task of your own is one file with two classes: a `TaskConfig`, whose fields become flags, and the `Task` it makes.
A task of the lab also has a line in the list of `__init__.py`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, get_args

import torch
from torch import Tensor, nn

Split = Literal["train", "val"]
Measure = Literal["accuracy", "loss"]
T = TypeVar("T")


def setting(default: Any, help: str, *, within: str | None = None, learning: bool = False) -> Any:
    """A field of a configuration, with its line of help for the command line.

    Args:
        default: the usual value.
        help: a few words for the help.
        within: the interval of allowed numbers, for example "[0, 1)"; checked before anything is trained.
        learning: marks a way to learn the same problem, which sweeps may compare. The other fields of a task make
            another problem. A field called `fast` or `compile` changes how a task is computed, not what.
    """
    return dataclasses.field(default=default, metadata={"help": help, "within": within, "learning": learning})


@dataclass(frozen=True, kw_only=True)
class TaskDefaults:
    """The settings of the paper, or of the author of a task, for everything outside the task itself."""

    optimizer: str = "adamw"
    lr: float = 1e-3
    betas: tuple[float, float] = (0.9, 0.999)
    warmup_steps: int = 0
    clip_norm: float = 0.0  # 0: do not clip
    steps: int = 10_000
    eval_every: int | None = None  # None: once per epoch
    weight_decay: Mapping[str | None, float] = field(default_factory=lambda: {None: 0.01})  # by filter, None: any other
    filters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # by filter, where not its own defaults
    level: float  # of the measure, at which a run counts as having generalised


class Headline(NamedTuple):
    """The number by which the paper judges a task, if it is not the steps to the level."""

    column: str  # in the `more` of an evaluation; the highest accuracy or the lowest loss of a run counts
    words: str
    published: Literal["accuracy", "loss"]  # which of the paper's numbers stands beside it


class Size(NamedTuple):
    """How much memory a task takes, known from its settings alone: what its estimate leaves out is 0."""

    weights: int = 0  # numbers that are trained
    data_bytes: int = 0  # at the moment when it takes most


@dataclass(frozen=True)
class TaskConfig(abc.ABC):
    """The settings of one task. Each field becomes a flag; the class attributes are what is known about the task."""

    measure: ClassVar[Measure] = "accuracy"  # of success on the validation data
    step_seconds: ClassVar[float] = 0.01  # on one thread, evaluations included: for estimates before anything was run
    quick_steps: ClassVar[int] = 20  # enough to see that it works
    remark: ClassVar[str] = ""  # shown below its table of results
    headline: ClassVar[Headline | None] = None
    further: ClassVar[tuple[Headline, ...]] = ()  # other columns of `more` that tables show
    recorded: ClassVar[Mapping[str, bool]] = {}  # columns of `more` with --measures, and whether more of it is better

    @abc.abstractmethod
    def defaults(self) -> TaskDefaults:
        """The usual values of optimizer, filter and loop."""

    @abc.abstractmethod
    def make(self, *, seed: int, device: str, data_dir: str | Path | None) -> Task:
        """The task itself, its data read and checked."""

    def size(self) -> Size:
        """The memory that the task will need; without an estimate the model is counted later."""
        return Size()

    @property
    def plain(self) -> bool:
        """Whether the task computes in the obvious way although it has a faster one, which rounds differently."""
        return not getattr(self, "fast", True)


def usual_of(task: TaskConfig) -> TaskDefaults:
    """The defaults of a task; ValueError if it gives none, or a level that cannot be reached."""
    usual: Any = task.defaults()
    if not isinstance(usual, TaskDefaults):
        raise ValueError(f"defaults of the task {type(task).__name__} must give TaskDefaults, got {usual!r}")
    check_one_of("measure", task.measure, *get_args(Measure))
    highest = 1.0 if task.measure == "accuracy" else float("inf")
    if not (isinstance(usual.level, float | int) and 0 < usual.level <= highest):
        raise ValueError(f"level must be in (0, {highest:g}], got {usual.level}")
    return usual


@dataclass(frozen=True)
class PaperConfig(TaskConfig):
    """The settings of one of the paper's tasks, whose text and released code differ."""

    variant: Literal["released", "paper"] = setting("released", "follow the released code or the paper's text")

    def __post_init__(self) -> None:
        check_one_of("variant", self.variant, "released", "paper")

    def by_variant(self, name: str, *, released: Any, paper: Any) -> Any:
        """The value of a field in which code and paper differ: as given, else as the variant has it."""
        given = getattr(self, name)
        if given is not None:
            return given
        return released if self.variant == "released" else paper


class Evaluation(NamedTuple):
    """Loss and accuracy over a whole split."""

    loss: float
    accuracy: float | None  # None where answers are numbers, not classes
    more: Mapping[str, float] | None = None  # whatever else the task measures


class Task(Protocol):
    """Data, model and loss. Everything random comes from the seed; no global state is read or changed."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def data(self) -> str | None:
        """A checksum of the data, so that a run cannot continue on other data; None if it is made from the seed."""
        ...

    @property
    def epoch_steps(self) -> int:
        """Number of batches in one pass over the training data."""
        ...

    def next_batch(self) -> Any:
        """The next examples to train on; each epoch begins with a shuffle."""
        ...

    def loss(self, batch: Any) -> tuple[Tensor, Tensor | None]:
        """The differentiable mean loss, and the number of correct answers (None if the task has no accuracy)."""
        ...

    def evaluate(self, split: Split) -> Evaluation:
        """Mean loss and accuracy over the whole split, without gradients."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The position in the task's random stream: tensors and numbers only. The model is not part of it."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        ...


def check_at_least(config: Any, low: float, *names: str) -> None:
    """Raise ValueError if one of these fields is smaller than `low`, or larger than any tensor can be."""
    for name in names:
        if getattr(config, name) >= 2**63:
            raise ValueError(f"{name} must be < 2^63, got {getattr(config, name)}")
        if not getattr(config, name) >= low:
            raise ValueError(f"{name} must be >= {low:g}, got {getattr(config, name)}")


def check_one_of(name: str, value: Any, *choices: Any) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")


def draw(seed: int, build: Callable[[], T]) -> tuple[T, torch.Generator]:
    """What `build` draws from the global stream of that seed, and a generator of our own that continues the stream."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        built = build()
        generator = torch.Generator()
        generator.set_state(torch.get_rng_state())
    return built, generator
