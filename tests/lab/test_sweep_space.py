"""What a sweep varies and how that is written: flags, sweep.json, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tiny import TINY

from grokfast.lab.config import FilterConfig, LoopConfig, OptimConfig, RunConfig
from grokfast.lab.paper.experiments import ALPHAS, GAINS_OF_EMA
from grokfast.lab.runs.directory import RunError
from grokfast.lab.sweep.space import Choices, Point, Range, preset, read_choices, read_range
from grokfast.lab.sweep.spec import Spec, load_spec, name_of, save_spec, settle
from grokfast.lab.tasks.modular.task import ModularConfig
from grokfast.lab.tasks.qm9.task import Qm9Config

EMA = RunConfig(TINY, FilterConfig(filter="ema"), OptimConfig(), LoopConfig(steps=20, threads=1))
GRID = Spec(EMA, (Choices("alpha", (0.9, 0.98)), Choices("lamb", (1.0, 2.0))), (3, 4))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("alpha=0.9,0.95,.98", (0.9, 0.95, 0.98)),
        ("lamb=1,2,1", (1.0, 2.0)),
        ("window-size=2,50", (2, 50)),
        ("filter=none,ema", (None, "ema")),
        ("slow_only=true,false", (True, False)),
        ("two_stage=auto,500", ("auto", 500)),
        ("betas=0.9:0.98,0.9:0.99", ((0.9, 0.98), (0.9, 0.99))),
        ("p=7,11", (7, 11)),
    ],
)
def test_a_list_has_the_type_of_its_field(text: str, values: tuple[object, ...]) -> None:
    read = read_choices(text, ModularConfig)
    assert read.values == values
    assert [type(value) for value in read.values] == [type(value) for value in values]


def test_a_range_has_the_type_of_its_field_and_its_scale() -> None:
    assert read_range("lamb=1:10:log", ModularConfig) == Range("lamb", 1.0, 10.0, log=True)
    found = read_range("window_size=2:200", ModularConfig)
    assert found == Range("window_size", 2, 200)
    assert isinstance(found.low, int)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha", "NAME=VALUE"),
        ("alpha=", "NAME=VALUE"),
        ("alfa=1", "got alfa"),
        ("seed=1,2", "--seeds"),
        ("threads=1,2", "threads cannot be varied"),
        ("alpha=0.9,x", "alpha must be X, got x"),
        ("filter=ema,fft", "filter must be one of .* got fft"),
        ("betas=0.9,0.8", "betas must be 2 values .* got 0.9"),
        ("two_stage=soon", "two_stage must be .* got soon"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_choices(text, ModularConfig)


@pytest.mark.parametrize("text", ["lamb=1", "lamb=1:2:3", "lamb=2:1", "lamb=0:1:log", "lamb=1:inf", "filter=a:b"])
def test_a_range_that_cannot_be_searched_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="range"):
        read_range(text, ModularConfig)


def test_presets_are_the_papers_grids() -> None:
    assert preset("paper-ema", None) == ("ema", (Choices("alpha", ALPHAS), Choices("lamb", GAINS_OF_EMA)))
    assert preset("paper-decay", "ma")[0] == "ma"
    with pytest.raises(ValueError, match="about the filter ema, got ma"):
        preset("paper-ema", "ma")


def test_a_grid_is_every_combination_with_every_seed_once() -> None:
    points = GRID.points()
    assert len(set(points)) == len(points) == GRID.total == 8
    assert {point.seed for point in points[:4]} == {3}
    config = GRID.config(Point((("alpha", 0.9), ("lamb", 2.0)), 4))
    assert (config.filter.alpha, config.filter.lamb, config.loop.seed, config.loop.steps) == (0.9, 2.0, 4, 20)


def test_the_values_that_follow_from_a_varied_one_are_the_papers() -> None:
    spec = Spec(RunConfig(TINY), (Choices("filter", (None, "ma", "ema")),))
    assert [spec.config(point).filter.lamb for point in spec.points()] == [2.0, 5.0, 2.0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dimensions": ()}, "needs --grid"),
        ({"dimensions": (Choices("lamb", (1.0,)), Choices("lamb", (2.0,)))}, "varied once"),
        ({"dimensions": (Choices("alpha", (0.9, 1.5)),)}, "alpha must be in .* got 1.5"),
        ({"dimensions": (Choices("window_size", (2, 3)),)}, "window_size changes nothing with the filter ema"),
        ({"dimensions": (Range("lamb", 1.0, 2.0),)}, "range needs --search tpe, got lamb"),
        ({"dimensions": (Range("alpha", 0.5, 1.5),), "search": "tpe", "trials": 3}, "alpha must be in .* got 1.5"),
        ({"search": "tpe"}, "trials >= 1, got None"),
        ({"trials": 3}, "trials needs --search tpe, got 3"),
        ({"base": RunConfig(Qm9Config()), "objective": "accuracy"}, "objective accuracy .* got qm9"),
    ],
)
def test_a_sweep_that_cannot_be_run_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settle(dataclasses.replace(GRID, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spec",
    [
        GRID,
        Spec(EMA, (Range("lamb", 0.1, 10.0, log=True), Choices("betas", ((0.9, 0.98),))), (0,), "loss", "tpe", 5, True),
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
    with pytest.raises(RunError, match=r"alpha is .*0.98.*, got .*0.5.*; seeds is \[3, 4\], got \[0\]"):
        save_spec(settle(other), tmp_path)
    assert (tmp_path / "sweep.json").read_bytes() == before


def test_threads_that_were_not_demanded_are_those_the_sweep_was_begun_with(tmp_path: Path) -> None:
    save_spec(settle(GRID), tmp_path)
    loop = dataclasses.replace(EMA.loop, threads=2)
    other = settle(dataclasses.replace(GRID, base=dataclasses.replace(EMA, loop=loop)))
    assert save_spec(other, tmp_path, threads_given=False).base.loop.threads == 1
    assert name_of(other) == name_of(settle(GRID))
    with pytest.raises(RunError, match="threads is 1, got 2"):
        save_spec(other, tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"base": 1}'])
def test_a_damaged_specification_is_refused_by_name(tmp_path: Path, content: str) -> None:
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(RunError, match=r"sweep\.json: not "):
        load_spec(tmp_path)


def test_a_directory_without_a_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no sweep in"):
        load_spec(tmp_path)
