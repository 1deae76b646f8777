"""The sentence on top: which setting, at which weight decay, against which others, and nothing that is not known."""

from __future__ import annotations

import math
from pathlib import Path

from made import made_run, swept_run

from grokfast.lab.compare.headline import headline


def test_all_baselines_are_named_with_their_weight_decay(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Grokfast", seed, [0.5, 0.1], task="mnist") for seed in (0, 1)]
    runs += [made_run(tmp_path, "Baseline", 0, [0.5] * 7 + [0.1], task="mnist")]
    runs += [made_run(tmp_path, "Baseline, decay of Grokfast", 0, [0.5, 0.1], task="mnist")]
    assert headline(runs) == (
        "Grokfast reaches 0.85 after 20 steps at weight decay 2, the median of 2 seeds; without a filter it takes "
        "80 steps at weight decay 0.01 (4.0 times as many), 20 steps at weight decay 2 (1.0 times as many)."
    )


def test_baselines_of_one_weight_decay_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 500, lr=lr, weight_decay=1.0) for lr in (0.001, 0.003)]
    assert "500 steps at weight decay 1 and learning rate 0.001, 500 steps at weight decay 1 and learning" in headline(
        runs
    )


def test_of_many_baselines_the_fastest_are_named_and_the_others_counted(tmp_path: Path) -> None:
    found = headline([swept_run(tmp_path, 100 * i, weight_decay=float(i)) for i in range(1, 8)])
    assert found.count("steps at weight decay") == 4
    assert found.endswith("400 steps at weight decay 4; 3 other settings took longer or did not get there.")


def test_a_baseline_that_was_given_up_early_proves_nothing(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Grokfast", 0, [9.0, 3.0]), made_run(tmp_path, "Baseline", 0, [9.0])]
    assert "more than 10 steps at weight decay 0 (not run for long enough to tell)" in headline(runs)
    longer = made_run(tmp_path, "Baseline", 0, [9.0] * 5)
    assert "more than 50 steps at weight decay 0 (more than 2.5 times as many)" in headline([*runs, longer])


def test_a_baseline_that_diverged_never_gets_there(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Grokfast", 0, [9.0, 3.0]), made_run(tmp_path, "Baseline", 0, [9.0, math.nan])]
    assert "forever at weight decay 0 (it diverges)" in headline(runs)


def test_an_unfinished_run_counts_as_far_as_it_has_come(tmp_path: Path) -> None:
    run = made_run(tmp_path, "Grokfast", 0, [9.0, 3.0, 2.0], finish=False)
    assert headline([run]) == "Grokfast reaches 5 after 20 steps at weight decay 0.01."


def test_without_a_crossing_nothing_is_claimed(tmp_path: Path) -> None:
    base = made_run(tmp_path, "Baseline", 0, [3.0])
    assert headline([base, made_run(tmp_path, "Grokfast", 0, [9.0])]).startswith(
        "The fastest setting has no filter, 10 steps. No run with a filter has reached 5 yet"
    )
    assert headline([base]) == "Without a filter, reaching 5 takes 10 steps at weight decay 0."


def test_other_problems_are_no_rivals(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 100, filter="ema"), swept_run(tmp_path, 500, p=11)]
    assert "without a filter" not in headline(runs)


def test_the_most_interesting_fact_comes_first(tmp_path: Path) -> None:
    plain = [swept_run(tmp_path, steps, weight_decay=decay) for steps, decay in ((100, 1.0), (900, 0.1))]
    decide = (
        "The settings of the optimizer decide, from 100 to 900 steps without a filter: reaching 0.95 takes 100 steps"
    )
    assert headline(plain).startswith(decide)
    filtered = swept_run(tmp_path, 400, filter="ema")
    assert headline([*plain, filtered]).startswith("The fastest setting has no filter, 100 steps. ")
    assert headline([plain[1], filtered]).startswith("EMA")
