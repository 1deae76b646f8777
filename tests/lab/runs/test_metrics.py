from __future__ import annotations

import pytest

from grokfast.lab.runs.metrics import Row, crossings
from grokfast.lab.stats import Crossing, first_crossing, stable_crossing


def row(step: int, train: float | None, val: float | None) -> Row:
    return Row(step, 0.0, train, 0.0, val, 0.0, 0.0, None, 0.0, 0, 0.0)


@pytest.mark.parametrize(
    ("reached", "first", "stable"),
    [
        ([False, False, False], Crossing(30, None), Crossing(30, None)),
        ([True, True, True], Crossing(0, 10), Crossing(0, 10)),
        ([False, True, True], Crossing(10, 20), Crossing(10, 20)),
        ([False, True, False], Crossing(10, 20), Crossing(30, None)),
        ([True, False, True], Crossing(0, 10), Crossing(20, 30)),
    ],
)
def test_crossings_lie_in_the_interval_of_the_grid(reached: list[bool], first: Crossing, stable: Crossing) -> None:
    assert first_crossing([10, 20, 30], reached) == first
    assert stable_crossing([10, 20, 30], reached) == stable


def test_no_evaluation_is_censored_at_zero() -> None:
    assert first_crossing([], []) == stable_crossing([], []) == Crossing(0, None)


def test_training_and_validation_cross_on_their_own() -> None:
    rows = [row(10, 0.01, 0.01), row(20, 0.99, 0.5), row(30, 0.96, 0.97), row(40, 1.0, 0.9), row(50, 1.0, 0.96)]
    found = crossings(rows, 0.95, "accuracy")
    expected = {"first": Crossing(20, 30), "held": Crossing(40, None), "stable": Crossing(40, 50)}
    assert found == {**expected, "train": Crossing(10, 20)}


def test_regression_has_no_accuracy_to_cross() -> None:
    assert all(c.censored for c in crossings([row(10, None, None)], 0.95, "accuracy").values())


def test_text_of_a_censored_crossing_is_a_bound() -> None:
    assert str(Crossing(4550, None)) == "> 4,550"
    assert str(Crossing(900, 910)) == "910"
