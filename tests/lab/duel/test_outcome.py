"""The outcome of a duel: numbers of runs, verdicts on pairs, the file, the section and the picture."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from made import row, write_run
from tiny import tiny

from grokfast.lab.commands.cli import main
from grokfast.lab.compare.seeds import Bound
from grokfast.lab.duel.arms import control_name, reference_of
from grokfast.lab.duel.outcome import Result, arm_rows, load_outcome, make_result, save_outcome, verdicts, word_for
from grokfast.lab.duel.plan import make_duel, to_json
from grokfast.lab.report.draw_matplotlib import draw
from grokfast.lab.report.duels import CAP, EDGE, duel_plot, duel_section, overview_plot
from grokfast.lab.request import ask

DUEL = to_json(make_duel(ask("modmul"), "tuned"))


def made(name: str, *steps: int, budget: int = 1000) -> Result:
    """An arm whose runs took so many steps, at 100 steps per second."""
    numbers = {seed: Bound(n) if n <= budget else Bound(budget, False) for seed, n in enumerate(steps)}
    scaled = [{seed: b._replace(value=b.value * f) for seed, b in numbers.items()} for f in (0.01, 512)]
    return Result(name, {"lr": 1e-3}, f"grokfast train modmul --lr {name}", {"complete": 2}, numbers, *scaled)


SLOW, FAST = made("adamw", 800, 820, 860, 900, 2000), made("adamw+ema", 400, 410, 420, 430, 440)


def test_each_arm_is_compared_with_its_reference_by_steps_and_by_seconds() -> None:
    found = list(verdicts([SLOW, FAST, made("muon", 100, 110, 120, 130, 140)]))
    assert [(v.arm, v.reference, v.by) for v in found] == [
        ("adamw+ema", "adamw", "steps"),
        ("adamw+ema", "adamw", "seconds"),
        ("muon", "adamw", "steps"),
        ("muon", "adamw", "seconds"),
    ]
    assert {v.found.word for v in found} == {"helps"}
    assert reference_of("muon+ema", ["adamw", "muon+ema"]) == "adamw"


def test_seconds_are_not_judged_where_the_machine_did_other_work() -> None:
    paused = FAST._replace(seconds={**FAST.seconds, 3: Bound(FAST.seconds[3].value * 2)})
    steps, seconds = verdicts([SLOW, paused])
    assert (steps.word, seconds.word) == ("helps", "not judged")
    assert "differ by 2.0x" in seconds.text
    assert [panel.x for panel in duel_plot(DUEL, [SLOW, paused]).panels] == ["steps"]
    assert [v.word for v in verdicts([SLOW, FAST])] == ["helps", "helps"]


def test_an_arm_that_does_more_cannot_take_a_quicker_step() -> None:
    def with_pace(arm: Result, factor: float) -> Result:
        return arm._replace(seconds={seed: b._replace(value=b.value * factor) for seed, b in arm.seconds.items()})

    assert [v.word for v in verdicts([with_pace(SLOW, 1.5), FAST])] == ["helps", "not judged"]
    assert [v.word for v in verdicts([SLOW, with_pace(FAST, 1.5)])] == ["helps", "helps"]
    control = with_pace(made(control_name("adamw", "adamw+ema"), 800, 820, 860, 900, 2000), 1.5)
    beside = [v.word for v in verdicts([SLOW, FAST, control]) if v.reference == control.name]
    assert beside == ["helps", "not judged"]
    muon = FAST._replace(name="muon")  # may well be quicker
    assert [v.word for v in verdicts([with_pace(SLOW, 1.5), muon])] == ["helps", "helps"]


def test_a_control_tells_what_the_settings_give_without_the_filter() -> None:
    control = made(control_name("adamw", "adamw+ema"), 400, 410, 420, 430, 440)
    found = [v for v in verdicts([SLOW, FAST, control]) if v.by == "steps"]
    assert [(v.arm, v.reference) for v in found] == [
        ("adamw+ema", "adamw"),
        ("adamw+ema", control.name),
        (control.name, "adamw"),
    ]
    assert [word_for(v, found) for v in found] == ["luck", "no difference", "helps"]
    assert word_for(found[0], found[:1]) == "helps"  # without a control nothing is known
    wide = control._replace(steps={seed: Bound(n) for seed, n in enumerate((300, 380, 430, 600, 900))})
    assert word_for(found[0], list(verdicts([SLOW, FAST, wide]))) == "unclear"


def test_an_outcome_is_read_as_it_was_written(tmp_path: Path) -> None:
    never = made("adam", 5000, 5000)._replace(steps={0: Bound(math.inf, False), 1: Bound(1000, False)})
    data = save_outcome(tmp_path / "verdict.json", DUEL, [SLOW, FAST, never])
    assert load_outcome(tmp_path / "verdict.json") == (DUEL, [SLOW, FAST, never])
    assert "luck of tuning" in data["caveat"]
    other = tmp_path / "other.json"
    for text in ("{", "{}", '{"duel": {}, "arms": []}', json.dumps({**data, "duel": {**DUEL, "regime": "mars"}})):
        other.write_text(text)
        with pytest.raises(ValueError, match=r"other\.json is not the outcome of a duel"):
            load_outcome(other)


def test_numbers_are_those_of_the_runs(tmp_path: Path) -> None:
    accuracies = {0: [0.2, 0.96, 0.5, 0.97], 1: [0.2, 0.3, 0.4, 0.5]}
    runs = [
        write_run(tmp_path, tiny(seed=seed, steps=40), [row(10 * i, 1.0, a) for i, a in enumerate(values, 1)])
        for seed, values in accuracies.items()
    ]
    first = make_result("adamw", {}, "", {}, runs, "first")
    assert first.steps == first.seconds == first.samples == {0: Bound(20), 1: Bound(40, False)}
    assert make_result("adamw", {}, "", {}, runs, "stable").steps[0] == Bound(40)
    unfinished = write_run(tmp_path, tiny(seed=2, steps=40), [row(10, 1.0, 0.1)], finish=False)
    assert set(make_result("adamw", {}, "", {}, [*runs, unfinished], "first").steps) == {0, 1}


def test_the_table_says_how_many_got_there() -> None:
    head, slow, _ = arm_rows([SLOW, FAST])
    assert head[:2] == ["arm", "steps"]
    assert arm_rows([made("adamw", 2000, 2000, budget=300)])[1][1] == "> 300"
    assert slow[:5] == ["adamw", "860 (800 to > 1,000)", "8.6 (8 to > 10)", "440,320 (409,600 to > 512,000)", "4 of 5"]


def test_the_section_says_verdicts_settings_commands_and_what_the_interval_is_over() -> None:
    text = duel_section(DUEL, [SLOW, FAST])
    assert "- by steps: adamw+ema helps, 2.05x faster than adamw, 95% interval" in text
    assert "luck of tuning" in text
    assert "40 trials of 1 seed." in text
    assert "grokfast train modmul --lr adamw" in text
    assert "Nothing was tuned." in duel_section({**DUEL, "regime": "paper"}, [SLOW, FAST])


def test_the_picture_shows_the_share_of_seeds_over_steps_and_seconds(tmp_path: Path) -> None:
    plot = duel_plot(DUEL, [SLOW, FAST])
    steps = plot.panels[0].series[0]
    assert (steps.x[-1], steps.y[-1]) == (1000 * EDGE, 0.8)  # the fifth did not get there
    assert [panel.x for panel in plot.panels] == ["steps", "seconds"]
    lost = duel_plot(DUEL, [made("adamw", 2000, 2000), FAST]).panels[0].series[0]
    assert set(lost.y) == {0.0}  # an arm that never gets there has a line too
    assert draw([plot], tmp_path / "duel.png").stat().st_size > 1000


def test_all_duels_are_drawn_with_their_controls(tmp_path: Path) -> None:
    control = made(control_name("adamw", "adamw+ema"), 400, 410, 420, 430, 440)
    never = FAST._replace(steps=dict.fromkeys(range(5), Bound(math.inf, False)))
    plot = overview_plot({"one": (DUEL, [SLOW, FAST, control]), "two": (DUEL, [FAST._replace(name="adamw"), never])})
    (panel,) = plot.panels
    assert panel.rows == ["modmul with everything tuned: adamw+ema"] * 2
    one, *beside = [each for each in panel.series if each.style == "solid" and each.y[0] > 0.5]
    assert (one.y, one.x[0] > 1.5) == ([1, 1], True)  # the first duel stands on top
    assert [each.x for each in beside] == [[1.0, 1.0]]
    lost = next(each for each in panel.series if each.style == "solid" and each.y[0] == 0)
    assert lost.x == [1 / CAP, 1 / CAP]
    assert [each.name for each in panel.series if each.named] == [
        "beside the optimizer as tuned",
        "beside the optimizer at the same settings",
    ]
    assert draw([plot], tmp_path / "all.png").stat().st_size > 1000


def test_one_command_keeps_an_outcome_and_writes_the_page_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, regime in (("one", "tuned"), ("two", "noise")):
        (tmp_path / name).mkdir()
        save_outcome(tmp_path / name / "verdict.json", {**DUEL, "regime": regime}, [SLOW, FAST])
    where = ["--results", str(tmp_path / "kept"), "-o", str(tmp_path / "docs" / "verdicts.md")]
    assert main(["verdicts", *where]) == 0
    page = tmp_path / "docs" / "verdicts.md"
    assert "8 of the 8 planned duels are not run yet." in page.read_text()
    assert main(["verdicts", str(tmp_path / "one"), *where]) == 0
    assert main(["verdicts", str(tmp_path / "two"), *where]) == 0
    text = page.read_text()
    assert "| modmul | with everything tuned | adamw+ema | adamw | **helps** | 2.05x faster |" in text
    assert "| modmul | with 5% of the training answers wrong | adamw+ema |" in text
    assert "![two](figures/duel-two.png)" in text
    assert (page.parent / "figures" / "duel-one.png").exists()
    assert main(["verdicts", str(tmp_path), *where]) == 1
    assert "must be the directory of a duel that has a verdict" in capsys.readouterr().err
    (tmp_path / "one" / "verdict.json").write_text("{}")
    assert main(["verdicts", str(tmp_path / "one"), *where]) == 1
    assert main(["verdicts", *where]) == 0, "what cannot be read is not kept"
