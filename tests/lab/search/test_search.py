"""The rule of a search: what it proposes and gives up follows from the results, in any order and after any kill."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from searches import BASE, InThisProcess, KilledError, Pretended, bump, ignore, made, quiet, rows_of

from grokfast.lab import Run, load_runs
from grokfast.lab.runs.directory import RunError
from grokfast.lab.runs.metrics import Row
from grokfast.lab.search.objective import BEYOND, value_of
from grokfast.lab.search.progress import begin_in, carry_out, progress_line
from grokfast.lab.search.search import Journal, Search, Sweep, check_sweep, limits_of, propose
from grokfast.lab.search.space import Choices, Range
from grokfast.lab.search.sweep import plain_sweep, rank_trials, settle_sweep
from grokfast.lab.search.workers import ATTEMPTS, Job, Limits, gap, pruned_at
from grokfast.lab.settings import name_of

ALPHAS = Choices("alpha", (0.9, 0.98))
GRID = Sweep(BASE, (ALPHAS, Choices("lamb", (1.0, 2.0))), (3, 4), "loss")
LONG = {**BASE, "steps": 100, "eval_every": 5, "until": 0.9, "hold": 1}
SEARCH = Sweep(LONG, (Range("lamb", 0.05, 10.0, "log"),), (0, 1), "held", "tpe", 25, prune=True)


# The number of a run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("objective", "rows", "value"),
    [
        ("stable", rows_of(0.1, 0.96, 0.5, 0.97), 40.0),
        ("first", rows_of(0.1, 0.96, 0.5, 0.97), 20.0),
        ("held", rows_of(0.1, 0.96, 0.5, 0.97, 0.98), 40.0),
        ("seconds", rows_of(0.1, 0.2, 0.96, 0.97), 6.0),
        ("accuracy", rows_of(0.1, 0.9), -0.9),
        ("best_loss", rows_of(0.1, 0.1, 0.1, losses=(3.0, 0.5, math.nan)), 0.5),
        ("loss", rows_of(0.1, 0.1, 0.1, losses=(3.0, 0.5, 0.7)), 0.7),
        ("loss", rows_of(0.1, losses=(math.nan,)), math.inf),
        ("stable", rows_of(0.1, 0.96, 0.5, 0.475), 40 * 1.5),
        ("first", rows_of(0.1, 0.95 / 2, 0.0, 0.0), 40 * 1.5),
        ("held", rows_of(0.96, 0.95 / 2, 0.95, 0.0), 40 * 1.5),  # the best stretch of two evaluations
        ("seconds", rows_of(0.0, 0.0), BEYOND + 2 * 40 / 10 * 2.0),  # a fast failure is not the fastest
    ],
)
def test_each_objective_is_a_number_to_be_made_smaller(objective: str, rows: list[Row], value: float) -> None:
    assert value_of(made(rows, until=0.95, hold=1), objective) == pytest.approx(value)


def test_the_level_is_that_of_the_run() -> None:
    rows = rows_of(0.1, 0.65)
    assert value_of(made(rows, until=0.6), "stable") == 20.0
    assert value_of(made(rows), "stable") > 40.0


def test_a_censored_run_is_worse_than_any_other_and_the_nearer_it_came_the_less() -> None:
    ends = [(0.5, 0.5, 0.5, 0.95), (0.95, 0.95, 0.95, 0.94), (0.9, 0.9, 0.9, 0.9), (0.9, 0.9, 0.9, 0.1), (0.0,)]
    values = [value_of(made(rows_of(*end)), "stable") for end in ends]
    assert values == sorted(set(values))
    assert values[0] == 40.0


def test_a_run_that_diverged_counts_with_its_whole_budget() -> None:
    assert value_of(made(rows_of(0.0, 0.0), diverged=True), "first") == 80.0


def test_a_gap_is_0_at_the_level_and_1_far_from_it() -> None:
    assert [gap(v, 0.5, "loss") for v in (0.2, 0.5, 1.0, math.inf, math.nan)] == [0.0, 0.0, 0.5, 1.0, 1.0]


# Pruning --------------------------------------------------------------------------------------------------------------

EARLY, LATE = rows_of(0.1, 0.95), rows_of(0.1, 0.1, 0.1, 0.1)


def test_a_run_behind_the_median_is_given_up_at_the_step_that_shows_it() -> None:
    limits = limits_of([made(rows) for rows in (EARLY, EARLY, EARLY, LATE)], "held")
    assert pruned_at(made(LATE), limits) == 20
    assert pruned_at(made(EARLY), limits) is None


def test_no_run_is_given_up_among_few_or_by_a_small_difference() -> None:
    assert limits_of([made(EARLY)] * 3, "held") is None
    limits = limits_of([made(rows_of(0.12, 0.13))] * 9, "held")
    assert pruned_at(made(LATE), limits) is None


def test_a_run_that_cannot_beat_the_best_any_more_is_given_up() -> None:
    limits = limits_of([made(EARLY)], "held", best=20)
    assert pruned_at(made(LATE), limits) == 20
    assert pruned_at(made(rows_of(0.1, 0.1, 0.95)), limits) == 20
    assert pruned_at(made(EARLY), limits) is None
    assert pruned_at(made(rows_of(0.95, 0.1, 0.95)), limits) is None  # it was at the level before


def test_a_loss_is_compared_by_itself_if_it_is_the_goal() -> None:
    limits = limits_of([made(rows_of(0, 0, losses=(2.0, 1.0)))] * 4, "loss")
    assert pruned_at(made(rows_of(0, 0, losses=(2.05, 1.04))), limits) is None
    assert pruned_at(made(rows_of(0, 0, losses=(2.05, 1.2))), limits) == 20


# The rule -------------------------------------------------------------------------------------------------------------


def search_of(sweep: Sweep, journal: Path | None = None) -> Search:
    def make_job(setting: dict[str, Any], seed: int, limits: Limits | None) -> Job:
        settings = sweep.settings(setting, seed)
        return Job(Path(name_of(settings)), settings, limits)

    return Search(sweep, make_job, Journal(journal))


def outcome(search: Search) -> list[Any]:
    """What was proposed, and what became of it."""
    return [(t.setting, [(run.rows[-1].step, cut) for run, cut in t.results()]) for t in search.trials]


def run_whole(sweep: Sweep, pool: Pretended, journal: Path | None = None) -> Search:
    search = search_of(sweep, journal)
    assert carry_out(search.advance, lambda: sweep.count, pool, ignore)
    return search


@pytest.fixture(scope="module")
def whole() -> Search:
    return run_whole(SEARCH, Pretended(bump("lamb", 0.7, 3.0)))


def test_the_order_in_which_runs_end_changes_nothing(whole: Search) -> None:
    assert any(cut for trial in whole.trials for _, cut in trial.results())  # some were pruned
    for workers, seed in ((1, 1), (2, 2), (3, 3), (8, 4)):
        assert outcome(run_whole(SEARCH, Pretended(bump("lamb", 0.7, 3.0), workers, seed))) == outcome(whole)


@pytest.mark.parametrize("seed", range(4))
def test_killed_at_any_moment_and_continued_it_ends_the_same(whole: Search, seed: int, tmp_path: Path) -> None:
    disk: dict[Path, Run] = {}
    kills = 0
    while True:
        pool = Pretended(bump("lamb", 0.7, 3.0), 3, seed + 10 * kills, disk, dies=0.1, kills=0.15)
        try:
            search = run_whole(SEARCH, pool, tmp_path / "trials.jsonl")
            break
        except KilledError:
            kills += 1
            if (kills + seed) % 2:  # the journal may be cut anywhere, or be gone
                content = (tmp_path / "trials.jsonl").read_bytes()
                (tmp_path / "trials.jsonl").write_bytes(content[: random.Random(kills).randrange(len(content) + 1)])
    assert kills >= 2
    assert outcome(search) == outcome(whole)
    assert len(disk) == len({job.path for trial in search.trials for job in trial.jobs})  # nothing else was trained


def test_no_run_is_begun_twice_or_before_those_it_must_know(whole: Search) -> None:
    pool = Pretended(bump("lamb", 0.7, 3.0), 100)
    search = run_whole(SEARCH, pool)
    paths = [job.path for job in pool.begun]
    assert len(paths) == len(set(paths)) == 50
    assert [job for trial in search.trials for job in trial.jobs] == pool.begun  # at most four trials at once, in order


def test_a_search_finds_the_best_setting(whole: Search) -> None:
    assert 0.4 < whole.best().setting["lamb"] < 1.2
    assert len({trial.setting["lamb"] < 1 for trial in whole.trials}) == 2


def test_the_seed_of_the_sampler_decides_what_is_proposed() -> None:
    other = dataclasses.replace(SEARCH, sampler_seed=1, trials=3)
    settings = [[t.setting for t in run_whole(s, Pretended(bump("lamb", 1.0))).trials] for s in (SEARCH, other)]
    assert settings[0][:3] != settings[1]


def test_a_proposal_depends_on_the_results_that_are_known_and_on_no_others() -> None:
    dimensions = [Range("lamb", 0.1, 10.0, "log")]
    settings = [propose(dimensions, seed, [], []) for seed in range(16)]
    values = [abs(math.log(setting["lamb"])) for setting in settings]
    assert propose(dimensions, 0, settings, values) == propose(dimensions, 0, settings, values)
    assert propose(dimensions, 0, settings, values) != propose(dimensions, 0, settings, [-value for value in values])
    known = propose(dimensions, 0, settings, values[:12])
    assert known == propose(dimensions, 0, settings, values[:12])
    assert propose(dimensions, 0, settings, [*values[:12], None, None, None, None]) is not None  # failed ones


def test_a_setting_that_is_proposed_again_is_not_run_again() -> None:
    sweep = Sweep(LONG, (ALPHAS,), (0,), "held", "tpe", 8)
    pool = Pretended(bump("alpha", 0.9))
    search = run_whole(sweep, pool)
    assert len(search.trials) == 8
    assert len(pool.begun) == len(rank_trials(search)) == 2


def test_a_grid_is_every_combination_with_every_seed_once() -> None:
    pool = Pretended(bump("lamb", 1.0), 5)
    search = run_whole(GRID, pool)
    pairs = [(job.settings["alpha"], job.settings["lamb"], job.settings["seed"]) for job in pool.begun]
    assert sorted(pairs) == sorted((alpha, lamb, s) for alpha in (0.9, 0.98) for lamb in (1.0, 2.0) for s in (3, 4))
    assert len(rank_trials(search)) == 4


def test_the_values_that_follow_from_a_varied_one_are_the_papers() -> None:
    sweep = Sweep({"task": "modmul"}, (Choices("filter", (None, "ma", "ema")),))
    assert [sweep.settings(corner, 0).get("lamb") for corner in sweep.corners()] == [None, 5.0, 2.0]


# Failures -------------------------------------------------------------------------------------------------------------


class Failing(Pretended):
    """A pool in which the runs of some settings fail or kill their workers."""

    def __init__(self, fails: float | None = None, kills: float | None = None) -> None:
        super().__init__(bump("lamb", 1.0))
        self._bad, self._deadly = fails, kills

    def wait(self, seconds: float) -> list[tuple[Job, str | None]]:
        (job,) = self._running
        if job.settings["alpha"] == self._bad:
            self._running.clear()
            return [(job, "the shape is wrong")]
        self._dies = 1.0 if job.settings["alpha"] == self._deadly else 0.0
        return super().wait(seconds)


def test_a_run_that_fails_is_named_and_the_others_are_trained() -> None:
    search = run_whole(dataclasses.replace(GRID, seeds=(0,)), Failing(fails=0.9))
    rows = rank_trials(search)
    assert [row["failed"] for row in rows] == [0, 0, 1, 1]
    assert [run for trial in search.trials for run in trial.runs if isinstance(run, str)] == ["the shape is wrong"] * 2
    assert search.best().setting["alpha"] == 0.98


def test_a_run_that_kills_its_workers_is_given_up() -> None:
    pool = Failing(kills=0.9)
    search = run_whole(dataclasses.replace(GRID, seeds=(0,)), pool)
    reasons = [run for trial in search.trials for run in trial.runs if isinstance(run, str)]
    assert reasons == [f"its worker died {ATTEMPTS} times"] * 2
    assert len(pool.begun) == 2 + 2 * ATTEMPTS


def test_a_search_without_a_complete_trial_says_why() -> None:
    search = run_whole(Sweep(BASE, (ALPHAS,)), Failing(fails=0.9))
    assert search.best().setting["alpha"] == 0.98
    search = run_whole(Sweep(BASE, (Choices("alpha", (0.9,)),)), Failing(fails=0.9))
    with pytest.raises(RunError, match="ran to its end: the shape is wrong"):
        search.best()


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimensions": ()}, "needs --grid"),
        ({"dimensions": (Choices("lamb", (1.0,)), Choices("lamb", (2.0,)))}, "lamb must be varied once"),
        ({"given": {**BASE, "lamb": 1.0}}, "lamb must be either fixed or varied, got --lamb"),
        ({"dimensions": (Choices("alpha", (0.9, 1.5)),)}, "alpha must be in .* got 1.5"),
        ({"dimensions": (Choices("window_size", (2, 3)),)}, "window_size needs a filter that has it, got ema"),
        ({"dimensions": (Choices("momentum", (0.0, 0.9)),)}, "momentum has no effect on adam"),
        ({"dimensions": (Range("lamb", 1.0, 2.0),)}, "range needs --search tpe, got lamb"),
        ({"dimensions": (Range("alpha", 0.5, 1.5),), "search": "tpe", "trials": 3}, "alpha must be in .* got 1.5"),
        ({"seeds": ()}, "seeds must be >= 1"),
        ({"search": "tpe"}, "trials >= 1, got None"),
        ({"trials": 3}, "trials needs --search tpe, got 3"),
        ({"at_once": 0}, "at_once must be >= 1, got 0"),
        ({"search": "random"}, "search must be one of grid, tpe, got random"),
        ({"objective": "speed"}, "objective must be one of held, .* got speed"),
    ],
)
def test_a_sweep_that_cannot_be_run_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settle_sweep(dataclasses.replace(GRID, **changes))


def test_runs_that_stop_at_a_level_go_on_until_it_is_known_whether_they_hold_it() -> None:
    stops = dataclasses.replace(GRID, given={**BASE, "until": 0.5}, objective="held")
    assert settle_sweep(stops).given["hold"] >= 1
    assert "hold" not in settle_sweep(dataclasses.replace(stops, objective="first")).given


# In a directory -------------------------------------------------------------------------------------------------------


def test_a_folder_holds_one_sweep_and_says_how_another_differs(tmp_path: Path) -> None:
    folder, data = tmp_path / "sweep", plain_sweep(GRID)
    begin_in(folder, "sweep.json", data)
    assert begin_in(folder, "sweep.json", data) == data
    other = plain_sweep(dataclasses.replace(GRID, given={**BASE, "steps": 9}, objective="held"))
    with pytest.raises(RunError, match=r'holds another sweep: steps is 8, got 9; objective is "loss", got "held"'):
        begin_in(folder, "sweep.json", other)


def test_a_foreign_folder_and_a_changed_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "songs.txt").write_text("la")
    with pytest.raises(RunError, match=r"must be empty or hold sweep\.json"):
        begin_in(tmp_path, "sweep.json", plain_sweep(GRID))
    folder = tmp_path / "sweep"
    begin_in(folder, "sweep.json", plain_sweep(GRID))
    path = folder / "sweep.json"
    path.write_text(path.read_text().replace('"steps": 8', '"steps": 9'))
    with pytest.raises(RunError, match="was changed since it was written"):
        begin_in(folder, "sweep.json", plain_sweep(GRID))
    path.write_text("{")
    with pytest.raises(RunError, match="not JSON"):
        begin_in(folder, "sweep.json", plain_sweep(GRID))


def test_a_damaged_line_of_the_journal_is_forgotten_with_all_after_it(tmp_path: Path) -> None:
    path, told = tmp_path / "trials.jsonl", list[str]()
    journal = Journal(path)
    for number in range(3):
        journal.add("", number, {"lamb": 1.0 + number})
    path.write_text(path.read_text().replace("2.0", "7.0"))
    again = Journal(path, told.append)
    assert again.get("", 0) == {"lamb": 1.0}
    assert [again.get("", number) for number in (1, 2)] == [None, None]
    assert "damaged after 1 lines" in told[0]
    assert len(path.read_bytes().splitlines()) == 1


# With real runs -------------------------------------------------------------------------------------------------------


def test_a_pruned_run_is_marked_and_the_search_does_not_see_what_is_trained_later(tmp_path: Path) -> None:
    """Pruned is pruned: a run that is trained to its end by hand changes nothing in the search."""
    from grokfast.lab.training.run import resume

    limits = Limits("held", [2], [-1.0])  # no run can be so good
    settings = GRID.settings({"alpha": 0.9, "lamb": 1.0}, 0)
    job = Job(tmp_path / name_of(settings), settings, limits)
    pool = InThisProcess()
    pool.submit(job)
    pool.wait(0)
    (run,) = load_runs(tmp_path)
    assert (run.status, run.rows[-1].step) == ("incomplete", 2)
    assert pruned_at(run, limits) == 2
    assert resume(run).done
    assert pruned_at(Run(run.path), limits) == 2


def test_a_full_sweep_is_ranked_with_medians_over_seeds(tmp_path: Path) -> None:
    curve = bump("alpha", 0.98, 3.0)
    rows = rank_trials(run_whole(Sweep(LONG, (ALPHAS,), (0, 1, 2)), Pretended(curve)))
    assert [row["setting"]["alpha"] for row in rows] == [0.98, 0.9]
    assert rows[0]["exact"]
    assert rows[0]["median"] == sorted(rows[0]["values"])[1]
    assert (rows[0]["low"], rows[0]["high"]) == (min(rows[0]["values"]), max(rows[0]["values"]))
    slow = rank_trials(
        run_whole(Sweep({**LONG, "until": 0.99}, (ALPHAS,), (0, 1, 2)), Pretended(bump("alpha", 0.98, 0.5)))
    )
    assert (slow[0]["exact"], slow[0]["median"], slow[0]["censored"]) == (False, 100, 3)
    json.dumps(rows)


def test_progress_is_a_line_with_the_time_that_is_left() -> None:
    seen: list[str] = []
    search = search_of(GRID)
    carry_out(search.advance, lambda: 8, Pretended(bump("lamb", 1.0), 2), lambda p: seen.append(progress_line(p)))
    assert seen[0] == "0 of 8 runs, 2 running"
    assert seen[-1].startswith("8 of 8 runs, 0 running, about 0 s left")


def test_check_sweep_is_quiet_about_a_good_one() -> None:
    check_sweep(GRID)
    check_sweep(SEARCH)
    quiet("")
