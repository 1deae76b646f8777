from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TINY, comparable, tiny

import grokfast
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Row
from grokfast.lab.runs.recording import load_snapshots
from grokfast.lab.settings import optim_of
from grokfast.lab.tasks.base import Evaluation
from grokfast.lab.tasks.modular.task import ModularTask
from grokfast.lab.training import run as run_module
from grokfast.lab.training.loop import Watcher, evaluation_steps
from grokfast.lab.training.optim import make_optimizers
from grokfast.lab.training.run import resume, run_seconds, time_of, train


def finish(directory: Path, **changes: Any) -> Run:
    run = train(tiny(**changes), directory)
    assert run.done
    return run


def test_same_config_same_numbers(tmp_path: Path) -> None:
    a, b = (finish(tmp_path / name, filter="ema") for name in "ab")
    assert comparable(a.rows) == comparable(b.rows)
    assert all(torch.equal(x, y) for x, y in zip(a.weights().values(), b.weights().values(), strict=True))


def test_the_loop_equals_a_loop_by_hand(runs_dir: Path) -> None:
    run = finish(runs_dir, filter="ema", weight_decay=0.01, clip_norm=1.0, steps=15)
    task = ModularTask(TINY, seed=0, device="cpu")
    (optimizer,) = make_optimizers(task.model, optim_of(run.settings))
    grokfast.attach(optimizer, grokfast.EMA(alpha=0.98, lamb=2.0))
    for step in range(15):
        optimizer.param_groups[0]["lr"] = 1e-3 * min(1.0, step / 10)
        task.loss(task.next_batch())[0].backward()
        torch.nn.utils.clip_grad_norm_(task.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    assert all(torch.equal(p, q) for p, q in zip(task.model.state_dict().values(), run.weights().values(), strict=True))


def test_the_first_update_has_learning_rate_zero(runs_dir: Path) -> None:
    run = finish(runs_dir, steps=12, eval_every=1)
    assert [row.lr for row in run.rows] == pytest.approx([1e-3 * min(1, k / 10) for k in range(12)])
    untrained = ModularTask(TINY, seed=0).model.parameters()
    assert run.rows[0].weight_norm == float(torch.nn.utils.get_total_norm([p.detach() for p in untrained]))
    assert run.rows[1].weight_norm != run.rows[0].weight_norm


def test_a_cosine_ends_at_zero(runs_dir: Path) -> None:
    run = finish(runs_dir, schedule="cosine", warmup_steps=2, steps=8, eval_every=1)
    rates = [row.lr / run.settings["lr"] for row in run.rows]
    expected = [0, 0.5, 1, *((1 + math.cos(math.pi * k / 6)) / 2 for k in range(1, 6))]
    assert rates == pytest.approx(expected)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "nadam", "muon"])
@pytest.mark.parametrize("name", [None, "ema", "ma", "fir", "iir", "butterworth"])
def test_every_optimizer_and_filter_offered_trains(runs_dir: Path, optimizer: str, name: str | None) -> None:
    more: dict[str, Any] = {"fir": {"taps": (0.5, 0.5)}, "iir": {"b": (0.1,), "a": (1.0, -0.9)}}
    more |= {"ma": {"window_size": 5}, "butterworth": {"order": 1, "cutoff": 0.01}}
    run = finish(runs_dir, optimizer=optimizer, filter=name, **more.get(name or "", {}), steps=20)
    last = run.rows[-1]
    assert math.isfinite(last.train_loss)
    assert (last.slow_norm is None) == (name is None)
    assert run.summary is not None
    assert (run.summary["filter_bytes"] > 0) == (name is not None)


def test_nesterov_and_momentum_change_the_run(runs_dir: Path) -> None:
    options: dict[str, Any] = {"optimizer": "sgd", "lr": 0.1}
    runs = [
        finish(runs_dir, **options, **more) for more in ({}, {"momentum": 0.9}, {"momentum": 0.9, "nesterov": True})
    ]
    assert len({run.rows[-1].train_loss for run in runs}) == 3


def test_lamb_zero_equals_the_baseline(runs_dir: Path) -> None:
    base = finish(runs_dir)
    filtered = finish(runs_dir, filter="ema", lamb=0.0, weight_decay=0.0)
    assert [r.val_loss for r in base.rows] == [r.val_loss for r in filtered.rows]


def test_two_stages_equal_the_baseline_before_the_second(runs_dir: Path) -> None:
    base = finish(runs_dir, eval_every=1)
    staged = finish(runs_dir, eval_every=1, filter="ema", two_stage=20, weight_decay=0.0)
    losses = [[row.val_loss for row in run.rows] for run in (base, staged)]
    assert losses[0][:20] == losses[1][:20]
    assert losses[0][20] != losses[1][20]


