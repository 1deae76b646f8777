"""Who takes which run of a sweep: nothing twice, nothing lost, whatever dies at whatever moment."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from made import row
from optuna.trial import TrialState
from tiny import TINY, comparable

from grokfast.lab.config import FilterConfig, LoopConfig, OptimConfig, RunConfig, resolve
from grokfast.lab.runs.metrics import Row
from grokfast.lab.runs.directory import Run, RunError, create_run
from grokfast.lab.sweep.objective import BEYOND, Judge, gap, hopeless, value_of
from grokfast.lab.sweep.space import Choices, Point, Range
from grokfast.lab.sweep.spec import Objective, Spec, save_spec, settle
from grokfast.lab.sweep.standings import Standing, standings, text
from grokfast.lab.sweep.study import ATTEMPTS, Claim, Sweep
from grokfast.lab.sweep.trial import Ending, carry_out
from grokfast.lab.training.loop import train

BASE = RunConfig(TINY, FilterConfig(filter="ema"), OptimConfig(), LoopConfig(steps=8, eval_every=2, threads=1))
GRID = settle(Spec(BASE, (Choices("alpha", (0.9, 0.98)),), (0, 1)))
SEARCH = settle(
    Spec(
        BASE,
        (Range("lamb", 0.1, 10.0, log=True), Range("warmup_steps", 1, 9), Choices("betas", ((0.9, 0.98), (0.8, 0.9)))),
        (0, 1),
        search="tpe",
        trials=7,
    )
)
DONE = Ending("complete", 5.0, 8)


@pytest.fixture
def begin(tmp_path: Path) -> Callable[[Spec], Path]:
    def make(spec: Spec) -> Path:
        save_spec(spec, tmp_path / "sweep")
        return tmp_path / "sweep"

    return make


def claimed(sweep: Sweep) -> Claim:
    claim = sweep.claim()
    assert claim is not None
    return claim


def states(sweep: Sweep) -> list[str]:
    return [t.state.name for t in sweep.trials()]


# Taking ---------------------------------------------------------------------------------------------------------------


def test_two_members_take_every_run_of_a_grid_once(begin: Callable[[Spec], Path]) -> None:
    folder = begin(GRID)
    with Sweep(folder) as one, Sweep(folder) as other, one.joined(), other.joined():
        claims = [claimed(one), claimed(other), claimed(one), claimed(other)]
        assert sorted(claim.point for claim in claims) == sorted(GRID.points())
        assert one.claim() is None
        assert other.claim() is None
        for claim in claims[:3]:
            one.finish(claim, DONE)
        assert one.tally().left == 1
        assert one.tally().running == [claims[3].point]
        other.finish(claims[3], DONE)
        assert one.tally().left == 0
        assert states(one) == ["COMPLETE"] * 4


def test_what_a_dead_member_had_is_taken_by_the_next_and_nothing_else(begin: Callable[[Spec], Path]) -> None:
    folder = begin(GRID)
    with Sweep(folder) as one, Sweep(folder) as other, other.joined():
        with one.joined():
            lost = claimed(one)
            kept = claimed(other)
        (folder / "members" / str(one._member)).touch()  # as if it had been killed: the file stays, the lock is free
        again = [claimed(other).point for _ in range(3)]
        assert again.count(lost.point) == 1
        assert kept.point not in again
        assert other.claim() is None


def test_a_member_killed_while_taking_a_run_loses_none(begin: Callable[[Spec], Path]) -> None:
    folder = begin(GRID)
    with Sweep(folder) as sweep, sweep.joined():
        sweep._put_up(GRID.points()[0], 1)  # killed after putting it up
        first = claimed(sweep)
        sweep._put_up(GRID.points()[1], 1)
        sweep.study.ask()  # killed before it could say who it is
        points = [first.point, *(claimed(sweep).point for _ in range(3))]
        assert sorted(points) == sorted(GRID.points())
        assert sweep.claim() is None


def test_a_run_that_kills_its_workers_is_given_up_and_tried_again_in_the_next_session(
    begin: Callable[[Spec], Path],
) -> None:
    folder = begin(settle(Spec(BASE, (Choices("alpha", (0.9,)),))))
    with Sweep(folder) as sweep:
        for _ in range(ATTEMPTS):
            with sweep.joined():
                claimed(sweep)
        with sweep.joined():
            assert sweep.claim() is None
            tally = sweep.tally()
            assert tally.left == 0
            assert list(tally.failed.values()) == [f"its worker died {ATTEMPTS} times"]
            sweep.begin()
            assert claimed(sweep).point == GRID.points()[0]


def test_a_run_that_fails_is_told_and_not_tried_again_in_this_session(begin: Callable[[Spec], Path]) -> None:
    folder = begin(GRID)
    with Sweep(folder) as sweep, sweep.joined():
        failed = claimed(sweep)
        sweep.finish(failed, Ending("failed", error="the disk is full"))
        rest = [claimed(sweep) for _ in range(3)]
        assert failed.point not in [claim.point for claim in rest]
        assert sweep.claim() is None
        assert sweep.tally().failed == {failed.point: "the disk is full"}
        sweep.begin()
        assert claimed(sweep).point == failed.point


def test_a_run_that_was_stopped_is_open_and_costs_no_attempt(begin: Callable[[Spec], Path]) -> None:
    folder = begin(settle(Spec(BASE, (Choices("alpha", (0.9,)),))))
    with Sweep(folder) as sweep, sweep.joined():
        for _ in range(ATTEMPTS + 2):
            sweep.finish(claimed(sweep), Ending("stopped"))
        assert sweep.tally().left == 1
        assert sweep.claim() is not None


def test_errors_of_a_run_are_told_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **more: object) -> None:
        raise OSError(28, "No space left\non device", str(tmp_path / "x"))

    monkeypatch.setattr("grokfast.lab.sweep.trial.create_run", fail)
    ending = carry_out(GRID, GRID.points()[0], tmp_path)
    assert ending.state == "failed"
    assert ending.error.startswith("no space left")


# Runs are the truth ---------------------------------------------------------------------------------------------------


def test_a_lost_study_costs_no_training(begin: Callable[[Spec], Path]) -> None:
    folder = begin(GRID)
    point = GRID.points()[0]
    ending = carry_out(GRID, point, folder / "runs")
    assert ending.state == "complete"
    run = Run(next((folder / "runs").iterdir()))
    before = (run.path / "metrics.jsonl").stat().st_mtime_ns
    with Sweep(folder) as sweep, sweep.joined():
        claim = claimed(sweep)
        assert claim.point == point
        assert carry_out(GRID, claim.point, sweep.runs) == ending
    assert (run.path / "metrics.jsonl").stat().st_mtime_ns == before


def test_a_complete_run_that_was_removed_is_put_up_again(begin: Callable[[Spec], Path]) -> None:
    folder = begin(settle(Spec(BASE, (Choices("alpha", (0.9,)),))))
    with Sweep(folder) as sweep, sweep.joined():
        sweep.finish(claimed(sweep), DONE)  # no directory was ever made
        assert sweep.claim() is None
        sweep.begin()
        assert sweep.claim() is not None


def test_a_stopped_run_goes_on_from_its_checkpoint_and_ends_the_same(tmp_path: Path) -> None:
    point, looks = GRID.points()[0], iter([False, True])
    assert carry_out(GRID, point, tmp_path / "a", should_stop=lambda: next(looks)).state == "stopped"
    (stopped,) = (tmp_path / "a").iterdir()
    assert Run(stopped).rows[-1].step == 4
    assert list((stopped / "checkpoints").glob("*.pt"))
    assert carry_out(GRID, point, tmp_path / "a") == carry_out(GRID, point, tmp_path / "b")
    (whole,) = (tmp_path / "b").iterdir()
    assert comparable(Run(stopped).rows) == comparable(Run(whole).rows)


# Search ---------------------------------------------------------------------------------------------------------------


def search(folder: Path, *, dies: Callable[[int], bool] = lambda count: False) -> list[Point]:
    """Carry a search out with a made-up objective; a member that dies is followed by another."""
    done: list[Point] = []
    with Sweep(folder) as sweep:
        count = 0
        while True:
            with sweep.joined():
                while claim := sweep.claim():
                    count += 1
                    if dies(count):
                        break
                    lamb = dict(claim.point.setting)["lamb"]
                    sweep.finish(claim, Ending("complete", abs(math.log(lamb)) + 0.1 * claim.point.seed, 8))
                    done.append(claim.point)
                else:
                    assert sweep.tally().left == 0
                    return done


def test_a_search_runs_every_setting_with_every_seed_and_stays_in_its_ranges(begin: Callable[[Spec], Path]) -> None:
    done = search(begin(SEARCH))
    assert len(set(done)) == len(done) == SEARCH.total == 14
    assert [point.seed for point in done] == [0, 1] * 7
    for point in done:
        setting = dict(point.setting)
        assert 0.1 <= setting["lamb"] <= 10.0
        assert setting["warmup_steps"] in range(1, 10)
        assert setting["betas"] in ((0.9, 0.98), (0.8, 0.9))
        SEARCH.config(point)
    assert len({dict(point.setting)["lamb"] < 1 for point in done}) == 2


def test_a_search_that_was_killed_proposes_what_it_would_have(tmp_path: Path) -> None:
    for name in ("whole", "killed"):
        save_spec(SEARCH, tmp_path / name)
    whole = search(tmp_path / "whole")
    assert search(tmp_path / "killed", dies=lambda count: count in (1, 5, 12, 14)) == whole


def test_members_that_search_together_propose_different_settings(begin: Callable[[Spec], Path]) -> None:
    folder = begin(settle(Spec(BASE, SEARCH.dimensions, search="tpe", trials=6)))
    with ExitStack() as stack:
        members = [stack.enter_context(Sweep(folder)) for _ in range(3)]
        for member in members:
            stack.enter_context(member.joined())
        points = [claimed(member).point for member in (*members, *members)]
        assert len(set(points)) == 6
        assert all(member.claim() is None for member in members)


def test_a_setting_that_is_proposed_again_is_not_run_again(begin: Callable[[Spec], Path]) -> None:
    folder = begin(settle(Spec(BASE, (Choices("alpha", (0.9, 0.98)),), search="tpe", trials=8)))
    points: list[Point] = []
    with Sweep(folder) as sweep, sweep.joined():
        while claim := sweep.claim():
            points.append(claim.point)
            sweep.finish(claim, DONE)
        assert sweep.tally().left == 0
    assert 1 <= len(set(points)) == len(points) <= 2


# Storage --------------------------------------------------------------------------------------------------------------


def foreign(path: Path) -> None:
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE songs (title TEXT)")
    other.close()


def damaged(path: Path) -> None:
    with Sweep(path.parent):
        pass
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\x7f" * 8192 + data[12288:])


def of_another_sweep(path: Path) -> None:
    save_spec(SEARCH, path.parent / "other")
    with Sweep(path.parent / "other"):
        pass
    path.write_bytes((path.parent / "other" / "study.db").read_bytes())


DAMAGE: list[Callable[[Path], object]] = [
    lambda path: path.write_bytes(b""),
    lambda path: path.write_bytes(b"not a database at all" * 500),
    foreign,
    damaged,
    of_another_sweep,
]


@pytest.mark.parametrize("spoil", DAMAGE, ids=["empty", "text", "foreign", "damaged", "other"])
def test_a_storage_that_is_not_ours_is_refused_by_name_and_left_alone(
    begin: Callable[[Spec], Path], spoil: Callable[[Path], object]
) -> None:
    folder = begin(GRID)
    spoil(folder / "study.db")
    before = (folder / "study.db").read_bytes()
    with pytest.raises(RunError, match=r"study\.db is (damaged|not the storage)"):
        Sweep(folder)
    assert (folder / "study.db").read_bytes() == before


# What is sought -------------------------------------------------------------------------------------------------------


def rows_of(*accuracies: float, losses: tuple[float, ...] = ()) -> list[Row]:
    pairs = zip(accuracies, losses or [1.0] * len(accuracies), strict=True)
    return [
        Row(10 * i, 1.0, 1.0, loss, accuracy, 1.0, 1.0, None, 0.1, i, 2.0 * i)
        for i, (accuracy, loss) in enumerate(pairs, start=1)
    ]


LONG = RunConfig(TINY, loop=LoopConfig(steps=40))


@pytest.mark.parametrize(
    ("objective", "rows", "value"),
    [
        ("stable", rows_of(0.1, 0.96, 0.5, 0.97), 40.0),
        ("first", rows_of(0.1, 0.96, 0.5, 0.97), 20.0),
        ("seconds", rows_of(0.1, 0.2, 0.96, 0.97), 6.0),
        ("accuracy", rows_of(0.1, 0.9), -0.9),
        ("loss", rows_of(0.1, 0.1, 0.1, losses=(3.0, 0.5, math.nan)), 0.5),
        ("loss", rows_of(0.1, losses=(math.nan,)), math.inf),
        ("stable", rows_of(0.1, 0.96, 0.5, 0.475), 40 * 1.5),
        ("first", rows_of(0.1, 0.95 / 2, 0.0, 0.0), 40 * 1.5),
        ("seconds", rows_of(0.0, 0.0), BEYOND + 2 * 40 / 10 * 2.0),
        ("stable", [], math.inf),
    ],
)
def test_each_objective_is_a_number_to_be_made_smaller(objective: Objective, rows: list[Row], value: float) -> None:
    assert value_of(LONG, rows, objective) == pytest.approx(value)


def test_a_censored_run_is_worse_than_any_other_and_the_nearer_it_came_the_less() -> None:
    ends = [(0.5, 0.5, 0.5, 0.95), (0.95, 0.95, 0.95, 0.94), (0.9, 0.9, 0.9, 0.9), (0.9, 0.9, 0.9, 0.1), (0.0,)]
    values = [value_of(LONG, rows_of(*end), "stable") for end in ends]
    assert values == sorted(set(values))
    assert values[0] == 40.0


def test_a_gap_is_nothing_at_the_level_and_one_far_from_it() -> None:
    assert [gap(v, 0.5, "loss") for v in (0.2, 0.5, 1.0, math.inf, math.nan)] == [0.0, 0.0, 0.5, 1.0, 1.0]


# Pruning --------------------------------------------------------------------------------------------------------------

EARLY = [(10, 0.9), (20, 0.0)]  # reached its level and stopped
LATE = [(10, 0.9), (20, 0.9), (30, 0.9), (40, 0.9)]


def test_a_run_behind_the_median_is_hopeless_from_the_step_where_it_shows() -> None:
    others = [EARLY, EARLY, EARLY, LATE]
    assert [hopeless(LATE, others, step) for step in (10, 20, 30)] == [False, True, True]
    assert not hopeless(EARLY, others, 20)


def test_no_run_is_hopeless_among_few_or_by_a_hair() -> None:
    assert not hopeless(LATE, [EARLY] * 3, 20)
    assert not hopeless(LATE, [[(10, 0.88), (20, 0.86)]] * 9, 20)


def test_a_pruned_run_is_marked_counts_as_worst_and_can_be_finished(
    begin: Callable[[Spec], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = settle(Spec(BASE, (Choices("alpha", (0.9, 0.98)),), prune=True))
    folder = begin(spec)
    with Sweep(folder) as sweep, sweep.joined():
        good = claimed(sweep)
        sweep.finish(good, carry_out(spec, good.point, sweep.runs))
        monkeypatch.setattr(Judge, "hopeless", lambda judge: judge._step >= 4)
        bad = claimed(sweep)
        ending = carry_out(spec, bad.point, sweep.runs)
        assert (ending.state, ending.step) == ("pruned", 4)
        sweep.finish(bad, ending)
        assert sweep.tally().pruned == [bad.point]
        assert sweep.tally().left == 0
        assert sweep.claim() is None
        sweep.begin()
        assert sweep.claim() is None  # pruned is pruned
        assert [t.state for t in sweep.trials()] == [TrialState.COMPLETE, TrialState.PRUNED]
        best, worst = standings(sweep, sweep.tally())
        assert (best.setting, worst.setting) == (dict(good.point.setting), dict(bad.point.setting))
        assert (worst.pruned, worst.complete, worst.median) == (1, 0, math.inf)
        assert train(sweep.run(bad.point))
        assert [s.pruned for s in standings(sweep, sweep.tally())] == [0, 0]


def test_a_judge_compares_with_the_complete_runs_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grokfast.lab.sweep.objective.ENOUGH", 1)
    run = create_run(GRID.config(GRID.points()[0]), tmp_path)
    judge = Judge(run)
    (row,) = rows_of(0.0)
    judge.see(row._replace(step=8))
    assert not judge.hopeless()
    assert carry_out(GRID, GRID.points()[1], tmp_path).state == "complete"
    seen = Run(sorted(p for p in tmp_path.iterdir() if (p / "summary.json").exists())[0])
    monkeypatch.setattr("grokfast.lab.sweep.objective.GRAIN", -1.0)
    assert seen.rows
    assert judge.hopeless()


def test_a_run_that_never_gets_there_is_not_the_fastest() -> None:
    config = resolve(RunConfig(TINY, FilterConfig(), OptimConfig(), LoopConfig(steps=1000)))
    there = [row(500, 0.01, 0.99)._replace(seconds=10.0), row(1000, 0.01, 0.99)._replace(seconds=20.0)]
    never = [row(1000, 2.0, 0.1)._replace(seconds=1.0)]
    assert value_of(config, there, "seconds") == 10.0
    assert value_of(config, never, "seconds") > BEYOND


def test_a_median_is_never_a_mean_of_what_was_measured_and_what_was_not() -> None:
    half = Standing({}, 1000, 2, 1, 0, 0, [100.0, 1200.0], 1000)
    assert text(half.median, half, "stable") == "> 1,000"
    both = Standing({}, 1000, 2, 0, 0, 0, [100.0, 300.0], 1000)
    assert text(both.median, both, "stable") == "200"
