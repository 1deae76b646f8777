"""What came out, in words: each finding appears with its runs, and its verdict follows from their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from made import create_made, made_run

from grokfast.lab.compare.claims import findings
from grokfast.lab.compare.seeds import Bound, by_task, mean, spread_of
from grokfast.lab.compare.verdicts import judge, judge_means
from grokfast.lab.paper.evidence import without_filter
from grokfast.lab.paper.published import BASELINE, EMA, MA
from grokfast.lab.request import Request, resolve
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.files import write_json


def reaching(step: int | None, length: int = 100) -> list[float]:
    return [0.01 if step is not None and 10 * i >= step else 0.9 for i in range(1, length // 10 + 1)]


def tuned(folder: Path, request: Request, step: int | None, *, decay: float = 1.0, seed: int = 0) -> Run:
    asked = {"optimizer": "adamw", "lr": 3e-3, "weight_decay": decay, "steps": 100, "eval_every": 10, "seed": seed}
    return create_made(folder, resolve(request.having(**asked)), reaching(step))


def arm(folder: Path, name: str, step: int | None, *, seed: int = 0, task: str = "modmul") -> Run:
    return made_run(folder, name, seed, reaching(step), task=task)


def verdicts(*runs: Run) -> str:
    return " ".join(f"{finding.verdict}: {finding.text}" for finding in findings(by_task(runs)))


def test_without_runs_nothing_is_said() -> None:
    assert findings({}) == []


@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (20, "A tuned baseline without a filter is faster than Grokfast"),
        (50, "A tuned baseline without a filter is as fast as Grokfast"),
        (90, "Grokfast is faster than every baseline we tried"),
    ],
)
def test_the_first_thing_said_is_how_a_tuned_baseline_compares(tmp_path: Path, ours: int, words: str) -> None:
    runs = [tuned(tmp_path, BASELINE, ours), arm(tmp_path, "Grokfast-MA", 40), arm(tmp_path, "Grokfast-MA", 60, seed=1)]
    first = findings(by_task(runs))[0]
    assert first.verdict == words
    assert first.text.startswith("AdamW at weight decay 1 and learning rate 0.003, without a filter, reaches")
    assert f" after {ours} steps (one seed)" in first.text
    assert "Grokfast-MA takes 50 steps (40 to 60, 2 seeds)" in first.text


def test_before_grokfast_was_run_the_published_steps_stand_in(tmp_path: Path) -> None:
    (first, *_) = findings(by_task([tuned(tmp_path, BASELINE, 20)]))
    assert "790 for Grokfast-MA and 910 for Grokfast-EMA, which are not run here yet" in first.text


@pytest.mark.parametrize(
    ("with_filter", "words"),
    [
        (20, "of the paper still helps a tuned AdamW"),
        (40, "makes no clear difference"),
        (90, "slows a tuned AdamW down"),
    ],
)
def test_a_filter_on_top_is_compared_at_its_own_best_setting(tmp_path: Path, with_filter: int, words: str) -> None:
    runs = [tuned(tmp_path, BASELINE, step, seed=seed) for seed, step in enumerate((30, 50))]
    runs += [tuned(tmp_path, EMA, with_filter, decay=0.3), tuned(tmp_path, EMA, None)]
    said = verdicts(*runs)
    assert words in said
    assert (
        f"The best setting with a filter is EMA at weight decay 0.3 and learning rate 0.003: {with_filter} steps"
        in said
    )


def test_each_filter_is_judged_at_every_setting_of_adamw(tmp_path: Path) -> None:
    steps = {0.3: (50, 90, 20), 1.0: (30, 60, 30)}  # without a filter, with EMA, with MA
    runs = [
        tuned(tmp_path, request, step, decay=decay)
        for decay, taken in steps.items()
        for request, step in zip((BASELINE, EMA, MA), taken, strict=True)
    ]
    said = verdicts(*runs)
    assert "Only MA suits AdamW" in said
    assert "EMA is faster than no filter at 0 of 2 settings and slower at 2 and MA is faster" in said
    assert "suits AdamW" not in verdicts(*runs[:3])


def test_a_speed_up_is_claimed_of_measured_crossings_only(tmp_path: Path) -> None:
    base, fast = arm(tmp_path, "Baseline", 100), arm(tmp_path, "Grokfast-MA", 10)
    assert "the published gain holds" in verdicts(base, fast)
    assert "Grokfast-MA is 10 times as fast (the paper: 50)" in verdicts(base, fast)
    assert "the published gain does not hold" in verdicts(base, arm(tmp_path / "b", "Grokfast-MA", 50))
    unknown = verdicts(base, arm(tmp_path / "c", "Grokfast-MA", None))
    assert "Whether the published gain holds is not known yet" in unknown
    assert "Grokfast-MA takes more than 100 steps" in unknown


@pytest.mark.parametrize(
    ("decayed", "words"),
    [
        (20, "Weight decay alone gives most of that gain"),
        (90, "The filter gives most of that gain, not its weight decay"),
    ],
)
def test_the_gain_is_divided_between_weight_decay_and_filter(tmp_path: Path, decayed: int, words: str) -> None:
    asked = BASELINE.having(weight_decay=0.001, steps=100, eval_every=10)
    plain = create_made(tmp_path, resolve(asked), reaching(decayed))
    runs = [arm(tmp_path, "Baseline", None), arm(tmp_path, "Grokfast-MA", 10)]
    said = verdicts(*runs, plain)
    assert words in said
    assert f"Adam at weight decay 0.001, without a filter, takes {decayed} steps (one seed)" in said
    assert f"Grokfast-MA is {decayed / 10:.1f} times as fast as that" in said
    assert "of that gain" not in verdicts(*runs)


@pytest.mark.parametrize(
    ("plain", "words"),
    [
        (20, "A larger learning rate with less weight decay does as much as Grokfast-EMA"),
        (50, "A larger learning rate does not replace the filter"),
    ],
)
def test_a_filter_is_compared_with_a_larger_learning_rate(tmp_path: Path, plain: int, words: str) -> None:
    request = without_filter(EMA)
    assert (request.get("filter"), request.get("lr"), request.get("weight_decay")) == (None, 0.003, 0.00166667)
    fast = arm(tmp_path, "Grokfast-EMA", 30)
    said = verdicts(fast, create_made(tmp_path, resolve(request.having(steps=100, eval_every=10)), reaching(plain)))
    assert words in said
    assert f"Adam at learning rate 0.003 and weight decay 0.0017, without a filter, takes {plain} steps" in said
    assert "larger learning rate" not in verdicts(fast)


def test_stages_are_judged_when_all_three_were_run(tmp_path: Path) -> None:
    runs = [arm(tmp_path, "1-stage MA", 60), arm(tmp_path, "2-stage MA", 40)]
    assert "overfitting" not in verdicts(*runs)
    said = verdicts(*runs, arm(tmp_path, "2-stage MA, slow only", None))
    assert "Starting the filter after overfitting is faster, as the paper says" in said
    assert "in the paper 1,920, 2,940 and not converged" in said


@pytest.mark.parametrize(("matched", "cause"), [(20, "weight decay, not from the filter"), (90, "the filter")])
def test_at_equal_weight_decay_the_cause_of_a_gain_is_seen(tmp_path: Path, matched: int, cause: str) -> None:
    steps = {"Baseline": 100, "Grokfast": 20, "Baseline, decay of Grokfast": matched}
    said = verdicts(*(arm(tmp_path, name, step, task="mnist") for name, step in steps.items()))
    assert f"On MNIST the gain comes from {cause}: Grokfast takes 20 steps" in said


def test_the_larger_part_of_a_gain_names_its_cause(tmp_path: Path) -> None:
    steps = {"Baseline": 100, "Grokfast": 20, "Baseline, decay of Grokfast": 30}
    said = verdicts(*(arm(tmp_path, name, step, task="mnist") for name, step in steps.items()))
    assert "On MNIST most of the gain comes from weight decay: Grokfast takes 20 steps" in said


@pytest.mark.parametrize(
    ("matched", "words"),
    [(9.0, "the gain comes from the filter"), (1.0, "the gain comes from weight decay, not from the filter")],
)
def test_losses_are_compared_beyond_their_deviations(tmp_path: Path, matched: float, words: str) -> None:
    best = {"Baseline": 9.0, "Grokfast": 1.0, "Baseline, decay of Grokfast": matched}
    runs = [made_run(tmp_path, name, seed, [20.0, b + 0.1 * seed]) for name, b in best.items() for seed in (0, 1)]
    assert f"On QM9 {words}" in verdicts(*runs)


def test_runs_that_continue_are_also_compared_in_the_end(tmp_path: Path) -> None:
    names = ("Baseline", "Grokfast", "Baseline, decay of Grokfast")
    late = {"Baseline": 1.0, "Grokfast": 1.0}
    runs = [
        made_run(tmp_path, name, seed, [9.0, 9.0 - 5 * (name != "Baseline"), late.get(name, 4.0)])
        for name in names
        for seed in (0, 1)
    ]
    end = runs[0].rows[1].step
    said = verdicts(*(run.up_to(end) for run in runs))
    assert f"The best validation loss after {end:,} steps is 4 (2 seeds) with Grokfast and 9" in said
    assert "steps it is 1 (2 seeds) with Grokfast and 1 (2 seeds) without." in said


def test_where_too_little_was_run_no_cause_is_named(tmp_path: Path) -> None:
    names = ("Baseline", "Grokfast", "Baseline, decay of Grokfast")
    never = [arm(tmp_path, name, None, task="mnist") for name in names]
    alone = [made_run(tmp_path, name, 0, [20.0, 1.0 + i]) for i, name in enumerate(names)]
    stages = [arm(tmp_path, name, None) for name in ("1-stage MA", "2-stage MA", "2-stage MA, slow only")]
    assert verdicts(*never, *alone, *stages) == ""


def test_the_way_of_grokfast_is_compared_with_that_of_the_baseline(tmp_path: Path) -> None:
    ends = {"Baseline": ([300, 400], 500), "Grokfast-MA": ([0, 4], 40), "Grokfast-EMA": ([6, 0], 50)}
    runs = [arm(tmp_path, name, 20) for name in ends]
    for run, (end, moved) in zip(runs, ends.values(), strict=True):
        table = {"steps": [0, 100], "points": [[0, 0], end], "moved": [0, moved], "bc": 1, "parameters": 9}
        write_json(run.path / "weights.json", table)
    said = verdicts(*runs)
    assert "Grokfast ends nearer to its initial weights than the baseline, as the paper says" in said
    assert "Along the two main directions of the baseline's path Grokfast goes only 10% to 12% of it." in said
    assert "main directions" not in verdicts(*runs[:1])


def test_without_decay_a_median_decides_though_one_run_was_cut_off(tmp_path: Path) -> None:
    base = [arm(tmp_path, "Baseline", 90, seed=seed) for seed in range(3)]
    fast = [arm(tmp_path, "1-stage MA", step, seed=seed) for seed, step in enumerate((40, 50, None))]
    assert "Without weight decay, too, a filter is faster than none" in verdicts(*base, *fast)
    slow = [arm(tmp_path / "slow", "1-stage MA", 90, seed=seed) for seed in range(3)]
    assert "a filter is not always faster than none" in verdicts(*base, *slow)


def test_no_gain_has_no_cause(tmp_path: Path) -> None:
    steps = {"Baseline": 20, "Grokfast": 20, "Baseline, decay of Grokfast": 50}
    said = verdicts(*(arm(tmp_path, name, step, task="mnist") for name, step in steps.items()))
    assert "On MNIST we see no clear gain" in said


def test_overlapping_ranges_are_no_difference() -> None:
    fast, slow = spread_of([Bound(10), Bound(30)]), spread_of([Bound(40), Bound(50)])
    assert (judge(fast, slow), judge(slow, fast)) == ("better", "worse")
    assert judge(fast, spread_of([Bound(30), Bound(50)])) == "alike"
    assert judge(spread_of([Bound(10), Bound(30, False)]), slow) == "alike"  # it may take longer than anything
    assert judge(fast, spread_of([Bound(40, False)])) == "better"
    assert judge_means(mean([1.0, 3.0]), mean([4.0]), high=True) == "worse"
    assert judge_means(mean([1.0, 3.0]), mean([3.0]), high=True) == "alike"
