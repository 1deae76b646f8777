"""Inside a network: tables made by hand whose frequencies are known."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from grokfast.lab.tasks.modular.circle import (
    Circle,
    circle_of,
    component,
    excluded,
    gini,
    key_frequencies,
    logit_power,
    plane,
    power,
    restricted,
    waves,
)
from grokfast.lab.tasks.modular.operations import make_equations


@pytest.mark.parametrize("operation", ["add", "subtract", "multiply", "divide"])
def test_places_combine_as_the_operation_does(operation: str) -> None:
    circle = circle_of(operation, 13)
    left, right = circle.pairs()
    table = {
        (x, y): z for x, y, z in zip(*(part.tolist() for part in make_equations(operation, p=13)[:3]), strict=True)
    }
    symbols = circle.symbols.tolist()
    found = [symbols[place] for place in circle.answers().tolist()]
    assert found == [table[symbols[a], symbols[b]] for a, b in zip(left.tolist(), right.tolist(), strict=True)]


def test_zero_is_apart_and_5_generates_the_numbers_mod_97() -> None:
    circle = circle_of("multiply", 97)
    assert sorted(circle.symbols.tolist()) == list(range(1, 97))
    assert circle.symbols[1] == 5


def test_an_operation_without_a_circle_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match=r"got x2\+y2: its symbols have no order in which it adds places on a circle"):
        circle_of("x2+y2", 97)


def test_a_table_of_two_waves_has_their_power_and_lies_on_a_circle() -> None:
    n, generator = 96, torch.Generator().manual_seed(0)
    directions = torch.linalg.qr(torch.randn(32, 4, generator=generator, dtype=torch.float64)).Q
    places = torch.arange(n)
    table = 2 * waves(places, 7, n) @ directions[:, :2].T + waves(places, 30, n) @ directions[:, 2:].T + 5.0
    shares = power(table)
    assert key_frequencies(shares, 2) == [7, 30]
    assert shares[[6, 29]].tolist() == pytest.approx([0.8, 0.2])
    assert gini(shares) > 0.95
    assert plane(table, 7).norm(dim=1).tolist() == pytest.approx([2.0] * n)
    assert plane(table, 30).norm(dim=1).tolist() == pytest.approx([1.0] * n)


def test_noise_is_not_sparse() -> None:
    noise = torch.randn(96, 64, generator=torch.Generator().manual_seed(0))
    assert gini(power(noise)) < 0.3


def made_network(circle: Circle, strengths: dict[int, float]) -> torch.Tensor:
    """Logits of a network that computes cos(2 pi k (answer - c) / n) for some k."""
    shift = circle.answers()[:, None] - torch.arange(circle.size)
    return sum(a * torch.cos(2 * math.pi * k * shift.double() / circle.size) for k, a in strengths.items())  # type: ignore


@pytest.mark.parametrize("operation", ["multiply", "subtract"])
def test_a_network_made_by_hand_is_taken_apart(operation: str) -> None:
    circle = circle_of(operation, 13)
    logits = made_network(circle, {1: 20.0, 3: 10.0})
    assert key_frequencies(logit_power(logits, circle), 2) == [1, 3]
    assert logit_power(logits, circle)[[0, 2]].tolist() == pytest.approx([0.8, 0.2])
    assert torch.allclose(component(logits, circle, 1), made_network(circle, {1: 20.0}))
    assert torch.allclose(excluded(logits, circle, 1), made_network(circle, {3: 10.0}))
    assert torch.allclose(restricted(logits, circle, [1, 3]), logits)
    answers = circle.answers()
    whole, without = (cross_entropy(table, answers).item() for table in (logits, excluded(logits, circle, 1)))
    assert whole < 0.1 < without
    uniform = cross_entropy(restricted(logits, circle, [2]), answers).item()
    assert uniform == pytest.approx(math.log(circle.size))
