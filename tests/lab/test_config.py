"""A configuration: what it refuses, how it survives JSON, and what names a run."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

import pytest
from tiny import SIZES, tiny

from grokfast.lab import tasks
from grokfast.lab.config import RunConfig, experiment_key, flatten, from_json, to_json
from grokfast.lab.request import ask, resolve
from grokfast.lab.runs.names import fingerprint, title
from grokfast.lab.tasks.base import setting
from grokfast.lab.tasks.modular.task import ModularConfig


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, r"steps must be in \[1, 2\^63\), got 0"),
        ({"seed": -1}, r"seed must be in \[0, 2\^63\), got -1"),
        ({"threads": 0}, r"threads must be in \[1, 2\^63\), got 0"),
        ({"clip_norm": -1.0}, r"clip_norm must be in \[0, inf\), got -1.0"),
        ({"until": 1.5}, r"until must be in \(0, 1\], got 1.5"),
        ({"extra_steps": 5}, r"extra_steps needs until, got 5 without it"),
        ({"eval_every": 5, "eval_log": 3}, r"one of eval_every and eval_log, got 5 and 3"),
        ({"device": "abacus"}, r"device must be one of auto, cpu.*, got abacus"),
        ({"fused": True, "optimizer": "sgd"}, r"fused must be False with sgd, got True"),
        ({"betas": (0.9,)}, r"betas must be two values or more, got \(0.9,\)"),
        ({"two_stage": 5}, r"two_stage needs a filter, got none"),
        ({"two_stage": -5, "filter": "ema"}, r"two_stage must be a step >= 0 or auto, got -5"),
    ],
)
def test_bad_values_are_refused_with_name_range_and_value(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**changes)


def test_a_level_of_a_loss_may_be_above_one() -> None:
    assert resolve(ask("qm9", until=1.5)).level == 1.5


# As plain data ------------------------------------------------------------------------------------------------------


def test_a_configuration_survives_json() -> None:
    config = tiny(filter="fir", taps=(0.5, 0.5), two_stage="auto", until=0.9)
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def test_damaged_json_is_refused_by_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="not a configuration of this version"):
        from_json({"task": {"name": "modmul"}})
    data = to_json(tiny())
    data["loop"]["colour"] = "red"
    with pytest.raises(ValueError, match="colour"):
        from_json(data)


@pytest.mark.parametrize("part", ["task", "filter", "optimizer"])
def test_code_that_json_names_is_not_imported(part: str) -> None:
    data = to_json(tiny(filter="ema"))
    place, key = ("optim", part) if part == "optimizer" else (part, "name")
    data[place][key] = "antigravity:Toy"
    with pytest.raises(ValueError, match=f"the {part} antigravity:Toy is not known here: name it with --{part}"):
        from_json(data)


def test_flat_settings_have_dotted_names() -> None:
    flat = flatten(to_json(tiny(filter="ema", two_stage=5)))
    assert (flat["task.p"], flat["filter.name"], flat["two_stage"], flat["optim.lr"]) == (7, "ema", 5, 1e-3)
    assert flatten(to_json(tiny()))["filter.name"] is None


# Names --------------------------------------------------------------------------------------------------------------


def test_distinct_configurations_have_distinct_fingerprints() -> None:
    changes = ({}, {"seed": 1}, {"p": 11}, {"steps": 31}, {"until": 0.5}, {"filter": "ema"}, {"two_stage": 9})
    configs = [tiny(**change, **({"filter": "ma"} if "two_stage" in change else {})) for change in changes]
    configs += [tiny(filter="ema", lamb=lamb) for lamb in (0.1, 0.5)]
    assert len({fingerprint(config) for config in configs}) == len(configs)


def test_where_and_how_often_a_run_is_saved_does_not_make_another_run() -> None:
    assert fingerprint(tiny(checkpoint_seconds=1.0, data_dir="a")) == fingerprint(tiny(checkpoint_seconds=2.0))


@dataclass(frozen=True)
class Longer(ModularConfig):
    """A later version of the task, with one more setting."""

    colour: str = setting("red", "of the chalk")


def test_a_setting_added_later_leaves_names_and_experiments_of_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    before = tiny()
    name, key = fingerprint(before), experiment_key(to_json(before))
    saved = to_json(before)
    monkeypatch.setitem(tasks.TASKS, "modmul", Longer)
    after = dataclasses.replace(before, task=Longer(**SIZES))
    assert fingerprint(after) == name
    assert fingerprint(dataclasses.replace(before, task=Longer(**SIZES, colour="blue"))) != name
    assert experiment_key(saved) == experiment_key(to_json(after)) != key


def test_runs_of_one_experiment_share_its_key_whatever_their_seed_length_and_machine() -> None:
    def key(config: RunConfig) -> str:
        return experiment_key(to_json(config))

    assert key(tiny(seed=1, steps=99, threads=2, snapshots=3, fused=False)) == key(tiny())
    assert key(tiny(weight_decay=0.5)) != key(tiny())
    assert key(tiny(filter="ema")) != key(tiny())


def test_titles_say_filter_stage_decay_and_seed() -> None:
    def usual(**settings: Any) -> str:
        return title(resolve(ask("modmul", **settings)))

    assert usual(filter="ema", lamb=0.1, seed=3) == "modmul-ema-a0.98-l0.1-wd0.005-s3"
    assert usual(filter="ma", two_stage=500, slow_only=True) == "modmul-ma-w100-l5-slow_only-from500-wd0.01-s0"
    assert usual(filter="ma", two_stage=0) == "modmul-ma-w100-l5-from0-wd0.01-s0"


def test_titles_say_operation_modulus_and_width_where_they_are_unusual() -> None:
    assert title(tiny(operation="divide")) == "modmul-divide-p7-width16-baseline-wd0-s0"
    assert title(tiny(operation="divide"), with_task=False) == "modmul-baseline-wd0-s0"
