"""From requests to configurations and back: defaults, what is refused, and the command that repeats a run."""

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

import grokfast
from grokfast.lab.commands.cli import build_parser
from grokfast.lab.commands.flags import request_from
from grokfast.lab.config import RunConfig, from_json, to_json
from grokfast.lab.filters import FILTERS
from grokfast.lab.request import INCIDENTAL, Option, Request, ask, command_line, options, request_of, resolve
from grokfast.lab.tasks import TASKS
from grokfast.lab.tasks.modular.task import ModularConfig
from grokfast.lab.values import Pairs, alternatives


@pytest.mark.parametrize(("name", "lamb", "decay"), [(None, None, 0.0), ("ema", 2.0, 0.005), ("ma", 5.0, 0.01)])
def test_defaults_are_the_papers(name: str | None, lamb: float | None, decay: float) -> None:
    config = resolve(ask("modmul", filter=name))
    assert (config.filter.lamb if config.filter else None) == lamb
    assert (config.optim.optimizer, config.optim.lr, config.optim.weight_decay) == ("adam", 1e-3, decay)
    assert (config.optim.betas, config.optim.warmup_steps, config.loop.steps) == ((0.9, 0.98), 10, 50_000)


def test_the_task_decides_the_defaults_of_its_filters() -> None:
    assert resolve(ask("mnist", filter="ema")).filter == grokfast.EMA(alpha=0.8, lamb=0.1)


def test_a_given_value_is_kept_even_if_it_is_zero() -> None:
    config = resolve(ask("modmul", filter="ema", lamb=0.0, weight_decay=0.0))
    assert config.filter == grokfast.EMA(alpha=0.98, lamb=0.0)
    assert config.optim.weight_decay == 0.0


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
    assert resolve(ask("modmul", **values)).filter == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
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
def test_values_that_cannot_be_used_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resolve(ask("modmul", **values))


def test_an_unknown_task_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a task must be one of modmul, .* or FILE.py:CLASS, got chess"):
        resolve(Request("chess"))


@dataclass(frozen=True)
class Clashing(ModularConfig):
    """A task with a setting that every run has."""

    lr: float = 1.0


def test_a_task_must_not_hide_a_setting_of_every_run() -> None:
    with pytest.raises(ValueError, match="called like a setting of every run, got lr"):
        options(Clashing)


def test_a_filters_field_gets_a_flag_of_its_own_where_the_task_has_the_name() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wide(grokfast.EMA):
        width: int = 3

    FILTERS["wide"] = Wide
    assert {"width", "filter_width"} <= set(options(ModularConfig, ["wide"]))
    config = resolve(ask("modmul", filter="wide", filter_width=5, width=64))
    assert (config.filter, config.task) == (Wide(width=5), ModularConfig(width=64))


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
def configurations(draw: st.DrawFn) -> RunConfig:
    """Any task with any filter and a few other settings."""
    task, name = draw(st.sampled_from(sorted(TASKS))), draw(st.sampled_from([None, *FILTERS]))
    known = options(TASKS[task], [name] if name else [])
    needed = {"fir": ["taps"], "iir": ["b", "a"], "butterworth": ["order", "cutoff"]}.get(name or "", [])
    left_out = ("filter", "device", *INCIDENTAL, *needed)
    chosen = draw(st.lists(st.sampled_from([n for n in known if n not in left_out]), max_size=4, unique=True))

    def value(name: str, option: Option) -> Any:
        return draw(st.sampled_from(values_of(name, option.type)))

    try:
        return resolve(ask(task, filter=name, **{n: value(n, known[n]) for n in (*needed, *chosen)}))
    except ValueError:
        reject()


@given(configurations())
def test_the_command_of_a_run_repeats_it(config: RunConfig) -> None:
    words = shlex.split(command_line(config))[1:]
    args = build_parser(words).parse_args(words)
    assert resolve(request_from(args, args.task)) == config


@given(configurations())
def test_json_gives_the_same_configuration(config: RunConfig) -> None:
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


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
    assert command_line(resolve(ask("modmul", **values))) == shortest


def test_a_request_that_was_resolved_is_found_again() -> None:
    request = ask("modmul", filter="ma", window_size=20, two_stage=500, slow_only=True)
    assert dict(request_of(resolve(request)).values) == dict(request.values)
