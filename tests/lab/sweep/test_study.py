"""Which process takes which run of a sweep: none twice, none lost, whichever process dies, and when."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from sweeps import BASE, claimed

from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.sweep.space import Choices, Point, Range
from grokfast.lab.sweep.spec import Spec, save_spec, settle
from grokfast.lab.sweep.study import ATTEMPTS, Sweep
from grokfast.lab.sweep.trial import Ending, carry_out

GRID = settle(Spec(BASE, (Choices("alpha", (0.9, 0.98)),), (0, 1)))
ONE = settle(Spec(BASE, (Choices("alpha", (0.9,)),)))
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
        sweep._offer(GRID.points()[0], 1)  # killed after offering it
        first = claimed(sweep)
        sweep._offer(GRID.points()[1], 1)
        sweep.study.ask()  # killed before it could say who it is
        points = [first.point, *(claimed(sweep).point for _ in range(3))]
        assert sorted(points) == sorted(GRID.points())
        assert sweep.claim() is None


def test_a_run_that_kills_its_workers_is_given_up_and_tried_again_in_the_next_session(
    begin: Callable[[Spec], Path],
) -> None:
    folder = begin(ONE)
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


def test_a_run_that_fails_is_named_and_not_tried_again_in_this_session(begin: Callable[[Spec], Path]) -> None:
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
    folder = begin(ONE)
    with Sweep(folder) as sweep, sweep.joined():
        for _ in range(ATTEMPTS + 2):
            sweep.finish(claimed(sweep), Ending("stopped"))
        assert sweep.tally().left == 1
        assert sweep.claim() is not None


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


def test_a_complete_run_that_was_removed_is_offered_again(begin: Callable[[Spec], Path]) -> None:
    folder = begin(ONE)
    with Sweep(folder) as sweep, sweep.joined():
        sweep.finish(claimed(sweep), DONE)  # no directory was ever made
        assert sweep.claim() is None
        sweep.begin()
        assert sweep.claim() is not None


# Search ---------------------------------------------------------------------------------------------------------------


def carry_out_search(folder: Path, *, dies: Callable[[int], bool] = lambda count: False) -> list[Point]:
    """Carry out a search with an invented objective; a member that dies is followed by another."""
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
    done = carry_out_search(begin(SEARCH))
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
    whole = carry_out_search(tmp_path / "whole")
    assert carry_out_search(tmp_path / "killed", dies=lambda count: count in (1, 5, 12, 14)) == whole


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
