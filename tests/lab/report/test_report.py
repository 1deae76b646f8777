"""The report on whatever is in a folder of runs: damaged, empty, unfinished, of the user's own code; one rule."""

from __future__ import annotations

import html
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import kept_run, made_run, row, swept_run, write_run
from tiny import tiny

from grokfast.lab.analysis.weights import products
from grokfast.lab.report import write_figures, write_report
from grokfast.lab.report.curves import POINTS, band
from grokfast.lab.report.page import tidy
from grokfast.lab.report.rows import arm_rows, cost_rows, distance_rows
from grokfast.lab.report.sweeps import best_rows, find_families
from grokfast.lab.runs.directory import Run, readable_runs
from grokfast.lab.runs.metrics import Row
from grokfast.lab.runs.writer import create_run
from grokfast.lab.settings import resolve
from grokfast.lab.tables import arms, by_task
from grokfast.lab.training.run import train

Maker = Callable[..., Run]


def text_of(runs: list[Run], tmp_path: Path, **options: Any) -> str:
    """The words of the page."""
    kept, lost = readable_runs(runs)
    page = write_report(kept, tmp_path / "out/index.html", unreadable=lost, **options)
    return " ".join(html.unescape(page.read_text().partition("<body>")[2]).split())


# Damaged, short, unfinished -------------------------------------------------------------------------------------------


def test_a_run_without_an_evaluation_yet_is_shown_as_such(tmp_path: Path) -> None:
    text = text_of([create_run(tiny(), tmp_path, {})], tmp_path)
    assert "No evaluation yet." in text
    assert "incomplete" in text
    assert "<mark>no: not evaluated yet</mark>" in text


def test_a_loss_that_is_nan_from_the_first_breaks_nothing(tmp_path: Path) -> None:
    run = made_run(tmp_path, "Baseline", 0, [math.nan, math.nan])
    assert "No evaluation yet." in text_of([run], tmp_path)


def test_damaged_runs_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    good, *bad = (made_run(tmp_path, "Baseline", seed, [9.0, 3.0]) for seed in range(5))
    (bad[0].path / "summary.json").write_text("{")
    (bad[1].path / "metrics.jsonl").write_text("nonsense\n")
    (bad[2].path / "settings.json").write_text("{}")
    (bad[3].path / "metrics.jsonl").unlink()
    (good.path / "environment.json").unlink()
    text = text_of([good, *(Run(run.path) for run in bad)], tmp_path)
    for run in bad:
        assert f"{run.name} is left out" in text
    assert "It is not known on which machine this was measured." in text
    assert "4 runs cannot be shown" in text


def test_deleted_snapshots_cost_only_their_picture(tmp_path: Path) -> None:
    run = train(tiny(snapshots=2, filter="ema"), tmp_path)
    assert 'id="trajectories"' in text_of([run], tmp_path)
    shutil.rmtree(run.path / "snapshots")
    assert 'id="trajectories"' not in text_of([run], tmp_path)
    names = [path.stem for path in write_figures([run], tmp_path / "f", "svg")]
    assert names == ["curves-modmul", "response", "theorem"]


def test_a_run_that_stopped_at_its_level_keeps_its_last_value(tmp_path: Path) -> None:
    runs: list[Run] = []
    for seed, last in enumerate((20, 40)):
        rows = [row(step, 1.0, 0.9 if step == last else 0.1) for step in range(10, last + 1, 10)]
        runs.append(write_run(tmp_path, tiny(seed=seed, until=0.9, steps=100), rows))
    (arm,) = arms(runs)
    found = band(arm, "val_accuracy")
    assert found is not None
    assert found.steps.tolist() == [10, 20, 30, 40]
    assert found.middle.tolist() == pytest.approx([0.1, 0.5, 0.5, 0.9])


def test_thinning_keeps_ends_spikes_and_crossings(tmp_path: Path) -> None:
    losses = [0.5] * 2000
    losses[777], losses[1333], losses[1500] = 0.9, 0.1, 0.04  # a spike up, a spike down, the crossing of 0.95
    run = made_run(tmp_path, "Baseline", 0, losses, task="modmul")
    found = band(arms([run])[0], "train_loss")
    assert found is not None
    assert len(found.steps) <= POINTS
    assert {10, 7780, 13340, 15010, 20_000} <= set(found.steps.tolist())
    assert (found.middle.min(), found.middle.max()) == pytest.approx((0.04, 0.9))


