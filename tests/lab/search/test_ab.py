"""`grokfast.lab.ab`: the same verdict for a training function of one's own."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from searches import quiet

import grokfast.lab
from forks import Fork, run_script
from grokfast.lab.own_code import source_of
from grokfast.lab.runs.directory import RunError
from grokfast.lab.search.ab import _Report, ab, read_space
from grokfast.lab.search.outcome import Outcome
from grokfast.lab.search.space import Choices, Range
from grokfast.lab.search.workers import Limits

calls: list[tuple[str, int]] = []


def train_fn(settings: dict[str, Any], seed: int, report: _Report) -> None:
    """A curve that rises by `speed`, best near lr = 0.1, with luck by seed."""
    calls.append((settings["name"], seed))
    luck = random.Random(seed).uniform(0.9, 1.1)
    rate = settings["speed"] * luck / (1 + abs(settings.get("lr", 0.1) - 0.1) * 20)
    for step in range(10, 401, 10):
        if report(step, min(1.0, rate * step / 1000)):
            return


SPACE: dict[str, dict[str, Any]] = {
    "plain": {"name": "plain", "speed": 4.0, "lr": (0.01, 1.0, "log")},
    "filter": {"name": "filter", "speed": [7.0, 8.0], "lr": (0.01, 1.0, "log")},
}


def fight(function: Any = train_fn, space: Any = SPACE, **changes: Any) -> Outcome:
    calls.clear()
    usual = {"level": 0.95, "steps": 400, "tunings": 8, "trials": 12, "seeds": 3, "hold": 2, "tell": quiet}
    return ab(function, space, **{**usual, **changes})


def steps_of(outcome: Outcome, arm: str) -> list[tuple[Any, bool]]:
    return [(row["steps"], row["reached"]) for row in outcome.runs if row["arm"] == arm]


def test_it_tunes_each_arm_and_says_which_is_better() -> None:
    outcome = fight(trials=30)
    first = outcome.verdicts[0]
    assert (first["arm"], first["reference"], first["by"], first["word"]) == ("filter", "plain", "held", "faster")
    assert 1.6 < first["ratio"] < 2.5
    best = [row["setting"] for row in outcome.settings if row["arm"] == "filter"]
    assert sum(setting["speed"] == 8.0 for setting in best) >= 5
    text = str(outcome)
    assert "filter is faster than plain" in text
    assert "plain: held" in text


def test_an_arm_that_adds_something_gets_both_controls() -> None:
    lucky = {"plain": {**SPACE["plain"], "lr": [0.5, 0.6]}, "plain+more": {**SPACE["plain"], "more": 1, "lr": [0.1]}}
    outcome = fight(space=lucky, trials=3)
    settings = {(row["arm"], row["settings_of"]): row["setting"] for row in outcome.settings}
    assert settings["plain", "plain+more"]["lr"] == 0.1
    assert "more" not in settings["plain", "plain+more"]
    assert settings["plain+more", "plain"]["lr"] in (0.5, 0.6)
    assert settings["plain+more", "plain"]["more"] == 1
    words = {(v["arm"], v["reference_settings_of"]): v["word"] for v in outcome.verdicts if v["by"] == "held"}
    assert words["plain+more", "plain+more"] == "no difference"
    assert "Not the addition" in str(outcome)


def test_no_fresh_seed_was_used_for_tuning() -> None:
    outcome = fight(tuning_seeds=2, seed=5, tunings=2)
    tuning, fresh = ({row["seed"] for row in rows} for rows in (outcome.trials, outcome.runs))
    assert tuning == {5, 6, 1005, 1006}
    assert not tuning & fresh
    assert len(fresh) == 6


def test_a_call_that_was_interrupted_continues_and_says_the_same(tmp_path: Path) -> None:
    whole = fight(folder=tmp_path / "whole", tunings=2)
    every = len(calls)
    for cut in (0.2, 0.7):
        killed = tmp_path / f"killed{cut}"
        killed.mkdir()
        (killed / "duel.json").write_bytes((tmp_path / "whole" / "duel.json").read_bytes())
        content = (tmp_path / "whole" / "runs.jsonl").read_bytes()
        (killed / "runs.jsonl").write_bytes(content[: int(cut * len(content))])
        done = content[: int(cut * len(content))].count(b"\n")
        resumed = fight(folder=killed, tunings=2)
        assert len(calls) == every - done
        assert [row["steps"] for row in resumed.runs] == [row["steps"] for row in whole.runs]
        assert [v["text"] for v in resumed.verdicts if v["by"] == "held"] == [
            v["text"] for v in whole.verdicts if v["by"] == "held"
        ]
    fight(folder=killed, tunings=2)
    assert not calls
    assert (killed / "verdicts.json").exists()


def test_a_changed_function_gets_no_old_answer(tmp_path: Path) -> None:
    space = {"a": {"end": 0.99}, "b": {"end": 0.99}}

    def first(settings: dict[str, Any], seed: int, report: _Report) -> None:
        [report(step, settings["end"]) for step in (50, 100)]

    def second(settings: dict[str, Any], seed: int, report: _Report) -> None:
        [report(step, settings["end"] / 2) for step in (50, 100)]

    sizes = {"steps": 100, "tunings": 1, "seeds": 5, "hold": 0, "folder": tmp_path}
    assert steps_of(fight(first, space, **sizes), "a") == [(50, True)] * 5
    assert steps_of(fight(second, space, **sizes), "a") == [(100, False)] * 5
    assert source_of(first) != source_of(second)
    assert source_of(len) == source_of(len)  # it has no source
    assert source_of(lambda *args: 1) != source_of(lambda *args: 2)


def test_a_changed_helper_gets_no_old_answer_and_an_unchanged_one_trains_nothing(tmp_path: Path) -> None:
    """Each call in a process of its own, as somebody who edits a file does it."""
    (tmp_path / "train.py").write_text(
        "from helper import value\n"
        "from grokfast.lab import ab\n\n"
        "def train_fn(settings, seed, report):\n"
        "    print('trained')\n"
        "    for step in (50, 100):\n"
        "        report(step, value(step))\n\n"
        "found = ab(train_fn, {'a': {}, 'b': {}}, level=0.95, steps=100, tunings=1, seeds=5, hold=0, folder='kept')\n"
        "print('steps', *(row['steps'] for row in found.runs))\n"
    )

    def call(speed: float) -> tuple[int, str, bool]:
        (tmp_path / "helper.py").write_text(f"def value(step):\n    return min(1.0, step * {speed} / 1000)\n")
        done = Fork(run_script, tmp_path / "train.py", cwd=tmp_path)
        assert done.wait() == 0, done.err
        (steps,) = [line for line in done.out.splitlines() if line.startswith("steps")]
        return done.out.count("trained\n"), steps, "code that it refers to, was changed since" in done.out

    assert call(20) == (10, "steps" + 10 * " 50", False)
    assert call(20) == (0, "steps" + 10 * " 50", False)
    assert call(10.5) == (10, "steps" + 10 * " 100", True)
    assert call(20) == (0, "steps" + 10 * " 50", False)


def test_runs_that_never_get_there_are_censored_where_they_ended() -> None:
    def ends_early(settings: dict[str, Any], seed: int, report: _Report) -> None:
        report(30, settings["end"])

    space = {"a": {"end": 0.1}, "b": {"end": math.nan}}
    outcome = fight(ends_early, space, steps=100, tunings=1, seeds=5)
    assert steps_of(outcome, "a") == [(30, False)] * 5
    assert steps_of(outcome, "b") == [(None, False)] * 5
    assert outcome.verdicts[0]["word"] in ("slower", "undecided")


def test_the_level_must_be_held() -> None:
    def touches(settings: dict[str, Any], seed: int, report: _Report) -> None:
        for step in range(10, 101, 10):
            if report(step, 0.99 if step == 20 or step >= settings["stays"] else 0.1):
                return

    outcome = fight(touches, {"a": {"stays": 50}, "b": {"stays": 90}}, steps=100, tunings=1, seeds=5)
    assert steps_of(outcome, "a") == [(50, True)] * 5
    assert [row["first"] for row in outcome.runs] == [20] * 10
    assert all(not reached for _, reached in steps_of(outcome, "b"))  # only two reports after it


def test_without_a_level_the_last_value_counts() -> None:
    def falls(settings: dict[str, Any], seed: int, report: _Report) -> None:
        for step in range(10, 101, 10):
            assert not report(step, settings["scale"] * (1 + seed % 7 / 1000) / step) or step == 100

    outcome = fight(falls, {"a": {"scale": 2.0}, "b": {"scale": 1.0}}, level=None, measure="loss", steps=100, seeds=2)
    words = {row["by"]: row["word"] for row in outcome.verdicts}
    assert words["loss"] == "lower"
    (steps,) = [by for by in words if by.startswith("steps to 0.02")]
    assert words[steps] == "faster"


def test_a_tensor_may_be_reported(tmp_path: Path) -> None:
    def reports_tensors(settings: dict[str, Any], seed: int, report: _Report) -> None:
        report(torch.tensor(50), torch.tensor(0.99))  # type: ignore[arg-type]

    outcome = fight(reports_tensors, {"a": {}, "b": {}}, steps=100, tunings=1, hold=0, folder=tmp_path)
    assert steps_of(outcome, "a")[0] == (50, True)


def test_a_damaged_line_is_trained_again(tmp_path: Path) -> None:
    fight(folder=tmp_path, tunings=1, trials=2, seeds=2)
    path, told = tmp_path / "runs.jsonl", list[str]()
    path.write_bytes(path.read_bytes().replace(b"0.0", b"0.1", 1))
    fight(folder=tmp_path, tunings=1, trials=2, seeds=2, tell=told.append)
    assert len(calls) == 1
    assert any("damaged line" in line for line in told)


# Telling and checking -------------------------------------------------------------------------------------------------


def test_the_cost_and_what_is_tuned_are_told_first() -> None:
    told: list[str] = []
    space = {"plain": {**SPACE["plain"], "betas": (0.9, 0.98)}, "filter": SPACE["filter"]}
    fight(space=space, tell=told.append, tunings=2, trials=3)
    assert told[0] == "plain: tunes lr from 0.01 to 1 (log); fixed are name 'plain', speed 4.0, betas (0.9, 0.98)"
    assert "speed out of 7.0, 8.0" in told[1]
    assert told[2] == "24 runs of train_fn, at most 400 steps each"
    assert any(line.startswith("1 of 24 runs") and "left" in line for line in told[3:])


def report_of(measure: str = "accuracy", level: float | None = 0.9, **more: Any) -> _Report:
    settings = {"measure": measure, "until": level, "level": level or 1.0, "steps": 100, "hold": 0}
    return _Report({**settings, **more})


@pytest.mark.parametrize(
    ("measure", "reports", "message"),
    [
        ("accuracy", [(10, 97.5)], r"accuracy must be in \[0, 1\], got 97.5: report a fraction, not percent"),
        ("accuracy", [(20, 0.5), (10, 0.6)], "step must go up from report to report, got 10 after 20"),
        ("accuracy", [(20, 0.5), (20, 0.6)], "step must go up"),
        ("accuracy", [(0, 0.5)], "step must go up"),
        ("loss", [(10, -0.5)], "loss must be >= 0, got -0.5"),
        ("accuracy", [(10.7, 0.5)], "step must be a whole number, got 10.7"),
        ("accuracy", [(math.nan, 0.5)], "step must be a whole number, got nan"),
        ("accuracy", [(10, None)], "value must be a number, got None"),
        ("accuracy", [(10, "0.5")], "value must be a number, got '0.5'"),
    ],
)
def test_a_report_that_cannot_be_true_is_refused(measure: str, reports: list[Any], message: str) -> None:
    report = report_of(measure)
    *good, bad = reports
    for pair in good:
        report(*pair)
    with pytest.raises(ValueError, match=message):
        report(*bad)


def test_a_report_says_when_training_may_stop() -> None:
    report = report_of(hold=1)
    assert [report(step, value) for step, value in ((10, 0.95), (20, 0.1), (30, 0.95), (40, 0.95))] == [
        False, False, False, True
    ]  # fmt: skip
    assert [report_of()(step, 0.5) for step in (99, 100, 101)] == [False, True, True]
    assert report_of("loss", 0.5)(10, math.nan)
    late = report_of()
    assert [late(100, 0.5), late(110, 0.95)] == [True, True]
    assert len(late.rows) == 1  # what happens beyond the budget does not count
    behind = report_of()
    behind.limits = Limits("held", [20], [0.2])
    assert [behind(10, 0.1), behind(20, 0.1)] == [False, True]


def test_what_is_fixed_and_what_is_tuned() -> None:
    fixed, ranges = read_space(
        {"lr": (0.1, 1.0, "log"), "width": (1, 8, "even"), "kind": ["a", "b"], "betas": (0.9, 0.98)}
    )
    assert fixed == {"betas": (0.9, 0.98)}
    assert ranges == (Range("lr", 0.1, 1.0, "log"), Range("width", 1, 8), Choices("kind", ("a", "b")))


def test_an_accuracy_that_rounding_put_above_one_is_one() -> None:
    report = report_of()
    report(10, 1.0000001)
    assert report.rows[-1].val_accuracy == 1.0


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="the scale of lr must be one of even, log, memory, got 'lgo'"):
        fight(space={"a": {"lr": (0.1, 1.0, "lgo")}, "b": {}})
    with pytest.raises(ValueError, match="train_fn must be a function, got 5"):
        fight(5)
    with pytest.raises(ValueError, match="space must hold at least two arms, got 1"):
        fight(space={"one": {}})
    with pytest.raises(RunError, match="must call report"):
        fight(lambda *args: None, {"a": {}, "b": {}}, steps=10)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seeds", 0, r"seeds must be in \[1, 900\], got 0"),
        ("trials", 0, "trials must be >= 1, got 0"),
        ("tunings", 0, "tunings must be >= 1, got 0"),
        ("tuning_seeds", 0, r"tuning_seeds must be in \[1, 100\], got 0"),
        ("steps", 0, r"steps must be in \[1, 2\^63\), got 0"),
        ("seed", -1, "seed must be >= 0, got -1"),
        ("measure", "f1", "measure must be one of accuracy, loss, got 'f1'"),
        ("level", 0.0, r"level must be in \(0, 1\], got 0"),
        ("level", math.nan, r"level must be in \(0, 1\], got nan"),
    ],
)
def test_a_number_out_of_range_is_refused_before_anything_is_trained(name: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fight(**{name: value})
    assert not calls


def test_the_lab_has_it_by_name_and_nothing_else_that_is_missing() -> None:
    assert grokfast.lab.ab is ab
    assert callable(grokfast.lab.sweep)
    assert callable(grokfast.lab.duel)
    with pytest.raises(AttributeError, match="has no attribute 'abc'"):
        grokfast.lab.abc  # type: ignore[attr-defined]  # noqa: B018
