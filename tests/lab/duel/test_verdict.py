"""The statistics of a duel on synthetic crossings whose truth is known."""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from pathlib import Path

import pytest

from grokfast.lab.compare.seeds import Bound
from grokfast.lab.duel.verdict import (
    LEAST,
    Between,
    Comparison,
    Numbers,
    compare,
    decide,
    median_interval,
    ratio_of,
    seeds_to_decide,
    sentence,
    spread_of,
    times,
)

TRIES = 100


def draw(source: random.Random, seeds: int, ratio: float, *, budget: float = math.inf) -> tuple[Numbers, Numbers]:
    """Two arms whose medians have this ratio; a seed is easy or hard for both. What exceeds the budget is censored."""
    luck = {seed: source.gauss(0, 0.2) for seed in range(seeds)}

    def numbers(median: float) -> Numbers:
        steps = {seed: median * math.exp(each + source.gauss(0, 0.25)) for seed, each in luck.items()}
        return {seed: Bound(n) if n <= budget else Bound(budget, False) for seed, n in steps.items()}

    return numbers(1000 * ratio), numbers(1000)


@functools.cache
def outcomes(seeds: int, ratio: float, *, budget: float = math.inf, tries: int = TRIES) -> list[Comparison]:
    source = random.Random(seeds)
    return [compare(*draw(source, seeds, ratio, budget=budget), resamples=300) for _ in range(tries)]


@pytest.mark.parametrize(("seeds", "budget"), [(5, math.inf), (10, math.inf), (10, 1600.0)])
@pytest.mark.parametrize("ratio", [1.0, 1.7])
def test_the_interval_covers_the_truth_as_often_as_it_says(seeds: int, ratio: float, budget: float) -> None:
    covered = [found.interval.low <= ratio <= found.interval.high for found in outcomes(seeds, ratio, budget=budget)]
    assert sum(covered) / TRIES >= 0.90


def test_the_page_states_the_measured_coverage() -> None:
    source, grid, tries = random.Random(0), 25, 200

    def on_grid(numbers: Numbers) -> Numbers:
        return {seed: Bound(grid * math.ceil(bound.value / grid)) for seed, bound in numbers.items()}

    def found(ratio: float) -> list[Comparison]:
        return [compare(*map(on_grid, draw(source, 10, ratio)), resamples=200) for _ in range(tries)]

    same, apart = found(1.0), found(1.3)
    covered = sum(f.interval.low <= 1 <= f.interval.high for f in same)
    covered += sum(f.interval.low <= 1.3 <= f.interval.high for f in apart)
    wrong = sum(f.word in ("helps", "hurts") for f in same)
    page = (Path(__file__).parents[3] / "docs" / "duel.md").read_text()
    assert f"covers the truth in {covered / tries / 2:.0%}" in page
    assert f"is called one in {wrong / tries:.0%}" in page


@pytest.mark.parametrize(("seeds", "budget"), [(5, math.inf), (10, math.inf), (10, 1100.0)])
def test_no_difference_is_hardly_ever_called_one(seeds: int, budget: float) -> None:
    words = Counter(found.word for found in outcomes(seeds, 1.0, budget=budget))
    assert words["helps"] + words["hurts"] <= 0.08 * TRIES
    assert words["not decided"] > 0


def test_a_clear_difference_is_found_in_the_right_direction() -> None:
    assert Counter(found.word for found in outcomes(10, 2.5)) == {"helps": TRIES}
    assert Counter(found.word for found in outcomes(10, 0.4)) == {"hurts": TRIES}


def test_many_seeds_show_that_there_is_no_difference() -> None:
    words = Counter(found.word for found in outcomes(400, 1.0, tries=8))
    assert words["no difference"] >= 6


def test_censored_runs_widen_the_interval_and_never_narrow_it() -> None:
    source = random.Random(1)
    slow, fast = draw(source, 10, 3.0)
    cut = {seed: bound if bound.value <= 2500 else Bound(2500, False) for seed, bound in slow.items()}
    whole, censored = compare(slow, fast), compare(cut, fast)
    assert censored.interval.low <= whole.interval.low
    assert censored.interval.high == math.inf
    assert censored.word == "helps"  # they take longer, however much
    assert censored.reference.censored > 0


def test_arms_that_both_never_get_there_are_not_decided() -> None:
    never = {seed: Bound(3000, False) for seed in range(10)}
    found = compare(never, never)
    assert (found.word, found.interval, found.more_seeds) == ("not decided", Between(0.0, math.inf), None)
    assert "longer runs" in sentence(found, "adamw+ema", "adamw")


def test_a_reference_that_never_gets_there_is_beaten_and_the_verdict_says_why() -> None:
    never, good = {seed: Bound(3000, False) for seed in range(10)}, {seed: Bound(1000 + seed) for seed in range(10)}
    text = sentence(compare(never, good), "adam+ema", "adam")
    assert text.startswith("adam+ema helps, at least 2.99x faster than adam, 95% interval 2.9")
    assert text.endswith("to ∞, 10 seeds; no run of adam got there")


