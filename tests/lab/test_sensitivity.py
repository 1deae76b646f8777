"""What a set of many runs tells, on numbers made by hand."""

from __future__ import annotations

import math

import pytest

from grokfast.lab.compare.sensitivity import (
    BINS,
    MOST,
    Setting,
    Trial,
    by_importance,
    importance,
    is_sweep,
    judge,
    make_axis,
    make_grid,
    rank,
    sensitivity,
    varied,
)
from grokfast.lab.runs.metrics import Crossing


def at(step: int) -> Crossing:
    return Crossing(step - 10, step)


def never(after: int) -> Crossing:
    return Crossing(after, None)


def trial(crossing: Crossing, seed: int = 0, **values: float) -> Trial:
    return Trial(values, seed, crossing)


def power_law(lamb: float, wd: float) -> int:
    """Fastest at lamb 2, and a tenth slower for each factor of two of wd from 0.01."""
    return round(1000 * max(lamb / 2, 2 / lamb) ** 2 * 1.1 ** abs(math.log2(wd / 0.01)))


LAMBS, DECAYS = (0.5, 1.0, 2.0, 4.0, 8.0), (0.005, 0.01, 0.02)
SQUARE = [trial(at(power_law(lamb, wd)), lamb=lamb, wd=wd) for lamb in LAMBS for wd in DECAYS]


def test_three_values_of_one_number_make_a_sweep_and_two_do_not() -> None:
    assert is_sweep(SQUARE)
    assert varied(SQUARE) == ["lamb", "wd"]
    assert not is_sweep([trial(at(10), lamb=1, wd=wd) for wd in (0, 1)])
    assert not is_sweep([trial(at(10), seed, lamb=1) for seed in range(5)])


def test_settings_are_ranked_by_the_median_over_seeds_and_what_never_crosses_comes_last() -> None:
    trials = [trial(at(step), seed, lamb=1.0) for seed, step in enumerate((100, 900, 200))]
    trials += [trial(at(300), seed, lamb=2.0) for seed in range(3)]
    trials += [trial(never(50), seed, lamb=3.0) for seed in range(2)]
    first, second, last = rank(trials)
    assert (first.values, first.steps, first.low, first.high) == ({"lamb": 1.0}, 200, 100, 900)
    assert (second.steps, second.censored) == (300, 0)
    assert (last.steps, last.reached, last.censored) == (50, False, 2)


def test_a_seed_counts_once_by_its_longer_run() -> None:
    (found, _) = rank([trial(at(300), lamb=1.0), trial(never(100), lamb=1.0), trial(at(900), lamb=2.0)])
    assert found.crossings == [at(300)]


def test_the_number_that_moves_the_steps_most_comes_first() -> None:
    settings = rank(SQUARE)
    assert by_importance(settings) == ["lamb", "wd"]
    assert importance(settings, "lamb") > 0.9
    assert importance(settings, "lamb") + importance(settings, "wd") == pytest.approx(1.0, abs=0.01)
    assert importance(rank([trial(at(10), lamb=x) for x in LAMBS]), "lamb") == 0.0


def test_a_grid_holds_the_best_over_everything_else() -> None:
    settings = rank([*SQUARE, trial(at(500), lamb=2.0, wd=0.04)])
    grid = make_grid(settings, "lamb", "wd")
    assert grid.x.labels == ["0.5", "1", "2", "4", "8"]
    assert [cell is not None for cell in grid.cells[-1]] == [False, False, True, False, False]
    third = [t._replace(values={**t.values, "lr": lr}) for lr in (1, 2) for t in SQUARE]
    slower = [t._replace(crossing=at((t.crossing.step or 0) * int(t.values["lr"]))) for t in third]
    folded = make_grid(rank(slower), "lamb", "wd")
    assert all(cell is not None and cell.values["lr"] == 1 for row in folded.cells for cell in row)


def test_many_values_are_put_into_bins_of_equal_number() -> None:
    settings = rank([trial(at(100 + i), lamb=1.5**i) for i in range(3 * BINS)])
    axis = make_axis(settings, "lamb")
    assert len(axis.bins) == BINS
    assert axis.bins[0] == (1.0, 2.25)
    counts = [axis.place(s.values["lamb"]) for s in settings]
    assert [counts.count(i) for i in range(BINS)] == [3] * BINS
    few = make_axis(settings[:MOST], "lamb")
    assert all(low == high for low, high in few.bins)


def test_ten_per_cent_off_a_power_law_is_what_the_law_says() -> None:
    found = sensitivity(rank(SQUARE), "lamb")
    assert found.best == 2.0
    assert found.more == pytest.approx(1.1**2 - 1, rel=1e-6)
    assert found.less == pytest.approx(0.9**-2 - 1, rel=1e-6)


def test_alpha_is_ten_per_cent_off_in_memory() -> None:
    settings = rank([trial(at(round(1000 * abs(math.log(m / 50)) + 500)), alpha=1 - 1 / m) for m in (25, 50, 100)])
    found = sensitivity(settings, "alpha")
    expected = (1 + 2 * math.log(2)) ** (math.log(1.1) / math.log(2)) - 1
    assert found.more == pytest.approx(expected, rel=1e-3)


def test_neighbours_that_are_missing_or_never_cross_leave_it_unmeasured() -> None:
    settings = rank([trial(at(100), lamb=1.0), trial(at(200), lamb=2.0), trial(never(900), lamb=0.5)])
    found = sensitivity(settings, "lamb")
    assert found.less is None
    assert found.more == pytest.approx(1.1 - 1)
    edge = rank([trial(at(300), lamb=1.0), trial(at(200), lamb=2.0)])
    assert sensitivity(edge, "lamb").more is None
    zero = rank([trial(at(100), wd=0.0), trial(at(200), wd=1.0), trial(at(300), wd=2.0)])
    assert sensitivity(zero, "wd")[1:] == (0.0, None, None)
    beside_zero = rank([trial(at(200), wd=0.0), trial(at(100), wd=1.0), trial(at(300), wd=2.0)])
    assert sensitivity(beside_zero, "wd").less == pytest.approx(2**0.1 - 1)


def test_neighbours_are_those_that_differ_in_this_number_alone() -> None:
    apart = rank([trial(at(100), lamb=1.0, wd=0.0), trial(at(200), lamb=2.0, wd=1.0), trial(at(300), lamb=3.0, wd=0.0)])
    assert sensitivity(apart, "lamb").more == pytest.approx(3 ** (math.log(1.1) / math.log(3)) - 1)


def test_a_verdict_names_edges_and_overlapping_seeds() -> None:
    def three(lamb: float, *steps: int) -> list[Trial]:
        return [trial(at(step), seed, lamb=lamb) for seed, step in enumerate(steps)]

    verdict = judge(rank([*three(1, 100, 110, 120), *three(2, 115, 130, 140), *three(4, 500, 500, 500)]))
    assert verdict is not None
    assert verdict.overlap is True
    assert verdict.edges == {"lamb": "lowest"}
    inside = judge(rank([*three(1, 300, 300, 300), *three(2, 100, 110, 120), *three(4, 200, 200, 200)]))
    assert inside is not None
    assert (inside.overlap, inside.edges) == (False, {})
    alone = judge(rank([trial(at(100 * lamb), lamb=lamb) for lamb in (1, 2, 4)]))
    assert alone is not None
    assert alone.overlap is None
    assert judge([Setting({"lamb": 1.0}, [never(10)])]) is None
