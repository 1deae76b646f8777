"""Weights and gradients a run keeps: what they hold, and that a resume neither loses nor changes any."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import tiny

from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.recording import load_gradients, load_snapshots, recorded_bytes, snapshot_steps
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.run import make_task, train


def recorded(runs_dir: Path, stop_at: int | None = None, **changes: object) -> Run:
    config = tiny(snapshots=2, gradients=30, eval_every=3, **changes)
    if stop_at is not None:
        seen: list[int] = []
        stop = Watcher(on_row=lambda row: seen.append(row.step), should_stop=lambda: seen[-1] >= stop_at)
        assert not train(config, runs_dir, stop).done
    run = train(config, runs_dir)
    assert run.done
    return run


def test_snapshots_are_the_weights_of_those_steps(runs_dir: Path) -> None:
    run = recorded(runs_dir, filter="ema")
    found = dict(load_snapshots(run))
    assert list(found) == snapshot_steps(2, 30) == [0, 1, 3, 10, 30]
    first = make_task(run.settings).model.state_dict()
    assert all(torch.equal(found[0][name], tensor) for name, tensor in first.items())
    assert all(torch.equal(found[30][name], tensor) for name, tensor in run.weights().items())
    assert any(not torch.equal(found[3][name], found[10][name]) for name in first)


def test_the_end_of_a_run_is_its_last_snapshot(runs_dir: Path) -> None:
    run = recorded(runs_dir, until=0.001)
    assert [step for step, _ in load_snapshots(run)][-1] == run.rows[-1].step < 30


@pytest.mark.parametrize("name", ["ema", "ma"])
def test_gradients_after_are_those_before_plus_their_slow_part(runs_dir: Path, name: str) -> None:
    reach = {"alpha": 0.5} if name == "ema" else {"window_size": 4}
    run = recorded(runs_dir, filter=name, lamb=2.0, **reach)
    names, before, after = load_gradients(run)
    assert before.shape == after.shape == (30, len(names))
    assert len(set(names)) == len(list(make_task(run.settings).model.parameters()))
    mean = before[0].astype(np.float64)
    for step in range(30):
        if name == "ema":
            mean = mean * 0.5 + before[step] * 0.5
        else:
            mean = before[step - 3 : step + 1].mean(0) if step >= 3 else np.zeros(len(names))
        np.testing.assert_allclose(after[step], before[step] + 2.0 * mean, rtol=1e-4, atol=1e-6)


def test_without_a_filter_gradients_pass_as_they_are(runs_dir: Path) -> None:
    _, before, after = load_gradients(recorded(runs_dir))
    assert np.array_equal(before, after)
    assert before.any()


def test_recordings_of_a_resumed_run_are_those_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, parts = recorded(tmp_path / "a", filter="ema"), recorded(tmp_path / "b", filter="ema", stop_at=12)
    assert (whole.path / "gradients.f32").read_bytes() == (parts.path / "gradients.f32").read_bytes()
    for (step, mine), (other, theirs) in zip(load_snapshots(whole), load_snapshots(parts), strict=True):
        assert step == other
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def begun(runs_dir: Path) -> Run:
    """Stopped after 12 steps, with checkpoints at 6 and at 12 at least."""
    config = tiny(snapshots=2, gradients=30, eval_every=3, filter="ema", checkpoint_seconds=0.0)
    seen: list[int] = []
    stop = Watcher(on_row=lambda row: seen.append(row.step), should_stop=lambda: seen[-1] >= 12)
    return train(config, runs_dir, stop)


def test_gradients_that_got_lost_are_missed_at_the_resume(runs_dir: Path) -> None:
    run = begun(runs_dir)
    (run.path / "gradients.f32").write_bytes(b"")
    with pytest.raises(RunError, match=r"gradients.f32 must hold 12 steps, got 0 bytes of"):
        train(run.settings, runs_dir)


def test_recording_changes_nothing_but_the_name(runs_dir: Path, tmp_path: Path) -> None:
    plain = train(tiny(filter="ema", eval_every=3), tmp_path / "plain")
    run = recorded(runs_dir, filter="ema")
    assert run.name != plain.name
    assert all(torch.equal(p, q) for p, q in zip(run.weights().values(), plain.weights().values(), strict=True))


def test_disk_use_is_known_and_nothing_recorded_is_an_error(runs_dir: Path) -> None:
    run = train(tiny(), runs_dir)
    assert recorded_bytes(run) == 0
    with pytest.raises(RunError, match="kept no weights: train it with --snapshots"):
        list(load_snapshots(run))
    with pytest.raises(RunError, match="recorded no gradients: train it with --gradients"):
        load_gradients(run)
    kept = recorded(runs_dir, filter="ema")
    assert recorded_bytes(kept) > 30 * 2 * 4 * len(load_gradients(kept).names)
