from __future__ import annotations

import copy
import io
import itertools
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from grokfast.lab.tasks.epochs import Examples
from grokfast.lab.tasks.modular.operations import Operation, compose, invert, make_equations
from grokfast.lab.tasks.modular.task import ModularConfig, ModularTask

SMALL = ModularConfig(p=7, width=16, heads=2, batch_size=8)
S5 = list(itertools.permutations(range(5)))


def as_batch(table: torch.Tensor) -> Examples:
    left, right, answer = table
    return Examples(left=left, right=right, answer=answer)


def batches(task: ModularTask, count: int) -> list[list[list[int]]]:
    taken = [task.next_batch() for _ in range(count)]
    return [[batch.left.tolist(), batch.right.tolist(), batch.answer.tolist()] for batch in taken]


# The operations -----------------------------------------------------------------------------------------------------


def by_hand(operation: str, x: int, y: int, p: int) -> int:
    rules: dict[str, Any] = {
        "add": lambda: x + y,
        "subtract": lambda: x - y,
        "multiply": lambda: x * y,
        "divide": lambda: next(z for z in range(p) if z * y % p == x),
        "x2+y2": lambda: x**2 + y**2,
        "x2+xy+y2": lambda: x**2 + x * y + y**2,
        "x2+xy+y2+x": lambda: x**2 + x * y + y**2 + x,
        "x3+xy": lambda: x**3 + x * y,
        "x3+xy2+y": lambda: x**3 + x * y**2 + y,
        "divide-or-subtract": lambda: next(z for z in range(p) if z * y % p == x) if y % 2 else x - y,
    }
    return rules[operation]() % p


@pytest.mark.parametrize("operation", [name for name in get_args(Operation) if not name.startswith("s5")])
@pytest.mark.parametrize("p", [2, 3, 5, 23])
def test_every_modular_operation_equals_the_one_by_hand(operation: Operation, p: int) -> None:
    left, right, answer, symbols = make_equations(operation, p=p, with_zero=True)
    first = 1 if operation == "divide" else 0
    assert symbols == p
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == [(x, y) for x in range(p) for y in range(first, p)]
    for x, y, z in zip(left.tolist(), right.tolist(), answer.tolist(), strict=True):
        assert z == by_hand(operation, x, y, p)


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        ("s5", lambda x, y, i: x[y[i]]),
        ("s5-conjugate", lambda x, y, i: x[y[x.index(i)]]),
        ("s5-xyx", lambda x, y, i: x[y[x[i]]]),
    ],
)
def test_every_operation_of_s5_equals_the_one_by_hand(operation: Operation, rule: Any) -> None:
    left, right, answer, symbols = make_equations(operation)
    assert (len(left), symbols) == (14_400, 120)
    for row in range(0, 14_400, 7):
        x, y, z = S5[left[row]], S5[right[row]], S5[answer[row]]
        assert z == tuple(rule(x, y, i) for i in range(5))


def test_s5_is_a_group_that_does_not_commute() -> None:
    table = make_equations("s5").answer.view(120, 120)
    members = torch.arange(120)
    one = S5.index((0, 1, 2, 3, 4))
    assert torch.equal(table[one], members)
    assert torch.equal(table[:, one], members)
    assert torch.equal(table[table.flatten()].view(120, 120, 120), table[:, table])  # (x y) z = x (y z)
    assert all(sorted(row) == list(range(120)) for row in table.tolist())
    assert not torch.equal(table, table.T)


@given(st.permutations(range(5)), st.permutations(range(5)))
def test_inverses_undo(x: list[int], y: list[int]) -> None:
    a, b = tuple(x), tuple(y)
    assert compose(compose(a, b), invert(b)) == a
    assert compose(invert(b), compose(b, a)) == a


@pytest.mark.parametrize("p", [-7, 0, 1, 4, 91, 97 * 89])
def test_a_modulus_that_is_no_prime_is_refused(p: int) -> None:
    with pytest.raises(ValueError, match=f"p must be a prime, got {p}"):
        make_equations("multiply", p=p)


def test_an_unknown_operation_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"operation must be one of add, .*, s5-xyx, got 'minus'"):
        make_equations("minus")  # type: ignore[arg-type]


# The task of the paper ----------------------------------------------------------------------------------------------


