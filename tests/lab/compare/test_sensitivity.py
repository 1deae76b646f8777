"""What a set of many runs tells, on numbers made by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from made import swept_run

from grokfast.lab.compare.seeds import Bound
from grokfast.lab.compare.sensitivity import (
    BINS,
    MOST,
    Candidate,
    by_importance,
    find_edges,
    find_families,
    importance,
    make_axis,
    make_grid,
    rank,
    ten_percent_off,
)


def at(*steps: int, **values: float) -> Candidate:
    """A setting whose seeds took these steps."""
    return Candidate(values, [Bound(step) for step in steps])


def never(*after: int, **values: float) -> Candidate:
    return Candidate(values, [Bound(step, False) for step in after])


def power_law(lamb: float, wd: float) -> int:
    """Fastest at lamb 2, and a tenth slower for each factor of two of wd from 0.01."""
    return round(1000 * max(lamb / 2, 2 / lamb) ** 2 * 1.1 ** abs(math.log2(wd / 0.01)))


LAMBS, DECAYS = (0.5, 1.0, 2.0, 4.0, 8.0), (0.005, 0.01, 0.02)
SQUARE = [at(power_law(lamb, wd), lamb=lamb, wd=wd) for lamb in LAMBS for wd in DECAYS]


def test_settings_are_ranked_by_the_median_over_seeds_and_what_never_crosses_comes_last() -> None:
    first, second, last = rank([at(300, 300, 300, lamb=2.0), never(50, 50, lamb=3.0), at(100, 900, 200, lamb=1.0)])
    assert (first.values, str(first.steps)) == ({"lamb": 1.0}, "200 (100 to 900)")
    assert (second.steps.median.value, second.steps.censored) == (300, 0)
    assert (last.steps.median, last.reached, last.steps.censored) == (Bound(50, False), False, 2)


def test_a_setting_that_diverged_comes_after_all_others() -> None:
    ranked = rank([at(100, lamb=1.0), never(10, lamb=2.0), Candidate({"lamb": 3.0}, [Bound(math.inf, False)])])
    assert [candidate.values["lamb"] for candidate in ranked] == [1.0, 2.0, 3.0]
    assert 0 <= importance(ranked, "lamb") <= 1


def test_the_number_that_moves_the_steps_most_comes_first() -> None:
    settings = rank(SQUARE)
    assert by_importance(settings) == ["lamb", "wd"]
    assert importance(settings, "lamb") > 0.9
    assert importance(settings, "lamb") + importance(settings, "wd") == pytest.approx(1.0, abs=0.01)
    assert importance(rank([at(10, lamb=x) for x in LAMBS]), "lamb") == 0.0


def test_a_grid_holds_the_best_over_everything_else() -> None:
    settings = rank([*SQUARE, at(500, lamb=2.0, wd=0.04)])
    x, y = make_axis(settings, "lamb"), make_axis(settings, "wd")
    assert x.labels == ["0.5", "1", "2", "4", "8"]
    assert [cell is not None for cell in make_grid(settings, x, y)[-1]] == [False, False, True, False, False]
    slower = [at(power_law(lamb, wd) * lr, lamb=lamb, wd=wd, lr=lr) for lr in (1, 2) for lamb in LAMBS for wd in DECAYS]
    folded = make_grid(rank(slower), make_axis(slower, "lamb"), make_axis(slower, "wd"))
    assert all(cell is not None and cell.values["lr"] == 1 for row in folded for cell in row)


def test_many_values_are_put_into_bins_of_equal_number() -> None:
    settings = rank([at(100 + i, lamb=1.5**i) for i in range(3 * BINS)])
    axis = make_axis(settings, "lamb")
    assert len(axis.bins) == BINS
    assert axis.bins[0] == (1.0, 2.25)
    counts = [axis.place(s.values["lamb"]) for s in settings]
    assert [counts.count(i) for i in range(BINS)] == [3] * BINS
    few = make_axis(settings[:MOST], "lamb")
    assert all(low == high for low, high in few.bins)


def test_ten_per_cent_off_a_power_law_is_what_the_law_says() -> None:
    less, more = ten_percent_off(rank(SQUARE), "lamb")
    assert more == pytest.approx(1.1**2 - 1, rel=1e-6)
    assert less == pytest.approx(0.9**-2 - 1, rel=1e-6)


def test_alpha_is_ten_per_cent_off_in_memory() -> None:
    settings = rank([at(round(1000 * abs(math.log(m / 50)) + 500), alpha=1 - 1 / m) for m in (25, 50, 100)])
    _, more = ten_percent_off(settings, "alpha")
    expected = (1 + 2 * math.log(2)) ** (math.log(1.1) / math.log(2)) - 1
    assert more == pytest.approx(expected, rel=1e-3)


def test_neighbours_that_are_missing_or_never_cross_leave_it_unmeasured() -> None:
    settings = rank([at(100, lamb=1.0), at(200, lamb=2.0), never(900, lamb=0.5)])
    assert ten_percent_off(settings, "lamb") == (None, pytest.approx(1.1 - 1))
    edge = rank([at(300, lamb=1.0), at(200, lamb=2.0)])
    assert ten_percent_off(edge, "lamb")[1] is None
    zero = rank([at(100, wd=0.0), at(200, wd=1.0), at(300, wd=2.0)])
    assert ten_percent_off(zero, "wd") == (None, None)
    beside_zero = rank([at(200, wd=0.0), at(100, wd=1.0), at(300, wd=2.0)])
    assert ten_percent_off(beside_zero, "wd")[0] == pytest.approx(2**0.1 - 1)


def test_neighbours_are_those_that_differ_in_this_number_alone() -> None:
    apart = rank([at(100, lamb=1.0, wd=0.0), at(200, lamb=2.0, wd=1.0), at(300, lamb=3.0, wd=0.0)])
    assert ten_percent_off(apart, "lamb")[1] == pytest.approx(3 ** (math.log(1.1) / math.log(3)) - 1)


def test_edges_are_where_nothing_was_tried_beyond_the_best() -> None:
    assert find_edges(rank([at(100, lamb=1), at(115, lamb=2), at(500, lamb=4)])) == {"lamb": "lowest"}
    assert find_edges(rank([at(300, lamb=1), at(100, lamb=2), at(200, lamb=4)])) == {}
    assert find_edges(rank([at(300, lamb=1), at(200, lamb=2), at(100, lamb=4)])) == {"lamb": "highest"}


def test_runs_of_one_family_differ_in_numbers_that_are_a_way_to_learn_the_same(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 100 * i, filter="ema", lamb=float(i), lr=0.01 * i, width=16 * i) for i in (1, 2, 3)]
    (family,) = find_families(runs)
    assert set(family.axes) == {"lamb", "lr", "width"}
    assert family.fixed == {"alpha": 0.98, "weight_decay": 0.005}
    assert (family.title, family.level, family.runs) == ("modmul, ema, adam", "validation accuracy 0.95", 3)
    assert family.candidates[0].taken == [Bound(100)]


def test_two_values_other_seeds_and_other_problems_make_no_family(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 100, filter="ema", lamb=lamb) for lamb in (1.0, 2.0)]
    runs += [swept_run(tmp_path, 100, filter="ema", lamb=1.0, seed=seed) for seed in (1, 2, 3)]
    runs += [swept_run(tmp_path, 100, filter="ma", lamb=3.0), swept_run(tmp_path, 100, filter="ema", lamb=4.0, p=11)]
    assert find_families(runs) == []
