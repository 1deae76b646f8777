"""What a sweep varies, as it is written on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from grokfast.lab.paper.experiments import ALPHAS, GAINS_OF_EMA
from grokfast.lab.request import ask
from grokfast.lab.sweep.space import Choices, Range, apply_preset, read_dimensions


def read_grid(text: str) -> Choices:
    (found,) = read_dimensions(ask("modmul"), [text], [])
    assert isinstance(found, Choices)
    return found


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
def test_a_list_has_the_type_of_its_setting(text: str, values: tuple[object, ...]) -> None:
    read = read_grid(text)
    assert read.values == values
    assert [type(value) for value in read.values] == [type(value) for value in values]


def test_a_range_has_the_type_of_its_setting_and_its_scale() -> None:
    first, second = read_dimensions(ask("modmul"), [], ["lamb=1:10:log", "window_size=2:200"])
    assert first == Range("lamb", 1.0, 10.0, log=True)
    assert second == Range("window_size", 2, 200)
    assert isinstance(second.low, int)  # type: ignore


OWN_FILTER = """
import dataclasses, grokfast
@dataclasses.dataclass(frozen=True)
class Toy(grokfast.Filter):
    alpha: int = 3
    def init(self, params): return {}
    def step(self, grads, state): pass
"""


def test_a_filter_of_the_users_own_decides_the_types_of_its_fields(tmp_path: Path) -> None:
    path = tmp_path / "toy_filter.py"
    path.write_text(OWN_FILTER)
    for base, grids in ((ask("modmul", filter=f"{path}:Toy"), []), (ask("modmul"), [f"filter=none,{path}:Toy"])):
        *_, alphas = read_dimensions(base, [*grids, "alpha=1,2"], [])
        assert isinstance(alphas, Choices)
        assert [type(value) for value in alphas.values] == [int, int]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("alpha", "NAME=VALUE"),
        ("alpha=", "NAME=VALUE"),
        ("alfa=1", "got alfa"),
        ("seed=1,2", "--seeds"),
        ("threads=1,2", "threads cannot be varied"),
        ("alpha=0.9,x", "alpha must be a number, got 'x'"),
        ("filter=ema,fft", "filter must be one of .* got fft"),
        ("two_stage=soon", "two_stage must be a whole number or auto, got 'soon'"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_grid(text)


@pytest.mark.parametrize("text", ["lamb=1", "lamb=1:2:3", "lamb=2:1", "lamb=0:1:log", "lamb=1:inf", "filter=a:b"])
def test_a_range_that_cannot_be_searched_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="range"):
        read_dimensions(ask("modmul"), [], [text])


def test_presets_are_the_papers_grids() -> None:
    base, choices = apply_preset(ask("modmul"), "paper-ema")
    assert base.get("filter") == "ema"
    assert choices == (Choices("alpha", ALPHAS), Choices("lamb", GAINS_OF_EMA))
    assert apply_preset(ask("modmul", filter="ma"), "paper-decay")[0].get("filter") == "ma"
    with pytest.raises(ValueError, match="about the filter ema, got ma"):
        apply_preset(ask("modmul", filter="ma"), "paper-ema")
