"""Memory is asked for before it is used."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import tiny

import grokfast
from grokfast.lab.runs.directory import Run
from grokfast.lab.settings import resolve, run_id, task_of
from grokfast.lab.tasks import TASKS
from grokfast.lab.tasks.imdb.task import build as build_lstm
from grokfast.lab.tasks.mnist import build as build_mlp
from grokfast.lab.tasks.parity import build as build_parity
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.machine import available_bytes, check_memory, state_bytes
from grokfast.lab.training.run import make_task, resume, train

SIZES = [
    ("mnist", build_mlp, [{"depth": depth, "width": 30} for depth in (1, 2, 3, 5)]),
    ("imdb", build_lstm, [{"depth": depth, "width": 6, "embedding": 5, "vocabulary": 70} for depth in (1, 3)]),
    ("parity", build_parity, [{"n": 9, "k": 2, "width": 17}]),
]


@pytest.mark.parametrize(
    ("name", "build", "settings"), [(name, build, each) for name, build, all in SIZES for each in all]
)
def test_the_size_of_a_task_is_that_of_its_model(name: str, build: Any, settings: dict[str, int]) -> None:
    config = TASKS[name](**settings)
    assert config.size().weights == sum(p.numel() for p in build(config).parameters())


@pytest.mark.parametrize("settings", [{}, {"depth": 3}, {"operation": "s5"}])
def test_the_size_of_modular_arithmetic_is_that_of_its_model(settings: dict[str, object]) -> None:
    config = tiny(**settings)
    assert task_of(config).size().weights == sum(p.numel() for p in make_task(config).model.parameters())


def test_the_size_of_the_graph_network_is_that_of_its_model() -> None:
    pytest.importorskip("torch_geometric")
    from grokfast.lab.tasks.qm9.task import build

    config = TASKS["qm9"](width=6, out_width=3)  # type: ignore[call-arg]
    assert config.size().weights == sum(p.numel() for p in build(config).parameters())  # type: ignore[arg-type]


@pytest.mark.parametrize("filter", [grokfast.EMA(), grokfast.MA(window_size=7), grokfast.FIR(taps=(0.5, 0.5))])
def test_the_state_of_a_filter_is_estimated_as_it_is_made(filter: grokfast.Filter) -> None:
    made = filter.new_state(torch.zeros(50)).values()
    assert state_bytes(filter, 50) == sum(tensor.numel() * tensor.element_size() for tensor in made)


@pytest.mark.parametrize("window", [10**18, 10**30])
def test_a_state_that_no_tensor_can_hold_is_infinite(window: int) -> None:
    assert state_bytes(grokfast.MA(window_size=window), 100) == math.inf


@pytest.mark.parametrize(
    "settings",
    [
        {"filter": "ma", "window_size": 100_000_000},
        {"filter": "ma", "window_size": 10**12},
        {"filter": "ma", "window_size": 10**30},
        {"p": 999_983},
        {"width": 10**9},
        {"depth": 10**12},
    ],
)
def test_what_does_not_fit_is_refused_before_there_is_a_run(settings: dict[str, object], runs_dir: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"^this run needs about [\d,.inf]+ GB of memory \(.+\), and .+ GB are free"):
        train(resolve("modmul", **{"threads": 1, **settings}), runs_dir)
    assert time.monotonic() - began < 5
    assert not runs_dir.exists()


def test_the_message_names_the_flag_that_lifts_the_limit(runs_dir: Path) -> None:
    with pytest.raises(
        ValueError,
        match=r"\(the filter MA, window size 10000, lamb 5: 0.4 GB\), and memory_limit is 0.1 GB: --memory-limit 1",
    ):
        check_memory(
            tiny(filter="ma", window_size=10_000, memory_limit=0.1), task_of(tiny()).size()._replace(weights=10_000)
        )
    check_memory(tiny(filter="ma", window_size=10_000, memory_limit=1.0), task_of(tiny()).size())


def test_the_limit_can_be_raised_when_a_run_is_resumed(runs_dir: Path) -> None:
    run = train(tiny(memory_limit=1.0), runs_dir, Watcher(should_stop=lambda: True))
    with pytest.raises(ValueError, match="memory_limit is 1e-09 GB"):
        resume(Run(run.path), memory_limit=1e-9)
    assert resume(Run(run.path), memory_limit=2.0).done


def test_the_limit_makes_no_other_run() -> None:
    assert run_id(tiny(memory_limit=3.0)) == run_id(tiny())


def test_free_memory_is_known_here() -> None:
    assert available_bytes("cpu") > 1e6


@pytest.mark.parametrize("name", ["threads", "eval_log", "snapshots"])
def test_more_than_a_machine_can_use_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=rf"{name} must be in \[1, 1024\], got 5000"):
        tiny(**{name: 5000})


def test_a_budget_of_a_trillion_steps_is_no_list() -> None:
    from grokfast.lab.training.loop import evaluation_steps

    steps = evaluation_steps(tiny(steps=10**12, eval_every=3), 3, 7)
    assert [next(steps) for _ in range(3)] == [9, 12, 15]
