"""Crossings, censored medians, intervals and verdicts, and how often a simulated duel says a wrong word."""

from __future__ import annotations

import importlib
import math
import random
import statistics
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from grokfast.lab.stats import (
    HOLD,
    LEAST_SEEDS,
    LEAST_TUNINGS,
    Crossing,
    Spread,
    Steps,
    Verdict,
    baseline_level,
    critical_place,
    first_crossing,
    held_crossing,
    interval_text,
    median_interval,
    sentence,
    shift_interval,
    spread_of,
    stable_crossing,
    steps_to,
    verdict,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
duel_simulation: Any = importlib.import_module("duel_simulation")

NEVER = Steps(math.inf, False)


def exact(*values: float) -> list[Steps]:
    return [Steps(value) for value in values]


# Crossings ----------------------------------------------------------------------------------------------------------


def held_by_hand(steps: list[int], reached: list[bool], hold: int) -> int | None:
    for i in range(len(steps) - hold):
        if all(reached[i : i + hold + 1]):
            return steps[i]
    return None


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 6))
def test_held_is_the_first_stretch_that_is_long_enough(reached: list[bool], hold: int) -> None:
    steps = [10 * (i + 1) for i in range(len(reached))]
    found = held_crossing(steps, reached, hold)
    assert found.step == held_by_hand(steps, reached, hold)
    if found.step is not None:
        assert found.after == found.step - 10
    else:
        # A longer run could only be held after its last failure.
        assert found.after == max([0, *(s for s, yes in zip(steps, reached, strict=True) if not yes)])


@given(st.lists(st.booleans(), max_size=40))
def test_first_held_and_stable_come_in_this_order(reached: list[bool]) -> None:
    steps = [10 * (i + 1) for i in range(len(reached))]
    first, stable = first_crossing(steps, reached), stable_crossing(steps, reached)
    held = held_crossing(steps, reached, 3)
    assert held_crossing(steps, reached, 0) == first
    if held.step is not None:
        assert first.step is not None
        assert first.step <= held.step
    if stable.step is not None:
        assert held.step is None or held.step <= stable.step


def test_a_short_touch_is_not_held() -> None:
    steps = list(range(10, 1010, 10))
    reached = [200 <= step < 300 or step >= 500 for step in steps]
    assert first_crossing(steps, reached).step == 200
    assert held_crossing(steps, reached) == Crossing(490, 500)
    assert HOLD == 30


def test_a_run_that_diverged_never_crosses() -> None:
    assert steps_to(Crossing(100, None), diverged=True) == NEVER
    assert steps_to(Crossing(100, 110), diverged=True) == Steps(110)


# Medians ------------------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1, max_size=12))
def test_a_median_that_is_called_exact_is_the_true_one(runs: list[tuple[int, int]]) -> None:
    """Each run takes `true` steps and is stopped after `budget`."""
    known = [Steps(true) if true <= budget else Steps(budget, False) for true, budget in runs]
    median = spread_of(known).median
    truth = statistics.median([true for true, _ in runs])
    assert truth == median.value if median.exact else truth >= median.value


def test_one_run_that_never_crosses_does_not_move_the_median_of_the_others() -> None:
    assert spread_of([*exact(100, 200, 300, 400), NEVER]).median == Steps(300)
    assert spread_of([*exact(100, 200), NEVER, NEVER, NEVER]).median == NEVER
    assert spread_of([]).count == 0


@pytest.mark.parametrize("count", [6, 10, 25])
def test_the_interval_of_a_median_covers_it(count: int) -> None:
    source = random.Random(count)
    inside = 0
    for _ in range(2000):
        low, high = median_interval(exact(*[source.expovariate(1.0) for _ in range(count)]))
        inside += low.value <= math.log(2) <= high.value
    assert 0.94 <= inside / 2000 <= 0.99


def test_the_interval_of_a_median_is_open_if_too_many_runs_are_censored() -> None:
    low, high = median_interval([*exact(100, 200, 300, 400, 500), *[Steps(900, False)] * 3])
    assert (low, high) == (Steps(100), Steps(900, False))
    assert median_interval(exact(3, 1, 2)) == (Steps(1), Steps(3))
    assert median_interval([]) == (Steps(0.0, False), NEVER)


# The interval -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n"), [(5, 5), (5, 9), (8, 8), (20, 20), (10, 40)])
def test_the_interval_excludes_1_when_scipys_exact_test_rejects(m: int, n: int) -> None:
    source = random.Random(m * n)
    words = Counter[bool]()
    for _ in range(60):
        a, b = ([math.exp(source.gauss(mu, 0.3)) for _ in range(k)] for mu, k in ((0.0, m), (0.3, n)))
        _, low, high = shift_interval(exact(*a), exact(*b))
        rejected = scipy_stats.mannwhitneyu(a, b, method="exact").pvalue <= 0.05
        assert (low > 1 or high < 1) == rejected
        words[rejected] += 1
    assert len(words) == 2