def test_automatic_second_stage_begins_when_training_has_saturated(runs_dir: Path) -> None:
    options: dict[str, Any] = {"steps": 600, "lr": 3e-3, "eval_every": 5, "weight_decay": 0.0}
    base = finish(runs_dir, **options)
    staged = finish(runs_dir, **options, filter="ema", two_stage="auto")
    saturated = [row.train_accuracy is not None and row.train_accuracy >= 0.99 for row in base.rows]
    third = next(i for i in range(2, len(saturated)) if all(saturated[i - 2 : i + 1]))
    losses = [[row.val_loss for row in run.rows] for run in (base, staged)]
    assert losses[0][: third + 1] == losses[1][: third + 1]
    assert losses[0][third + 1] != losses[1][third + 1]


def test_until_stops_at_the_level_and_extra_steps_continue(runs_dir: Path) -> None:
    options: dict[str, Any] = {"steps": 500, "lr": 1e-2, "until": 0.2}
    run = finish(runs_dir, **options)
    reached = run.rows[-1]
    assert reached.val_accuracy is not None
    assert reached.val_accuracy >= 0.2
    assert all(row.val_accuracy is not None and row.val_accuracy < 0.2 for row in run.rows[:-1])
    assert run.summary is not None
    assert run.summary["crossings"]["first"]["step"] == reached.step
    longer = finish(runs_dir, **options, extra_steps=6)
    assert longer.rows[-1].step >= reached.step + 6


def test_hold_goes_on_until_the_level_was_held(runs_dir: Path) -> None:
    options: dict[str, Any] = {"steps": 3000, "lr": 1e-2, "until": 0.2, "eval_every": 3}
    first = finish(runs_dir, **options)
    held = finish(runs_dir, **options, hold=4)
    reached = [row.val_accuracy is not None and row.val_accuracy >= 0.2 for row in held.rows]
    assert all(reached[-5:])
    assert not any(all(reached[i : i + 5]) for i in range(len(reached) - 5))
    assert held.rows[-1].step >= first.rows[-1].step + 4 * 3
    assert held.stopped_at_level


def test_an_average_is_evaluated_and_kept_but_not_trained(runs_dir: Path) -> None:
    options: dict[str, Any] = {"steps": 12, "eval_every": 1, "lr": 1e-2, "snapshots": 3, "warmup_steps": 0}
    plain, averaged = finish(runs_dir, **options), finish(runs_dir, **options, average=0.75)
    assert [row.train_loss for row in plain.rows] == [row.train_loss for row in averaged.rows]
    expected: dict[str, torch.Tensor] = {}
    task = ModularTask(TINY, seed=0, device="cpu")
    (optimizer,) = make_optimizers(task.model, optim_of(plain.settings))
    for _ in range(12):
        task.loss(task.next_batch())[0].backward()
        optimizer.step()
        optimizer.zero_grad()
        for name, value in task.model.state_dict().items():
            expected[name] = value.clone() if name not in expected else 0.75 * expected[name] + 0.25 * value
    kept = averaged.weights()
    assert all(torch.allclose(kept[name], value, atol=1e-6) for name, value in expected.items())
    assert not all(torch.equal(kept[name], value) for name, value in plain.weights().items())
    assert all(torch.equal(kept[name], value) for name, value in dict(load_snapshots(averaged))[12].items())


def test_an_average_resumes_bit_for_bit(tmp_path: Path) -> None:
    settings = tiny(average=0.9, filter="ema", snapshots=2, eval_every=7)
    whole = train(settings, tmp_path / "whole")
    for looks in (4, 11):
        run = train(settings, tmp_path / "parts", Watcher(interrupted=StopAt(looks)))
        assert not run.done
    run = train(settings, tmp_path / "parts")
    assert comparable(run.rows) == comparable(whole.rows)
    assert all(torch.equal(p, q) for p, q in zip(run.weights().values(), whole.weights().values(), strict=True))


def test_samples_count_every_example_once_per_epoch(runs_dir: Path) -> None:
    run = finish(runs_dir, steps=9)  # 42 equations, 21 for training, batches of 8: three steps per epoch
    assert [(row.step, row.samples) for row in run.rows] == [(3, 21), (6, 42), (9, 63)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"steps": 10}, [3, 6, 9, 10]),
        ({"steps": 10, "eval_every": 4}, [4, 8, 10]),
        ({"steps": 100, "eval_log": 2}, [1, 3, 10, 32, 100]),
    ],
)
def test_evaluation_grids(changes: dict[str, Any], expected: list[int]) -> None:
    config = tiny(**changes)
    assert list(evaluation_steps(config, 3, 0)) == expected
    assert list(evaluation_steps(config, 3, expected[1])) == expected[2:]


def test_a_run_whose_loss_is_not_finite_ends_as_diverged(runs_dir: Path) -> None:
    run = finish(runs_dir, optimizer="sgd", lr=1e30, steps=60)
    assert run.summary is not None
    assert run.summary["diverged"]
    assert run.rows[-1].step < 60


