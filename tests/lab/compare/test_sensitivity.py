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
    find_families,
    importance,
    judge,
    make_axis,
    make_grid,
    rank,
    sensitivity,
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
    grid = make_grid(settings, "lamb", "wd")
    assert grid.x.labels == ["0.5", "1", "2", "4", "8"]
    assert [cell is not None for cell in grid.cells[-1]] == [False, False, True, False, False]
    slower = [at(power_law(lamb, wd) * lr, lamb=lamb, wd=wd, lr=lr) for lr in (1, 2) for lamb in LAMBS for wd in DECAYS]
    folded = make_grid(rank(slower), "lamb", "wd")
    assert all(cell is not None and cell.values["lr"] == 1 for row in folded.cells for cell in row)


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
    found = sensitivity(rank(SQUARE), "lamb")
    assert found.best == 2.0
    assert found.more == pytest.approx(1.1**2 - 1, rel=1e-6)
    assert found.less == pytest.approx(0.9**-2 - 1, rel=1e-6)


def test_alpha_is_ten_per_cent_off_in_memory() -> None:
    settings = rank([at(round(1000 * abs(math.log(m / 50)) + 500), alpha=1 - 1 / m) for m in (25, 50, 100)])
    found = sensitivity(settings, "alpha")
    expected = (1 + 2 * math.log(2)) ** (math.log(1.1) / math.log(2)) - 1
    assert found.more == pytest.approx(expected, rel=1e-3)


def test_neighbours_that_are_missing_or_never_cross_leave_it_unmeasured() -> None:
    settings = rank([at(100, lamb=1.0), at(200, lamb=2.0), never(900, lamb=0.5)])
    found = sensitivity(settings, "lamb")
    assert found.less is None
    assert found.more == pytest.approx(1.1 - 1)
    edge = rank([at(300, lamb=1.0), at(200, lamb=2.0)])
    assert sensitivity(edge, "lamb").more is None
    zero = rank([at(100, wd=0.0), at(200, wd=1.0), at(300, wd=2.0)])
    assert sensitivity(zero, "wd")[1:] == (0.0, None, None)
    beside_zero = rank([at(200, wd=0.0), at(100, wd=1.0), at(300, wd=2.0)])
    assert sensitivity(beside_zero, "wd").less == pytest.approx(2**0.1 - 1)


def test_neighbours_are_those_that_differ_in_this_number_alone() -> None:
    apart = rank([at(100, lamb=1.0, wd=0.0), at(200, lamb=2.0, wd=1.0), at(300, lamb=3.0, wd=0.0)])
    assert sensitivity(apart, "lamb").more == pytest.approx(3 ** (math.log(1.1) / math.log(3)) - 1)


def test_a_verdict_names_edges_and_overlapping_seeds() -> None:
    verdict = judge(rank([at(100, 110, 120, lamb=1), at(115, 130, 140, lamb=2), at(500, 500, 500, lamb=4)]))
    assert verdict is not None
    assert verdict.overlap is True
    assert verdict.edges == {"lamb": "lowest"}
    inside = judge(rank([at(300, 300, 300, lamb=1), at(100, 110, 120, lamb=2), at(200, 200, 200, lamb=4)]))
    assert inside is not None
    assert (inside.overlap, inside.edges) == (False, {})
    alone = judge(rank([at(100 * lamb, lamb=lamb) for lamb in (1, 2, 4)]))
    assert alone is not None
    assert alone.overlap is None
    assert judge([never(10, lamb=1.0)]) is None


def test_runs_of_one_family_differ_in_numbers_that_are_a_way_to_learn_the_same(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 100 * i, filter="ema", lamb=float(i), lr=0.01 * i, width=16 * i) for i in (1, 2, 3)]
    (family,) = find_families(runs)
    assert set(family.axes) == {"lamb", "lr", "width"}
    assert family.fixed == {"alpha": 0.98, "weight_decay": 0.005}
    assert (family.title, family.level, family.runs) == ("modmul, ema", "validation accuracy 0.95", 3)
    assert family.candidates[0].taken == [Bound(100)]


def test_two_values_other_seeds_and_other_problems_make_no_family(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 100, filter="ema", lamb=lamb) for lamb in (1.0, 2.0)]
    runs += [swept_run(tmp_path, 100, filter="ema", lamb=1.0, seed=seed) for seed in (1, 2, 3)]
    runs += [swept_run(tmp_path, 100, filter="ma", lamb=3.0), swept_run(tmp_path, 100, filter="ema", lamb=4.0, p=11)]
    assert find_families(runs) == []
