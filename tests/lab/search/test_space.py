"""What is varied, as it is written, and as a search proposes it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tiny import SIZES

from grokfast.lab.search.search import Sweep, check_sweep, propose
from grokfast.lab.search.space import (
    FILTER_RANGES,
    OPTIMIZER_PARTS,
    RIVAL_PARTS,
    Choices,
    Dimension,
    Range,
    distributions_of,
    edge_of,
    params_of,
    read_arm,
    read_dimensions,
    read_varied,
    value_from,
)

SHARED: dict[str, Any] = {"task": "modmul", **SIZES, "steps": 40, "threads": 1}


def read_grid(text: str) -> Choices:
    (found,) = read_dimensions("modmul", [], [text], [])
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
    texts = ["lamb=1:10:log", "window_size=2:200", "alpha=0.5:0.998:memory", "clip_norm=0.25:4:log:off"]
    first, second, third, fourth = read_dimensions("modmul", [], [], texts)
    assert first == Range("lamb", 1.0, 10.0, "log")
    assert second == Range("window_size", 2, 200)
    assert isinstance(second, Range)
    assert isinstance(second.low, int)
    assert third == Range("alpha", 0.5, 0.998, "memory")
    assert fourth == Range("clip_norm", 0.25, 4.0, "log", off=True)


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
    for kinds, grids in (([f"{path}:Toy"], []), ([], [f"filter=none,{path}:Toy"])):
        *_, alphas = read_dimensions("modmul", kinds, [*grids, "alpha=1,2"], [])
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
        ("two_stage=soon", "two_stage must be a whole number or auto, got 'soon'"),
    ],
)
def test_a_list_that_cannot_be_read_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_grid(text)


@pytest.mark.parametrize(
    "text",
    ["lamb=1", "lamb=1:2:3", "lamb=2:1", "lamb=0:1:log", "lamb=1:inf", "filter=a:b", "alpha=0.5:1:memory", "lamb=1:"],
)
def test_a_range_that_cannot_be_searched_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"range|must be a number"):
        read_dimensions("modmul", [], [], [text])


# For Optuna -----------------------------------------------------------------------------------------------------------

DIMENSIONS: list[Dimension] = [
    Range("lr", 1e-4, 1e-2, "log"),
    Range("momentum", 0.0, 0.9),
    Range("window_size", 2, 500, "log"),
    Range("alpha", 0.5, 0.998, "memory"),
    Range("clip_norm", 0.25, 4.0, "log", off=True),
    Choices("betas", ((0.9, 0.98), (0.8, 0.9))),
]


def test_proposals_stay_in_their_ranges_and_cover_them() -> None:
    drawn = [propose(DIMENSIONS, seed, [], []) for seed in range(200)]
    for setting in drawn:
        assert 1e-4 <= setting["lr"] <= 1e-2
        assert isinstance(setting["window_size"], int)
        assert 0.5 <= setting["alpha"] <= 0.998
        assert setting["clip_norm"] == 0.0 or 0.25 <= setting["clip_norm"] <= 4.0
        assert setting["betas"] in ([0.9, 0.98], [0.8, 0.9])
    off = sum(setting["clip_norm"] == 0.0 for setting in drawn)
    assert 60 < off < 140
    # Memories from 2 to 500, evenly by their logarithm: half of them below sqrt(1000).
    below = sum(1 / (1 - setting["alpha"]) < math.sqrt(1000) for setting in drawn)
    assert 70 < below < 130


def test_a_proposal_is_short_and_can_be_turned_back() -> None:
    for seed in range(30):
        setting = propose(DIMENSIONS, seed, [], [])
        assert len(f"{setting['lr']!r}") <= 9
        for dimension in DIMENSIONS:
            params = params_of(dimension, setting[dimension.name])
            assert set(params) <= set(distributions_of(dimension))
            whole = {**dict.fromkeys(distributions_of(dimension), 0), **params}
            again = value_from(dimension, whole)
            assert again == pytest.approx(setting[dimension.name], rel=1e-3) or list(again) == setting[dimension.name]


def test_a_value_at_the_end_of_its_range_is_known_as_such() -> None:
    memory = DIMENSIONS[3]
    assert [edge_of(memory, alpha) for alpha in (0.51, 0.9, 0.9978)] == ["lower", None, "upper"]
    assert edge_of(DIMENSIONS[4], 0.0) is None
    assert edge_of(DIMENSIONS[4], 3.9) == "upper"
    assert edge_of(DIMENSIONS[5], (0.9, 0.98)) is None


def test_from_python_only_a_scale_makes_a_range() -> None:
    assert read_varied("lr", (0.1, 1.0, "log")) == Range("lr", 0.1, 1.0, "log")
    assert read_varied("kind", ["a", "b"]) == Choices("kind", ("a", "b"))
    assert read_varied("betas", (0.9, 0.98)) == (0.9, 0.98)
    assert read_varied("betas", (0.9, 0.98, 0.999)) == (0.9, 0.98, 0.999)
    for value, message in (
        ((0, 1, "log"), "0 < LOW"),
        (("a", "b", "even"), "numbers"),
        ([], "choices"),
        ([[1]], "choi"),
    ):
        with pytest.raises(ValueError, match=message):
            read_varied("lr", value)


# Arms -----------------------------------------------------------------------------------------------------------------


def names(arm: str, shared: dict[str, Any] = SHARED, **more: Any) -> list[str]:
    return [each.name for each in read_arm(arm, shared, **more)[1]]


def test_an_arm_is_tuned_over_the_ranges_of_its_own_parts() -> None:
    assert names("adamw") == ["lr", "weight_decay", "betas", "clip_norm"]
    assert names("adamw+ema") == [*names("adamw"), "alpha", "lamb"]
    assert names("adamw+average") == [*names("adamw"), "average"]
    assert names("lion+rowclip") == [*names("lion"), "row_norm"]
    assert "companion_lr" in names("muon+ma")


def test_an_addition_changes_nothing_else() -> None:
    for word in (*RIVAL_PARTS, *FILTER_RANGES):
        (given, plain), (more, added) = read_arm("adamw", SHARED), read_arm(f"adamw+{word}", SHARED)
        assert added[: len(plain)] == plain
        assert {name for name in more if more[name] != given.get(name)} <= {"filter", "perp_grad", "equal_grad", "loss"}


def test_every_arm_has_the_same_width_of_rate_and_decay() -> None:
    for _, ranges in OPTIMIZER_PARTS.values():
        widths = {
            each.name: math.log10(each.high / each.low) for each in ranges if isinstance(each, Range) and each.low
        }
        assert widths["lr"] == pytest.approx(2.0)
        assert widths["weight_decay"] == pytest.approx(4.0)
        assert "clip_norm" in widths


@pytest.mark.parametrize("first", sorted(OPTIMIZER_PARTS))
def test_every_arm_that_is_offered_can_be_tuned(first: str) -> None:
    for word in ("", *(f"+{word}" for word in (*RIVAL_PARTS, *FILTER_RANGES))):
        given, ranges = read_arm(f"{first}{word}", SHARED)
        check_sweep(Sweep(given, ranges, search="tpe", trials=2))  # checks the corners of its ranges


def test_what_the_command_fixes_is_not_tuned() -> None:
    assert "lr" not in names("adamw", {**SHARED, "lr": 1e-3})
    assert names("adam+ema", tuned=False) == []


def test_a_typed_range_replaces_that_of_the_arms_that_have_the_setting() -> None:
    typed = [Range("lamb", 0.5, 1.0), Range("lr", 1e-4, 1e-3, "log")]
    assert read_arm("adamw+ema", SHARED, typed)[1][-1] == typed[0]
    assert read_arm("adamw", SHARED, typed)[1][0] == typed[1]
    assert "lamb" not in names("adamw", typed=typed)


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("row_norm", "adamw+rowclip", "adamw"),
        ("late_decay", "adamw+latedecay", "adamw+ema"),
        ("companion_lr", "muon", "adamw"),
        ("companion_decay", "muon", "lion"),
        ("momentum", "sgd", "adamw"),
        ("two_stage", "adamw+ema", "adamw"),
    ],
)
def test_a_typed_range_changes_no_arm_that_lacks_the_setting(name: str, has: str, has_not: str) -> None:
    typed = [Range(name, 1, 2) if name == "two_stage" else Range(name, 0.1, 0.2)]
    assert name in names(has, typed=typed)
    assert names(has_not, typed=typed) == names(has_not)
    assert "warmup_steps" in names(has_not, typed=[Range("warmup_steps", 1, 2)])


def test_a_setting_is_either_fixed_or_tuned() -> None:
    with pytest.raises(ValueError, match="lr must be either fixed for all arms or tuned, got both"):
        read_arm("adamw", {**SHARED, "lr": 1e-3}, [Range("lr", 1e-4, 1e-3)])


def test_an_optimizer_by_its_path_is_tuned_like_by_its_short_name() -> None:
    for short, (values, _) in OPTIMIZER_PARTS.items():
        assert read_arm(values["optimizer"], SHARED) == read_arm(short, SHARED)


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ("adamm", r"an arm must begin with one of adam, .* or PACKAGE:CLASS, got adamm"),
        ("adamw+emma", r"what is added to an arm must be one of average, .* or FILE.py:CLASS, got emma"),
        ("adamw+ema+ma", r"filter must be set once, got adamw\+ema\+ma and ema"),
        ("adamw+rowclip+rowclip", r"an arm must have each addition once, got rowclip twice"),
    ],
)
def test_a_word_that_is_not_an_arm_is_refused(arm: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_arm(arm, SHARED)


def test_without_tuning_an_arm_has_published_settings_or_is_refused() -> None:
    assert read_arm("adam+ema", SHARED, tuned=False)[0]["filter"] == "ema"
    with pytest.raises(ValueError, match="must begin with adam, as published, got adamw"):
        read_arm("adamw+ema", SHARED, tuned=False)
    with pytest.raises(ValueError, match=r"regime paper has no published row_norm, got adam\+rowclip"):
        read_arm("adam+rowclip", SHARED, tuned=False)
