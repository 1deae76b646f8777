"""The ranking of settings: by the rule over seeds, at the level of the runs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from sweeps import BASE, claimed, made_run, rows_of

from grokfast.lab.compare.seeds import Bound, make_arms, spread_of
from grokfast.lab.runs.metrics import Row
from grokfast.lab.sweep.objective import Judge
from grokfast.lab.sweep.space import Choices
from grokfast.lab.sweep.spec import Objective, Spec, save_spec, settle
from grokfast.lab.sweep.standings import UNKNOWN, Standing, bound_of, bound_text, heading, rank_settings, to_json
from grokfast.lab.sweep.study import Sweep
from grokfast.lab.sweep.trial import Ending, carry_out
from grokfast.lab.training.train import resume

ALPHAS = Choices("alpha", (0.9, 0.98))


@pytest.mark.parametrize(
    ("objective", "rows", "bound"),
    [
        ("first", rows_of(0.1, 0.96, 0.5), Bound(20)),
        ("stable", rows_of(0.1, 0.96, 0.5), Bound(30, False)),
        ("stable", rows_of(0.1, 0.1, train_loss=math.nan), UNKNOWN),
        ("seconds", rows_of(0.1, 0.96, 0.97), Bound(4.0)),
        ("seconds", rows_of(0.1, 0.1), Bound(4.0, False)),
        ("accuracy", rows_of(0.1, 0.9), Bound(-0.9)),
        ("accuracy", rows_of(math.nan), UNKNOWN),
        ("loss", rows_of(0.1, 0.1, losses=(0.5, 2.0)), Bound(0.5)),
        ("loss", rows_of(0.1, losses=(math.nan,)), UNKNOWN),
    ],
)
def test_a_run_says_its_number_or_what_it_is_above(
    objective: Objective, rows: list[Row], bound: Bound, tmp_path: Path
) -> None:
    assert bound_of(made_run(tmp_path, rows), objective) == bound


def standing(*bounds: Bound) -> Standing:
    return Standing({}, [], list(bounds), len(bounds), 0, 0)


def test_measured_before_censored_before_unknown() -> None:
    worst_first = [(Bound(20), UNKNOWN), (Bound(100, False),), (Bound(40), Bound(44)), (Bound(30), Bound(50))]
    assert sorted(worst_first, key=lambda bounds: spread_of(bounds).order) == [worst_first[i] for i in (3, 2, 1, 0)]


def test_a_median_is_never_a_mean_of_a_measurement_and_a_bound() -> None:
    half = standing(Bound(100), Bound(1000, False))
    assert bound_text(half.spread.median, "stable") == "> 550"
    assert half.censored == 1
    assert bound_text(standing(Bound(100), Bound(300)).spread.median, "stable") == "200"
    assert bound_text(standing(Bound(100), UNKNOWN).spread.median, "stable") == "-"


def test_as_plain_data_accuracies_have_their_sign_and_what_is_unknown_is_null() -> None:
    found = to_json(standing(Bound(-0.5), Bound(-0.75), UNKNOWN), "accuracy")
    assert (found["median"], found["exact"], found["values"]) == (0.5, True, [0.5, 0.75, None])
    json.dumps(to_json(standing(UNKNOWN), "stable"), allow_nan=False)


def test_the_standings_judge_at_the_level_where_runs_stop_and_agree_with_their_arms(tmp_path: Path) -> None:
    spec = settle(Spec(BASE.having(steps=40, until=0.6), (ALPHAS,), (0, 1)))
    save_spec(spec, tmp_path)
    for i, point in enumerate(spec.points()):
        values = {**dict(point.setting), "seed": point.seed}
        rows = rows_of(*[0.1] * (4 - i), 0.65) if i else rows_of(0.1, 0.1, 0.1, 0.1)
        run = made_run(tmp_path / "runs", rows, until=0.6, **values)
        (run.path / "summary.json").write_text("{}")
    assert heading(spec) == "steps to validation accuracy 0.6"
    with Sweep(tmp_path) as sweep:
        found = rank_settings(sweep, sweep.tally())
        arms = make_arms(sweep.run(point) for point in spec.points())
        assert [dict(s.setting)["alpha"] for s in found] == [0.98, 0.9]
        assert [str(s.spread) for s in found] == ["30 (20 to 40)", "> 35 (30 to > 40)"]
        assert {str(arm.steps()) for arm in arms} == {str(s.spread) for s in found}


def test_the_heading_says_for_good_only_where_runs_continue_after_the_level() -> None:
    assert heading(Spec(BASE, (ALPHAS,))) == "steps to validation accuracy 0.95 for good"
    assert heading(Spec(BASE.having(until=0.6, extra_steps=5), (ALPHAS,))).endswith("0.6 for good")
    assert heading(Spec(BASE.having(extra_steps=5), (Choices("until", (0.5, 0.6)),))) == "steps to its level for good"


def test_a_pruned_run_is_marked_ranks_last_and_can_be_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = settle(Spec(BASE, (ALPHAS,), prune=True))
    save_spec(spec, tmp_path)
    with Sweep(tmp_path) as sweep, sweep.joined():
        good = claimed(sweep)
        sweep.finish(good, carry_out(spec, good.point, sweep.runs))
        monkeypatch.setattr(Judge, "is_hopeless", lambda judge: judge._step >= 4)
        bad = claimed(sweep)
        ending = carry_out(spec, bad.point, sweep.runs)
        assert (ending.state, ending.step) == ("pruned", 4)
        sweep.finish(bad, ending)
        assert sweep.tally().pruned == [bad.point]
        assert sweep.tally().left == 0
        sweep.begin()
        assert sweep.claim() is None  # pruned is pruned
        best, worst = rank_settings(sweep, sweep.tally())
        assert (best.setting, worst.setting) == (dict(good.point.setting), dict(bad.point.setting))
        assert (worst.pruned, worst.complete, worst.bounds) == (1, 0, [UNKNOWN])
        assert resume(sweep.run(bad.point)).complete
        assert [s.pruned for s in rank_settings(sweep, sweep.tally())] == [0, 0]


def test_a_failed_run_counts_as_unknown(tmp_path: Path) -> None:
    spec = settle(Spec(BASE, (Choices("alpha", (0.9,)),), (0, 1)))
    save_spec(spec, tmp_path)
    with Sweep(tmp_path) as sweep, sweep.joined():
        sweep.finish(claimed(sweep), Ending("failed", error="the disk is full"))
        done = claimed(sweep)
        sweep.finish(done, carry_out(spec, done.point, sweep.runs))
        (only,) = rank_settings(sweep, sweep.tally())
        assert (only.complete, only.failed, only.bounds[0]) == (1, 1, UNKNOWN)