def test_a_page_of_fifty_distinct_long_runs_is_small(tmp_path: Path) -> None:
    runs = [
        swept_run(tmp_path, 400 * i, steps=20_000, evaluations=500, filter="ema", lamb=i / 7, alpha=1 - 1 / (i + 3))
        for i in range(1, 51)
    ]
    assert write_report(runs, tmp_path / "out/index.html").stat().st_size < 1_700_000


def test_nothing_to_show_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a report needs at least one run"):
        write_report([], tmp_path / "r.html")


def test_a_table_leaves_out_empty_columns_and_marks_cells() -> None:
    lines = [["run", "a", "b", "c"], ["x" * 30, "1", "-", "no: short"], ["y", "2", "", "yes"]]
    found = tidy(lines, lambda column, text, usual: text.startswith("no"))
    assert [cell["text"] for cell in found["head"]] == ["run", "a", "c"]
    assert [cell["marked"] for cell in found["rows"][0]] == [False, False, True]
    assert found["head"][0]["long"]


# The user's own code --------------------------------------------------------------------------------------------------


def foreign(run: Run, **changes: Any) -> Run:
    """The same run, unfinished, as if its task or filter were a user's own that is not known here."""
    path = run.path / "settings.json"
    kept = json.loads(path.read_text())
    settings = {**kept["settings"], **changes}
    key = f"{abs(hash(repr({k: v for k, v in settings.items() if k != 'seed'}))):08x}"[:8]
    path.write_text(json.dumps({**kept, "settings": settings, "experiment": key}))
    (run.path / "summary.json").unlink()
    return Run(run.path)


def test_a_task_that_is_not_known_here_is_reported(tmp_path: Path) -> None:
    runs = [
        foreign(
            swept_run(tmp_path / "runs", 100 * i, filter="ema", lamb=float(i), seed=seed), task="tasks/mine.py:Mine"
        )
        for i in (1, 2, 3)
        for seed in (0, 1)
    ]
    text = text_of(runs, tmp_path)
    assert "its task, filter or optimizer is not known here" in text
    assert "Steps until the validation accuracy is 0.95" in text
    assert 'id="curves-mine_py_Mine"' in text
    assert "100 steps to a validation accuracy of 0.95" in text
    assert "curves-mine_py_Mine" in [path.stem for path in write_figures(runs, tmp_path / "figures", "svg")]


def test_the_numbers_of_an_own_filter_make_a_sweep(tmp_path: Path) -> None:
    made = [swept_run(tmp_path / "runs", 100 * i, filter="ema", lamb=float(i)) for i in (1, 2, 3)]
    runs = [foreign(run, filter="mine.py:Low") for run in made]
    (family,) = find_families(runs)
    assert family.axes == ["lamb"]
    assert family.title == "modmul, mine.py:Low, adam"
    text = text_of(runs, tmp_path)
    assert "Sweep over lamb: modmul, mine.py:Low, adam, 3 runs" in text
    assert 'id="response"' not in text


def test_a_run_of_a_machine_with_another_device_is_reported(tmp_path: Path) -> None:
    run = foreign(swept_run(tmp_path / "runs", 100, filter="ema"), device="cuda:7")
    text = text_of([run], tmp_path)
    assert "100 steps to a validation accuracy of 0.95" in text


# One rule over seeds --------------------------------------------------------------------------------------------------


