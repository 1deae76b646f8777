"""The sentence on top: which setting, at which weight decay, against which others, and nothing that is not known."""

from __future__ import annotations

from pathlib import Path

from made import made_run

from grokfast.lab.compare.headline import headline


def test_all_baselines_are_named_with_their_weight_decay(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Grokfast", seed, [0.5, 0.1], task="mnist") for seed in (0, 1)]
    runs += [made_run(tmp_path, "Baseline", 0, [0.5] * 7 + [0.1], task="mnist")]
    runs += [made_run(tmp_path, "Baseline, decay of Grokfast", 0, [0.5, 0.1], task="mnist")]
    assert headline(runs) == (
        "Grokfast reaches 0.85 after 20 steps at weight decay 2, the median of 2 seeds; without a filter it takes "
        "80 at weight decay 0.01 (4.0 times as many), 20 at weight decay 2 (1.0 times as many)."
    )


def test_a_baseline_that_was_given_up_early_proves_nothing(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Grokfast", 0, [9.0, 3.0]), made_run(tmp_path, "Baseline", 0, [9.0])]
    assert "more than 10 at weight decay 0 (not run for long enough to tell)" in headline(runs)
    longer = made_run(tmp_path, "Baseline", 0, [9.0] * 5)
    assert "more than 50 at weight decay 0 (more than 2.5 times as many)" in headline([*runs, longer])


def test_an_unfinished_run_counts_as_far_as_it_has_come(tmp_path: Path) -> None:
    run = made_run(tmp_path, "Grokfast", 0, [9.0, 3.0, 2.0], finish=False)
    assert headline([run]) == "Grokfast reaches 5 after 20 steps at weight decay 0.01."


def test_without_a_crossing_nothing_is_claimed(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Grokfast", 0, [9.0]), made_run(tmp_path, "Baseline", 0, [3.0])]
    assert headline(runs) == "No run with a filter has reached 5 yet."
