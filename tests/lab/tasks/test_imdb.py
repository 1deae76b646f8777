from __future__ import annotations

import gzip
import io
import itertools
import os
import random
import tarfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from made import as_csv, make_rows, write_imdb
from torch import Tensor
from torch.nn.functional import binary_cross_entropy, binary_cross_entropy_with_logits

from grokfast.lab.tasks.data import DataError
from grokfast.lab.tasks.epochs import Examples
from grokfast.lab.tasks.imdb.fast import last_logits, plan
from grokfast.lab.tasks.imdb.lstm import SentimentLSTM
from grokfast.lab.tasks.imdb.reviews import STOP_WORDS, encode, number_words, read_reviews, split_words
from grokfast.lab.tasks.imdb.task import ImdbConfig, ImdbTask, split_evenly

SMALL: dict[str, Any] = {"rows": 40, "vocabulary": 30, "length": 12, "embedding": 4, "width": 6, "batch_size": 7}


def write_archive(folder: Path, files: dict[str, bytes]) -> Path:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return write_imdb(folder, packed.getvalue(), "aclImdb_v1.tar.gz")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_imdb(tmp_path, as_csv(make_rows()))


def make_task(data: Path, seed: int = 0, **changes: Any) -> ImdbTask:
    return ImdbTask(ImdbConfig(**{**SMALL, **changes}), seed=seed, data_dir=data)


# The fast path ------------------------------------------------------------------------------------------------------

POSITIONS = 60
LENGTHS = {
    "ragged": [3, 41, 0, 17, 60, 8, 8, 25, 1, 33],
    "all empty": [0, 0, 0],
    "all full": [60, 60],
    "full and empty": [60, 0],
    "one": [13],
    "one empty": [0],
    "one full": [60],
    "equal": [20, 20, 20, 20],
    "every": list(range(61)),
}


