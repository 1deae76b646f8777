"""Distances, deviations and principal axes of weights, on run directories made by hand."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from made import kept_run as make_run
from numpy.typing import NDArray
from tiny import tiny

from grokfast.lab.analysis.trajectory import Distances, distances, project
from grokfast.lab.analysis.weights import flatten_weights, load_vectors, products, products_by_model
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.training.run import train


def wander(seed: int, count: int = 6, size: int = 40) -> dict[int, NDArray[np.float32]]:
    """A random walk."""
    walk = np.random.default_rng(seed).normal(size=(count, size)).cumsum(0)
    return {10 * i: row.astype(np.float32) for i, row in enumerate(walk)}


def measure(run: Run) -> Distances:
    return distances(run, products([run]))


def stacked(*kept: Mapping[int, NDArray[np.float32]]) -> NDArray[np.float64]:
    return np.concatenate([np.stack(list(k.values())).astype(np.float64) - k[0] for k in kept])


def test_weights_are_flattened_by_name_and_integers_left_out() -> None:
    weights = {"b": torch.tensor([3.0]), "count": torch.tensor(7), "a": torch.tensor([[1.0, 2.0]])}
    vector = flatten_weights(weights)
    assert vector.dtype == np.float64
    assert vector.tolist() == [1.0, 2.0, 3.0]


def test_distances_are_l2_norms_between_the_three_states(runs_dir: Path) -> None:
    run = make_run(runs_dir, {0: [1, 1], 10: [9, 9], 500: [4, 1], 900: [4, 5]}, accuracy=0.96)
    found = measure(run)
    assert found[:3] == (3.0, 4.0, 5.0)
    assert found.mean_squares == (1000 * 9 / 2, 1000 * 16 / 2, 1000 * 25 / 2)
    assert (found.steps, found.parameters, found.generalised) == ((0, 500, 900), 2, True)


@pytest.mark.parametrize(
    ("kept", "taken"), [((0, 90), 90), ((0, 500, 900), 500), ((0, 420, 580, 900), 420), ((0, 410, 580), 580), ((0,), 0)]
)
def test_overfit_state_is_the_snapshot_nearest_to_500_and_says_so(
    runs_dir: Path, kept: tuple[int, ...], taken: int
) -> None:
    found = measure(make_run(runs_dir, {step: [step / 10] for step in kept}))
    assert found.steps == (0, taken, kept[-1])
    assert (found.ab, found.bc, found.ac) == (taken / 10, (kept[-1] - taken) / 10, kept[-1] / 10)


def test_paths_say_how_far_they_are_from_the_initial_weights(runs_dir: Path) -> None:
    (found,) = project(products([make_run(runs_dir, {0: [1, 1], 5: [4, -3], 30: [1, 3]})]))
    assert found.steps.tolist() == [0, 5, 30]
    assert found.moved.tolist() == [0.0, 5.0, 2.0]


def test_projection_is_the_svd_of_the_stacked_and_centred_displacements(runs_dir: Path) -> None:
    walks = [wander(seed) for seed in range(3)]
    runs = [make_run(runs_dir, walk, config=tiny(snapshots=2, seed=i)) for i, walk in enumerate(walks)]
    found = project(products(runs))
    plain = stacked(*walks)
    u, s, _ = np.linalg.svd(plain - plain.mean(0), full_matrices=False)
    points = np.concatenate([path.points for path in found])
    np.testing.assert_allclose(np.abs(points), np.abs(u * s)[:, :2], atol=1e-9)
    assert [path.run for path in found] == runs
    assert all(path.steps.tolist() == [0, 10, 20, 30, 40, 50] for path in found)


@pytest.mark.parametrize("columns", [1, 7, 20, 39, 40, 100])
def test_products_from_blocks_are_those_of_the_stacked_matrix(
    runs_dir: Path, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = [wander(seed) for seed in range(3)]
    runs = [make_run(runs_dir, walk, config=tiny(snapshots=2, seed=i)) for i, walk in enumerate(walks)]
    plain = stacked(*walks)
    monkeypatch.setattr("grokfast.lab.analysis.weights.MEMORY", 16 * len(plain) * columns)
    np.testing.assert_allclose(products(runs).inner, plain @ plain.T, atol=1e-10)


def test_many_snapshots_are_read_once(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [make_run(runs_dir, wander(seed, count=50), config=tiny(snapshots=2, seed=seed)) for seed in range(2)]
    load, read = torch.load, list[Path]()
    monkeypatch.setattr(torch, "load", lambda path, **options: (read.append(path), load(path, **options))[1])
    assert [path.steps[-1] for path in project(products(runs))] == [490, 490]
    assert len(read) == 2 * 50


def test_what_is_known_of_several_runs_serves_each(runs_dir: Path) -> None:
    runs = [make_run(runs_dir, wander(seed), config=tiny(snapshots=2, seed=seed)) for seed in range(2)]
    assert distances(runs[1], products(runs))[:3] == pytest.approx(measure(runs[1])[:3])


def test_products_stay_within_the_memory_given(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(runs_dir, wander(0, count=40, size=40_000))
    memory = 40 * 40_000 * 4  # half of what the weights take in float64
    monkeypatch.setattr("grokfast.lab.analysis.weights.MEMORY", memory)
    tracemalloc.start()
    try:
        products([run])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < memory + 2 * 40_000 * 8  # and the last vector


def test_all_runs_start_at_one_point_and_the_first_ends_on_the_positive_side(runs_dir: Path) -> None:
    runs = [make_run(runs_dir, wander(i), config=tiny(snapshots=2, seed=i)) for i in range(3)]
    for order in (runs, runs[::-1]):
        paths = project(products(order))
        assert all(np.allclose(path.points[0], paths[0].points[0]) for path in paths)
        assert (paths[0].points[-1] >= paths[0].points[0]).all()


def test_a_straight_path_has_one_axis_and_no_second(runs_dir: Path) -> None:
    (found,) = project(products([make_run(runs_dir, {0: [0, 0, 0], 1: [1, 2, 2], 2: [2, 4, 4]})]))
    np.testing.assert_allclose(found.points, [[-3, 0], [0, 0], [3, 0]], atol=1e-12)


def test_weights_that_never_moved_have_no_axes(runs_dir: Path) -> None:
    (found,) = project(products([make_run(runs_dir, {0: [1, 2], 1: [1, 2]})]))
    assert not found.points.any()


def test_runs_of_different_sizes_are_refused_by_name(runs_dir: Path) -> None:
    small, large = (make_run(runs_dir, wander(i, size=i), config=tiny(snapshots=2, seed=i)) for i in (4, 5))
    with pytest.raises(RunError, match=f"{small.name} and {large.name} have different numbers of parameters"):
        products([small, large])


def test_weights_that_are_no_numbers_are_refused_by_name(runs_dir: Path) -> None:
    run = make_run(runs_dir, {0: [0.0], 30: [math.nan]}, accuracy=0.0)
    with pytest.raises(RunError, match=f"{run.name} has diverged: its weights of step 30 are not finite"):
        products([run])


def test_one_snapshot_makes_no_plane(runs_dir: Path) -> None:
    with pytest.raises(ValueError, match="two axes need two snapshots or more, got 1"):
        project(products([make_run(runs_dir, {0: [1.0]})]))


def test_missing_snapshots_are_an_error_that_names_the_flag(runs_dir: Path) -> None:
    run = make_run(runs_dir, {0: [0.0], 30: [1.0]})
    for path in (run.path / "snapshots").iterdir():
        path.unlink()
    with pytest.raises(RunError, match="kept no weights: train it with --snapshots"):
        products([run])


def test_a_run_without_its_start_is_refused(runs_dir: Path) -> None:
    with pytest.raises(RunError, match="must have kept its initial weights, the first are those of step 10"):
        products([make_run(runs_dir, {10: [0.0], 30: [1.0]})])


def test_a_trained_run_is_measured_from_its_own_snapshots(runs_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(tiny(snapshots=2, filter="ema"), runs_dir)
    kept = dict(load_vectors(run))
    monkeypatch.setattr("grokfast.lab.analysis.trajectory.OVERFIT_STEP", 10)
    found = measure(run)
    assert found.steps == (0, 10, 30)
    assert found.ac == pytest.approx(float(np.linalg.norm(kept[30] - kept[0])))
    assert found.bc == pytest.approx(float(np.linalg.norm(kept[30] - kept[10])))
    assert found.ac <= found.ab + found.bc
    assert not found.generalised


def test_runs_of_one_model_and_seed_lie_in_one_space_and_those_without_weights_in_none(runs_dir: Path) -> None:
    configs = (
        tiny(snapshots=2),
        tiny(snapshots=2, filter="ema"),
        tiny(snapshots=2, filter="ma"),
        tiny(snapshots=2, seed=1),
    )
    runs = [make_run(runs_dir, wander(i), config=config) for i, config in enumerate(configs)]
    other = make_run(runs_dir, wander(3), config=tiny(snapshots=2, p=5))
    for path in (runs[2].path / "snapshots").iterdir():
        path.unlink()
    assert [known.runs for known in products_by_model([*runs, other])] == [runs[:2], runs[3:], [other]]