def test_the_papers_task_has_the_papers_numbers() -> None:
    task = ModularTask(ModularConfig(), seed=0)
    assert task.model.tokens.num_embeddings == 99
    assert task.model.positions.num_embeddings == 5
    assert sum(p.numel() for p in task.model.parameters()) == 422_784
    assert [split.shape[1] for split in task.splits.values()] == [4_656, 4_656]
    assert task.epoch_steps == 10
    assert [len(task.next_batch()) for _ in range(10)] == [512] * 9 + [48]
    equations = ModularConfig().equations()
    assert [t.tolist() for t in (equations.left[:3], equations.right[:3])] == [[0, 0, 0], [1, 2, 3]]
    assert len(equations.left) == 9_312


def test_the_random_stream_is_the_released_one() -> None:
    """Seed the global generator; build the model; split; shuffle on top of earlier shuffles."""
    task = ModularTask(SMALL, seed=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = type(task.model)(width=16, depth=2, heads=2, vocabulary=9)
        x, y = torch.cartesian_prod(torch.arange(7), torch.arange(1, 7)).T
        data = torch.stack([x, y, x * y % 7])
        train, val = (data[:, part] for part in torch.randperm(42).split(21))
        epochs: list[list[list[list[int]]]] = []
        for _ in range(3):
            train = train[:, torch.randperm(21)]
            epochs.append([batch.tolist() for batch in train.split(8, dim=1)])
    assert all(torch.equal(p, q) for p, q in zip(task.model.parameters(), model.parameters(), strict=True))
    assert torch.equal(task.splits["val"], val)
    assert [batches(task, 3) for _ in range(3)] == epochs


def test_the_parameters_are_created_in_the_released_order() -> None:
    names = [name for name, _ in ModularTask(SMALL).model.named_parameters()]
    block = ["ln_1.weight", "ln_1.bias", "ln_2.weight", "ln_2.bias", "attn.in_proj_weight", "attn.in_proj_bias"]
    block += ["attn.out_proj.weight", "attn.out_proj.bias", "mlp.0.weight", "mlp.0.bias", "mlp.2.weight", "mlp.2.bias"]
    blocks = [f"blocks.{i}.{name}" for i in range(2) for name in block]
    assert names == ["tokens.weight", "positions.weight", *blocks, "ln.weight", "ln.bias", "head.weight"]


def test_variants_differ_in_y_zero_and_nothing_else() -> None:
    assert len(ModularConfig(variant="paper").equations().left) == 9_409
    assert len(ModularConfig(variant="paper", with_zero=False).equations().left) == 9_312
    assert len(ModularConfig(with_zero=True).equations().left) == 9_409
    for operation in get_args(Operation):
        released, paper = (
            ModularConfig(operation=operation, p=5, variant=v).equations() for v in ("released", "paper")
        )
        assert (len(released.left) == len(paper.left)) == (operation != "multiply")


# The stream of batches ----------------------------------------------------------------------------------------------


def test_same_seed_same_batches_and_another_seed_others() -> None:
    assert batches(ModularTask(SMALL, seed=1), 9) == batches(ModularTask(SMALL, seed=1), 9)
    assert batches(ModularTask(SMALL, seed=1), 9) != batches(ModularTask(SMALL, seed=2), 9)


def test_every_training_equation_comes_once_per_epoch() -> None:
    task = ModularTask(SMALL)
    wanted = sorted(task.splits["train"].T.tolist())
    for _ in range(3):
        epoch = [row for batch in batches(task, task.epoch_steps) for row in zip(*batch, strict=True)]
        assert sorted(map(list, epoch)) == wanted


@pytest.mark.parametrize("done", range(8))
def test_a_restored_stream_continues_as_if_never_interrupted(done: int) -> None:
    task = ModularTask(SMALL, seed=5)
    batches(task, done)
    file = io.BytesIO()
    torch.save(task.state_dict(), file)
    expected = batches(task, 10)
    file.seek(0)
    other = ModularTask(SMALL, seed=99)
    other.splits = task.splits
    other.load_state_dict(torch.load(file, weights_only=True))
    assert batches(other, 10) == expected


def test_a_state_taken_earlier_does_not_move_with_the_task() -> None:
    task = ModularTask(SMALL)
    batches(task, 2)
    state = task.state_dict()
    kept = copy.deepcopy(state)
    batches(task, 7)
    assert torch.equal(state["generator"], kept["generator"])
    assert torch.equal(state["order"], kept["order"])
    assert state["place"] == kept["place"]


def test_the_global_random_state_is_neither_read_nor_changed() -> None:
    before = torch.get_rng_state()
    task = ModularTask(SMALL, seed=0)
    taken = batches(task, 5)
    task.loss(task.next_batch())[0].backward()
    task.evaluate("train")
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(10)
    assert batches(ModularTask(SMALL, seed=0), 5) == taken


# Loss and evaluation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fast", [True, False])
def test_evaluation_is_the_mean_over_the_whole_split(fast: bool) -> None:
    task = ModularTask(ModularConfig(p=7, width=16, heads=2, batch_size=8, fast=fast), seed=0)
    for split in ("train", "val"):
        loss, correct = task.loss(as_batch(task.splits[split]))
        found = task.evaluate(split)
        assert found.loss == pytest.approx(float(loss.detach()), rel=1e-5)
        assert found.accuracy == pytest.approx(int(correct) / task.splits[split].shape[1])


def test_evaluation_in_chunks_equals_evaluation_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    task = ModularTask(ModularConfig(p=23, width=16, heads=2), seed=0)
    whole = task.evaluate("val")
    monkeypatch.setattr("grokfast.lab.tasks.modular.task.CHUNK", 10)
    parts = task.evaluate("val")
    assert parts.accuracy == whole.accuracy
    assert parts.loss == pytest.approx(whole.loss, rel=1e-5)


def test_plain_and_fast_train_alike() -> None:
    losses: list[list[float]] = []
    for fast in (False, True):
        task = ModularTask(ModularConfig(p=11, width=32, batch_size=16, fast=fast), seed=0)
        optimizer = torch.optim.Adam(task.model.parameters(), lr=1e-3)
        losses.append([])
        for _ in range(30):
            loss, _ = task.loss(task.next_batch())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses[-1].append(float(loss.detach()))
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
    assert losses[0][-1] < losses[0][0]


def test_evaluation_leaves_no_trace() -> None:
    task = ModularTask(SMALL, seed=0)
    state = copy.deepcopy(task.state_dict())
    task.evaluate("val")
    assert all(p.grad is None for p in task.model.parameters())
    assert torch.equal(task.state_dict()["generator"], state["generator"])


# Label noise --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5, 1.0])
def test_label_noise_makes_this_part_of_the_training_answers_wrong(noise: float) -> None:
    task = ModularTask(ModularConfig(p=23, width=16, label_noise=noise), seed=0)
    wrong = {name: int((left * right % 23 != answer).sum()) for name, (left, right, answer) in task.splits.items()}
    assert wrong == {"train": round(noise * task.splits["train"].shape[1]), "val": 0}


def test_label_noise_comes_from_the_seed_and_leaves_the_stream_alone() -> None:
    noisy = [ModularTask(ModularConfig(p=23, width=16, label_noise=0.3), seed=s) for s in (0, 0, 1)]
    assert torch.equal(noisy[0].splits["train"], noisy[1].splits["train"])
    assert not torch.equal(noisy[0].splits["train"], noisy[2].splits["train"])
    clean = ModularTask(ModularConfig(p=23, width=16), seed=0)
    assert all(torch.equal(p, q) for p, q in zip(clean.model.parameters(), noisy[0].model.parameters(), strict=True))
    assert [b[:2] for b in batches(clean, 4)] == [b[:2] for b in batches(noisy[0], 4)]


# Bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"p": 96}, "p must be a prime, got 96"),
        ({"width": 0}, "width must be >= 1, got 0"),
        ({"depth": 0}, "depth must be >= 1, got 0"),
        ({"heads": -1}, "heads must be >= 1, got -1"),
        ({"batch_size": 0}, "batch_size must be >= 1, got 0"),
        ({"width": 10, "heads": 4}, "width must be a multiple of heads = 4, got 10"),
        ({"train_fraction": 0.0}, r"train_fraction must be in \(0, 1\), got 0.0"),
        ({"train_fraction": 1.0}, r"train_fraction must be in \(0, 1\), got 1.0"),
        ({"label_noise": 1.5}, r"label_noise must be in \[0, 1\], got 1.5"),
        ({"variant": "draft"}, "variant must be one of released, paper, got 'draft'"),
        ({"compile": True, "fast": False}, "compile must be False where fast is, got True"),
    ],
)
def test_bad_input_is_refused_by_name_range_and_value(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ModularConfig(**changes)


def test_a_split_without_an_equation_is_refused() -> None:
    with pytest.raises(ValueError, match=r"train_fraction must leave both splits an equation, got 0.01"):
        ModularTask(ModularConfig(p=3, width=16, train_fraction=0.01))
