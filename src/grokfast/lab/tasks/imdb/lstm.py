"""The released sentiment model, written plainly: embedding, LSTM over all positions, one logit from the last step."""

from __future__ import annotations

from torch import Tensor, nn


class SentimentLSTM(nn.Module):
    """Reads a review padded on the left and says how positive it is. Padding, 0, is a token like any other."""

    def __init__(self, *, vocabulary: int, embedding: int, width: int, depth: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, width, depth, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, tokens: Tensor) -> Tensor:  # (batch, positions)
        _, (hidden, _) = self.lstm(self.embedding(tokens))  # (depth, batch, width)
        return self.head(hidden[-1]).squeeze(1)  # (batch,)
