"""Settings: defaults, what is refused, keys and names, and the command that repeats a run."""

from __future__ import annotations

import collections.abc
import json
import shlex
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, reject
from tiny import SIZES, tiny

import grokfast
from grokfast.lab import tasks
from grokfast.lab.commands.cli import build_parser
from grokfast.lab.commands.flags import settings_from
from grokfast.lab.filters import FILTERS
from grokfast.lab.settings import (
    INCIDENTAL,
    Setting,
    Settings,
    command_line,
    experiment_of,
    filter_of,
    filter_values,
    name_of,
    optim_of,
    resolve,
    run_id,
    settings_of,
    task_of,
    unusual,
)
from grokfast.lab.tasks import TASKS
from grokfast.lab.tasks.base import TaskConfig, TaskDefaults, setting
from grokfast.lab.tasks.modular.task import ModularConfig
from grokfast.lab.training.run import train
from grokfast.lab.values import Pairs, alternatives, read_value

# Defaults -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "lamb", "decay"), [(None, None, 0.0), ("ema", 2.0, 0.005), ("ma", 5.0, 0.01)])
def test_defaults_are_the_papers(name: str | None, lamb: float | None, decay: float) -> None:
    settings = resolve("modmul", filter=name)
    assert settings.get("lamb") == lamb
    assert (settings["optimizer"], settings["lr"], settings["weight_decay"]) == ("adam", 1e-3, decay)
    assert (settings["betas"], settings["warmup_steps"], settings["steps"]) == ([0.9, 0.98], 10, 50_000)
    assert (settings["measure"], settings["level"]) == ("accuracy", 0.95)


def test_settings_are_flat_plain_and_complete() -> None:
    settings = resolve("modmul", filter="ma", window_dtype=torch.bfloat16, optimizer_option=(("eps", 1e-6),))
    assert json.loads(json.dumps(settings)) == settings
    assert set(settings) == {"task", "measure", "level", *settings_of("modmul", ["ma"])}
    assert (settings["window_dtype"], settings["optimizer_option"]) == ("bfloat16", [["eps", 1e-6]])
    assert filter_of(settings) == grokfast.MA(window_dtype=torch.bfloat16)
    assert optim_of(settings).optimizer_option == (("eps", 1e-6),)


def test_the_task_decides_the_defaults_of_its_filters() -> None:
    assert filter_of(resolve("mnist", filter="ema")) == grokfast.EMA(alpha=0.8, lamb=0.1)


def test_a_given_value_is_kept_even_if_it_is_zero() -> None:
    settings = resolve("modmul", filter="ema", lamb=0.0, weight_decay=0.0)
    assert (settings["lamb"], settings["weight_decay"]) == (0.0, 0.0)


def test_a_whole_number_is_a_float_for_a_float_setting() -> None:
    assert run_id(tiny(lr=1)) == run_id(tiny(lr=1.0))
    assert isinstance(tiny(lr=1)["lr"], float)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"filter": "ema", "alpha": 0.9}, grokfast.EMA(alpha=0.9, lamb=2.0)),
        ({"filter": "ma", "warmup": False}, grokfast.MA(warmup=False)),
        ({"filter": "ma", "window_dtype": "bfloat16"}, grokfast.MA(window_dtype=torch.bfloat16)),
        ({"filter": "fir", "taps": (1.0,)}, grokfast.FIR((1.0,))),
        ({"filter": "iir", "b": (0.1,), "a": (1.0, -0.9)}, grokfast.IIR((0.1,), (1.0, -0.9))),
        ({"filter": "butterworth", "order": 2, "cutoff": 0.1}, grokfast.Butterworth(2, 0.1)),
        ({}, None),
    ],
)
def test_every_filter_offered_is_made(values: dict[str, Any], expected: grokfast.Filter | None) -> None:
    settings = resolve("modmul", **values)
    assert filter_of(settings) == expected
    known = settings_of("modmul", [settings["filter"]] if expected else [])
    assert list(filter_values(settings)) == [name for name, found in known.items() if found.group == "filter"]


