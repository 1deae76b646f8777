"""Which runs a sweep consists of, how that is written to sweep.json, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from sweeps import BASE

from grokfast.lab.request import Request, ask
from grokfast.lab.runs.directory import RunError
from grokfast.lab.sweep.space import Choices, Point, Range
from grokfast.lab.sweep.spec import OwnCode, Spec, directory_name, load_spec, save_spec, settle, with_threads
from grokfast.lab.tasks import TASKS

GRID = Spec(BASE, (Choices("alpha", (0.9, 0.98)), Choices("lamb", (1.0, 2.0))), (3, 4))


def test_a_grid_is_every_combination_with_every_seed_once() -> None:
    points = GRID.points()
    assert len(set(points)) == len(points) == GRID.total == 8
    assert {point.seed for point in points[:4]} == {3}
    config = GRID.config(Point((("alpha", 0.9), ("lamb", 2.0)), 4))
    assert (config.filter, config.loop.seed, config.loop.steps) == (type(config.filter)(alpha=0.9, lamb=2.0), 4, 8)  # type: ignore[call-arg]


def test_the_values_that_follow_from_a_varied_one_are_the_papers() -> None:
    spec = settle(Spec(ask("modmul"), (Choices("filter", (None, "ma", "ema")),)))
    assert [getattr(spec.config(point).filter, "lamb", None) for point in spec.points()] == [None, 5.0, 2.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimensions": ()}, "needs --grid"),
        ({"dimensions": (Choices("lamb", (1.0,)), Choices("lamb", (2.0,)))}, "lamb must be varied once"),
        ({"base": BASE.having(lamb=1.0)}, "lamb must be either fixed or varied, got --lamb"),
        ({"dimensions": (Choices("alpha", (0.9, 1.5)),)}, "alpha must be in .* got 1.5"),
        ({"dimensions": (Choices("window_size", (2, 3)),)}, "window_size needs a filter that has it, got ema"),
        ({"dimensions": (Choices("momentum", (0.0, 0.9)),)}, "momentum has no effect on adam"),
        ({"dimensions": (Range("lamb", 1.0, 2.0),)}, "range needs --search tpe, got lamb"),
        ({"dimensions": (Range("alpha", 0.5, 1.5),), "search": "tpe", "trials": 3}, "alpha must be in .* got 1.5"),
        ({"seeds": ()}, "seeds must be >= 1"),
        ({"search": "tpe"}, "trials >= 1, got None"),
        ({"trials": 3}, "trials needs --search tpe, got 3"),
        ({"base": ask("qm9", filter="ema"), "objective": "accuracy"}, "objective accuracy .* got qm9"),
    ],
)
def test_a_sweep_that_cannot_be_run_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settle(dataclasses.replace(GRID, **changes))  # type: ignore[arg-type]


def test_what_every_process_must_share_is_part_of_the_specification(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = dict(settle(Spec(ask("modmul", data_dir="data"), (Choices("lr", (0.1,)),))).base.values)
    assert values["device"] != "auto"
    assert values["threads"] >= 1
    assert values["data_dir"] == str(tmp_path / "data")


def test_the_order_of_flags_changes_nothing() -> None:
    other = dataclasses.replace(GRID, base=Request(BASE.task, BASE.values[::-1]))
    assert settle(other) == settle(GRID)


# In a directory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spec",
    [
        GRID,
        Spec(BASE, (Range("lr", 0.1, 10.0, log=True), Choices("betas", ((0.9, 0.98),))), (0,), "loss", "tpe", 5, True),
    ],
)
def test_a_specification_survives_its_file(tmp_path: Path, spec: Spec) -> None:
    settled = settle(spec)
    assert save_spec(settled, tmp_path / "s") == load_spec(tmp_path / "s") == settled
    assert save_spec(settled, tmp_path / "s") == settled


def test_another_specification_is_refused_and_named(tmp_path: Path) -> None:
    save_spec(settle(GRID), tmp_path)
    before = (tmp_path / "sweep.json").read_bytes()
    other = dataclasses.replace(GRID, seeds=(0,), dimensions=(Choices("alpha", (0.5,)), GRID.dimensions[1]))
    with pytest.raises(RunError, match=r"seeds is \[3, 4\], got \[0\]; alpha is .*0.98.*, got .*0.5.*"):
        save_spec(settle(other), tmp_path)
    assert (tmp_path / "sweep.json").read_bytes() == before


def test_threads_that_were_not_demanded_are_those_the_sweep_was_begun_with(tmp_path: Path) -> None:
    save_spec(settle(GRID), tmp_path)
    other = settle(with_threads(GRID, 2))
    assert save_spec(other, tmp_path, threads_given=False).base.get("threads") == 1
    assert directory_name(other) == directory_name(settle(GRID))
    with pytest.raises(RunError, match="threads is 1, got 2"):
        save_spec(other, tmp_path)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "{}", '{"version": 2}', '{"version": 3}', '{"version": 2, "base": {"task": 1, "values": {}}}'],
)
def test_a_damaged_specification_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(RunError, match=r"sweep\.json: not "):
        load_spec(tmp_path)


def test_a_sweep_of_the_first_version_is_refused_and_its_runs_are_not(tmp_path: Path) -> None:
    (tmp_path / "sweep.json").write_text('{"base": {"task_name": "modmul"}, "dimensions": [], "seeds": [0]}')
    with pytest.raises(RunError, match=r"sweep\.json: .*0\.1: its runs can still be reported, .* started again$"):
        load_spec(tmp_path)


def test_a_directory_without_a_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no sweep in"):
        load_spec(tmp_path)


OWN_TASK = """
import pathlib
from grokfast.lab.tasks.modular.task import ModularConfig
pathlib.Path(__file__).with_name("loaded").touch()
class MyTask(ModularConfig): pass
"""


def test_a_specification_loads_no_code_that_nobody_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN_TASK)
    save_spec(Spec(ask("mine.py:MyTask"), (Choices("filter", (None, "toy.py:Toy")),)), tmp_path)
    with pytest.raises(RunError, match=r"give --task mine\.py:MyTask --filter toy\.py:Toy$"):
        load_spec(tmp_path)
    assert not Path("loaded").exists()
    save_spec(Spec(ask("mine.py:MyTask"), (Choices("lr", (0.1,)),)), tmp_path / "other")
    OwnCode(("mine.py:MyTask",)).load()
    try:
        assert settle(load_spec(tmp_path / "other")).own_code == OwnCode(("mine.py:MyTask",))
    finally:
        del TASKS["mine.py:MyTask"]


def test_the_directory_of_a_task_of_the_users_own_has_a_plain_name() -> None:
    name = directory_name(Spec(ask("some/where/mine.py:MyTask"), (Choices("lr", (0.1,)),)))
    assert name.startswith("mine_py_MyTask-lr-")
