"""Which colour an arm has: that of its filter, as long as nobody else has it."""

from __future__ import annotations

from pathlib import Path

from made import made_run, swept_run

from grokfast.lab.compare.seeds import make_arms
from grokfast.lab.report.colours import number_arms, number_names
from grokfast.lab.report.plots import arms_in_turn, known_filters


def test_arms_have_the_colours_of_their_filters_where_the_paper_has_none(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 100 * i, filter=name) for i, name in enumerate(("ema", "ma", None), 2)]
    slower = swept_run(tmp_path, 900, filter="ema", lamb=5.0)
    numbers = number_arms(arms := make_arms([slower, *runs]))
    by_run = {arm.runs[0].name: numbers[arm.key] for arm in arms}
    assert [by_run[run.name] for run in runs] == [2, 1, 0]
    assert by_run[slower.name] == 3


def test_the_papers_arm_has_its_colour_even_where_another_is_faster(tmp_path: Path) -> None:
    paper = made_run(tmp_path, "Baseline", 0, [0.9] * 80 + [0.01], task="modmul")
    faster = made_run(tmp_path, "Baseline", 0, [0.01], task="modmul", lr=3e-3)
    numbers = number_arms(arms := make_arms([faster, paper]))
    assert {arm.runs[0].name: numbers[arm.key] for arm in arms} == {paper.name: 0, faster.name: 3}


def test_arms_of_a_duel_have_the_colours_that_they_have_as_runs() -> None:
    assert number_names(["adamw+ma", "adamw", "adamw+stablemax"]) == {"adamw+ma": 1, "adamw": 0, "adamw+stablemax": 3}


def test_a_filter_of_several_arms_has_the_colour_of_the_plain_one(tmp_path: Path) -> None:
    staged = made_run(tmp_path, "2-stage MA", 0, [0.9, 0.01], task="modmul")
    plain = made_run(tmp_path, "Grokfast-MA", 0, [0.9, 0.01], task="modmul")
    assert list(known_filters([staged, plain]).values()) == [1]


def test_every_arm_has_its_turn_before_one_has_a_second(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 300, filter=name, seed=seed) for name in ("ema", "ma") for seed in (0, 1)]
    assert [(run.filter, run.loop["seed"]) for run in arms_in_turn(runs)] == [
        ("ema", 0),
        ("ma", 0),
        ("ema", 1),
        ("ma", 1),
    ]