def test_an_arm_that_diverges_is_beaten_by_one_that_does_not() -> None:
    good, never = {s: Bound(100 + s) for s in range(6)}, {s: Bound(math.inf, False) for s in range(6)}
    assert compare(never, good).word == "helps"
    assert compare(good, never).word == "hurts"
    assert compare(never, never).word == "not decided"


def test_pairs_are_used_where_the_seeds_are_the_same() -> None:
    hard = {seed: Bound(100.0 * 2**seed) for seed in range(7)}
    easier = {seed: Bound(bound.value / 1.5) for seed, bound in hard.items()}
    paired = compare(hard, easier)
    assert (paired.paired, paired.word, paired.ratio.low) == (True, "helps", 1.5)
    assert paired.interval.low == pytest.approx(1.5)
    apart = compare(hard, {seed + 100: bound for seed, bound in easier.items()})
    assert (apart.paired, apart.word) == (False, "not decided")


def test_few_seeds_decide_nothing() -> None:
    slow, fast = ({seed: Bound(n + seed) for seed in range(LEAST - 1)} for n in (1000, 10))
    assert compare(slow, fast).word == "not decided"
    assert compare({}, {}).word == "not decided"


def test_few_seeds_that_would_decide_ask_for_more_seeds_and_not_for_longer_runs() -> None:
    never, good = {seed: Bound(3000, False) for seed in range(3)}, {seed: Bound(1000 + seed) for seed in range(3)}
    assert compare(never, good).more_seeds == LEAST - 3
    assert sentence(compare(never, good), "a", "b").endswith("no run of b got there; about 2 more seeds would decide")


def test_one_seed_is_one_and_no_run_is_none() -> None:
    one, four = ({seed: Bound(100 + seed) for seed in range(count)} for count in (1, 4))
    assert ", 1 seed; about 4 more seeds would decide" in sentence(compare(one, one), "a", "b")
    assert ", 4 seeds; about 1 more seed would decide" in sentence(compare(four, four), "a", "b")
    assert sentence(compare({}, one), "a", "b") == "a: not decided, as b has no complete run"
    assert sentence(compare(one, {}), "a", "b") == "a: not decided, as a has no complete run"


def test_the_same_numbers_give_the_same_verdict() -> None:
    pair = draw(random.Random(0), 8, 1.2)
    assert compare(*pair) == compare(*pair)


def test_the_number_of_seeds_that_would_decide_decides() -> None:
    source, decided, guesses = random.Random(3), 0, 0
    for _ in range(12):
        found = compare(*draw(source, 6, 1.5), resamples=300)
        if found.more_seeds is not None and found.more_seeds < 200:
            guesses += 1
            more = compare(*draw(source, 6 + found.more_seeds, 1.5), resamples=300)
            decided += more.word != "not decided"
    assert guesses >= 3
    assert decided >= 0.6 * guesses


def test_more_seeds_are_needed_the_nearer_the_arms_are() -> None:
    near, far = seeds_to_decide(Between(0.7, 1.6), 10), seeds_to_decide(Between(0.9, 2.5), 10)
    assert near is not None
    assert far is not None
    assert near > far > 0
    assert seeds_to_decide(Between(0.0, 2.0), 10) is None
    assert decide(Between(0.9, 1.12)) == "not decided"


def test_the_ratio_is_only_known_between_two_where_a_median_is_censored() -> None:
    exact, bound = spread_of([Bound(200)] * 3), spread_of([Bound(100, False)] * 3)
    assert ratio_of(exact, exact) == Between(1.0, 1.0)
    assert ratio_of(exact, bound) == Between(0.0, 2.0)
    assert ratio_of(bound, exact) == Between(0.5, math.inf)


def test_the_interval_of_a_median_is_open_above_where_many_are_censored() -> None:
    low, high = median_interval([Bound(100), Bound(110), Bound(120), Bound(130), Bound(500, False), Bound(500, False)])
    assert (low, high) == (105, math.inf)


def test_a_verdict_reads_as_a_sentence() -> None:
    slow, fast = ({seed: Bound(n * (100 + seed)) for seed in range(10)} for n in (2, 1))
    assert sentence(compare(slow, fast), "adamw+ema", "adamw").startswith("adamw+ema helps, 2x faster than adamw, 95%")
    text = sentence(compare(fast, slow), "adamw+ema", "adamw")
    assert text == "adamw+ema hurts, 2x slower than adamw, 95% interval 2 to 2, 10 seeds"
    alike = sentence(compare(fast, fast), "muon", "adamw")
    assert alike == "muon: no difference, as fast as adamw, 95% interval as fast to as fast, 10 seeds"
    unsure = sentence(compare(*draw(random.Random(0), 6, 1.1)), "a", "b")
    assert unsure.startswith("a: not decided")
    assert "more seeds would decide" in unsure


def test_an_end_without_limit_is_put_into_words() -> None:
    assert (times(0.0), times(0.5)) == ("infinitely slower", "2x slower")
    assert times(math.inf) == "infinitely faster"
