"""IMDb: is a film review positive? A two-layer LSTM whose large initial weights delay its generalisation.

Random stream: seed; build the model; split the reviews, the positive ones first; one permutation per epoch orders the
training part. Batches for the released code's measure of validation come from a stream of their own, so that
evaluating never changes training. The released code splits by another library's stream, so its very split is not ours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from grokfast.lab.tasks.base import (
    Evaluation,
    Headline,
    PaperConfig,
    Size,
    Split,
    TaskDefaults,
    check_at_least,
    setting,
)
from grokfast.lab.tasks.data import DataDir, digest
from grokfast.lab.tasks.epochs import EpochTask, Examples
from grokfast.lab.tasks.imdb.fast import last_logits
from grokfast.lab.tasks.imdb.lstm import SentimentLSTM
from grokfast.lab.tasks.imdb.reviews import encode, number_words, read_reviews, split_words

DRAWS = 0x6472617773  # keeps the validation batches' random stream apart from the rest
CHUNK = 256  # reviews per forward of the fast evaluation: bounds the memory of many rows


@dataclass(frozen=True)
class ImdbConfig(PaperConfig):
    """Sentiment of film reviews by an LSTM."""

    step_seconds: ClassVar[float] = 0.16
    quick_steps: ClassVar[int] = 5
    remark: ClassVar[str] = (
        "The published values are extremes of a noisy signal: one random validation batch of 50 per training step. "
        "The `batch` columns repeat that measure; the others are those of the whole validation part."
    )
    headline: ClassVar[Headline] = Headline("batch_accuracy_best", "best accuracy of a batch", "accuracy")
    further: ClassVar[tuple[Headline, ...]] = (Headline("batch_loss_best", "lowest loss of a batch", "loss"),)

    rows: int = setting(1000, "reviews to use, the first ones of the file")
    val_fraction: float = setting(0.25, "fraction of the reviews to validate on, the same for both sentiments")
    vocabulary: int = setting(1000, "words to know, the most frequent ones of the training part")
    length: int = setting(500, "words per review: longer ones are cut at the end, shorter ones padded in front")
    stop_words: bool | None = setting(
        None, "drop English stop words (default: the released code does, the paper's text does not say so)"
    )
    embedding: int = setting(64, "size of a word's vector", learning=True)
    width: int = setting(256, "size of the hidden state", learning=True)
    depth: int = setting(2, "number of LSTM layers", learning=True)
    init_scale: float = setting(6.0, "factor on all initial parameters", learning=True)
    batch_size: int = setting(50, "reviews per step; the last batch of an epoch may be smaller", learning=True)
    fast: bool = setting(True, "the same function with shared padding; rounding differs from the plain model")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "rows")
        check_at_least(self, 1, "vocabulary", "length", "embedding", "width", "depth", "batch_size")
        if not 0 < self.val_fraction < 1:
            raise ValueError(f"val_fraction must be in (0, 1), got {self.val_fraction}")
        if not 0 < self.init_scale < math.inf:
            raise ValueError(f"init_scale must be > 0 and finite, got {self.init_scale}")

    def defaults(self) -> TaskDefaults:
        return TaskDefaults(
            optimizer="adamw",
            lr=3e-4,
            clip_norm=5.0 if self.variant == "released" else 0.0,  # before the filter; not in the paper's text
            steps=10_000,
            eval_every=100,
            weight_decay={None: 1.0, "ema": 10.0},
            level=0.8,  # the paper names none
        )

    def size(self) -> Size:
        layers = self.embedding + 2 + self.width + (self.depth - 1) * (2 * self.width + 2)  # inputs and biases
        weights = (self.vocabulary + 1) * self.embedding + 4 * self.width * layers + self.width + 1
        return Size(weights, 16 * self.rows * self.length)

    def make(self, *, seed: int, device: str, data_dir: DataDir) -> ImdbTask:
        return ImdbTask(self, seed=seed, device=device, data_dir=data_dir)


class ImdbTask(EpochTask[SentimentLSTM]):
    """Reviews, split at random, and the LSTM that learns which are positive."""

    saved = ("generator", "draws", "order", "step", "evaluated")

    def __init__(self, config: ImdbConfig, *, seed: int = 0, device: str = "cpu", data_dir: DataDir = None) -> None:
        self.config = config
        reviews = read_reviews(data_dir, config.rows)
        self.data = digest(*(f"{review.positive} {review.text}".encode() for review in reviews))
        scale, size = config.init_scale, config.batch_size  # biases and the vector of padding are scaled too
        super().__init__(lambda: build(config), seed=seed, device=device, batch_size=size, scale=scale)
        positive = torch.tensor([review.positive for review in reviews])
        train, val = split_evenly(positive, config.val_fraction, self.generator)
        drop = config.by_variant("stop_words", released=True, paper=False)
        words = [split_words(review.text, stop_words=drop) for review in reviews]
        self.numbers = number_words((words[i] for i in train.tolist()), config.vocabulary)
        tokens, lengths = encode(words, self.numbers, config.length)
        labels = positive.float().to(self.device)
        whole = Examples(tokens=tokens.to(self.device), lengths=lengths, labels=labels)
        self.splits: dict[Split, Examples] = {"train": whole.take(train), "val": whole.take(val)}
        self.order = torch.arange(len(train))
        self.draws = torch.Generator().manual_seed(seed ^ DRAWS)
        self.evaluated = 0  # steps taken at the last look at the validation part

    def batch_of(self, index: Tensor) -> Examples:
        return self.splits["train"].take(index)

    def loss(self, batch: Examples) -> tuple[Tensor, Tensor]:
        losses, correct = self._losses(batch)
        return losses.mean(), correct.sum()

    @torch.no_grad()
    def evaluate(self, split: Split) -> Evaluation:
        """Mean loss and accuracy over the whole split and, for validation, an estimate of the released measure.

        The release looks at one random validation batch after each step and reports the extremes of that noisy
        signal. Here `batch_loss` and `batch_accuracy` are those of one such batch, and `batch_loss_best` and
        `batch_accuracy_best` the best of as many batches as there were steps since the last evaluation, all drawn
        from what the model says now: an estimate of what the release would have seen in between.
        """
        reviews = self.splits[split]
        parts = reviews.lengths.argsort(stable=True).split(CHUNK if self.config.fast else self.config.batch_size)
        pairs = [self._losses(reviews.take(part)) for part in parts]
        losses = torch.cat([pair[0] for pair in pairs]).double().cpu()  # (reviews,)
        correct = torch.cat([pair[1] for pair in pairs]).double().cpu()
        more = self._released_measure(losses, correct) if split == "val" else None
        return Evaluation(float(losses.mean()), float(correct.mean()), more)

    def _losses(self, batch: Examples) -> tuple[Tensor, Tensor]:
        """The loss of each review and whether its answer is right: (batch,) each."""
        fast = self.config.fast
        logits = last_logits(self.model, batch.tokens, batch.lengths) if fast else self.model(batch.tokens)
        # Equals the release's sigmoid and BCELoss up to rounding while |logit| < 16. Beyond, a wrong answer costs
        # the release 100 and gives it no gradient, for float32's sigmoid is then exactly 0 or 1.
        losses = binary_cross_entropy_with_logits(logits, batch.labels, reduction="none")
        return losses, (logits.detach() > 0) == batch.labels.bool()

    def _released_measure(self, losses: Tensor, correct: Tensor) -> dict[str, float]:
        count = max(1, self.step - self.evaluated)
        self.evaluated = self.step
        size = self.config.batch_size
        chosen = torch.stack([torch.randperm(len(losses), generator=self.draws)[:size] for _ in range(count)])
        means, shares = losses[chosen].mean(1), correct[chosen].mean(1)  # (count,)
        return {
            "batch_loss": float(means[0]),
            "batch_accuracy": float(shares[0]),
            "batch_loss_best": float(means.min()),
            "batch_accuracy_best": float(shares.max()),
        }


def build(config: ImdbConfig) -> SentimentLSTM:
    words, embedding = config.vocabulary + 1, config.embedding
    return SentimentLSTM(vocabulary=words, embedding=embedding, width=config.width, depth=config.depth)


def split_evenly(positive: Tensor, val_fraction: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Indices of the training and of the validation part, in the file's order, with equal shares of positive ones."""
    size = math.ceil(len(positive) * val_fraction)
    if size == len(positive):
        raise ValueError(f"val_fraction must leave both parts a review, got {val_fraction}")
    count = round(size * float(positive.double().mean()))
    yes, no = positive.nonzero().squeeze(1), (~positive).nonzero().squeeze(1)
    yes, no = (part[torch.randperm(len(part), generator=generator)] for part in (yes, no))
    val = torch.cat([yes[:count], no[: size - count]]).sort().values
    train = torch.cat([yes[count:], no[size - count :]]).sort().values
    return train, val
