"""Film reviews: reading them, splitting them into words, and numbering the words.

The published numbers are for the first 1,000 rows of the Kaggle file `IMDB Dataset.csv`. The archive that can be
downloaded without an account holds the same 50,000 reviews in another order, so its first rows are other reviews.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from grokfast.lab.tasks.data import DataDir, DataError, locate, read_archive, read_text

ARCHIVE = "aclImdb_v1.tar.gz"
SOURCE = (f"https://ai.stanford.edu/~amaas/data/sentiment/{ARCHIVE}", "md5:7c2ac02c03563afcf9b574c7e56c153a")
NAMES = ["IMDB Dataset.csv", "IMDB Dataset.csv.gz", "IMDB*.csv", "IMDB*.csv.gz", ARCHIVE]
HINT = "the Kaggle file IMDB Dataset.csv, whose first rows are those of the published numbers"
HEADER = ["review", "sentiment"]
SENTIMENTS = {"positive": True, "negative": False}

# NLTK's English list but for its words with an apostrophe: words are compared when theirs are gone, as in the release.
STOP_LIST = """
    i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her hers herself
    it its itself they them their theirs themselves what which who whom this that these those am is are was were be
    been being have has had having do does did doing a an the and but if or because as until while of at by for with
    about against between into through during before after above below to from up down in out on off over under again
    further then once here there when where why how all any both each few more most other some such no nor not only
    own same so than too very s t can will just don should now d ll m o re ve y ain aren couldn didn doesn hadn hasn
    haven isn ma mightn mustn needn shan shouldn wasn weren won wouldn
"""
STOP_WORDS = frozenset(STOP_LIST.split())


class _Review(NamedTuple):
    """What somebody wrote, and whether they liked the film."""

    text: str
    positive: bool


# The files ----------------------------------------------------------------------------------------------------------


def read_reviews(data_dir: DataDir, rows: int) -> list[_Review]:
    """The first `rows` reviews of whichever file there is; all of it is checked."""
    path = locate(data_dir, ["imdb", "."], NAMES, wanted=ARCHIVE, source=SOURCE, hint=HINT)
    reviews = parse_archive(path) if path.name == ARCHIVE else parse_csv(read_text(path), path)
    if len(reviews) < rows:
        raise DataError(f"{path} must hold at least {rows:,} reviews, got {len(reviews):,}")
    return reviews[:rows]


def parse_csv(text: str, path: Path) -> list[_Review]:
    # Strict: a file that is cut short inside a quoted review would else end in half a review.
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""), strict=True)
    try:
        header = next(reader, [])
        if header != HEADER:
            raise DataError(f"{path} must begin with the header {','.join(HEADER)}, got {','.join(header)[:80]!r}")
        return [parse_row(row, f"row {i} of {path}") for i, row in enumerate(reader, 1)]
    except csv.Error as error:
        raise DataError(f"{path} is damaged or cut short: {error} at line {reader.line_num}") from error


def parse_row(row: Sequence[str], name: str) -> _Review:
    if len(row) != len(HEADER):
        raise DataError(f"{name} must have {len(HEADER)} fields, got {len(row)}")
    text, sentiment = row
    if sentiment not in SENTIMENTS:
        raise DataError(f"{name} must be positive or negative, got {sentiment[:80]!r}")
    return _Review(text, SENTIMENTS[sentiment])


def parse_archive(path: Path) -> list[_Review]:
    """The labelled reviews of the Stanford archive: train, then test, positive and negative in turn by file number."""
    folders = [f"aclImdb/{part}/{name}/" for part in ("train", "test") for name in ("pos", "neg")]
    found: list[tuple[tuple[bool, int, bool], _Review]] = []
    for name, content in read_archive(path, folders).items():
        fit = re.fullmatch(r"aclImdb/(train|test)/(pos|neg)/(\d+)_\d+\.txt", name)
        if fit is None:
            raise DataError(f"{path} must hold reviews called like 0_9.txt, got {name!r}")
        part, sentiment, number = fit.groups()
        try:
            review = _Review(content.decode("utf-8"), sentiment == "pos")
        except UnicodeDecodeError as error:
            raise DataError(f"{name} in {path} must be UTF-8 text: {error.reason} at byte {error.start}") from error
        found.append(((part == "test", int(number), sentiment == "neg"), review))
    return [review for _, review in sorted(found, key=lambda item: item[0])]


# Words --------------------------------------------------------------------------------------------------------------


def split_words(text: str, *, stop_words: bool) -> list[str]:
    """Words in lower case, without digits and punctuation, and without stop words if those are to go.

    Examples:
        >>> split_words("It's the 2nd-best film.<br />I don't cry", stop_words=True)
        ['ndbest', 'filmbr', 'dont', 'cry']
    """
    words = re.sub(r"[^\w\s]|\d", "", text.lower()).split()
    return [word for word in words if word not in STOP_WORDS] if stop_words else words


def number_words(reviews: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """The most frequent words, numbered from 1 by rank; of equally frequent ones the first to appear comes first."""
    common = Counter(chain.from_iterable(reviews)).most_common(size)
    return {word: i for i, (word, _) in enumerate(common, 1)}


def encode(reviews: Sequence[Sequence[str]], numbers: dict[str, int], positions: int) -> tuple[Tensor, Tensor]:
    """Tokens behind padding, (reviews, positions), and how many each has.

    Words without a number are dropped. A review that is too long keeps its beginning, as in the released code.
    """
    tokens = torch.zeros(len(reviews), positions, dtype=torch.long)
    lengths = torch.zeros(len(reviews), dtype=torch.long)
    for i, words in enumerate(reviews):
        known = [numbers[word] for word in words if word in numbers][:positions]
        lengths[i] = len(known)
        tokens[i, positions - len(known) :] = torch.tensor(known, dtype=torch.long)
    return tokens, lengths