def test_the_critical_place_is_that_of_the_exact_distribution() -> None:
    for m, n in ((4, 4), (5, 5), (7, 6), (12, 9)):
        place = critical_place(m, n)
        low = scipy_stats.mannwhitneyu(range(m), [m + i for i in range(n)], method="exact", alternative="less").pvalue
        assert low == pytest.approx(1 / math.comb(m + n, m))
        assert critical_place(n, m) == place
    assert critical_place(101, 100) == pytest.approx(critical_place(100, 100), rel=0.02)  # approximate and exact


@given(
    st.lists(st.tuples(st.integers(10, 60), st.booleans()), min_size=5, max_size=9),
    st.lists(st.tuples(st.integers(10, 60), st.booleans()), min_size=5, max_size=9),
    st.randoms(use_true_random=False),
)
def test_longer_runs_only_narrow_the_interval(a: Any, b: Any, source: random.Random) -> None:
    """Whatever the true numbers behind lower bounds are, their interval is inside."""
    sides = [[Steps(value, yes) for value, yes in side] for side in (a, b)]
    whole = [[n if n.exact else Steps(n.value + source.randrange(1, 100)) for n in side] for side in sides]
    _, low, high = shift_interval(*sides)
    _, inner_low, inner_high = shift_interval(*whole)
    assert low <= inner_low <= inner_high <= high


@given(st.lists(st.integers(10, 60), min_size=5, max_size=9), st.lists(st.integers(10, 60), min_size=5, max_size=9))
def test_swapping_the_arms_turns_the_verdict_round(a: list[int], b: list[int]) -> None:
    one, other = verdict([exact(*a)], [exact(*b)]), verdict([exact(*b)], [exact(*a)])
    turned = {"faster": "slower", "slower": "faster"}
    assert other.word == turned.get(one.word, one.word)
    assert other.low == pytest.approx(1 / one.high)


# The verdict --------------------------------------------------------------------------------------------------------


def test_words() -> None:
    fast, slow = [exact(*range(100, 110))], [exact(*range(200, 210))]
    assert verdict(fast, slow).word == "faster"
    assert verdict(slow, fast).word == "slower"
    assert verdict(fast, fast).word == "no difference"
    wide = [exact(50, 80, 100, 150, 300)]
    assert verdict(wide, wide).word == "undecided"


def test_the_least_number_of_seeds_and_of_tunings_decides() -> None:
    fast, slow = exact(*range(100, 100 + LEAST_SEEDS)), exact(*range(900, 900 + LEAST_SEEDS))
    assert verdict([fast], [slow]).word == "faster"
    assert verdict([fast[1:]], [slow]).word == "undecided"
    many = [[fast] * k for k in (LEAST_TUNINGS, LEAST_TUNINGS - 1)]
    assert verdict(many[0], [slow] * LEAST_TUNINGS).word == "faster"
    assert verdict(many[1], [slow] * LEAST_TUNINGS).word == "undecided"
    assert verdict([fast], [slow] * LEAST_TUNINGS).word == "undecided"  # one tuning against many
    assert verdict([], [slow]).word == "undecided"


def test_seeds_of_one_lucky_tuning_do_not_count_as_tunings() -> None:
    """Eight tunings that differ much, each with 50 seeds that differ little: 400 runs are eight numbers."""
    source = random.Random(0)
    arms = [[exact(*[100 * f + seed for seed in range(50)]) for f in (1, 3, 2, 5, 4, 2, 6, 1)] for _ in range(2)]
    for arm in arms:
        source.shuffle(arm)
    shifted = [[Steps(1.2 * n.value) for n in tuning] for tuning in arms[1]]
    assert verdict(arms[0], shifted).word == "undecided"
    pooled = [[n for tuning in arm for n in tuning] for arm in (arms[0], shifted)]
    assert verdict([pooled[0]], [pooled[1]]).word == "faster"


def test_runs_that_never_reach_the_level_count_against_their_arm() -> None:
    never = [[Steps(900, False)] * 5]
    found = verdict([exact(300, 310, 320, 330, 340)], never)
    assert (found.word, found.high) == ("faster", math.inf)
    assert found.low > 2
    assert verdict(never, never).word == "undecided"
    assert verdict([[NEVER] * 5], [exact(300, 310, 320, 330, 340)]).word == "slower"


def test_the_same_runs_in_another_order_give_the_same_verdict() -> None:
    source = random.Random(1)
    for _ in range(20):
        arms = [
            [exact(*[round(100 * source.lognormvariate(mu, 0.2)) for _ in range(3)]) for _ in range(9)]
            for mu in (0.0, 0.2)
        ]
        found = verdict(*arms)
        for arm in arms:
            source.shuffle(arm)
            for tuning in arm:
                source.shuffle(tuning)
        assert verdict(*arms) == found


