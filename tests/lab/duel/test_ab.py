"""`grokfast.lab.ab`: the same verdict for a training script of one's own."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import grokfast.lab
from grokfast.lab.compare.seeds import Bound
from grokfast.lab.duel.ab import Findings, Report, Runner, ab, read_space
from grokfast.lab.runs.directory import RunError
from grokfast.lab.sweep.objective import gap
from grokfast.lab.sweep.space import Choices, Range

calls: list[tuple[str, int]] = []


def train_fn(settings: dict[str, Any], seed: int, report: Report) -> None:
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


def fight(**changes: Any) -> Findings:
    calls.clear()
    return ab(train_fn, SPACE, **{"level": 0.95, "steps": 400, "trials": 12, "seeds": 6, **changes})


def test_it_tunes_each_arm_and_says_which_is_better() -> None:
    found = fight()
    assert found.verdicts[0].found.word == "helps"
    assert 1.6 < found.verdicts[0].found.ratio.low < 2.5
    best = {result.name: result.setting for result in found.results}
    assert best["filter"]["speed"] == 8.0
    assert 0.05 < best["plain"]["lr"] < 0.2
    text = str(found)
    assert "by steps: filter helps" in text
    assert "luck of tuning" in text
    assert "plain: steps" in text


def test_an_arm_that_helps_is_checked_by_its_reference_at_the_same_settings() -> None:
    lucky = {"plain": {**SPACE["plain"], "lr": [0.5, 0.6]}, "plain+more": {**SPACE["plain"], "more": 1, "lr": [0.1]}}
    found = ab(train_fn, lucky, level=0.95, steps=400, trials=3, seeds=6)
    control = found.results[-1]
    assert (control.name, control.setting["lr"]) == ("plain at the settings of plain+more", 0.1)
    assert "more" not in control.setting
    assert "plain+more: no difference, as fast as plain at the settings of plain+more" in str(found)


def test_no_fresh_seed_was_used_for_tuning() -> None:
    fight(tuning_seeds=2, seed=5)
    for name in SPACE:
        seeds = [seed for who, seed in calls if who == name]
        assert set(seeds[:-6]) == {5, 6}
        assert seeds[-6:] == [7, 8, 9, 10, 11, 12]


def test_a_call_that_was_interrupted_continues_and_says_the_same(tmp_path: Path) -> None:
    whole = fight(folder=tmp_path / "whole")
    lines = (tmp_path / "whole" / "runs.jsonl").read_bytes().split(b"\n")
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "runs.jsonl").write_bytes(b"\n".join(lines[:9]) + b"\n" + lines[9][:20])
    every = len(calls)
    resumed = fight(folder=tmp_path / "killed")
    assert len(calls) == every - 9
    assert [result.steps for result in resumed.results] == [result.steps for result in whole.results]
    assert [verdict.text for verdict in resumed.verdicts if verdict.by == "steps"] == [
        verdict.text for verdict in whole.verdicts if verdict.by == "steps"
    ]
    fight(folder=tmp_path / "killed")
    assert not calls


def test_runs_that_never_get_there_are_censored_at_their_budget() -> None:
    found = ab(
        lambda settings, seed, report: [report(step, settings["end"]) for step in (50, 100)],
        {"never": {"end": 0.1}, "soon": {"end": 0.99}},
        level=0.95,
        steps=100,
        seeds=5,
    )
    never = found.results[0].steps[1]
    assert (never.value, never.exact) == (100, False)
    assert found.verdicts[0].found.word == "helps"


def test_a_run_that_ends_before_its_budget_is_censored_where_it_ended() -> None:
    def ends_early(settings: dict[str, Any], seed: int, report: Report) -> None:
        report(30, settings["end"])

    found = ab(ends_early, {"a": {"end": 0.1}, "b": {"end": math.nan}}, level=0.95, steps=100, seeds=5)
    assert [result.steps[1] for result in found.results] == [Bound(30, False), Bound(math.inf, False)]
    assert found.results[1].seconds[1] == Bound(math.inf, False)


def test_a_level_reached_beyond_the_budget_does_not_count() -> None:
    report = Report(0.9, "accuracy", 100, [])
    assert [report(step, value) for step, value in ((100, 0.5), (110, 0.95))] == [True, True]
    assert report.curve == [(100, gap(0.5, 0.9, "accuracy"))]


def test_a_tensor_may_be_reported(tmp_path: Path) -> None:
    def reports_tensors(settings: dict[str, Any], seed: int, report: Report) -> None:
        report(torch.tensor(50), torch.tensor(0.99))  # type: ignore[arg-type]

    found = ab(reports_tensors, {"a": {}, "b": {}}, level=0.95, steps=100, seeds=5, folder=tmp_path)
    assert found.results[0].steps[1] == Bound(50)


def test_what_a_search_gave_up_is_trained_to_its_end_for_a_verdict(tmp_path: Path) -> None:
    def rises_late(settings: dict[str, Any], seed: int, report: Report) -> None:
        for step in range(10, 101, 10):
            if report(step, (0.99 if step == 100 else 0.0) if settings["kind"] == "late" else step / 100):
                return

    runner = Runner(rises_late, 0.95, "accuracy", 100, tmp_path)
    for seed in range(5):
        runner.run("arm", {"kind": "even"}, seed, prune=True)
    assert runner.run("arm", {"kind": "late"}, 0, prune=True).pruned
    again = Runner(rises_late, 0.95, "accuracy", 100, tmp_path)
    assert again.run("arm", {"kind": "late"}, 0).steps == Bound(100)


def test_runs_of_another_measure_are_not_taken_for_ours(tmp_path: Path) -> None:
    fight(folder=tmp_path, seeds=2, trials=2)
    fight(folder=tmp_path, seeds=2, trials=2, measure="loss")
    assert calls


def test_a_damaged_file_of_runs_is_named(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text("junk\n")
    with pytest.raises(RunError, match=r"runs\.jsonl is damaged"):
        fight(folder=tmp_path)


def test_a_loss_is_reached_from_above() -> None:
    report = Report(0.5, "loss", 100, [])
    assert [report(step, value) for step, value in ((10, 2.0), (20, 0.4))] == [False, True]
    assert Report(0.9, "accuracy", 100, [])(100, 0.1)  # the budget is used up


def test_what_is_fixed_and_what_is_tuned() -> None:
    fixed, dimensions = read_space({"lr": (0.1, 1.0, "log"), "width": (1, 8), "kind": ["a", "b"], "p": 7})
    assert fixed == {"p": 7}
    assert dimensions == [Range("lr", 0.1, 1.0, log=True), Range("width", 1, 8), Choices("kind", ("a", "b"))]


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="space must hold at least two arms, got 1"):
        ab(train_fn, {"one": {}}, level=0.5, steps=10)
    with pytest.raises(ValueError, match=r"lr must have 0 < low < high, got \(0, 1, 'log'\)"):
        read_space({"lr": (0, 1, "log")})
    with pytest.raises(ValueError, match=r"lr must have low < high, got \('a', 'b'\)"):
        read_space({"lr": ("a", "b")})
    for choices in ([], [[1.0]]):
        with pytest.raises(ValueError, match=r"kind must have choices, one or more, .*, got \["):
            read_space({"kind": choices})
    with pytest.raises(RunError, match="must call report"):
        ab(lambda *args: None, {"a": {}, "b": {}}, level=0.5, steps=10)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("seeds", 0, "seeds must be >= 1, got 0"),
        ("trials", 0, "trials must be >= 1, got 0"),
        ("tuning_seeds", 0, "tuning_seeds must be >= 1, got 0"),
        ("steps", 0, "steps must be >= 1, got 0"),
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
    with pytest.raises(AttributeError, match="has no attribute 'abc'"):
        grokfast.lab.abc  # type: ignore[attr-defined]  # noqa: B018