# What is refused ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, r"steps must be in \[1, 2\^63\), got 0"),
        ({"seed": -1}, r"seed must be in \[0, 2\^63\), got -1"),
        ({"threads": 0}, r"threads must be in \[1, 1024\], got 0"),
        ({"clip_norm": -1.0}, r"clip_norm must be in \[0, inf\), got -1.0"),
        ({"average": 1.0}, r"average must be in \[0, 1\), got 1.0"),
        ({"until": 1.5}, r"until must be in \(0, 1\], got 1.5"),
        ({"lr": "fast"}, r"lr must be a number, got 'fast'"),
        ({"steps": 2.5}, r"steps must be a whole number, got 2.5"),
        ({"nesterov": 1}, r"nesterov must be true or false, got 1"),
        ({"extra_steps": 5}, r"extra_steps needs until, got 5 without it"),
        ({"hold": 5}, r"hold needs until, got 5 without it"),
        ({"eval_every": 5, "eval_log": 3}, r"one of eval_every and eval_log, got 5 and 3"),
        ({"device": "abacus"}, r"device must be one of auto, cpu.*, got abacus"),
        ({"fused": True, "optimizer": "sgd"}, r"fused must be False with sgd, got True"),
        ({"betas": (0.9,)}, r"betas must be two values or more, got \[0.9\]"),
        ({"betas": (0.9, 1.5)}, r"betas must be in \[0, 1\), got 0.9 1.5"),
        ({"two_stage": 5}, r"two_stage needs a filter, got none"),
        ({"two_stage": -5, "filter": "ema"}, r"two_stage must be a step >= 0 or auto, got -5"),
        ({"filter": "ema", "alpha": 2.0}, r"alpha must be in \[0, 1\), got 2.0"),
        ({"filter": "iir", "b": (1.0,), "a": (1.0, -2.0)}, r"stable"),
        ({"filter": "fir"}, r"the filter fir needs taps, got none"),
        ({"filter": "butterworth"}, r"needs order and cutoff, got none"),
        ({"filter": "ma", "window_dtype": "float3"}, r"window_dtype must be the name of a torch dtype, got float3"),
        ({"filter": "kalman"}, r"filter must be one of ema, .* or FILE.py:CLASS, got kalman"),
        ({"filter": "ema", "window_size": 5}, r"window_size needs a filter that has it, got ema"),
        ({"slow_only": True}, r"slow_only needs a filter that has it, got none"),
        ({"momentum": 0.9}, r"momentum has no effect on adam: it is for sgd"),
        ({"optimizer": "sgd", "betas": (0.9, 0.9)}, r"betas has no effect on sgd"),
        ({"colour": "red"}, r"colour must be a setting of modmul"),
    ],
)
def test_bad_values_are_refused_with_name_range_and_value(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


NEEDED: dict[str | None, dict[str, Any]] = {
    "butterworth": {"order": 1, "cutoff": 0.1},
    "fir": {"taps": (1.0,)},
    "iir": {"b": (1.0,), "a": (1.0,)},
}


@pytest.mark.parametrize("filter", [None, *FILTERS])
def test_every_number_refuses_wrong_types_and_values_out_of_range_by_name(filter: str | None) -> None:
    for name, found in settings_of("modmul", [filter] if filter else []).items():
        if (found.group == "filter") != (filter is not None):
            continue
        kinds = alternatives(found.type)
        wrong = ["1.5", "-1", "9" * 40] if int in kinds else []
        for word in ["abc", "", "nan", "inf", *wrong] if {int, float} & {*kinds} else []:
            given = {"filter": filter, **NEEDED.get(filter, {})} if filter else {}
            with pytest.raises(ValueError, match=f"{name}|{name.replace('_', ' ')}"):  # noqa: PT012
                given[name] = read_value(word, name, found.type, found.default)
                train(tiny(**given), "nowhere")


def test_a_level_of_a_loss_may_be_above_one() -> None:
    assert resolve("qm9", until=1.5)["until"] == 1.5


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a task must be one of modmul, .* or FILE.py:CLASS, got chess"):
        resolve("chess")


@dataclass(frozen=True)
class Clashing(ModularConfig):
    """A task with a setting that every run has."""

    lr: float = 1.0


def test_a_task_must_not_hide_a_setting_of_every_run() -> None:
    with pytest.raises(ValueError, match="called like a setting of every run, got lr"):
        settings_of(Clashing)


@dataclass(frozen=True)
class Ranged(TaskConfig):
    """A task whose fields have ranges."""

    points: int = setting(40, "points", within="[1, 100]")

    def defaults(self) -> TaskDefaults:
        return TaskDefaults(level=0.9, steps=0)

    def make(self, **place: Any) -> Any: ...


def test_ranges_hold_for_fields_of_a_task_and_for_its_defaults() -> None:
    TASKS["ranged"] = Ranged
    with pytest.raises(ValueError, match=r"points must be in \[1, 100\], got 0"):
        resolve("ranged", points=0, steps=1)
    with pytest.raises(ValueError, match=r"steps must be in \[1, 2\^63\), got 0"):
        resolve("ranged")


def test_a_filters_field_has_a_longer_name_if_the_task_has_one_of_that_name() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wide(grokfast.EMA):
        width: int = 3

    FILTERS["wide"] = Wide
    assert {"width", "filter_width"} <= set(settings_of("modmul", ["wide"]))
    settings = resolve("modmul", filter="wide", filter_width=5, width=64)
    assert (filter_of(settings), task_of(settings)) == (Wide(width=5), ModularConfig(width=64))
    assert filter_values(settings)["filter_width"] == 5


@pytest.mark.parametrize("part", ["task", "filter", "optimizer"])
def test_code_that_settings_name_is_not_imported(part: str) -> None:
    settings = {**tiny(filter="ema"), part: "antigravity:Toy"}
    with pytest.raises(ValueError, match=f"the {part} antigravity:Toy is not known here: name it with --{part}"):
        task_of(settings)


def test_settings_that_are_not_complete_are_refused() -> None:
    with pytest.raises(ValueError, match="settings must be complete, got none called p"):
        task_of({name: value for name, value in tiny().items() if name != "p"})


# Keys and names -------------------------------------------------------------------------------------------------------


def test_distinct_settings_have_distinct_ids() -> None:
    changes = ({}, {"seed": 1}, {"p": 11}, {"steps": 31}, {"until": 0.5}, {"filter": "ema"}, {"two_stage": 9})
    made = [tiny(**change, **({"filter": "ma"} if "two_stage" in change else {})) for change in changes]
    made += [tiny(filter="ema", lamb=lamb) for lamb in (0.1, 0.5)]
    assert len({run_id(settings) for settings in made}) == len(made)


def test_where_and_how_often_a_run_is_saved_does_not_make_another_run() -> None:
    assert run_id(tiny(checkpoint_seconds=1.0, data_dir="a")) == run_id(tiny(checkpoint_seconds=2.0))


@dataclass(frozen=True)
class Longer(ModularConfig):
    """A later version of the task, with one more setting."""

    colour: str = setting("red", "of the chalk")


def test_a_setting_added_later_leaves_names_and_experiments_of_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = tiny()
    name, key = name_of(before), experiment_of(before)
    monkeypatch.setitem(tasks.TASKS, "modmul", Longer)
    assert (name_of(tiny()), experiment_of(tiny())) == (name, key)
    assert (name_of(tiny(colour="blue")) == name, experiment_of(tiny(colour="blue")) == key) == (False, False)


def test_runs_of_one_experiment_share_its_key_whatever_their_seed_length_and_machine() -> None:
    same = tiny(seed=1, steps=99, threads=2, snapshots=3, fused=False, measures=True)
    assert experiment_of(same) == experiment_of(tiny())
    assert experiment_of(tiny(weight_decay=0.5)) != experiment_of(tiny())
    assert experiment_of(tiny(filter="ema")) != experiment_of(tiny())


def test_names_say_optimizer_filter_stage_rate_decay_and_seed() -> None:
    def title(**settings: Any) -> str:
        return name_of(resolve("modmul", **settings)).rpartition("-")[0]

    assert title(filter="ema", lamb=0.1, seed=3) == "modmul-adam-ema-a0.98-l0.1-lr0.001-wd0.005-s3"
    assert title(filter="ma", two_stage=500, slow_only=True) == (
        "modmul-adam-ma-w100-l5-slow_only-from500-lr0.001-wd0.01-s0"
    )
    assert title(filter="ma", two_stage=0) == "modmul-adam-ma-w100-l5-from0-lr0.001-wd0.01-s0"
    assert title(optimizer="sgd", operation="divide", **SIZES) == "modmul-divide-p7-width16-sgd-baseline-lr0.001-wd0-s0"


# And back -----------------------------------------------------------------------------------------------------------


def values_of(name: str, kind: Any) -> list[Any]:
    """A few values of a type that most settings accept."""
    (first, *rest) = [kind for kind in alternatives(kind) if kind is not type(None)]
    if name == "optimizer":
        return ["adamw", "sgd", "muon"]
    if first == Pairs:
        return [(("eps", 1e-06),), (("eps", 0.5), ("maximize", True))]
    if get_origin(first) is Literal:
        return [*get_args(first)]
    if get_origin(first) in (tuple, collections.abc.Sequence):
        return [(1.0, -0.5)] if name == "a" else [(0.25, 1e-5), (0.5, 0.25)]
    known = {bool: [True, False], int: [2, 3, 40], float: [0.25, 1e-05, 1.0], str: ["mu"], torch.dtype: ["float16"]}
    return [*known[first], *(value for kind in rest for value in get_args(kind))]


@st.composite
def any_settings(draw: st.DrawFn) -> Settings:
    """Any task with any filter and a few other settings."""
    task, name = draw(st.sampled_from(sorted(TASKS))), draw(st.sampled_from([None, *FILTERS]))
    known = settings_of(task, [name] if name else [])
    needed = {"fir": ["taps"], "iir": ["b", "a"], "butterworth": ["order", "cutoff"]}.get(name or "", [])
    left_out = ("filter", "device", *INCIDENTAL, *needed)
    chosen = draw(st.lists(st.sampled_from([n for n in known if n not in left_out]), max_size=4, unique=True))

    def value(name: str, found: Setting) -> Any:
        return draw(st.sampled_from(values_of(name, found.type)))

    try:
        return resolve(task, filter=name, **{n: value(n, known[n]) for n in (*needed, *chosen)})
    except ValueError:
        reject()


@given(any_settings())
def test_the_command_of_a_run_repeats_it(settings: Settings) -> None:
    words = shlex.split(command_line(settings))[1:]
    args = build_parser(words).parse_args(words)
    assert resolve(args.task, **settings_from(args)) == settings
    assert resolve(settings["task"], **unusual(settings)) == settings


@pytest.mark.parametrize(
    ("values", "shortest"),
    [
        ({}, "grokfast train modmul"),
        ({"filter": "ema", "alpha": 0.98, "weight_decay": 0.005}, "grokfast train modmul --filter ema"),
        ({"filter": "ema", "weight_decay": 0.0}, "grokfast train modmul --filter ema --weight-decay 0.0"),
        ({"optimizer": "sgd", "fast": False}, "grokfast train modmul --optimizer sgd --no-fast"),
        ({"checkpoint_seconds": 1.0, "data_dir": "x"}, "grokfast train modmul"),
    ],
)
def test_a_command_says_no_more_than_it_must(values: dict[str, Any], shortest: str) -> None:
    assert command_line(resolve("modmul", **values)) == shortest


def test_what_was_given_is_found_again() -> None:
    given = {"filter": "ma", "window_size": 20, "two_stage": 500, "slow_only": True}
    assert unusual(resolve("modmul", **given)) == given
