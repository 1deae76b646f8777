"""Paths and spectra of archived runs: the tables say what weights and gradients said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made import kept_run
from numpy.typing import NDArray
from tiny import tiny

from grokfast.lab import Run
from grokfast.lab.analysis.paths import find_base, known_distances, paths_by_seed, weight_table
from grokfast.lab.analysis.spectrum import filtered_spectra, measured_gain
from grokfast.lab.analysis.trajectory import project
from grokfast.lab.analysis.weights import products, products_by_model
from grokfast.lab.commands.cli import main
from grokfast.lab.report.plots import STATES, gradient_plots, weight_plots
from grokfast.lab.training.train import train


def wander(seed: int, size: int = 40) -> dict[int, NDArray[np.float32]]:
    walk = np.random.default_rng(seed).normal(size=(6, size)).cumsum(0)
    walk[0] = np.arange(size)  # all begin at the same weights
    return {100 * i: row.astype(np.float32) for i, row in enumerate(walk)}


def walk_of(folder: Path, walk: int, **changes: object) -> Run:
    return kept_run(folder, wander(walk), config=tiny(snapshots=2, steps=600, **changes))


def archive(folder: Path, out: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str], str]:
    code = main(["archive", str(folder), "-o", str(out)])
    said = capsys.readouterr()
    return code, [line.split(":")[0] for line in said.out.splitlines()], said.err


def test_axes_are_those_of_the_base(runs_dir: Path) -> None:
    base, other = walk_of(runs_dir, 0), walk_of(runs_dir, 1, filter="ema")
    found = project(products([other, base]), base)
    rows = [np.stack(list(wander(i).values())).astype(np.float64) - np.arange(40) for i in (1, 0)]
    _, _, axes = np.linalg.svd(rows[1] - rows[1].mean(0), full_matrices=False)
    for path, mine in zip(found, rows, strict=True):
        np.testing.assert_allclose(np.abs(path.points), np.abs((mine - rows[1].mean(0)) @ axes[:2].T), atol=1e-9)
    assert (found[1].points[-1] >= found[1].points[0]).all()


def test_the_base_is_the_run_without_a_filter_of_the_same_seed(runs_dir: Path) -> None:
    base, far = walk_of(runs_dir, 0), walk_of(runs_dir, 2, seed=1)
    other = walk_of(runs_dir, 1, filter="ema")
    assert find_base(other, [far, other, base]) == base
    assert find_base(base, [far, other, base]) == base
    assert find_base(other, [far, other]) is None


def test_an_archive_draws_and_measures_what_the_weights_did(
    runs_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [walk_of(runs_dir, i, seed=i // 2, filter=(None, "ema")[i % 2]) for i in range(4)]
    assert archive(runs_dir, tmp_path / "kept", capsys)[:2] == (0, ["archived"] * 4)
    slim = [Run(tmp_path / "kept" / run.name) for run in runs]
    weights = products_by_model(runs)
    for mine, theirs in zip(paths_by_seed(runs, weights), paths_by_seed(slim, []), strict=True):
        assert [path.run.name for path in mine] == [path.run.name for path in theirs]
        for a, b in zip(mine, theirs, strict=True):
            assert a.steps.tolist() == b.steps.tolist()
            np.testing.assert_allclose(a.points, b.points, rtol=1e-4)
            np.testing.assert_allclose(a.moved, b.moved, rtol=1e-4)
    ends = {run.name: found for run, found in known_distances(runs, weights)}
    for run, found in known_distances(slim, []):
        assert found[:3] == pytest.approx(ends[run.name][:3], rel=1e-4)
        assert found[3:] == ends[run.name][3:]
    live, kept = weight_plots(runs, weights), weight_plots(slim)
    assert [plot.name for plot in kept] == ["trajectories", "deviation"] == [plot.name for plot in live]
    assert [panel.x for panel in kept[0].panels] == [f"first principal axis, seed {seed}" for seed in (0, 1)]
    assert [s.symbols for s in kept[0].panels[0].series if s.style == "marks"] == [STATES, STATES[1:]]


def test_points_come_when_the_base_is_there(runs_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, other = tmp_path / "kept", walk_of(runs_dir, 1, filter="ema")
    assert archive(runs_dir, out, capsys)[:2] == (0, ["archived"])
    assert paths_by_seed([Run(out / other.name)], []) == []
    base = walk_of(runs_dir, 0)
    assert sorted(archive(runs_dir, out, capsys)[1]) == ["archived", "completed"]
    assert len(paths_by_seed([Run(out / run.name) for run in (base, other)], [])[0]) == 2
    assert archive(runs_dir, out, capsys)[1] == ["there already"] * 2


def test_a_table_names_the_command_without_directories(
    runs_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = walk_of(runs_dir, 0)
    assert main(["archive", run.name, "--runs-dir", str(runs_dir), "-o", str(tmp_path / "kept")]) == 0
    text = (tmp_path / "kept" / run.name / "weights.json").read_text()
    assert f'"command": ["grokfast", "archive", "{run.name}"]' in text
    assert str(tmp_path) not in text


def test_a_run_alone_has_distances_and_no_points(runs_dir: Path) -> None:
    table = weight_table(walk_of(runs_dir, 1, filter="ema"), None)
    assert "points" not in table
    assert len(table["moved"]) == len(table["steps"]) == 6


def test_archived_spectra_are_those_of_the_gradients(
    runs_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tiny(filter="ema", steps=80, gradients=20), runs_dir).run
    assert archive(runs_dir, tmp_path / "kept", capsys)[0] == 0
    slim = Run(tmp_path / "kept" / run.name)
    live, kept = filtered_spectra(run), filtered_spectra(slim)
    assert live.keys() == kept.keys()
    for name, phase in live.items():
        assert kept[name][:2] == phase[:2]
        np.testing.assert_allclose(kept[name].before, phase.before, rtol=1e-4)
        np.testing.assert_allclose(kept[name].after, phase.after, rtol=1e-4)
    np.testing.assert_allclose(measured_gain(slim), measured_gain(run), rtol=1e-4)
    assert len(gradient_plots([slim])) == 1


def test_an_archive_can_be_archived_with_its_tables(
    runs_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = walk_of(runs_dir, 0)
    archive(runs_dir, tmp_path / "a", capsys)
    archive(tmp_path / "a", tmp_path / "b", capsys)
    first, second = (tmp_path / name / run.name / "weights.json" for name in "ab")
    assert first.read_bytes() == second.read_bytes()


def test_a_copy_of_other_results_is_named_and_the_others_are_archived(
    runs_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = walk_of(runs_dir, 0)
    archive(runs_dir, tmp_path / "kept", capsys)
    metrics = run.path / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace('"val_loss": 0.1', '"val_loss": 0.2'))
    walk_of(runs_dir, 1, filter="ema")
    code, said, err = archive(runs_dir, tmp_path / "kept", capsys)
    assert (code, said) == (1, ["archived"])
    assert "is of a run with other results" in err
