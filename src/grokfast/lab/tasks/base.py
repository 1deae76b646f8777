"""The shape of every task: data, model and loss, drawn from one seed; know one, know all."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

Split = Literal["train", "val"]
Variant = Literal["released", "paper"]
Measure = Literal["accuracy", "loss"]
OptimizerName = Literal["adam", "adamw", "sgd", "nadam", "muon"]
Built = TypeVar("Built")


def setting(default: Any, help: str, *, none: bool = False) -> Any:
    """A field of a configuration, with its line of help for the command line, where `none` may be a word for None."""
    return dataclasses.field(default=default, metadata={"help": help, "none": none})


@dataclass(frozen=True, kw_only=True)
class TaskDefaults:
    """The paper's setting of one task: what stands for None elsewhere."""

    optimizer: OptimizerName
    lr: float
    betas: tuple[float, float] = (0.9, 0.999)
    warmup_steps: int = 0
    clip_norm: float | None = None
    steps: int
    eval_every: int | None = None  # None: once per epoch
    alpha: float = 0.98
    lamb: float = 2.0
    lamb_of_ma: float = 5.0
    weight_decay: Mapping[str | None, float]  # by filter; the baseline's for those the paper does not know
    measure: Measure = "accuracy"  # of success
    level: float  # at which a run counts as having generalised


@dataclass(frozen=True)
class TaskConfig(abc.ABC):
    """The settings of one task; each field becomes a flag."""

    variant: Variant = setting("released", "follow the released code or the paper's text")

    def __post_init__(self) -> None:
        check_one_of("variant", self.variant, "released", "paper")

    @abc.abstractmethod
    def defaults(self) -> TaskDefaults:
        """The paper's values for everything that is not the task's own business."""


class Evaluation(NamedTuple):
    """What one look at a whole split gives."""

    loss: float
    accuracy: float | None  # None where answers are numbers, not classes
    more: Mapping[str, float] | None = None  # whatever else the task measures


class Batch(Protocol):
    """Some examples; the loop asks only how many and, where several ranks train, for a part of them."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


class Task(Protocol):
    """Data, model and loss. Everything random comes from the seed; no global state is read or changed."""

    @property
    def model(self) -> nn.Module: ...

    @property
    def epoch_steps(self) -> int:
        """Number of batches in one pass over the training data."""
        ...

    def next_batch(self) -> Any:
        """The next examples to train on; each epoch begins with a shuffle."""
        ...

    def loss(self, batch: Any) -> tuple[Tensor, Tensor | None]:
        """The differentiable mean loss, and the number of correct answers (None where there is no such thing)."""
        ...

    def evaluate(self, split: Split) -> Evaluation:
        """Mean loss and accuracy over the whole split, without gradients."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Where the task stands in its random stream: tensors and numbers only. The model is not part of it."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken."""
        ...


def check_at_least(config: Any, low: float, *names: str) -> None:
    """Raise ValueError where one of these fields is smaller than `low`."""
    for name in names:
        if not getattr(config, name) >= low:
            raise ValueError(f"{name} must be >= {low:g}, got {getattr(config, name)}")


def check_one_of(name: str, value: Any, *choices: Any) -> None:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, got {value!r}")


def by_variant(config: Any, name: str, *, released: Any, paper: Any) -> Any:
    """The value of a field in which the released code and the paper differ: as given, else as the variant has it."""
    given = getattr(config, name)
    if given is not None:
        return given
    return released if config.variant == "released" else paper


def draw(seed: int, build: Callable[[], Built]) -> tuple[Built, torch.Generator]:
    """What `build` draws from the global stream of that seed, and a generator of our own that continues the stream."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        built = build()
        generator = torch.Generator()
        generator.set_state(torch.get_rng_state())
    return built, generator