def test_losses_have_their_own_words_and_margin() -> None:
    a, b = exact(3.200, 3.201, 3.199, 3.202, 3.198), exact(3.210, 3.211, 3.209, 3.212, 3.208)
    assert verdict([a], [b], of="loss").word == "no difference"
    c = exact(3.40, 3.41, 3.39, 3.42, 3.38)
    assert verdict([a], [c], of="loss").word == "lower"
    assert verdict([c], [a], of="loss").word == "higher"
    assert sentence(verdict([a], [c], of="loss"), "ema", "adamw").startswith(
        "ema ends lower than adamw: loss 3.2 against 3.4 ("
    )


def test_the_baselines_level_is_what_three_quarters_of_its_runs_reach() -> None:
    assert baseline_level([3.0, 5.0, math.nan, 4.0]) == 5.0
    assert baseline_level([3.0, 5.0, math.inf, 4.0]) == 5.0  # one that diverged does not decide
    assert baseline_level([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 80.0]) == 6.0
    assert baseline_level([-0.9, -0.8]) == -0.8  # an accuracy
    assert math.isinf(baseline_level([math.nan]))
    with pytest.raises(ValueError, match="finals must hold a number, got none"):
        baseline_level([])


@pytest.mark.parametrize(
    ("number", "of", "message"),
    [
        (Steps(-1), "steps", "numbers to compare must be >= 0, got -1"),
        (Steps(math.nan), "steps", "numbers to compare must be >= 0, got nan"),
        (Steps(0.0), "loss", "numbers to compare must be > 0, got 0.0"),
        (Steps(1), "accuracy", "of must be one of steps, seconds, loss, got 'accuracy'"),
    ],
)
def test_numbers_that_cannot_be_compared_are_refused(number: Steps, of: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verdict([[number]], [exact(1)], of=of)


# Sentences ----------------------------------------------------------------------------------------------------------


def made(word: Any, low: float, high: float, challenger: Spread, reference: Spread) -> Verdict:
    return Verdict(word, None, low, high, challenger, reference, 10, 1)


def test_sentences_are_plain() -> None:
    near = spread_of(exact(*[355] * 10)), spread_of(exact(*[375] * 10))
    assert sentence(made("undecided", 0.943, 1.15, *near), "adamw+ema", "adamw") == (
        "No clear difference between adamw+ema and adamw: 355 against 375 steps (6% slower to 15% faster)."
    )
    assert sentence(made("no difference", 0.97, 1.05, *near), "adamw+ema", "adamw") == (
        "No difference that matters between adamw+ema and adamw: 355 against 375 steps (3% slower to 5% faster)."
    )
    lost = near[0], spread_of([Steps(900, False)] * 10)
    assert sentence(made("faster", 2.5, math.inf, *lost), "ma", "none") == (
        "ma is faster than none: 355 against more than 900 steps (at least 2.5 times as fast); "
        "10 of 10 runs of none did not reach the level."
    )
    few = verdict([exact(1, 2, 3)], [exact(1, 2, 3)])
    assert sentence(few, "a", "b").startswith("Undecided, because 3 seeds are too few (at least 5 seeds): a against b")
    assert sentence(verdict([], [exact(1)]), "a", "b") == "Undecided: a has no complete run."
    tuned, control = made("faster", 1.1, 1.3, *near), made("no difference", 0.97, 1.05, *near)
    assert sentence(tuned, "adamw+ema", "adamw", control).endswith(
        "(10% to 30% faster). Not the addition: without it, the same settings are as good, "
        "355 against 375 steps (3% slower to 5% faster)."
    )


@given(st.floats(0, 100), st.floats(0, 100))
def test_every_interval_has_a_text(a: float, b: float) -> None:
    nothing = spread_of([])
    for high in (max(a, b), math.inf):
        assert interval_text(made("undecided", min(a, b), high, nothing, nothing))


# The whole duel -----------------------------------------------------------------------------------------------------


def test_simulated_duels_are_rarely_wrong_and_find_a_real_difference() -> None:
    """Both arms tuned on the landscape of the small task, K = 8 and 20 times. See benchmarks/duel_simulation.py."""
    rng = np.random.default_rng(0)
    pools = [duel_simulation.random_search(30, 400, rng) for _ in range(2)]
    for tunings, seeds, least in ((8, 5, 0.35), (20, 5, 0.8)):
        chances = duel_simulation.simulate(pools, tunings=tunings, seeds=seeds, duels=400)
        assert chances.false <= 0.06, (tunings, seeds, chances)
        assert chances.power >= least, (tunings, seeds, chances)
        assert chances.wrong <= 0.01, (tunings, seeds, chances)


def test_one_tuning_is_not_enough_however_many_seeds() -> None:
    """The mistake that the rule prevents: 40 seeds of one tuning measure the luck of that tuning."""
    pools = [duel_simulation.random_search(30, 200, np.random.default_rng(seed)) for seed in range(2)]
    assert duel_simulation.simulate(pools, tunings=1, seeds=40, duels=200).false > 0.5
