"""MNIST: the released code's batches, its files read and checked, its numbers."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
import torch
from made import write_idx, write_mnist
from torch import nn
from torch.nn.functional import cross_entropy, mse_loss
from torch.utils.data import DataLoader, TensorDataset

from grokfast.lab.settings import resolve
from grokfast.lab.tasks.data import DataError
from grokfast.lab.tasks.mnist import MnistConfig, MnistTask, was_logged
from grokfast.lab.training.run import train

real_data = pytest.mark.skipif("GROKFAST_DATA" not in os.environ, reason="needs the real files: set GROKFAST_DATA")


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return write_mnist(tmp_path / "data")


def small(**changes: object) -> MnistConfig:
    return MnistConfig(train_points=20, width=8, batch_size=8, **changes)  # type: ignore[arg-type]


def cycle(loader: DataLoader[tuple[torch.Tensor, ...]]) -> Iterator[tuple[torch.Tensor, ...]]:
    while True:
        yield from loader


def test_batches_are_those_of_shuffled_loaders_that_share_a_generator_with_the_evaluations(data_dir: Path) -> None:
    """The obvious formulation: loaders for training and, at each logged step, for four evaluations."""
    task = MnistTask(small(), seed=3, data_dir=data_dir)
    train, val = (TensorDataset(task.splits[split].images, task.splits[split].labels) for split in ("train", "val"))
    torch.manual_seed(3)
    nn.Sequential(nn.Linear(784, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 10))
    for step, (images, labels) in enumerate(islice(cycle(DataLoader(train, batch_size=8, shuffle=True)), 160)):
        if was_logged(step):
            for split in (train, train, val, val):
                for _ in DataLoader(split, batch_size=50, shuffle=True):
                    pass
        batch = task.next_batch()
        assert torch.equal(batch.images, images)
        assert torch.equal(batch.labels, labels)


def test_the_paper_variant_does_not_depend_on_when_the_released_code_logged(data_dir: Path) -> None:
    released, paper = MnistTask(small(), data_dir=data_dir), MnistTask(small(loader_stream=False), data_dir=data_dir)
    orders = [[task.next_batch().labels.tolist() for _ in range(30)] for task in (released, paper)]
    assert orders[0][:3] == orders[1][:3]
    assert orders[0] != orders[1]


def test_parameters_are_pytorch_s_times_eight(data_dir: Path) -> None:
    task = MnistTask(small(), seed=5, data_dir=data_dir)
    torch.manual_seed(5)
    usual = nn.Sequential(nn.Linear(784, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 10))
    for mine, theirs in zip(task.model.parameters(), usual.parameters(), strict=True):
        assert torch.equal(mine, theirs * 8)


def test_the_paper_variant_scales_kaiming_weights_and_no_biases(data_dir: Path) -> None:
    task = MnistTask(MnistConfig(variant="paper", train_points=20, width=400), data_dir=data_dir)
    layers = [layer for layer in task.model if isinstance(layer, nn.Linear)]
    assert all(not layer.bias.any() for layer in layers)
    assert float(layers[1].weight.detach().std()) == pytest.approx(8 * (2 / 400) ** 0.5, rel=0.02)


@pytest.mark.parametrize("loss", ["mse", "cross-entropy"])
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu"])
def test_loss_and_accuracy_are_the_obvious_ones(data_dir: Path, loss: str, activation: str) -> None:
    task = MnistTask(small(loss=loss, activation=activation, depth=2), data_dir=data_dir)
    val = task.splits["val"]
    outputs = task.model(val.images).detach()
    targets = torch.eye(10)[val.labels]
    expected = mse_loss(outputs, targets) if loss == "mse" else cross_entropy(outputs, val.labels)
    found = task.evaluate("val")
    assert found.loss == pytest.approx(float(expected), rel=1e-6)
    assert found.accuracy == sum(int(o.argmax()) == int(y) for o, y in zip(outputs, val.labels, strict=True)) / 30


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("folder", ["mnist", "MNIST/raw", "."])
def test_files_are_found_packed_or_not_in_the_usual_folders(tmp_path: Path, folder: str, packed: bool) -> None:
    write_mnist(tmp_path, folder=folder, packed=packed)
    assert len(MnistTask(small(), data_dir=tmp_path).splits["val"]) == 30


def test_bad_files_are_refused_by_name(data_dir: Path) -> None:
    images, labels = data_dir / "mnist/train-images-idx3-ubyte.gz", data_dir / "mnist/train-labels-idx1-ubyte.gz"
    good = {path: path.read_bytes() for path in (images, labels)}
    plain = gzip.decompress(good[images])
    bad = [
        (images, good[images][:-10], r"train-images-idx3-ubyte.gz is damaged or cut short"),
        (images, good[images][:200] + b"\0" * 50 + good[images][250:], r"train-images-idx3-ubyte.gz is damaged"),
        (images, plain[:-1], r"train-images-idx3-ubyte.gz must hold 31,360 values, got 31,359"),
        (images, b"<html>no such page</html>", r"train-images-idx3-ubyte.gz must be an idx file of bytes with 3 axes"),
        (images, b"", r"train-images-idx3-ubyte.gz must be an idx file"),
        (images, write_idx(torch.zeros(40, 4, 4)), r"must hold images of 28 x 28, got the shape \[40, 4, 4\]"),
        (labels, write_idx(torch.zeros(39)), r"must be of one length, got 40 images and 39 labels"),
        (labels, write_idx(torch.full((40,), 10)), r"train-labels-idx1-ubyte.gz must hold labels below 10, got 10"),
        (labels, write_idx(torch.zeros(0)), r"train-labels-idx1-ubyte.gz must hold labels, got the shape \[0\]"),
    ]
    for path, content, message in bad:
        path.write_bytes(content)
        with pytest.raises(DataError, match=message):
            MnistTask(small(), data_dir=data_dir)
        path.write_bytes(good[path])
    images.unlink()
    with pytest.raises(DataError, match=r"missing data: put train-images-idx3-ubyte.gz into .*mnist$"):
        MnistTask(small(), data_dir=data_dir)


def test_more_points_than_there_are_is_refused(data_dir: Path) -> None:
    with pytest.raises(ValueError, match="train_points must be at most 40, got 41"):
        MnistTask(MnistConfig(train_points=41), data_dir=data_dir)


@real_data
def test_the_real_files_hold_what_is_known_of_them() -> None:
    train = MnistTask(MnistConfig()).splits["train"]
    assert train.labels[:6].tolist() == [5, 0, 4, 1, 9, 2]
    assert torch.bincount(train.labels).tolist() == [97, 116, 99, 93, 105, 92, 94, 117, 87, 100]
    assert len(MnistTask(MnistConfig()).splits["val"]) == 10_000


@real_data
def test_grokfast_crosses_at_the_published_step_on_the_released_grid(runs_dir: Path) -> None:
    config = resolve("mnist", filter="ema", eval_every=667, until=0.85, threads=1)
    run = train(config, runs_dir)
    assert run.summary is not None
    assert run.summary["crossings"]["first"] == {"after": 1_334, "step": 2_001}  # Table 4
