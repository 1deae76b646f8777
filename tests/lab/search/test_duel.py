"""A duel: its seeds, its controls, its tables; the same after any order and any kill."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from searches import KilledError, Pretended, ignore
from tiny import SIZES

from grokfast.lab import Run
from grokfast.lab.search.contest import Contest, Duel
from grokfast.lab.search.duel import budget_lines, make_duel
from grokfast.lab.search.outcome import (
    FILE,
    SHOWN,
    TABLES,
    Outcome,
    load_outcome,
    more_units,
    outcome_of,
    write_outcome,
)
from grokfast.lab.search.progress import carry_out
from grokfast.lab.search.search import Journal
from grokfast.lab.search.space import REGIMES, Range
from grokfast.lab.search.workers import Job, Limits
from grokfast.lab.settings import Settings, name_of, resolve
from grokfast.lab.stats import HOLD, LEAST_TUNINGS, Steps, verdict

GIVEN: dict[str, Any] = {**SIZES, "steps": 100, "eval_every": 2, "hold": 2}
ARMS = ["adamw", "adamw+ema"]
SIZE = {"tunings": 8, "trials": 12, "seeds": 3}


def duel_of(arms: list[str] = ARMS, **more: Any) -> Duel:
    sizes = {name: more.pop(name, value) for name, value in SIZE.items()}
    return make_duel("modmul", arms, given={**GIVEN, **more.pop("given", {})}, **sizes, **more)


def contest_of(duel: Duel, journal: Path | None = None) -> Contest:
    def job_of(arm: str, part: str, given: dict[str, Any], seed: int, limits: Limits | None) -> Job:
        settings = resolve(**{**given, "seed": seed})
        return Job(Path(part) / name_of(settings), settings, limits)

    return Contest(duel, job_of, lambda given: resolve(**given), Journal(journal))


def landscape(gain: float) -> Any:
    """Curves that rise fastest at a learning rate of 0.003 and a decay of 0.1; the filter makes them `gain` faster."""

    def curve(settings: Settings, step: int) -> float:
        luck = random.Random(settings["seed"]).uniform(0.9, 1.1)
        away = abs(math.log(settings["lr"] / 0.003)) + 0.3 * abs(math.log((settings["weight_decay"] + 1e-3) / 0.1))
        speed = 3.0 * luck / (1.0 + 0.3 * away) * (gain if settings["filter"] else 1.0)
        return min(1.0, speed * step / settings["steps"])

    return curve


def fight(duel: Duel, gain: float = 1.0, **pool: Any) -> Outcome:
    contest = contest_of(duel)
    assert carry_out(contest.advance, lambda: duel.total, Pretended(landscape(gain), **pool), ignore)
    return outcome_of(contest, lambda given: "command")


@pytest.fixture(scope="module")
def helped() -> Outcome:
    return fight(duel_of(), 2.0)


def words_of(outcome: Outcome, by: str = "held") -> dict[tuple[Any, ...], str]:
    keys = ("arm", "settings_of", "reference", "reference_settings_of")
    return {tuple(row[key] for key in keys): row["word"] for row in outcome.verdicts if row["by"] == by}


# What is run ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "tuning", "fresh"), [(0, 1, 10), (7, 3, 5), (0, 100, 900)])
def test_no_seed_is_used_twice(seed: int, tuning: int, fresh: int) -> None:
    duel = duel_of(seed=seed, tuning_seeds=tuning, seeds=fresh, tunings=5)
    every = [each for k in range(5) for each in (*duel.tuning(k), *duel.fresh(k))]
    assert len(every) == len(set(every)) == 5 * (tuning + fresh)


def test_more_tunings_and_seeds_keep_what_was_there() -> None:
    few, many = duel_of(tunings=2, seeds=3), duel_of(tunings=4, seeds=6)
    for k in range(2):
        assert many.fresh(k)[:3] == few.fresh(k)
        assert many.tuning(k) == few.tuning(k)
        assert many.search("adamw", k) == few.search("adamw", k)
    assert few.shared() == many.shared()


def test_the_arms_of_one_tuning_share_seeds_and_each_tuning_has_its_own() -> None:
    duel = duel_of()
    one, other = duel.search("adamw", 0), duel.search("adamw+ema", 0)
    assert (one.seeds, one.sampler_seed, one.trials) == (other.seeds, other.sampler_seed, other.trials)
    assert one.seeds != duel.search("adamw", 1).seeds
    assert one.sampler_seed != duel.search("adamw", 1).sampler_seed


def test_runs_go_on_until_it_is_known_whether_they_hold_the_level() -> None:
    duel = make_duel("modmul", ARMS, given=SIZES)
    assert (duel.given["until"], duel.given["hold"]) == (0.95, HOLD)
    assert make_duel("modmul", ARMS, given=SIZES, objective="loss").given.get("until") is None


def test_the_number_of_runs_is_told_and_right() -> None:
    duel = duel_of(["adamw", "adamw+ema", "muon"], tunings=2, trials=3, seeds=2)
    contest, pool = contest_of(duel), Pretended(landscape(1.0), 4)
    carry_out(contest.advance, lambda: duel.total, pool, ignore)
    assert duel.total == 2 * (3 * 3 + 5 * 2)
    assert len(pool.begun) <= duel.total  # a control may equal an arm
    text = "\n".join(budget_lines(duel, 2))
    assert "3 arms x 2 tunings x 3 trials x 1 seeds" in text
    assert "5 sides (of them 2 controls) x 2 tunings x 2 fresh seeds: 38 runs of at most 100 steps" in text
    assert "this may take up to" in text


# What comes out -------------------------------------------------------------------------------------------------------


def test_an_arm_that_is_faster_by_what_it_adds_is_faster_than_both(helped: Outcome) -> None:
    found = words_of(helped)
    assert found["adamw+ema", None, "adamw", None] == "faster"
    assert found["adamw+ema", None, "adamw", "adamw+ema"] == "faster"
    assert found["adamw+ema", "adamw", "adamw", None] == "faster"
    assert "The addition helps" in helped.sentences[0]
    assert {row["by"] for row in helped.verdicts} >= {"held", "first"}


def test_arms_that_are_alike_are_not_told_apart_and_get_both_controls_all_the_same() -> None:
    outcome = fight(duel_of(), 1.0)
    found = words_of(outcome)
    assert len(found) == 3
    assert set(found.values()) <= {"no difference", "undecided"}
    runs = [(row["arm"], row["settings_of"]) for row in outcome.runs]
    assert {pair: runs.count(pair) for pair in runs} == dict.fromkeys(
        [("adamw", None), ("adamw+ema", None), ("adamw", "adamw+ema"), ("adamw+ema", "adamw")], 24
    )


def test_a_control_has_its_own_addition_and_the_others_settings(helped: Outcome) -> None:
    rows = {(row["arm"], row["settings_of"]): row["setting"] for row in helped.settings if row["tuning"] == 3}
    plain, added = rows["adamw", None], rows["adamw+ema", None]
    without, beside = rows["adamw", "adamw+ema"], rows["adamw+ema", "adamw"]
    for name in ("lr", "weight_decay", "betas", "clip_norm"):
        assert without[name] == added[name]
        assert beside[name] == plain[name]
    assert "filter" not in without
    assert {name: beside[name] for name in ("filter", "alpha", "lamb")} == {
        "filter": "ema", "alpha": added["alpha"], "lamb": added["lamb"]
    }  # fmt: skip


def test_a_control_in_the_regime_of_the_paper_has_the_papers_decay_of_the_other() -> None:
    outcome = fight(duel_of(["adam", "adam+ema"], regime="paper", given={"until": 0.5}), 2.0)
    rows = {(row["arm"], row["settings_of"]): row["setting"] for row in outcome.settings}
    assert rows["adam", "adam+ema"]["weight_decay"] == 0.005
    assert rows["adam+ema", "adam"]["weight_decay"] == 0.0
    assert not outcome.trials
    assert outcome.duel["tunings"] == 1


def test_few_tunings_decide_nothing_and_say_how_many_are_missing() -> None:
    outcome = fight(duel_of(tunings=LEAST_TUNINGS - 2), 2.0)
    assert set(words_of(outcome).values()) == {"undecided"}
    assert outcome.verdicts[0]["more"] == 2


def test_the_number_of_tunings_that_would_decide_grows_as_arms_come_nearer() -> None:
    dice = random.Random(2)

    def arm(scale: float, spread: float = 0.15) -> list[list[Steps]]:
        return [[Steps(scale * dice.lognormvariate(0, spread))] for _ in range(10)]

    near, far = more_units(verdict(arm(100), arm(103))), more_units(verdict(arm(100), arm(117)))
    assert near is not None
    assert far is not None
    assert near > far > 0
    assert more_units(verdict(arm(100, 0.6), arm(103, 0.6))) is None  # hundreds: that is no advice
    never = [[Steps(100, False)] for _ in range(10)]
    assert more_units(verdict(never, never)) is None


def test_a_best_setting_at_the_end_of_its_range_is_reported() -> None:
    typed = [Range("lr", 0.05, 0.5, "log")]  # the best is below it
    outcome = fight(duel_of(typed=typed, tunings=3), 1.0)
    (line, *_) = [line for line in outcome.edges() if "lr" in line]
    assert line.startswith("best lr near the lower end of its range: ")
    assert "of 3 tunings" in line


def test_arms_that_add_nothing_to_each_other_have_no_controls() -> None:
    outcome = fight(duel_of(["adamw", "muon"], tunings=2), 1.0)
    assert len(words_of(outcome)) == 1
    assert {row["settings_of"] for row in outcome.runs} == {None}


@pytest.mark.parametrize("objective", ["loss", "accuracy"])
def test_without_a_level_the_value_at_the_budget_and_the_time_to_the_references_are_compared(objective: str) -> None:
    outcome = fight(duel_of(objective=objective, given={"hold": 0}), 1.6)
    assert words_of(outcome, objective)["adamw+ema", None, "adamw", None] in ("lower", "no difference", "undecided")
    (steps,) = {row["by"] for row in outcome.verdicts if row["by"].startswith("steps to ")}
    assert words_of(outcome, steps)["adamw+ema", None, "adamw", None] in ("faster", "undecided", "no difference")
    assert all(row["steps"] is None or row["steps"] >= 0 for row in outcome.runs)
    assert outcome.comparisons()[0][3:] == [
        SHOWN.get(objective, objective),
        "seconds",
        "steps to the reference's result",
    ]
    shown = outcome.sentences[0].partition(": ")[2]
    assert shown.startswith("error " if objective == "accuracy" else "loss ")  # of accuracies, errors are compared
    assert f"to {steps.removeprefix('steps to ')}" in str(outcome)


def test_all_verdicts_are_in_the_table_and_in_print(helped: Outcome) -> None:
    head, *lines = helped.comparisons()
    assert head[:5] == ["arm", "compared with", "settings", "held", "first"]
    assert [line[:3] for line in lines] == [
        ["adamw+ema", "adamw", settings] for settings in ("as tuned", "those of adamw+ema", "those of adamw")
    ]
    words = words_of(helped)
    assert lines[0][3].startswith(f"{words['adamw+ema', None, 'adamw', None]} (")
    assert helped.answer == f"adamw+ema against adamw: {lines[0][3]}"
    assert f"adamw+ema against adamw, settings those of adamw: held {lines[2][3]}" in str(helped)


# Order, kills, files --------------------------------------------------------------------------------------------------


def test_the_order_of_runs_and_kills_change_nothing(tmp_path: Path) -> None:
    duel = duel_of(tunings=3, trials=8, seeds=2)
    whole = fight(duel, 1.5)
    assert fight(duel, 1.5, size=7, seed=5) == whole
    disk: dict[Path, Run] = {}
    for kills in range(1000):
        contest = contest_of(duel, tmp_path / "trials.jsonl")
        pool = Pretended(landscape(1.5), 3, kills, disk, dies=0.05, kills=0.1)
        try:
            assert carry_out(contest.advance, lambda: duel.total, pool, ignore)
            break
        except KilledError:
            continue
    assert kills >= 3
    assert outcome_of(contest, lambda given: "command") == whole


def test_the_outcome_is_kept_as_tables_that_any_tool_reads(helped: Outcome, tmp_path: Path) -> None:
    written = write_outcome(helped, tmp_path)
    assert written.looks == [[8, 3]]
    again = load_outcome(tmp_path / FILE)
    assert again == written
    assert str(again) == str(helped)
    assert again.title == "modmul with everything tuned"
    assert "Each arm was tuned 8 times with 12 trials of 1 seed." in again.budget
    names = ["adamw", "adamw+ema", "adamw at the settings of adamw+ema", "adamw+ema at the settings of adamw"]
    assert [side.name for side in again.arms] == names
    assert all(len(side.steps) == len(side.seconds) == 24 for side in again.arms)


def test_a_second_look_is_kept(helped: Outcome, tmp_path: Path) -> None:
    for tunings in (8, 8, 10):
        kept = write_outcome(helped._replace(duel={**helped.duel, "tunings": tunings}), tmp_path)
    assert kept.looks == [[8, 3], [10, 3]]
    assert "added after 1 verdict." in kept.budget


@pytest.mark.parametrize("file", [FILE, *TABLES])
def test_a_changed_outcome_is_refused_by_name(helped: Outcome, tmp_path: Path, file: str) -> None:
    write_outcome(helped, tmp_path)
    content = (tmp_path / file).read_bytes()
    place = len(content) // 2
    (tmp_path / file).write_bytes(content[:place] + b"7" + content[place + 1 :])
    with pytest.raises(ValueError, match=r"verdicts\.json (was changed|is not the outcome of a duel of this version)"):
        load_outcome(tmp_path / FILE)
    (tmp_path / FILE).write_text("{")
    with pytest.raises(ValueError, match="not JSON"):
        load_outcome(tmp_path / FILE)


def test_the_tables_hold_plain_values(helped: Outcome) -> None:
    json.dumps(helped, allow_nan=False)


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arms": ["adamw"]}, "at least two different arms, got adamw"),
        ({"arms": ["adamw", "adamw"]}, "at least two different arms, got adamw adamw"),
        ({"given": {"filter": "ema"}}, "filter must not be fixed for all arms of this duel, got ema"),
        ({"given": {"optimizer": "sgd"}}, "optimizer must not be fixed"),
        ({"given": {"lr": -1.0}}, r"lr must be in \[0, inf\), got -1.0"),
        ({"trials": 0}, "trials must be >= 1, got 0"),
        ({"tunings": 0}, "tunings must be >= 1, got 0"),
        ({"seeds": 0}, r"seeds must be in \[1, 900\], got 0"),
        ({"tuning_seeds": 101}, r"tuning_seeds must be in \[1, 100\], got 101"),
        ({"seed": -1}, "seed must be >= 0, got -1"),
        ({"regime": "paper"}, "arms of modmul in regime paper must begin with adam, as published, got adamw"),
        (
            {"given": {"two_stage": 5}},
            "arm adamw: two_stage needs a filter, got none; --grid NAME=VALUE fixes a setting for the arms that",
        ),
        ({"regime": "small-batch"}, "batch_size must not be fixed for all arms of this duel, got 8"),
        ({"regime": "easy"}, "regime must be one of tuned, .* got easy"),
        ({"objective": "stable"}, "objective of a duel must be held, first, .* got stable"),
        ({"typed": [Range("window_size", 2, 9)]}, "window_size must be a setting of one of the arms, got adamw adamw"),
    ],
)
def test_a_duel_that_cannot_be_run_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        duel_of(**changes)


def test_a_regime_without_tuning_takes_no_range() -> None:
    with pytest.raises(ValueError, match="regime paper tunes nothing: no range must be given, got lr"):
        duel_of(["adam", "adam+ema"], regime="paper", typed=[Range("lr", 0.1, 1.0)])


def test_regimes_change_the_task() -> None:
    assert set(REGIMES) == {"paper", "no-decay", "tuned", "small-batch", "full-batch", "little-data", "noise"}
    given = {name: make_duel("modmul", ARMS, regime=name).given for name in ("small-batch", "little-data", "noise")}
    assert given["small-batch"]["batch_size"] == 64
    assert given["little-data"]["train_fraction"] == 0.3
    assert given["noise"]["label_noise"] == 0.05
    assert "weight_decay" not in [each.name for each in make_duel("modmul", ARMS, regime="no-decay").arms["adamw"][1]]
