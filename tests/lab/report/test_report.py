"""The report on whatever lies in a folder of runs: damaged, empty, unfinished, of the same name."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest
from made import made_run, row, swept_run, write_run
from tiny import tiny

from grokfast.lab.compare.seeds import make_arms
from grokfast.lab.report import write_figures, write_report
from grokfast.lab.report.curves import POINTS, band, select_groups
from grokfast.lab.report.page.page import FIRST, extra
from grokfast.lab.report.pictures import Panel, Plot, Series
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.files import read_json, write_json
from grokfast.lab.runs.writer import create_run
from grokfast.lab.training.train import train


def text_of(runs: list[Run], tmp_path: Path) -> str:
    return write_report(runs, tmp_path / "out/index.html")[0].read_text()


def test_a_run_without_an_evaluation_yet_is_shown_as_such(tmp_path: Path) -> None:
    text = text_of([create_run(tiny(), tmp_path, {})], tmp_path)
    assert "No evaluation yet." in text
    assert "incomplete" in text
    assert "<mark>no: not evaluated yet</mark>" in text


def test_a_loss_that_is_nan_from_the_first_breaks_nothing(tmp_path: Path) -> None:
    run = made_run(tmp_path, "Baseline", 0, [math.nan, math.nan])
    assert "No evaluation yet." in text_of([run], tmp_path)


def test_damaged_runs_are_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    good, *bad = (made_run(tmp_path, "Baseline", seed, [9.0, 3.0]) for seed in range(6))
    (bad[0].path / "summary.json").write_text("{")
    (bad[1].path / "metrics.jsonl").write_text("nonsense\n")
    (bad[2].path / "config.json").write_text("{}")
    (bad[3].path / "metrics.jsonl").unlink()
    config = read_json(bad[4].path / "config.json")
    write_json(bad[4].path / "config.json", {**config, "optim": {**config["optim"], "magic": 1}})
    (good.path / "environment.json").unlink()
    text = text_of([good, *bad], tmp_path)
    for run in bad:
        assert f"{run.name} cannot be shown" in text
    assert "It is not known on which machine this was measured." in text


def test_deleted_snapshots_cost_only_their_picture(tmp_path: Path) -> None:
    run = train(tiny(snapshots=2, filter="ema"), tmp_path).run
    assert 'id="trajectories"' in text_of([run], tmp_path)
    shutil.rmtree(run.path / "snapshots")
    assert 'id="trajectories"' not in text_of([run], tmp_path)
    assert [path.stem for path in write_figures([run], tmp_path / "f", "svg")] == [
        "curves-modmul",
        "response",
        "theorem",
    ]


def test_a_run_that_stopped_at_its_level_keeps_its_last_value(tmp_path: Path) -> None:
    runs: list[Run] = []
    for seed, last in enumerate((20, 40)):
        rows = [row(step, 1.0, 0.9 if step == last else 0.1) for step in range(10, last + 1, 10)]
        runs.append(write_run(tmp_path, tiny(seed=seed, until=0.9, steps=100), rows))
    (arm,) = make_arms(runs)
    found = band(arm, "val_accuracy")
    assert found is not None
    assert found.steps.tolist() == [10, 20, 30, 40]
    assert found.middle.tolist() == pytest.approx([0.1, 0.5, 0.5, 0.9])


def test_long_curves_are_thinned_to_what_a_screen_shows(tmp_path: Path) -> None:
    run = made_run(tmp_path, "Baseline", 0, [1.0 / i for i in range(1, 2001)])
    found = band(make_arms([run])[0], "val_loss")
    assert found is not None
    assert len(found.steps) <= POINTS
    assert (found.steps[0], found.steps[-1]) == (10, 20_000)


def test_thinning_keeps_spikes_and_crossings(tmp_path: Path) -> None:
    losses = [0.5] * 2000
    losses[777], losses[1333], losses[1500] = 0.9, 0.1, 0.04  # a spike up, a spike down, the crossing of 0.95
    run = made_run(tmp_path, "Baseline", 0, losses, task="modmul")
    found = band(make_arms([run])[0], "train_loss")
    assert found is not None
    assert len(found.steps) <= POINTS
    assert {7780, 13340, 15010} <= set(found.steps.tolist())
    assert (found.middle.min(), found.middle.max()) == pytest.approx((0.04, 0.9))


def test_a_page_of_fifty_distinct_long_runs_stays_below_six_megabytes(tmp_path: Path) -> None:
    runs = [
        swept_run(tmp_path, 400 * i, steps=20_000, evaluations=2_000, filter="ema", lamb=i / 7, alpha=1 - 1 / (i + 3))
        for i in range(1, 51)
    ]
    page, _ = write_report(runs, tmp_path / "out/index.html")
    assert page.stat().st_size < 6_000_000
    many = made_run(tmp_path, "Baseline", 0, [0.5] * 50, task="modmul")
    kept, others = select_groups(make_arms([*runs, many]))
    assert (len(kept), len(others)) == (14, 37)
    assert kept[-1].runs == [many]
    assert [arm.runs[0] for arm in kept[:13]] == runs[:13]


def test_many_pictures_of_a_section_are_folded_away() -> None:
    plots = [Plot(f"p{i}", f"picture {i}", [Panel("x", "y", [Series(0, "a", [1], [1])])]) for i in range(FIRST + 2)]
    seen, _, folded = extra("Gradients", "What they are.", plots).html.partition("<details><summary>2 more</summary>")
    assert (seen.count("<h3>"), folded.count("<h3>")) == (FIRST, 2)
    assert "<details>" not in extra("Gradients", "What they are.", plots[:FIRST]).html


def test_nothing_to_show_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a report needs at least one run"):
        write_report([], tmp_path / "r.html")
    with pytest.raises(ValueError, match="figures need at least one run"):
        write_figures([], tmp_path, "png")
