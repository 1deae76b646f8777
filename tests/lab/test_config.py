from __future__ import annotations

import json

import pytest
from tiny import tiny

import grokfast
from grokfast.lab.config import (
    FilterConfig,
    LoopConfig,
    OptimConfig,
    RunConfig,
    fingerprint,
    from_json,
    make_filter,
    resolve,
    title,
    to_json,
)
from grokfast.lab.tasks.modular.task import ModularConfig


@pytest.mark.parametrize(("name", "lamb", "decay"), [(None, 2.0, 0.0), ("ema", 2.0, 0.005), ("ma", 5.0, 0.01)])
def test_defaults_are_the_papers(name: str | None, lamb: float, decay: float) -> None:
    config = resolve(RunConfig(ModularConfig(), FilterConfig(filter=name)))  # type: ignore[arg-type]
    assert config.filter.lamb == lamb
    assert config.optim == OptimConfig("adam", 1e-3, decay, (0.9, 0.98), warmup_steps=10)


def test_a_given_value_is_kept() -> None:
    config = resolve(RunConfig(ModularConfig(), FilterConfig(filter="ema", lamb=0.0), OptimConfig(weight_decay=0.0)))
    assert (config.filter.lamb, config.optim.weight_decay) == (0.0, 0.0)


def test_config_survives_json() -> None:
    config = tiny(filter="fir", taps=(0.5, 0.5), two_stage="auto", until=0.9)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def test_distinct_configs_have_distinct_fingerprints() -> None:
    variants = [tiny(), tiny(seed=1), tiny(lamb=0.1), tiny(lamb=0.5), tiny(p=11), tiny(steps=31), tiny(until=0.5)]
    assert len({fingerprint(config) for config in variants}) == len(variants)


def test_checkpoint_interval_does_not_make_another_run() -> None:
    assert fingerprint(tiny(checkpoint_seconds=1.0)) == fingerprint(tiny(checkpoint_seconds=2.0))


def test_titles_tell_fractions_and_seeds_apart() -> None:
    assert title(tiny(filter="ema", lamb=0.1, seed=3)) == "modmul-ema-a0.98-l0.1-wd0.005-s3"
    assert title(tiny(filter="ma", two_stage=500, slow_only=True)) == "modmul-ma-w100-l5-slow-from500-wd0.01-s0"


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"filter": "ema", "alpha": 0.9}, grokfast.EMA(alpha=0.9, lamb=2.0)),
        ({"filter": "ma", "partial_window": True}, grokfast.MA(warmup=False)),
        ({"filter": "fir", "taps": (1.0,)}, grokfast.FIR((1.0,), 2.0)),
        ({"filter": "iir", "b": (0.1,), "a": (1.0, -0.9), "slow_only": True}, None),
        ({"filter": "butterworth", "order": 2}, grokfast.Butterworth(2, 0.0032, 2.0)),
        ({}, None),
    ],
)
def test_every_filter_offered_is_made(changes: dict[str, object], kind: grokfast.Filter | None) -> None:
    made = make_filter(tiny(**changes).filter)
    expected = grokfast.IIR((0.1,), (1.0, -0.9), 2.0, slow_only=True) if changes.get("filter") == "iir" else kind
    assert made == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, r"steps must be >= 1, got 0"),
        ({"seed": -1}, r"seed must be >= 0, got -1"),
        ({"until": 1.5}, r"until must be in \(0, 1\], got 1.5"),
        ({"eval_every": 5, "eval_log": 3}, r"one of eval_every and eval_log"),
        ({"clip_norm": -1.0}, r"clip_norm must be >= 0, got -1"),
        ({"slow_only": True}, r"need a filter, got none"),
        ({"two_stage": 5}, r"need a filter, got none"),
        ({"filter": "ema", "alpha": 2.0}, r"alpha must be in \[0, 1\), got 2.0"),
        ({"filter": "iir", "b": (1.0,), "a": (1.0, -2.0)}, r"stable"),
        ({"threads": 0}, r"threads must be >= 1, got 0"),
    ],
)
def test_bad_values_are_refused_with_name_range_and_value(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


def test_foreign_json_is_refused() -> None:
    with pytest.raises(ValueError, match="not a configuration of this version"):
        from_json({"task_name": "modmul"})
    data = to_json(tiny())
    data["loop"]["colour"] = "red"
    with pytest.raises(ValueError, match="colour"):
        from_json(data)


def test_loop_defaults_stand_in_the_config_alone() -> None:
    assert resolve(RunConfig(ModularConfig())).loop.steps == 50_000
    assert LoopConfig().steps is None
