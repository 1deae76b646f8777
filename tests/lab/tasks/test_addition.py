"""Modular addition: right answers, everything from the seed, a fast path that equals autograd, and it groks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from grokfast.lab.settings import resolve
from grokfast.lab.tasks.addition import AdditionConfig, AdditionTask
from grokfast.lab.tasks.contract import check_contract
from grokfast.lab.tasks.epochs import Examples
from grokfast.lab.training.run import train

SMALL: dict[str, Any] = {"p": 7, "width": 16, "batch_size": 8}


def make(seed: int = 0, **changes: Any) -> AdditionTask:
    return AdditionTask(AdditionConfig(**{**SMALL, **changes}), seed=seed)


def pairs_of(batch: Examples) -> list[tuple[int, int]]:
    return list(zip(batch.left.tolist(), batch.right.tolist(), strict=True))


def test_the_splits_share_no_pair_and_every_answer_is_the_sum() -> None:
    task = make()
    train, val = (pairs_of(task.splits[name]) for name in ("train", "val"))
    assert len(train) == 24
    assert sorted(train + val) == [(x, y) for x in range(7) for y in range(7)]
    for split in task.splits.values():
        assert split.answer.tolist() == [(x + y) % 7 for x, y in pairs_of(split)]


def test_the_network_has_8832_parameters() -> None:
    config = AdditionConfig()
    count = sum(p.numel() for p in AdditionTask(config).model.parameters())
    assert count == config.size().weights == 8832


def test_everything_comes_from_the_seed() -> None:
    first, same, other = make(1), make(1), make(2)
    assert pairs_of(first.next_batch()) == pairs_of(same.next_batch())
    assert torch.equal(first.model.left, same.model.left)
    assert not torch.equal(first.model.left, other.model.left)
    assert pairs_of(first.splits["val"]) != pairs_of(other.splits["val"])


def test_a_batch_of_0_is_all_pairs_and_draws_nothing() -> None:
    task = make(batch_size=0)
    before = task.state_dict()["generator"].clone()
    assert pairs_of(task.next_batch()) == pairs_of(task.splits["train"])
    assert task.epoch_steps == 1
    assert torch.equal(before, task.state_dict()["generator"])


def test_noise_changes_that_share_of_the_training_answers_and_nothing_else() -> None:
    clean, noisy = make(), make(label_noise=0.25)
    assert pairs_of(clean.splits["train"]) == pairs_of(noisy.splits["train"])
    assert int((clean.splits["train"].answer != noisy.splits["train"].answer).sum()) == 6
    assert torch.equal(clean.splits["val"].answer, noisy.splits["val"].answer)
    assert torch.equal(clean.model.out, noisy.model.out)


@pytest.mark.parametrize("loss", ["mse", "cross-entropy"])
@pytest.mark.parametrize("batch_size", [8, 0])
def test_the_fast_path_has_the_loss_and_the_gradients_of_autograd(loss: Any, batch_size: int) -> None:
    fast, plain = (make(loss=loss, batch_size=batch_size, fast=fast) for fast in (True, False))
    for _ in range(3):
        (one, right), (other, expected) = fast.loss(fast.next_batch()), plain.loss(plain.next_batch())
        torch.testing.assert_close(one, other)
        assert int(right) == int(expected)
        (3 * one).backward()
        (3 * other).backward()
        for mine, theirs in zip(fast.model.parameters(), plain.model.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)


def test_squared_errors_are_summed_over_outputs_and_averaged_over_the_batch() -> None:
    task = make(fast=False)
    batch = task.splits["val"]
    logits = task.model(batch.left, batch.right).tolist()
    answers = batch.answer.tolist()
    by_hand = [sum((v - (k == z)) ** 2 for k, v in enumerate(row)) for row, z in zip(logits, answers, strict=True)]
    assert task.evaluate("val").loss == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-5)


def test_it_keeps_the_contract_of_a_task() -> None:
    check_contract(make())


def test_a_resumed_run_draws_the_same_batches() -> None:
    task = make()
    task.next_batch()
    state = task.state_dict()
    expected = pairs_of(task.next_batch())
    task.load_state_dict(state)
    assert pairs_of(task.next_batch()) == expected


def test_with_weight_decay_it_generalises(tmp_path: Path) -> None:
    settings = resolve("addition", weight_decay=1.0, steps=800, until=0.95, threads=1, device="cpu")
    run = train(settings, tmp_path)
    learnt, general = run.crossing("train").step, run.crossing().step
    assert learnt is not None
    assert general is not None
    assert learnt < general


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"p": 1}, r"p must be >= 2, got 1"),
        ({"batch_size": -1}, r"batch_size must be >= 0, got -1"),
        ({"train_fraction": 1.0}, r"train_fraction must be in \(0, 1\), got 1.0"),
        ({"train_fraction": 0.01}, r"train_fraction must leave both splits a pair, got 0.01"),
        ({"label_noise": 2.0}, r"label_noise must be in \[0, 1\], got 2.0"),
        ({"loss": "hinge"}, r"loss must be one of mse, cross-entropy, got 'hinge'"),
    ],
)
def test_values_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**changes)
