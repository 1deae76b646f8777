"""One rule over seeds: whoever states a number about the same runs states the same number."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from made import create_made, made_run

from grokfast.lab.compare.arms import ABLATIONS, arm_rows, cost_rows, paper_arms
from grokfast.lab.compare.headline import headline
from grokfast.lab.compare.seeds import by_task, make_arms
from grokfast.lab.compare.sensitivity import find_families
from grokfast.lab.paper.experiments import Experiment
from grokfast.lab.paper.published import MA
from grokfast.lab.report.curves import band
from grokfast.lab.report.page.page import page
from grokfast.lab.report.page.sweeps import best_rows
from grokfast.lab.report.results import ablation_table, results_page, summary_table
from grokfast.lab.report.sweeps import steps_text
from grokfast.lab.request import resolve
from grokfast.lab.runs.directory import Run

Maker = Callable[..., Run]


def curve(crossing: int | None, length: int) -> list[float]:
    """Losses every 10 steps whose accuracy 1 - loss crosses 0.95 at a step, if at all."""
    return [0.01 if crossing is not None and 10 * i >= crossing else 0.9 for i in range(1, length // 10 + 1)]


def two_seeds_one_censored(make: Maker) -> list[Run]:
    return [make(0, curve(20, 90)), make(1, curve(None, 90))]


def even_number_one_censored(make: Maker) -> list[Run]:
    return [make(seed, curve(step, 90)) for seed, step in enumerate((20, 30, 50, None))]


def two_runs_of_one_seed(make: Maker) -> list[Run]:
    return [make(0, curve(80, 90)), make(0, curve(40, 120)), make(1, curve(60, 120))]


def short_censored_run(make: Maker) -> list[Run]:
    return [make(0, curve(20, 90)), make(1, curve(40, 90)), make(2, curve(None, 40))]


def one_unfinished(make: Maker) -> list[Run]:
    return [make(0, curve(20, 90)), make(1, curve(40, 90)), make(2, curve(None, 80), finish=False)]


def one_diverged(make: Maker) -> list[Run]:
    return [make(0, curve(20, 90)), make(1, curve(40, 90)), make(2, [0.9, math.nan])]


CASES = {
    two_seeds_one_censored: "> 55 (20 to > 90)",
    even_number_one_censored: "40 (20 to > 90)",
    two_runs_of_one_seed: "50 (40 to 60)",
    short_censored_run: "30 (20 to 40)",
    one_unfinished: "40 (20 to > 80)",
    one_diverged: "40 (20 to never)",
}
cases = pytest.mark.parametrize(("runs_of", "expected"), CASES.items(), ids=[case.__name__ for case in CASES])


def said_by_everyone(runs: list[Run]) -> dict[str, str]:
    """The steps of Grokfast-MA on modmul, by who says so."""
    (judged,) = by_task(runs).values()
    arm = next(arm for arm in make_arms(judged) if arm.name == "Grokfast-MA")
    gain = next(e for e in ABLATIONS if e.name == "fig-ma-decay")
    text = page(by_task(runs))
    return {
        "arms": of_table(arm_rows(paper_arms(judged)), "Grokfast-MA", "steps to 0.95"),
        "costs": of_table(cost_rows(make_arms(judged)), arm.title, "steps to the level"),
        "ablation": of_ablation(judged, gain),
        "page": of_page(text, "Grokfast-MA", "steps to 0.95"),
        "page, costs": of_page(text, arm.title, "steps to the level"),
        "results.md": of_table(of_markdown(results_page(runs)), "Grokfast-MA", "steps to 0.95"),
        "README": of_table([line[1:] for line in of_markdown(summary_table(runs))], "Grokfast-MA", "measured"),
    }


def of_table(lines: list[list[str]], name: str, column: str) -> str:
    return next(line for line in lines[1:] if line[0] == name)[lines[0].index(column)]


def of_ablation(runs: list[Run], experiment: Experiment) -> str:
    head, *lines = of_markdown(ablation_table(runs, experiment, Path()))
    return next(line for line in lines if line[:2] == ["MA, window size 100, lamb 5", "0.01"])[
        head.index("steps to the level")
    ]


def of_markdown(text: str) -> list[list[str]]:
    lines = [
        line.strip("| ").split(" | ") for line in text.split("## Ablations")[0].splitlines() if line.startswith("|")
    ]
    return [line for line in lines if line[0] != "---"]


def of_page(text: str, name: str, column: str) -> str:
    plain = text.replace("&gt;", ">").replace(" class=long", "")
    table = next(t for t in re.findall(r"<table>.*?</table>", plain) if f">{column}<" in t and f"row>{name}<" in t)
    head = re.findall(r"<th scope=col>(.*?)</th>", table)
    line = re.search(rf"<th scope=row>{re.escape(name)}</th>(.*?)</tr>", table)
    assert line is not None
    return re.findall(r"<td>(.*?)</td>", line[1])[head.index(column) - 1]


def others(folder: Path) -> list[Run]:
    """Two more weight decays: they make the runs an ablation and a sweep."""
    changed = [MA.having(weight_decay=decay, steps=90, eval_every=10) for decay in (0.001, 0.02)]
    return [create_made(folder, resolve(request), curve(90, 90)) for request in changed]


@cases
def test_everyone_states_the_same_number(tmp_path: Path, runs_of: Callable[[Maker], list[Run]], expected: str) -> None:
    def make(seed: int, losses: list[float], *, finish: bool = True) -> Run:
        return made_run(tmp_path / "runs", "Grokfast-MA", seed, losses, task="modmul", finish=finish)

    runs = [*runs_of(make), *others(tmp_path / "runs")]
    assert set(said_by_everyone(runs).values()) == {expected}
    (family,) = find_families(runs)
    chosen = next(c for c in family.candidates if c.values["weight_decay"] == 0.01)
    assert str(chosen.steps) == expected
    line = next(line for line in best_rows(family)[1:] if line[1] == "0.01")
    assert f"{line[3]} ({line[4]})" == expected
    median, interval = expected.rstrip(")").split(" (")
    assert steps_text(chosen).startswith(f"{median.replace('> ', 'more than ')} steps (")
    assert steps_text(chosen).endswith(f" seeds, {interval})")
    if not median.startswith(">"):
        assert f"after {median} steps at weight decay 0.01" in headline(runs)


@cases
def test_a_baseline_in_the_headline_is_the_one_in_the_table(
    tmp_path: Path, runs_of: Callable[[Maker], list[Run]], expected: str
) -> None:
    def make(seed: int, losses: list[float], *, finish: bool = True) -> Run:
        return made_run(tmp_path, "Baseline", seed, losses, task="modmul", finish=finish)

    runs = runs_of(make)
    assert of_table(arm_rows(paper_arms(runs)), "Baseline", "steps to 0.95") == expected
    words = expected.split(" (")[0].replace("> ", "more than ")
    assert f"takes {words} steps at weight decay 0." in headline(runs)


@pytest.mark.parametrize(
    ("runs_of", "reason"),
    [(two_runs_of_one_seed, "no: another run of seed 0 does"), (short_censored_run, "no: too short")],
)
def test_runs_that_do_not_count_are_not_drawn_but_listed_and_marked(
    tmp_path: Path, runs_of: Callable[[Maker], list[Run]], reason: str
) -> None:
    def make(seed: int, losses: list[float], *, finish: bool = True) -> Run:
        return made_run(tmp_path / "runs", "Grokfast-MA", seed, losses, task="modmul", finish=finish)

    runs = runs_of(make)
    text = page(by_task(runs))
    assert text.count(f"<mark>{reason}</mark>") == 1
    assert text.count("<td>yes</td>") == len(runs) - 1
    assert f"does not count ({reason.removeprefix('no: ')})" in results_page(runs)
    (arm,) = make_arms(runs)
    found = band(arm, "val_loss")
    assert found is not None
    assert found.steps[-1] == max(run.rows[-1].step for run in arm.runs)