def test_a_complete_run_is_not_trained_again(runs_dir: Path) -> None:
    run = finish(runs_dir)
    written = {path: path.stat().st_mtime_ns for path in run.path.iterdir()}
    assert train(tiny(), runs_dir).done
    assert resume(run).done
    assert {path: path.stat().st_mtime_ns for path in run.path.iterdir()} == written


def test_stopping_leaves_a_checkpoint_and_resume_equals_uninterrupted(tmp_path: Path) -> None:
    whole = finish(tmp_path / "whole", filter="ma", window_size=5, two_stage="auto")
    config = tiny(filter="ma", window_size=5, two_stage="auto")
    for _ in range(20):
        looked = 0

        def once(row: Row) -> None:
            nonlocal looked
            looked += 1

        run = train(config, tmp_path / "parts", Watcher(on_row=once, should_stop=lambda: True))
        if run.done:
            break
        assert looked == 1
    assert run.status == "complete"
    assert comparable(run.rows) == comparable(whole.rows)
    assert all(torch.equal(p, q) for p, q in zip(run.weights().values(), whole.weights().values(), strict=True))


class StopAt:
    """Says no so many times, then yes."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def __call__(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.mark.parametrize("filter", ["ema", "ma"])
def test_interrupted_between_evaluations_resume_equals_uninterrupted(tmp_path: Path, filter: str) -> None:
    settings: dict[str, Any] = {"filter": filter, "eval_every": 10, "gradients": 20, "snapshots": 2}
    settings |= {"window_size": 5} if filter == "ma" else {}
    whole = finish(tmp_path / "whole", **settings)
    for looks in (3, 0, 4, 2):  # 4, 5, 10 (an evaluation is a look too) and 13 steps
        run = train(tiny(**settings), tmp_path / "parts", Watcher(interrupted=StopAt(looks)))
        assert not run.done
    assert [row.step for row in run.rows] == [10]
    assert max(path.stem for path in run.path.glob("checkpoints/*.json")) == "000000013"
    assert resume(run).done
    assert comparable(run.rows) == comparable(whole.rows)
    assert (run.path / "gradients.f32").read_bytes() == (whole.path / "gradients.f32").read_bytes()
    assert all(torch.equal(p, q) for p, q in zip(run.weights().values(), whole.weights().values(), strict=True))


def test_checkpoints_do_not_wait_for_evaluations(runs_dir: Path) -> None:
    seen: list[list[str]] = []

    def look() -> bool:
        seen.append(sorted(path.stem for path in runs_dir.glob("*/checkpoints/*.json")))
        return False

    train(tiny(steps=6, eval_every=6, checkpoint_seconds=0.0), runs_dir, Watcher(interrupted=look))
    assert seen[:4] == [[], ["000000001"], ["000000001", "000000002"], ["000000002", "000000003"]]


def test_training_leaves_the_global_random_state_alone(runs_dir: Path) -> None:
    before = torch.get_rng_state()
    finish(runs_dir)
    assert torch.equal(before, torch.get_rng_state())


def test_a_resumed_run_keeps_what_decides_rounding(runs_dir: Path) -> None:
    run = train(tiny(filter="ema"), runs_dir, Watcher(should_stop=lambda: True))
    assert not run.done
    assert run.settings["threads"] == 1
    torch.set_num_threads(2)
    try:
        assert resume(run).done
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(1)


def test_values_out_of_range_leave_no_run(runs_dir: Path) -> None:
    with pytest.raises(ValueError, match="beta"):
        train(tiny(betas=(2.0, 0.9)), runs_dir)
    assert not runs_dir.exists()


def test_each_run_reports_its_own_peak_memory(runs_dir: Path) -> None:
    large = finish(runs_dir, width=256, filter="ma", window_size=60)
    small = finish(runs_dir)
    assert large.summary is not None
    assert small.summary is not None
    assert small.summary["peak_memory_bytes"] < large.summary["peak_memory_bytes"]


def test_an_estimate_counts_every_step_and_every_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = list[object]()

    def one_second(work: Callable[[], object]) -> float:
        kinds.append(work())
        return 1.0

    monkeypatch.setattr(run_module, "time_of", one_second)
    before = torch.get_rng_state()
    assert run_seconds(tiny(steps=30, eval_every=4)) == 30 + 8  # also after the last step
    assert run_seconds(tiny(steps=100, eval_log=1)) == 100 + 3  # after 1, 10 and 100
    assert run_seconds(tiny(steps=10**12, eval_every=10)) == 10**12 + 10**11
    assert torch.equal(torch.get_rng_state(), before)
    assert kinds[0] is None
    assert isinstance(kinds[1], Evaluation)


def test_the_first_call_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    takes = iter([50.0, 0.2, 0.4, 9.0])

    def work() -> None:
        nonlocal now
        now += next(takes)

    monkeypatch.setattr(run_module.time, "perf_counter", lambda: now)
    assert time_of(work) == pytest.approx(0.3)  # two calls take longer than is enough
