"""The same function of the same parameters as `lstm.SentimentLSTM`, but shared padding is read only once.

Reviews are padded on the left and most are short, so most steps of the plain model read padding. k steps of padding
leave every review in the same state, so one row of padding stands for all reviews that have not begun. Time is cut into
segments. At the start of a segment, the reviews that begin in it leave the padding row as copies of its state. Few
segments make long calls of the LSTM, many segments avoid padding in the copies; dynamic programming finds the cuts with
the least work. Gradients flow through the copies into the padding row, so they are complete.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from grokfast.lab.tasks.imdb.lstm import SentimentLSTM

CALL = 100  # what one more segment costs, in steps of one row: the best of 0..400 on a CPU with the default sizes

# Cuts are at multiples of STEPS and reviews leave the padding row by multiples of ROWS, some too early, which changes
# nothing but the work: the CPU's LSTM keeps something for every new shape, and memory grew beyond a gigabyte.
STEPS, ROWS = 10, 4


class _Segment(NamedTuple):
    """Steps [begin, end) over `rows` rows, including the padding row."""

    begin: int
    end: int
    rows: int


def last_logits(model: SentimentLSTM, tokens: Tensor, lengths: Tensor) -> Tensor:
    """The logits of `model(tokens)`, where review i is `lengths[i]` words behind padding.

    Args:
        model: the plain model.
        tokens: (batch, positions), 0 wherever a review has not begun.
        lengths: (batch,), on the CPU: they decide what is computed.
    """
    positions = tokens.shape[1]
    order = lengths.argsort(descending=True, stable=True)  # the longest begin first
    rank = order.argsort().to(tokens.device)
    rows = torch.cat([torch.zeros_like(tokens[:1]), tokens[order.to(tokens.device)]])  # (1 + batch, positions)
    hidden = model.head.weight.new_zeros(model.lstm.num_layers, 1, model.lstm.hidden_size)
    cell = torch.zeros_like(hidden)
    for begin, end, count in plan((positions - lengths).tolist(), positions):
        hidden, cell = (copy_padding(state, count) for state in (hidden, cell))  # (depth, count, width)
        _, (hidden, cell) = model.lstm(model.embedding(rows[:count, begin:end]), (hidden, cell))
    return model.head(hidden[-1, 1:]).squeeze(1)[rank]  # (batch,)


def copy_padding(state: Tensor, count: int) -> Tensor:
    """Fill up with copies of the padding row: (depth, rows, width) -> (depth, count, width)."""
    return torch.cat([state, state[:, :1].expand(-1, count - state.shape[1], -1)], 1)


def plan(starts: Sequence[int], positions: int) -> list[_Segment]:
    """The segments with the least work, steps x rows + CALL for each, that read every review.

    Examples:
        >>> plan([450, 300, 500], 500)
        [_Segment(begin=0, end=300, rows=1), _Segment(begin=300, end=500, rows=4)]
    """
    # An empty review still has to leave the padding row.
    begun = Counter(round_down(min(start, positions - 1), STEPS) for start in starts)
    cuts = sorted({0, *begun})
    counts = accumulate(begun[cut] for cut in cuts)
    rows = [1 + min(len(starts), -round_down(-count, ROWS)) for count in counts]  # from each cut on
    cuts.append(positions)
    # work[j]: the least for all steps before cuts[j], whose last segment begins at cuts[source[j]].
    work, source = [0], [0]
    for j in range(1, len(cuts)):
        least = min((work[i] + (cuts[j] - cuts[i]) * rows[j - 1] + CALL, i) for i in range(j))
        work.append(least[0])
        source.append(least[1])
    segments: list[_Segment] = []
    j = len(cuts) - 1
    while j:
        segments.append(_Segment(cuts[source[j]], cuts[j], rows[j - 1]))
        j = source[j]
    return segments[::-1]


def round_down(number: int, multiple: int) -> int:
    return number // multiple * multiple
