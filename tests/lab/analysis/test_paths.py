"""Paths and spectra of runs that are kept as tables: the tables say what weights and gradients said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made import kept_run
from numpy.typing import NDArray
from tiny import tiny

from grokfast.lab import Run
from grokfast.lab.analysis.spectrum import filtered_spectra, measured_gain, spectrum_table
from grokfast.lab.analysis.trajectory import find_base, known_distances, paths_by_seed, project, weight_table
from grokfast.lab.analysis.weights import products, products_by_model
from grokfast.lab.report.depth import gradient_pictures, weight_pictures
from grokfast.lab.training.run import train


def wander(seed: int, size: int = 40) -> dict[int, NDArray[np.float32]]:
    walk = np.random.default_rng(seed).normal(size=(6, size)).cumsum(0)
    walk[0] = np.arange(size)  # all begin at the same weights
    return {100 * i: row.astype(np.float32) for i, row in enumerate(walk)}


def walk_of(folder: Path, walk: int, **changes: object) -> Run:
    return kept_run(folder, wander(walk), config=tiny(snapshots=2, steps=600, **changes))


def kept_as_tables(run: Run, **tables: Any) -> Run:
    """The same run as evidence keeps it: its rows and these tables, no directory."""
    return Run.from_table(
        Path("evidence") / run.name,
        settings=run.settings,
        experiment=run.experiment,
        summary=run.summary or {},
        rows=lambda: run.rows,
        environment={},
        tables=tables,
    )


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


def test_tables_draw_and_measure_what_the_weights_did(runs_dir: Path) -> None:
    runs = [walk_of(runs_dir, i, seed=i // 2, filter=(None, "ema")[i % 2]) for i in range(4)]
    slim = [kept_as_tables(run, weights=weight_table(run, find_base(run, runs))) for run in runs]
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
    live, kept = weight_pictures(runs, weights), weight_pictures(slim)
    assert [picture.name for picture in kept] == ["trajectories", "deviation"] == [picture.name for picture in live]
    assert len(kept[0].views) == 2  # a plane for each seed


def test_a_run_alone_has_distances_and_no_points(runs_dir: Path) -> None:
    run = walk_of(runs_dir, 1, filter="ema")
    table = weight_table(run, None)
    assert "points" not in table
    assert len(table["moved"]) == len(table["steps"]) == 6
    assert paths_by_seed([kept_as_tables(run, weights=table)], []) == []


def test_spectra_in_tables_are_those_of_the_gradients(runs_dir: Path) -> None:
    run = train(tiny(filter="ema", steps=80, gradients=20), runs_dir)
    slim = kept_as_tables(run, spectra=spectrum_table(run))
    live, kept = filtered_spectra(run), filtered_spectra(slim)
    assert live.keys() == kept.keys()
    for name, phase in live.items():
        assert kept[name][:2] == phase[:2]
        np.testing.assert_allclose(kept[name].before, phase.before, rtol=1e-4)
        np.testing.assert_allclose(kept[name].after, phase.after, rtol=1e-4)
    np.testing.assert_allclose(measured_gain(slim), measured_gain(run), rtol=1e-4)
    assert len(gradient_pictures([slim])) == 1
