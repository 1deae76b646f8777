"""Distances, deviations and principal axes of weights, on run directories made by hand."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from made import kept_run as make_run
from numpy.typing import NDArray
from tiny import tiny

from grokfast.lab.analysis.trajectory import deviation, distances, project
from grokfast.lab.analysis.weights import flatten_weights, load_vectors, products, products_by_model
from grokfast.lab.runs.directory import RunError
from grokfast.lab.runs.writer import create_run
from grokfast.lab.training.train import train


def wander(seed: int, count: int = 6, size: int = 40) -> dict[int, NDArray[np.float32]]:
    """A random walk."""
    walk = np.random.default_rng(seed).normal(size=(count, size)).cumsum(0)
    return {10 * i: row.astype(np.float32) for i, row in enumerate(walk)}


def stacked(*kept: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float64]:
    return np.concatenate([np.stack(list(k.values())).astype(np.float64) - k[0] for k in kept])


def test_weights_are_flattened_by_name_and_integers_left_out() -> None:
    weights = {"b": torch.tensor([3.0]), "count": torch.tensor(7), "a": torch.tensor([[1.0, 2.0]])}
    vector = flatten_weights(weights)
    assert vector.dtype == np.float64
    assert vector.tolist() == [1.0, 2.0, 3.0]


def test_distances_are_l2_norms_between_the_three_states(runs_dir: Path) -> None:
    run = make_run(runs_dir, {0: [1, 1], 10: [9, 9], 500: [4, 1], 900: [4, 5]}, accuracy=0.96)
    found = distances(run)
    assert found[:3] == (3.0, 4.0, 5.0)
    assert found.mean_squares == (1000 * 9 / 2, 1000 * 16 / 2, 1000 * 25 / 2)
    assert (found.steps, found.parameters, found.validation, found.generalised) == ((0, 500, 900), 2, 0.96, True)


@pytest.mark.parametrize(("asked", "taken"), [(0, 0), (10, 10), (29, 10), (30, 10), (31, 50), (500, 90)])
def test_overfit_state_is_the_nearest_snapshot_and_says_so(runs_dir: Path, asked: int, taken: int) -> None:
    kept = {0: [0.0], 10: [1.0], 50: [5.0], 90: [9.0]}
    found = distances(make_run(runs_dir, kept), overfit_step=asked)
    assert found.steps == (0, taken, 90)
    assert (found.ab, found.bc, found.ac) == (taken / 10, 9 - taken / 10, 9.0)


def test_deviation_is_from_the_initial_weights(runs_dir: Path) -> None:
    found = deviation(make_run(runs_dir, {0: [1, 1], 5: [4, -3], 30: [1, 3]}))
    assert found.steps.tolist() == [0, 5, 30]
    assert found.l2.tolist() == [0.0, 5.0, 2.0]


def test_projection_is_the_svd_of_the_stacked_and_centred_displacements(runs_dir: Path) -> None:
    walks = [wander(seed) for seed in range(3)]
    runs = [make_run(runs_dir, walk, config=tiny(snapshots=2, seed=i)) for i, walk in enumerate(walks)]
    found = project(runs, components=3)
    plain = stacked(*walks)
    u, s, _ = np.linalg.svd(plain - plain.mean(0), full_matrices=False)
    points = np.concatenate([path.points for path in found.paths])
    np.testing.assert_allclose(np.abs(points), np.abs(u * s)[:, :3], atol=1e-9)
    np.testing.assert_allclose(found.explained, (s**2 / (s**2).sum())[:3], rtol=1e-9)
    assert [path.run for path in found.paths] == runs
    assert all(path.steps.tolist() == [0, 10, 20, 30, 40, 50] for path in found.paths)


@pytest.mark.parametrize("columns", [1, 7, 20, 39, 40, 100])
def test_products_from_blocks_are_those_of_the_stacked_matrix(runs_dir: Path, columns: int) -> None:
    walks = [wander(seed) for seed in range(3)]
    runs = [make_run(runs_dir, walk, config=tiny(snapshots=2, seed=i)) for i, walk in enumerate(walks)]
    plain = stacked(*walks)
    found = products(runs, memory=8 * (len(plain) + 3) * columns)
    np.testing.assert_allclose(found.inner, plain @ plain.T, atol=1e-10)


def test_many_snapshots_are_read_once(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [make_run(runs_dir, wander(seed, count=50), config=tiny(snapshots=2, seed=seed)) for seed in range(2)]
    load, read = torch.load, list[Path]()
    monkeypatch.setattr(torch, "load", lambda path, **options: (read.append(path), load(path, **options))[1])
    known = products(runs)
    project(runs, known=known)
    assert [deviation(run, known=known).steps[-1] for run in runs] == [490, 490]
    assert len(read) == 2 * (50 + 1)  # the first of each run once more, for its shapes


def test_what_is_known_of_several_runs_serves_each(runs_dir: Path) -> None:
    runs = [make_run(runs_dir, wander(seed), config=tiny(snapshots=2, seed=seed)) for seed in range(2)]
    known = products(runs)
    assert distances(runs[1], known=known)[:3] == pytest.approx(distances(runs[1])[:3])
    with pytest.raises(ValueError, match="run must be one of"):
        distances(runs[0], known=products(runs[1:]))


def test_products_stay_within_the_memory_given(runs_dir: Path) -> None:
    run = make_run(runs_dir, wander(0, count=40, size=20_000))
    memory = 24 * 20_000 * 8
    tracemalloc.start()
    try:
        products([run], memory=memory)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.01 * memory


def test_all_runs_start_at_one_point_and_the_first_ends_on_the_positive_side(runs_dir: Path) -> None:
    runs = [make_run(runs_dir, wander(i), config=tiny(snapshots=2, seed=i)) for i in range(3)]
    for order in (runs, runs[::-1]):
        paths = project(order).paths
        assert all(np.allclose(path.points[0], paths[0].points[0]) for path in paths)
        assert (paths[0].points[-1] >= paths[0].points[0]).all()


def test_axes_of_some_runs_carry_the_others(runs_dir: Path) -> None:
    walks = [wander(seed) for seed in range(2)]
    base, other = (make_run(runs_dir, walk, config=tiny(snapshots=2, seed=i)) for i, walk in enumerate(walks))
    found, alone = project([base, other], axes=[base]), project([base])
    np.testing.assert_allclose(found.paths[0].points, alone.paths[0].points, atol=1e-9)
    np.testing.assert_allclose(found.explained, alone.explained)
    mean = stacked(walks[0]).mean(0)
    _, _, axes = np.linalg.svd(stacked(walks[0]) - mean, full_matrices=False)
    expected = (stacked(walks[1]) - mean) @ axes[:2].T
    np.testing.assert_allclose(np.abs(found.paths[1].points), np.abs(expected), atol=1e-9)


def test_a_straight_path_has_one_axis_and_no_second(runs_dir: Path) -> None:
    found = project([make_run(runs_dir, {0: [0, 0, 0], 1: [1, 2, 2], 2: [2, 4, 4]})])
    np.testing.assert_allclose(found.paths[0].points, [[-3, 0], [0, 0], [3, 0]], atol=1e-12)
    np.testing.assert_allclose(found.explained, [1, 0])


def test_weights_that_never_moved_have_no_axes(runs_dir: Path) -> None:
    found = project([make_run(runs_dir, {0: [1, 2], 1: [1, 2]})])
    assert not found.paths[0].points.any()
    assert not found.explained.any()


def test_runs_of_different_shapes_are_refused_by_name(runs_dir: Path) -> None:
    wide, tall = (make_run(runs_dir, wander(i), columns=i, config=tiny(snapshots=2, seed=i)) for i in (1, 2))
    with pytest.raises(RunError, match=f"{wide.name} and {tall.name} have parameters of different shapes"):
        project([wide, tall])


def test_weights_that_are_no_numbers_are_refused_by_name(runs_dir: Path) -> None:
    run = make_run(runs_dir, {0: [0.0], 30: [math.nan]}, accuracy=0.0)
    with pytest.raises(RunError, match=f"{run.name} has diverged: its weights of step 30 are not finite"):
        project([run])


def test_what_cannot_be_projected_is_refused(runs_dir: Path) -> None:
    run, other = (make_run(runs_dir, wander(i), config=tiny(snapshots=2, seed=i)) for i in range(2))
    with pytest.raises(ValueError, match="runs must be one or more, got none"):
        project([])
    with pytest.raises(ValueError, match="axes must be one or more of the runs, got"):
        project([run], axes=[other])
    with pytest.raises(ValueError, match=r"components must be in \[1, 6\], .*, got 7"):
        project([run, other], axes=[run], components=7)


def test_missing_snapshots_are_an_error_that_names_the_flag(runs_dir: Path) -> None:
    run = make_run(runs_dir, {0: [0.0], 30: [1.0]})
    for path in (run.path / "snapshots").iterdir():
        path.unlink()
    looks: list[Callable[[], object]] = [
        lambda: distances(run),
        lambda: deviation(run),
        lambda: project([run]),
    ]
    for look in looks:
        with pytest.raises(RunError, match="kept no weights: train it with --snapshots"):
            look()


def test_a_run_without_its_start_or_any_evaluation_is_refused(runs_dir: Path) -> None:
    with pytest.raises(RunError, match="must have kept its initial weights, the first are those of step 10"):
        distances(make_run(runs_dir, {10: [0.0], 30: [1.0]}))
    with pytest.raises(RunError, match="has no evaluation yet"):
        distances(create_run(tiny(seed=1), runs_dir, {}))


def test_a_trained_run_is_measured_from_its_own_snapshots(runs_dir: Path) -> None:
    run = train(tiny(snapshots=2, filter="ema"), runs_dir).run
    kept = dict(load_vectors(run))
    found = distances(run, overfit_step=10)
    assert found.steps == (0, 10, 30)
    assert found.ac == pytest.approx(float(np.linalg.norm(kept[30] - kept[0])))
    assert found.bc == pytest.approx(float(np.linalg.norm(kept[30] - kept[10])))
    assert found.ac <= found.ab + found.bc
    assert deviation(run).l2[-1] == found.ac
    assert not found.generalised


def test_runs_of_one_model_lie_in_one_space_and_those_without_weights_in_none(runs_dir: Path) -> None:
    runs = [make_run(runs_dir, wander(i), config=tiny(snapshots=2, seed=i)) for i in range(3)]
    other = make_run(runs_dir, wander(3), config=tiny(snapshots=2, p=5))
    for path in (runs[2].path / "snapshots").iterdir():
        path.unlink()
    assert [known.runs for known in products_by_model([*runs, other])] == [runs[:2], [other]]
