"""Sparse parity: the answers are products of k signs, everything comes from the seed, and it can be learnt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grokfast.lab.settings import resolve
from grokfast.lab.tasks.parity import ParityConfig, ParityTask
from grokfast.lab.training.run import train

SMALL: dict[str, Any] = {"n": 8, "k": 3, "train_points": 64, "val_points": 50, "width": 16, "batch_size": 16}


def make(seed: int = 0, **changes: Any) -> ParityTask:
    return ParityTask(ParityConfig(**{**SMALL, **changes}), seed=seed)


def test_an_answer_is_the_product_of_k_signs_and_of_no_others() -> None:
    task = make()
    assert len(set(task.places.tolist())) == 3
    for split in task.splits.values():
        assert set(split.signs.unique().tolist()) == {-1.0, 1.0}
        product = torch.stack([split.signs[:, i] for i in task.places.tolist()]).prod(0)
        assert torch.equal(split.answer, (product > 0).long())
    assert [len(task.splits[name]) for name in ("train", "val")] == [64, 50]


def test_noise_turns_that_share_of_the_training_answers_and_no_other() -> None:
    clean, noisy = make(), make(label_noise=0.25)
    assert torch.equal(clean.splits["train"].signs, noisy.splits["train"].signs)
    assert int((clean.splits["train"].answer != noisy.splits["train"].answer).sum()) == 16
    assert torch.equal(clean.splits["val"].answer, noisy.splits["val"].answer)


def test_everything_comes_from_the_seed() -> None:
    first, same, other = make(1), make(1), make(2)
    assert torch.equal(first.next_batch().signs, same.next_batch().signs)
    assert torch.equal(first.places, same.places)
    assert not torch.equal(first.splits["train"].signs, other.splits["train"].signs)


def test_an_epoch_sees_every_example_once() -> None:
    task = make()
    assert task.epoch_steps == 4
    seen = torch.cat([task.next_batch().signs for _ in range(4)])
    assert sorted(map(tuple, seen.tolist())) == sorted(map(tuple, task.splits["train"].signs.tolist()))


@pytest.mark.parametrize("loss", ["cross-entropy", "stablemax"])
def test_it_is_learnt(loss: str, tmp_path: Path) -> None:
    easy = {"n": 6, "k": 2, "train_points": 200, "val_points": 200, "width": 64, "lr": 0.01, "loss": loss}
    run = train(resolve("parity", **easy, steps=400, until=0.95, threads=1), tmp_path)
    assert run.crossing().step is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": 9}, r"k must be <= n = 8, got 9"),
        ({"k": 0}, r"k must be >= 1, got 0"),
        ({"label_noise": 2.0}, r"label_noise must be in \[0, 1\], got 2.0"),
        ({"loss": "mse"}, r"loss must be one of cross-entropy, stablemax, got 'mse'"),
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)