def curve(crossing: int | None, length: int) -> list[float]:
    """Losses every 10 steps whose accuracy 1 - loss crosses 0.95 at a step, if at all."""
    return [0.01 if crossing is not None and 10 * i >= crossing else 0.9 for i in range(1, length // 10 + 1)]


CASES: dict[str, tuple[list[tuple[int, list[float], bool]], str]] = {
    "two seeds, one censored": ([(0, curve(20, 90), True), (1, curve(None, 90), True)], "> 55 (20 to > 90)"),
    "even number, one censored": (
        [(seed, curve(step, 90), True) for seed, step in enumerate((20, 30, 50, None))],
        "40 (20 to > 90)",
    ),
    "two runs of one seed": (
        [(0, curve(80, 90), True), (0, curve(40, 120), True), (1, curve(60, 120), True)],
        "50 (40 to 60)",
    ),
    "a short censored run": (
        [(0, curve(20, 90), True), (1, curve(40, 90), True), (2, curve(None, 40), True)],
        "30 (20 to 40)",
    ),
    "one unfinished": (
        [(0, curve(20, 90), True), (1, curve(40, 90), True), (2, curve(None, 80), False)],
        "40 (20 to > 80)",
    ),
    "one diverged": (
        [(0, curve(20, 90), True), (1, curve(40, 90), True), (2, [0.9, math.nan], True)],
        "40 (20 to never)",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_whoever_states_a_number_about_the_same_runs_states_the_same_number(tmp_path: Path, case: str) -> None:
    made, expected = CASES[case]
    folder = tmp_path / "runs"
    runs = [made_run(folder, "Grokfast-MA", s, losses, task="modmul", finish=f) for s, losses, f in made]
    # Two more weight decays make the runs a sweep.
    changed = [{"weight_decay": decay, "steps": 90, "eval_every": 10} for decay in (0.001, 0.02)]
    runs += [made_run(folder, "Grokfast-MA", 0, curve(90, 90), task="modmul", **change) for change in changed]
    (judged,) = by_task(runs).values()
    shown = arms(judged)
    arm = next(arm for arm in shown if arm.name == "Grokfast-MA")
    assert str(arm.steps()) == expected
    assert of_table(arm_rows(shown), "Grokfast-MA", "steps to 0.95") == expected
    assert of_table(cost_rows(shown), arm.title, "steps to the level") == expected
    (family,) = find_families(runs)
    line = next(line for line in best_rows(family)[1:] if line[1] == "0.01")
    assert f"{line[3]} ({line[4]})" == expected
    text = text_of(runs, tmp_path)
    assert of_page(text, "Grokfast-MA", "steps to 0.95") == expected
    assert of_page(text, arm.title, "steps to the level") == expected


def of_table(lines: list[list[str]], name: str, column: str) -> str:
    return next(line for line in lines[1:] if line[0] == name)[lines[0].index(column)]


def of_page(text: str, name: str, column: str) -> str:
    plain = text.replace(' class="long"', "")
    found = next(t for t in re.findall(r"<table>.*?</table>", plain) if f">{column}<" in t and f'row">{name}<' in t)
    head = re.findall(r'<th scope="col">(.*?)</th>', found)
    line = re.search(rf'<th scope="row">{re.escape(name)}</th>(.*?)</tr>', found)
    assert line is not None
    return re.findall(r"<td>(.*?)</td>", line[1])[head.index(column) - 1]


@pytest.mark.parametrize(
    ("case", "reason"),
    [("two runs of one seed", "no: another run of seed 0 counts"), ("a short censored run", "no: too short")],
)
def test_runs_that_do_not_count_are_listed_and_marked_but_not_drawn(tmp_path: Path, case: str, reason: str) -> None:
    runs = [made_run(tmp_path / "runs", "Grokfast-MA", s, x, task="modmul", finish=f) for s, x, f in CASES[case][0]]
    text = text_of(runs, tmp_path)
    assert text.count(f"<mark>{reason}</mark>") == 1
    assert text.count("<td>yes</td>") == len(runs) - 1
    (arm,) = arms(runs)
    found = band(arm, "val_loss")
    assert found is not None
    assert found.steps[-1] == max(run.rows[-1].step for run in arm.runs)


def test_only_the_verdict_says_which_is_faster(tmp_path: Path) -> None:
    for seed in range(6):
        made_run(tmp_path / "runs", "Grokfast-MA", seed, curve(20 + seed, 90), task="modmul")
        made_run(tmp_path / "runs", "Baseline", seed, curve(60 + seed, 90), task="modmul")
    runs = [Run(path) for path in sorted((tmp_path / "runs").iterdir())]
    assert "Grokfast-MA is faster than Baseline: 30 against 70 steps" in text_of(runs, tmp_path)
    few = text_of(runs[:3] + runs[6:9], tmp_path)
    assert "Undecided, because 3 seeds are too few (at least 5 seeds): Grokfast-MA against Baseline" in few
    assert "is faster than" not in few


# Rows beside the paper ------------------------------------------------------------------------------------------------


def by_name(lines: list[list[str]]) -> dict[str, dict[str, str]]:
    head, *rows = lines
    assert len(set(head)) == len(head)
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_the_papers_number_is_beside_what_it_can_be_compared_with(tmp_path: Path) -> None:
    more = {"batch_accuracy_best": 0.9, "batch_loss_best": 0.4, "batch_loss": 0.5}
    rows = [
        Row(10, 0.5, 0.8, 0.6, 0.7, 1.0, 1.0, None, 0.1, 10, 1.0, {**more, "batch_accuracy_best": x})
        for x in (0.9, 0.8)
    ]
    run = write_run(tmp_path, resolve("imdb", filter="ema", steps=10), rows)
    line = by_name(arm_rows(arms([run])))["Grokfast"]
    assert line["best accuracy of a batch"] == "0.9"
    assert line["paper: best accuracy of a batch"] == "0.9"
    assert (line["lowest loss of a batch"], line["paper: lowest loss of a batch"]) == ("0.4", "0.412")
    assert line["paper: accuracy"] == ""


def test_values_are_of_complete_runs_that_did_not_stop_at_a_level(tmp_path: Path) -> None:
    stopped = made_run(tmp_path, "Baseline", 0, [0.9, 0.1], task="mnist", until=0.85)
    open = made_run(tmp_path, "Baseline", 1, [0.9, 0.1, 0.1], task="mnist", finish=False)
    line = by_name(arm_rows(arms([stopped, open])))["Baseline"]
    assert (line["runs"], line["steps to 0.85"], line["paper: steps"]) == ("2 (1 unfinished)", "20", "44,022")
    assert (line["final accuracy"], line["held from"]) == ("", "")
    # Judged at another level it still stopped where it was told to.
    assert by_name(arm_rows(arms([stopped.judged_at(0.95)])))["Baseline"]["final accuracy"] == ""


def test_costs_are_means_over_seeds_beside_the_papers(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Baseline", seed, x, task="mnist") for seed, x in enumerate(([0.1], [0.5, 0.1]))]
    line = by_name(cost_rows(arms(runs)))["Baseline, 2 seeds"]
    assert (line["steps to the level"], line["seconds to it"]) == ("15 (10 to 20)", "15.0 ± 7.1")
    assert line["ms per step, with evaluations"] == "1,000"
    assert (line["paper: seconds"], line["paper: memory, MB"]) == ("1,928", "196")


KEPT = {0: [0.0, 0.0], 500: [3.0, 0.0], 900: [3.0, 4.0]}


def distance_table(runs: list[Run]) -> dict[str, dict[str, str]]:
    return by_name(distance_rows(runs, [products(runs)]))


def test_a_run_that_never_generalised_has_no_part_in_the_means_of_c(runs_dir: Path) -> None:
    settings = {"steps": 1000, "snapshots": 2, "threads": 1}
    good = kept_run(runs_dir, KEPT, config=resolve("modmul", **settings))
    far = {0: [0, 0], 500: [5, 0], 900: [70, 0]}
    bad = kept_run(runs_dir, far, accuracy=0.2, config=resolve("modmul", seed=1, **settings))
    line = distance_table([good, bad])["Baseline, 2 seeds"]
    assert [line[f"{side}, l2"] for side in ("AB", "BC", "AC")] == ["4.000 ± 1.414 (n = 2)", "4 (n = 1)", "5 (n = 1)"]
    assert line["AB, paper"] == "0.97 ± 2.2"
    alone = distance_table([bad])["Baseline, seed 1"]
    assert [alone[f"{side}, l2"] for side in ("BC", "AC")] == ["-", "-"]
    assert distance_rows([]) == []


# Levels ---------------------------------------------------------------------------------------------------------------

LOSSES = [0.9, 0.7, 0.3, 0.01]  # 0.6 is crossed at 30, 0.95 at 40


def run_to(folder: Path, seed: int, until: float, losses: list[float]) -> Run:
    return made_run(folder, "Grokfast-EMA", seed, losses, task="modmul", until=until, steps=100)


def test_runs_that_stopped_at_a_level_are_judged_there(tmp_path: Path) -> None:
    text = text_of([run_to(tmp_path / "runs", seed, 0.6, LOSSES[:3]) for seed in (0, 1)], tmp_path)
    assert "Grokfast-EMA has the lowest median: 30 steps to a validation accuracy of 0.6" in text
    assert "Steps until the validation accuracy is 0.6" in text
    assert "steps to 0.6" in text
    assert "--level" not in text


def test_mixed_levels_are_judged_at_the_tasks_and_the_page_says_so(tmp_path: Path) -> None:
    runs = [run_to(tmp_path / "runs", 0, 0.6, LOSSES[:3]), run_to(tmp_path / "runs", 1, 0.95, LOSSES)]
    text = text_of(runs, tmp_path)
    assert "Steps until the validation accuracy is 0.95" in text
    assert "1 run stopped earlier, at 0.6, and counts as not having reached 0.95" in text
    assert "Grokfast-EMA has the lowest median: 30 steps to a validation accuracy of 0.6" in text_of(
        runs, tmp_path, level=0.6
    )


@pytest.mark.parametrize(("level", "steps"), [(0.6, 30), (0.2, 20)])
def test_a_level_can_be_given(tmp_path: Path, level: float, steps: int) -> None:
    runs = [run_to(tmp_path / "runs", seed, 0.95, LOSSES) for seed in (0, 1)]
    assert f"Grokfast-EMA has the lowest median: {steps} steps to a validation accuracy of {level:g}" in text_of(
        runs, tmp_path, level=level
    )