def make_reviews(lengths: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.zeros(len(lengths), POSITIONS, dtype=torch.long)
    for i, length in enumerate(lengths):
        tokens[i, POSITIONS - length :] = torch.randint(1, 20, (length,), generator=generator)
    return tokens, torch.tensor(lengths), torch.randint(0, 2, (len(lengths),), generator=generator).double()


def make_model(scale: float, depth: int = 2) -> SentimentLSTM:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = SentimentLSTM(vocabulary=20, embedding=5, width=16, depth=depth)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def largest_difference(model: SentimentLSTM, lengths: list[int]) -> float:
    """Of the loss and of each gradient, relative to its norm."""
    tokens, counts, labels = make_reviews(lengths)
    results: list[list[Tensor]] = []
    for fast in (False, True):
        logits = last_logits(model, tokens, counts) if fast else model(tokens)
        loss = binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        results.append([loss.detach(), logits.detach(), *torch.autograd.grad(loss, list(model.parameters()))])
    return max(float((a - b).norm() / a.norm()) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("scale", [1.0, 6.0])
def test_fast_path_equals_plain_model_in_loss_and_gradients(lengths: list[int], scale: float) -> None:
    assert largest_difference(make_model(scale).double(), lengths) < 1e-10
    assert largest_difference(make_model(scale), lengths) < 1e-4


def cut_by(patch: pytest.MonkeyPatch, call: int, steps: int, rows: int) -> None:
    for name, value in {"CALL": call, "STEPS": steps, "ROWS": rows}.items():
        patch.setattr(f"grokfast.lab.tasks.imdb.fast.{name}", value)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("cuts", [(0, 1, 1), (7, 1, 1), (0, 7, 3), (10**9, 1, 1), (0, 100, 100)])
def test_fast_path_equals_plain_model_wherever_time_is_cut(
    cuts: tuple[int, int, int], depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut_by(monkeypatch, *cuts)
    assert largest_difference(make_model(1.0, depth).double(), LENGTHS["ragged"]) < 1e-10


def test_padding_is_learnt_through_the_shared_row() -> None:
    tokens, counts, _ = make_reviews([5, 9])
    model = make_model(1.0)
    last_logits(model, tokens, counts).sum().backward()
    assert model.embedding.weight.grad is not None
    assert bool((model.embedding.weight.grad[0] != 0).all())


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
def test_plan_reads_every_step_once_and_every_review_whole(lengths: list[int]) -> None:
    starts = sorted(POSITIONS - length for length in lengths)
    segments = plan(starts, POSITIONS)
    assert segments[0].begin == 0
    assert segments[-1].end == POSITIONS
    assert segments[-1].rows == 1 + len(lengths)
    for one, two in itertools.pairwise(segments):
        assert one.end == two.begin
        assert one.begin < one.end
        assert one.rows <= two.rows
        assert all(start >= one.end for start in starts[one.rows - 1 :])


def work(cuts: Sequence[int], starts: list[int], call: int) -> int:
    """Rows times steps, and the calls, where time is cut so."""
    pairs = itertools.pairwise([0, *cuts, POSITIONS])
    return sum((end - begin) * (1 + sum(s < end for s in starts)) + call for begin, end in pairs)


def test_plan_is_the_least_work_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    cut_by(monkeypatch, call=20, steps=1, rows=1)
    starts = [2, 9, 9, 21, 30, 31, 47, 52, 58]
    chosen = [segment.begin for segment in plan(starts, POSITIONS)][1:]
    places = sorted(set(starts))
    choices = (cuts for n in range(len(places) + 1) for cuts in itertools.combinations(places, n))
    assert work(chosen, starts, 20) == min(work(cuts, starts, 20) for cuts in choices)
    assert 0 < len(chosen) < len(places)


def test_plans_of_many_batches_have_few_shapes() -> None:
    source = random.Random(0)
    shapes: set[tuple[int, int]] = set()
    for _ in range(100):
        starts = [500 - min(500, int(source.lognormvariate(4, 0.6))) for _ in range(50)]
        shapes |= {(end - begin, rows) for begin, end, rows in plan(starts, 500)}
    assert len(shapes) < 150


def test_fast_and_plain_tasks_agree(data: Path) -> None:
    fast, plain = make_task(data), make_task(data, fast=False)
    for task in (fast, plain):
        task.model.double()
        for name, split in task.splits.items():
            task.splits[name] = Examples(**{**vars(split), "labels": split.labels.double()})
    for _ in range(fast.epoch_steps):
        (a, right_a), (b, right_b) = (task.loss(task.next_batch()) for task in (fast, plain))
        assert float(a.detach()) == pytest.approx(float(b.detach()), rel=1e-10)
        assert int(right_a) == int(right_b)
    assert fast.evaluate("val").loss == pytest.approx(plain.evaluate("val").loss, rel=1e-10)


# Words --------------------------------------------------------------------------------------------------------------


def test_words_are_lower_case_without_digits_and_punctuation() -> None:
    text = "Don't  blink:\n<br />The 39 Steps (1935) is GREAT, isn't it?"
    assert split_words(text, stop_words=False) == ["dont", "blink", "br", "the", "steps", "is", "great", "isnt", "it"]
    assert split_words(text, stop_words=True) == ["dont", "blink", "br", "steps", "great", "isnt"]


def test_stop_words_are_the_153_without_apostrophe() -> None:
    assert len(STOP_WORDS) == 153
    assert all(word.isalpha() for word in STOP_WORDS)


def test_words_are_numbered_by_frequency_then_appearance() -> None:
    assert number_words([["b", "a"], ["c", "a", "c", "d"]], 3) == {"a": 1, "c": 2, "b": 3}


def test_reviews_are_padded_in_front_cut_at_the_end_and_lose_unknown_words() -> None:
    tokens, lengths = encode([["a", "x", "b"], [], ["a", "b", "b", "a"]], {"a": 1, "b": 2}, 3)
    assert tokens.tolist() == [[0, 1, 2], [0, 0, 0], [1, 2, 2]]
    assert lengths.tolist() == [2, 0, 3]


def test_vocabulary_comes_from_the_training_part_only(tmp_path: Path) -> None:
    letters = [chr(ord("a") + i // 26) + chr(ord("a") + i % 26) + "q" for i in range(40)]
    rows = [(letters[i], ("positive", "negative")[i % 2]) for i in range(40)]  # no word in two reviews
    task = make_task(write_imdb(tmp_path, as_csv(rows)), vocabulary=100)
    assert len(task.numbers) == len(task.splits["train"]) == 30
    assert task.splits["train"].lengths.tolist() == [1] * 30
    assert task.splits["val"].lengths.tolist() == [0] * 10


# The split and the random stream ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("positive", "negative"), [(501, 499), (10, 90), (1, 7), (3, 2), (0, 8)])
def test_split_is_stratified_and_complete(positive: int, negative: int) -> None:
    labels = torch.tensor([True] * positive + [False] * negative)
    train, val = split_evenly(labels, 0.25, torch.Generator().manual_seed(0))
    assert sorted([*train.tolist(), *val.tolist()]) == list(range(len(labels)))
    assert len(val) == -(-len(labels) // 4)
    assert abs(int(labels[val].sum()) - 0.25 * positive) <= 1
    assert abs(int((~labels[val]).sum()) - 0.25 * negative) <= 1


def test_same_seed_same_task_and_other_seed_other_split(data: Path) -> None:
    one, two, other = make_task(data), make_task(data), make_task(data, seed=1)
    assert torch.equal(one.next_batch().tokens, two.next_batch().tokens)
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), two.model.parameters(), strict=True))
    assert not torch.equal(one.splits["val"].tokens, other.splits["val"].tokens)


def test_global_stream_is_left_alone(data: Path) -> None:
    before = torch.get_rng_state()
    task = make_task(data)
    task.next_batch()
    task.evaluate("val")
    assert torch.equal(torch.get_rng_state(), before)


def test_epoch_is_every_training_review_once(data: Path) -> None:
    task = make_task(data)
    batches = [task.next_batch() for _ in range(task.epoch_steps)]
    assert [len(batch) for batch in batches] == [7, 7, 7, 7, 2]
    rows = sorted(row for batch in batches for row in batch.tokens.tolist())
    assert rows == sorted(task.splits["train"].tokens.tolist())


def test_resume_gives_the_same_batches_and_evaluations(data: Path) -> None:
    one, two = make_task(data), make_task(data)
    for _ in range(8):
        one.next_batch()
    one.evaluate("val")
    one.next_batch()
    two.load_state_dict(one.state_dict())
    for _ in range(12):
        assert torch.equal(one.next_batch().tokens, two.next_batch().tokens)
    assert one.evaluate("val") == two.evaluate("val")


def test_evaluation_does_not_change_training(data: Path) -> None:
    one, two = make_task(data), make_task(data)
    for step in range(12):
        assert torch.equal(one.next_batch().tokens, two.next_batch().tokens)
        two.evaluate("val" if step % 2 else "train")


def test_run_cannot_go_on_with_other_data(data: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    state = make_task(data).state_dict()
    rows = make_rows()
    rows[3] = (rows[3][0] + " more", rows[3][1])
    other = make_task(write_imdb(tmp_path_factory.mktemp("other"), as_csv(rows)))
    with pytest.raises(DataError, match="other data"):
        other.load_state_dict(state)


# Loss and evaluation ------------------------------------------------------------------------------------------------


def test_loss_is_binary_cross_entropy_of_the_sigmoid(data: Path) -> None:
    task = make_task(data, fast=False)
    batch = task.next_batch()
    chance = task.model(batch.tokens).sigmoid()
    loss, correct = task.loss(batch)
    torch.testing.assert_close(loss, binary_cross_entropy(chance, batch.labels), rtol=1e-5, atol=1e-6)
    assert int(correct) == int((chance.round() == batch.labels).sum())


def test_evaluation_is_the_mean_over_the_whole_split(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = make_task(data)
    for split in ("train", "val"):
        loss, correct = task.loss(task.splits[split])
        whole = task.evaluate(split)
        with monkeypatch.context() as patch:
            patch.setattr("grokfast.lab.tasks.imdb.task.CHUNK", 3)
            chunked = task.evaluate(split)
        assert whole.loss == pytest.approx(float(loss.detach()), rel=1e-5)
        assert whole.accuracy == float(correct) / len(task.splits[split])
        assert chunked.loss == pytest.approx(whole.loss, rel=1e-5)


def test_released_measure_is_the_best_of_as_many_batches_as_steps(data: Path) -> None:
    task = make_task(data, batch_size=3)
    assert task.evaluate("train").more is None
    first = task.evaluate("val").more
    assert first is not None
    assert first["batch_loss"] == first["batch_loss_best"]  # no step yet: one batch
    assert first["batch_accuracy"] == first["batch_accuracy_best"]
    for _ in range(200):
        task.next_batch()
    whole = task.evaluate("val")
    assert whole.more is not None
    assert whole.more["batch_loss_best"] < whole.loss
    assert whole.more["batch_loss_best"] <= whole.more["batch_loss"]
    assert whole.more["batch_accuracy_best"] >= whole.more["batch_accuracy"]
    again = task.evaluate("val").more
    assert again is not None
    assert again["batch_loss"] == again["batch_loss_best"]


def test_batch_as_large_as_the_validation_part_measures_the_whole(data: Path) -> None:
    whole = make_task(data, batch_size=50).evaluate("val")
    assert whole.more is not None
    assert whole.more["batch_loss"] == pytest.approx(whole.loss)


def test_training_learns_the_reviews(data: Path) -> None:
    task = make_task(data, init_scale=1.0, batch_size=30)
    optimizer = torch.optim.AdamW(task.model.parameters(), lr=0.03)
    before = task.evaluate("train").loss
    for _ in range(40):
        optimizer.zero_grad()
        task.loss(task.next_batch())[0].backward()
        optimizer.step()
    assert task.evaluate("train").loss < 0.5 * before


# Settings -----------------------------------------------------------------------------------------------------------


def test_every_parameter_is_scaled(data: Path) -> None:
    one, six = make_task(data, init_scale=1.0), make_task(data, init_scale=6.0)
    for a, b in zip(one.model.parameters(), six.model.parameters(), strict=True):
        torch.testing.assert_close(6 * a, b)
        assert bool((b != 0).all())


def test_variants_differ_in_stop_words_and_clipping(tmp_path: Path) -> None:
    rows = [("the film was good", "positive"), ("not the best film", "negative")] * 20
    data = write_imdb(tmp_path, as_csv(rows))
    assert set(make_task(data).numbers) == {"film", "good", "best"}
    assert set(make_task(data, variant="paper").numbers) == {"the", "film", "was", "good", "not", "best"}
    assert set(make_task(data, variant="paper", stop_words=True).numbers) == {"film", "good", "best"}
    assert ImdbConfig().defaults().clip_norm == 5.0
    assert ImdbConfig(variant="paper").defaults().clip_norm == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", 1),
        ("val_fraction", 0.0),
        ("val_fraction", 1.0),
        ("val_fraction", float("nan")),
        ("vocabulary", 0),
        ("length", 0),
        ("embedding", 0),
        ("width", 0),
        ("depth", 0),
        ("init_scale", 0.0),
        ("init_scale", float("inf")),
        ("batch_size", 0),
        ("variant", "other"),
    ],
)
def test_bad_setting_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^{name} must be .*, got "):
        ImdbConfig(**{name: value})


def test_split_that_leaves_nothing_to_train_on_is_refused(data: Path) -> None:
    with pytest.raises(ValueError, match=r"^val_fraction must leave both parts a review, got 0.99"):
        make_task(data, val_fraction=0.99)


# The files ----------------------------------------------------------------------------------------------------------


def test_packed_and_plain_files_of_any_name_are_the_same_data(tmp_path: Path) -> None:
    content = as_csv(make_rows())
    digests: set[str] = set()
    for i, (name, packed) in enumerate(
        [
            ("IMDB Dataset.csv", content),
            ("IMDB Dataset.csv.gz", gzip.compress(content)),
            ("IMDB-Dataset.csv", b"\xef\xbb\xbf" + content),
            ("IMDB-first50.csv.gz", gzip.compress(as_csv(make_rows(50)))),
        ]
    ):
        folder = tmp_path / str(i)
        folder.mkdir()
        digests.add(make_task(write_imdb(folder, packed, name)).data)
    assert len(digests) == 1


def test_quotes_commas_and_line_ends_stay_in_the_review(tmp_path: Path) -> None:
    rows = [('He said "no",\nand left', "negative"), ("Fine", "positive")]
    assert [tuple(review) for review in read_reviews(write_imdb(tmp_path, as_csv(rows)), 2)] == [
        (rows[0][0], False),
        ("Fine", True),
    ]


GOOD = as_csv([("fine, really", "positive"), ("dull", "negative")])
BAD: dict[str, tuple[bytes, str]] = {
    "header": (as_csv([("fine", "positive")], ("text", "label")), "must begin with the header review,sentiment, got"),
    "nothing": (b"", "must begin with the header"),
    "sentiment": (GOOD + b"meh,neutral\r\n", "row 3 of .* must be positive or negative, got 'neutral'"),
    "fields": (GOOD + b"a,b,positive\r\n", "row 3 of .* must have 2 fields, got 3"),
    "cut in a review": (GOOD + b'"so good that I', "is damaged or cut short: unexpected end of data"),
    "cut after a review": (GOOD + b"so good", "row 3 of .* must have 2 fields, got 1"),
    "cut in a sentiment": (GOOD + b"so good,posi", "row 3 of .* must be positive or negative, got 'posi'"),
    "encoding": ("review,sentiment\nÉtonnant,positive\n".encode("latin-1"), "must be UTF-8 text"),
    "too few": (GOOD, "must hold at least 3 reviews, got 2"),
    "half a gzip file": (gzip.compress(GOOD)[:40], "is damaged or cut short"),
    "endless review": (GOOD + b'"' + b"so good " * 20_000, "is damaged or cut short"),
}


@pytest.mark.parametrize(("content", "message"), BAD.values(), ids=BAD.keys())
def test_bad_file_is_refused_by_name(content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message) as error:
        read_reviews(write_imdb(tmp_path, content), 3)
    assert "IMDB Dataset.csv" in str(error.value)
    assert "\n" not in str(error.value)


def test_missing_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"missing data: put aclImdb_v1.tar.gz into .*imdb, or .*IMDB Dataset.csv"):
        make_task(tmp_path)


def archive_files(count: int) -> dict[str, bytes]:
    files = {"aclImdb/README": b"hello", "aclImdb/train/unsup/0_0.txt": b"nothing"}
    for part in ("test", "train"):
        for sentiment in ("neg", "pos"):
            for i in reversed(range(count)):
                files[f"aclImdb/{part}/{sentiment}/{i}_{i % 10}.txt"] = f"{part} {sentiment} {i}".encode()
    return files


def test_archive_gives_positive_and_negative_reviews_in_turn(tmp_path: Path) -> None:
    reviews = read_reviews(write_archive(tmp_path, archive_files(11)), 44)
    assert [review.text for review in reviews[:3]] == ["train pos 0", "train neg 0", "train pos 1"]
    assert [review.text for review in reviews[20:23]] == ["train pos 10", "train neg 10", "test pos 0"]
    assert [review.positive for review in reviews] == [True, False] * 22


def without_end(content: bytes) -> bytes:
    return content[: len(content) // 2]


def test_bad_archive_is_refused_by_name(tmp_path: Path) -> None:
    path = write_archive(tmp_path, archive_files(30)) / "imdb" / "aclImdb_v1.tar.gz"
    whole = path.read_bytes()
    changes: list[Callable[[bytes], bytes]] = [without_end, lambda content: b"x" + content, lambda _: b""]
    for change in changes:
        path.write_bytes(change(whole))
        with pytest.raises(DataError, match=r"aclImdb_v1.tar.gz is damaged or cut short"):
            read_reviews(tmp_path, 3)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("aclImdb/train/pos/best.txt", b"fine", "must hold reviews called like 0_9.txt, got .*best.txt"),
        ("aclImdb/train/pos/old/0_9.txt", b"fine", "must hold reviews called like 0_9.txt, got .*old"),
        ("aclImdb/train/pos/0_9.txt", b"\xff\xfe", "0_9.txt in .* must be UTF-8 text"),
        ("aclImdb/train/unsup/0_9.txt", b"fine", "must hold at least 1 reviews, got 0"),
    ],
)
def test_archive_with_other_content_is_refused_by_name(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message) as error:
        read_reviews(write_archive(tmp_path, {name: content}), 1)
    assert "aclImdb_v1.tar.gz" in str(error.value)


# The real reviews ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.environ.get("GROKFAST_DATA"), reason="needs the data sets in $GROKFAST_DATA")
def test_first_rows_are_the_published_ones() -> None:
    task = ImdbTask(ImdbConfig(fast=False, width=2))
    labels = torch.cat([split.labels for split in task.splits.values()])
    assert (int(labels.sum()), int((1 - labels).sum())) == (501, 499)
    assert [len(split) for split in task.splits.values()] == [750, 250]
    assert [int(split.labels.sum()) for split in task.splits.values()] == [376, 125]
    assert len(task.numbers) == 1000
    assert 40 < float(task.splits["train"].lengths.median()) < 70
