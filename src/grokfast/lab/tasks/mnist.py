"""Digits of MNIST by a three-layer MLP whose large initial weights delay its generalisation.

Random stream of the released code: seed; build the model; then, drawn from the same generator, two numbers for each
`DataLoader` that is iterated: one for every training epoch and four for every logged step (loss and accuracy of both
splits), although the order of an evaluation changes nothing but the stream. It is reproduced here without loaders, so
that a run may be evaluated at any steps and still see the released code's batches.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, one_hot

from grokfast.lab.tasks.base import (
    Evaluation,
    PaperConfig,
    Size,
    Split,
    TaskDefaults,
    check_at_least,
    check_one_of,
    setting,
)
from grokfast.lab.tasks.data import DataDir, DataError, digest, locate, read_bytes
from grokfast.lab.tasks.epochs import EpochTask, Examples
from grokfast.lab.tasks.linear import run_layers

CLASSES, PIXELS, IMAGES = 10, 28 * 28, 70_000
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist/"
CHECKSUMS = {
    "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
    "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
    "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
}
ACTIVATIONS = {"relu": nn.ReLU, "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU}


@dataclass(frozen=True)
class MnistConfig(PaperConfig):
    """Digits of MNIST by an MLP."""

    step_seconds: ClassVar[float] = 0.0018
    quick_steps: ClassVar[int] = 40
    remark: ClassVar[str] = (
        "The paper says 95%, which its own final accuracies never reach. The released code's logs cross 0.85 at the "
        "published steps, and they were taken every 667 steps: 44,022 and 2,001 are the 66th and 3rd entry, and the "
        "ratio of 22 is 66/3. `--eval-every 667` repeats that grid. The paper's accuracy is the final one."
    )

    train_points: int = setting(1000, "training images to use, the first ones of the file")
    width: int = setting(200, "size of the hidden layers", learning=True)
    depth: int = setting(3, "number of linear layers", learning=True)
    activation: Literal["relu", "tanh", "sigmoid", "gelu"] = setting("relu", "between the layers")
    loss: Literal["mse", "cross-entropy"] = setting("mse", "mse is to one-hot targets, the mean over the outputs")
    init_scale: float = setting(8.0, "factor on the initial weights", learning=True)
    kaiming: bool | None = setting(
        None, "Kaiming's normal initial weights and zero biases, as the paper says (default: by variant)"
    )
    loader_stream: bool | None = setting(
        None, "the released code's order of batches, which depends on when it logged (default: by variant)"
    )
    batch_size: int = setting(200, "images per step; the last batch of an epoch may be smaller", learning=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 1, "train_points", "width", "depth", "batch_size")
        check_one_of("activation", self.activation, *ACTIVATIONS)
        check_one_of("loss", self.loss, "mse", "cross-entropy")
        if not 0 < self.init_scale < math.inf:
            raise ValueError(f"init_scale must be > 0 and finite, got {self.init_scale}")

    def defaults(self) -> TaskDefaults:
        return TaskDefaults(
            optimizer="adamw",
            lr=1e-3,
            steps=100_000,
            eval_every=100,
            filters={"ema": {"alpha": 0.8, "lamb": 0.1}},
            weight_decay={None: 0.01, "ema": 2.0},  # Section 4.2
            # The published 44,022 and 2,001 are crossings of 0.85 in the released code's logs, not of 0.95.
            level=0.85,
        )

    def size(self) -> Size:
        rows = [PIXELS, *[self.width] * min(self.depth - 1, 2), CLASSES]
        weights = sum((fan_in + 1) * fan_out for fan_in, fan_out in itertools.pairwise(rows))
        return Size(weights + max(0, self.depth - 3) * (self.width + 1) * self.width, 5 * IMAGES * PIXELS)

    def make(self, *, seed: int, device: str, data_dir: DataDir) -> MnistTask:
        return MnistTask(self, seed=seed, device=device, data_dir=data_dir)


class MnistTask(EpochTask[nn.Sequential]):
    """The first images of MNIST, its whole test set, and the MLP that learns them."""

    saved = ("generator", "order", "step")

    def __init__(self, config: MnistConfig, *, seed: int = 0, device: str = "cpu", data_dir: DataDir = None) -> None:
        self.config = config
        train, val, self.data = read_mnist(data_dir)
        if config.train_points > len(train[1]):
            raise ValueError(f"train_points must be at most {len(train[1])}, got {config.train_points}")
        scale, size = config.init_scale, config.batch_size
        super().__init__(lambda: build(config), seed=seed, device=device, batch_size=size, scale=scale)
        self.splits: dict[Split, Examples] = {
            "train": as_batch(*(part[: config.train_points] for part in train), device=self.device),
            "val": as_batch(*val, device=self.device),
        }
        self.logged = config.by_variant("loader_stream", released=True, paper=False)
        self.order = torch.arange(config.train_points)

    def batch_of(self, index: Tensor) -> Examples:
        if self.logged and was_logged(self.step):
            for _ in range(4):
                self.shuffle()
        return self.splits["train"].take(index)

    def shuffle(self) -> Tensor:
        """The order of one pass of a shuffled DataLoader: it draws a seed for its workers, then that of its order."""
        _workers, seed = (int(torch.empty((), dtype=torch.int64).random_(generator=self.generator)) for _ in range(2))
        return torch.randperm(len(self.order), generator=torch.Generator().manual_seed(seed))

    def loss(self, batch: Examples) -> tuple[Tensor, Tensor]:
        outputs = run_layers(self.model, batch.images)  # (batch, 10)
        correct = (outputs.detach().argmax(1) == batch.labels).sum()
        if self.config.loss == "cross-entropy":
            return cross_entropy(outputs, batch.labels), correct
        return mse_loss(outputs, one_hot(batch.labels, CLASSES).to(outputs.dtype)), correct

    @torch.no_grad()
    def evaluate(self, split: Split) -> Evaluation:
        loss, correct = self.loss(self.splits[split])
        return Evaluation(float(loss), float(correct) / len(self.splits[split]))


def was_logged(step: int) -> bool:
    """Whether the released code evaluates after this many steps: densely at first, then 150 times in 100,000 steps."""
    return step < 30 or (step < 150 and step % 10 == 0) or step % 667 == 0


def build(config: MnistConfig) -> nn.Sequential:
    sizes = [PIXELS, *[config.width] * (config.depth - 1), CLASSES]
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), ACTIVATIONS[config.activation]()]
    model = nn.Sequential(*layers[:-1])
    for layer in model:
        if isinstance(layer, nn.Linear) and config.by_variant("kaiming", released=False, paper=True):
            nn.init.kaiming_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
    return model


def as_batch(images: Tensor, labels: Tensor, *, device: torch.device) -> Examples:
    return Examples(images=images.flatten(1).to(device).float().div(255), labels=labels.to(device).long())


# The files ----------------------------------------------------------------------------------------------------------


def read_mnist(data_dir: DataDir) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor], str]:
    """Training images and labels as bytes, those of the test set, and a checksum of all."""
    paths = [locate_idx(data_dir, name) for name in CHECKSUMS]
    contents = [read_bytes(path) for path in paths]
    arrays = [parse_idx(content, path) for content, path in zip(contents, paths, strict=True)]
    for i in (0, 2):
        if len(arrays[i]) != len(arrays[i + 1]):
            got = f"{len(arrays[i]):,} images and {len(arrays[i + 1]):,} labels"
            raise DataError(f"{paths[i]} and {paths[i + 1].name} must be of one length, got {got}")
    return (arrays[0], arrays[1]), (arrays[2], arrays[3]), digest(*contents)


def locate_idx(data_dir: DataDir, name: str) -> Path:
    plain = name.removesuffix(".gz")
    patterns = [name, plain, plain.replace("-idx", ".idx")]
    source = MIRROR + name, CHECKSUMS[name]
    return locate(data_dir, ["mnist", "MNIST/raw", "."], patterns, wanted=name, source=source)


def parse_idx(content: bytes, path: Path) -> Tensor:
    """The array in an idx file of bytes: two zeros, 8 for bytes, the number of axes, their lengths, the values."""
    axes = 3 if "images" in path.name else 1
    head = 4 + 4 * axes
    if len(content) < head or content[:4] != bytes([0, 0, 8, axes]):
        raise DataError(
            f"{path} must be an idx file of bytes with {axes} axes, got one that begins {content[:4].hex()}"
        )
    shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, head, 4)]
    if len(content) != head + math.prod(shape):
        raise DataError(f"{path} must hold {math.prod(shape):,} values, got {len(content) - head:,}")
    if math.prod(shape) == 0 or (axes == 3 and shape[1:] != [28, 28]):
        raise DataError(f"{path} must hold {'images of 28 x 28' if axes == 3 else 'labels'}, got the shape {shape}")
    array = torch.frombuffer(bytearray(content[head:]), dtype=torch.uint8).reshape(shape)
    if axes == 1 and int(array.max()) >= CLASSES:
        raise DataError(f"{path} must hold labels below {CLASSES}, got {int(array.max())}")
    return array
