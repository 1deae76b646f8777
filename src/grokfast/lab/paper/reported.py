"""What others report on the paper's modular arithmetic, as data: not run here, and in settings of their own."""

from __future__ import annotations

from typing import NamedTuple


class Reported(NamedTuple):
    """Steps to 0.95 by operation, in the words of where they come from."""

    method: str
    steps: dict[str, int]
    note: str


REPORTED = (
    Reported(
        "clip to grok: Lion, rows of matrices clipped to a norm",
        {"multiply": 535, "add": 570, "subtract": 775, "divide": 730, "s5": 1_348},
        "by its authors; multiply is the median of 100 seeds; the norm is tuned per operation",
    ),
    Reported(
        "delayed decay: squared weights in the loss from a training accuracy of 99%",
        {"multiply": 710, "add": 720, "subtract": 1_040, "divide": 980},
        "by its authors, who report 710 for Grokfast-EMA on multiply too",
    ),
    Reported("egalitarian gradient descent, then Adam", {"multiply": 980}, "by its authors"),
)
