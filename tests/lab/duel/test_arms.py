"""Arms by name: what they ask for, what they are tuned over, and what they are compared with."""

from __future__ import annotations

from typing import Any

import pytest
from tiny import SIZES

from grokfast.lab.duel.arms import FILTER_KNOBS, OPTIMIZER_PARTS, REGIMES, RIVAL_PARTS, read_arm
from grokfast.lab.duel.plan import control_setting, make_duel, tuning_spec, verdict_spec
from grokfast.lab.duel.planned import PLANNED
from grokfast.lab.request import Request, ask
from grokfast.lab.sweep.space import Choices, Range
from grokfast.lab.sweep.spec import Spec, spec_from_json, spec_to_json

BASE = ask("modmul", **SIZES)


def names(arm: str, base: Request = BASE, **more: Any) -> list[str]:
    return [knob.name for knob in read_arm(arm, base, **more).knobs]


def test_an_arm_is_tuned_over_its_own_knobs_only() -> None:
    assert names("adamw") == ["lr", "weight_decay", "betas"]
    assert names("adamw+ema") == [*names("adamw"), "alpha", "lamb"]
    assert names("lion+rowclip") == [*names("lion"), "row_norm"]
    assert "companion_lr" in names("muon+ma")


def test_what_is_added_differs_from_its_reference_in_nothing_else() -> None:
    for word in (*RIVAL_PARTS, *FILTER_KNOBS):
        plain, added = read_arm("adamw", BASE), read_arm(f"adamw+{word}", BASE)
        assert added.knobs[: len(plain.knobs)] == plain.knobs
        changed = {k: v for k, v in added.request.values if dict(plain.request.values).get(k) != v}
        assert set(changed) <= {"filter", "perp_grad", "equal_grad", "loss"}


@pytest.mark.parametrize("first", sorted(OPTIMIZER_PARTS))
def test_every_arm_that_is_offered_can_be_tuned(first: str) -> None:
    duel = make_duel(BASE, "tuned", trials=2)
    for word in ("", *(f"+{word}" for word in (*RIVAL_PARTS, *FILTER_KNOBS))):
        spec = tuning_spec(duel, read_arm(f"{first}{word}", duel.base))  # checks the corners of its ranges
        assert isinstance(spec, Spec)
        assert spec_from_json(spec_to_json(spec)) is not None


def test_what_the_command_or_the_regime_fixes_is_not_tuned() -> None:
    assert "lr" not in names("adamw", BASE.having(lr=1e-3))
    assert "weight_decay" not in names("adamw", make_duel(BASE, "no-decay").base)
    assert names("adam+ema", tuned=False) == []


def test_a_typed_range_replaces_that_of_the_arms_that_have_the_setting() -> None:
    typed = [Range("lamb", 0.5, 1.0), Range("lr", 1e-4, 1e-3, log=True)]
    assert read_arm("adamw+ema", BASE, typed).knobs[-1] == typed[0]
    assert read_arm("adamw", BASE, typed).knobs[0] == typed[1]
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
    typed = [Range(name, 1, 2)]
    assert name in names(has, typed=typed)
    assert names(has_not, typed=typed) == names(has_not)
    assert "warmup_steps" in names(has_not, typed=[Range("warmup_steps", 1, 2)])


def test_a_setting_is_either_fixed_or_tuned() -> None:
    with pytest.raises(ValueError, match="lr must be either fixed for all arms or tuned, got both"):
        read_arm("adamw", BASE.having(lr=1e-3), [Range("lr", 1e-4, 1e-3)])


def test_an_optimizer_by_its_path_is_tuned_like_by_its_short_name() -> None:
    for short, part in OPTIMIZER_PARTS.items():
        assert read_arm(part.values["optimizer"], BASE)[1:] == read_arm(short, BASE)[1:]


def test_a_stable_crossing_needs_steps_after_the_first() -> None:
    with pytest.raises(ValueError, match="objective stable needs extra_steps >= 1, got none"):
        make_duel(BASE, "tuned", objective="stable")
    assert make_duel(BASE.having(extra_steps=20), "tuned", objective="stable").objective == "stable"


@pytest.mark.parametrize(
    ("arm", "message"),
    [
        ("adamm", r"an arm must begin with one of adam, .* or PACKAGE:CLASS, got adamm"),
        ("adamw+emma", r"what is added to an arm must be one of rowclip, .* or FILE.py:CLASS, got emma"),
        ("adamw+ema+ma", r"an arm must have one filter, got two in adamw\+ema\+ma"),
        ("adamw+rowclip+rowclip", r"an arm must have each addition once, got rowclip twice"),
    ],
)
def test_an_arm_that_is_none_is_refused(arm: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_arm(arm, BASE)


def test_without_tuning_an_arm_has_published_settings_or_is_refused() -> None:
    assert dict(read_arm("adam+ema", BASE, tuned=False).request.values)["filter"] == "ema"
    with pytest.raises(ValueError, match="must begin with adam, as published, got adamw"):
        read_arm("adamw+ema", BASE, tuned=False)
    with pytest.raises(ValueError, match=r"regime paper has no published row_norm, got adam\+rowclip"):
        read_arm("adam+rowclip", BASE, tuned=False)


def test_the_planned_duels_can_be_run_as_they_are_written() -> None:
    assert len({planned.name for planned in PLANNED}) == len(PLANNED) == 8
    for planned in PLANNED:
        words = planned.command.split()
        assert words[:3] == ["grokfast", "duel", planned.task]
        duel = make_duel(ask(planned.task), planned.regime)
        for arm in planned.arms:
            assert bool(read_arm(arm, duel.base, tuned=planned.regime != "paper").knobs) == (planned.regime != "paper")


def test_regimes_are_requests() -> None:
    assert set(REGIMES) == {"paper", "no-decay", "tuned", "small-batch", "little-data", "noise"}
    asked = {name: make_duel(ask("modmul"), name).base for name in REGIMES}
    assert asked["small-batch"].get("batch_size") == 64
    assert asked["little-data"].get("train_fraction") == 0.3
    assert asked["noise"].get("label_noise") == 0.05
    with pytest.raises(ValueError, match="batch_size must not be fixed for all arms of this duel, got 8"):
        make_duel(BASE, "small-batch")


# The plan -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "tuning", "fresh"), [(0, 1, 10), (7, 3, 5), (0, 4, 1)])
def test_tuning_seeds_and_fresh_seeds_never_overlap(seed: int, tuning: int, fresh: int) -> None:
    duel = make_duel(BASE, "tuned", seed=seed, tuning_seeds=tuning, trials=2)
    arm = read_arm("adamw", duel.base)
    search, verdict = tuning_spec(duel, arm), verdict_spec(duel, arm, (("lr", 1e-3),), fresh)
    assert search is not None
    assert (len(search.seeds), len(verdict.seeds)) == (tuning, fresh)
    assert not set(search.seeds) & set(verdict.seeds)
    assert verdict_spec(duel, arm, (("lr", 1e-3),), fresh + 2).seeds[:fresh] == verdict.seeds


def test_every_arm_has_the_same_trials_seeds_and_budget() -> None:
    duel = make_duel(BASE, "tuned", trials=9)
    specs = [tuning_spec(duel, read_arm(name, duel.base)) for name in ("adamw", "muon+ema", "lion+rowclip")]
    shared = {(s.trials, s.seeds, s.objective, s.prune, s.base.get("steps"), s.base.get("until")) for s in specs if s}
    assert shared == {(9, (0,), "first", True, 3000, 0.95)}


@pytest.mark.parametrize(
    ("arm", "found", "control"),
    [
        ("adamw+ema", {"lr": 0.02, "lamb": 3.0, "alpha": 0.5}, {"lr": 0.02}),
        ("adamw+rowclip", {"weight_decay": 0.3, "row_norm": 2.0}, {"weight_decay": 0.3}),
        ("adamw+stablemax+ema", {"lr": 0.02, "lamb": 3.0}, {"lr": 0.02}),
    ],
)
def test_a_control_has_the_settings_of_an_arm_without_what_it_adds(
    arm: str, found: dict[str, Any], control: dict[str, Any]
) -> None:
    base = BASE.having(weight_decay=0.1) if arm.endswith("ema") else BASE
    contenders = [read_arm(name, base) for name in (arm, "adamw")]
    assert dict(control_setting(contenders[0], tuple(found.items()), contenders[1])) == control


def test_a_control_keeps_the_filter_and_the_task_that_were_found_for_the_arm() -> None:
    typed = [Choices("width", (8, 16))]
    arm, reference = (read_arm(name, BASE.without("width"), typed) for name in ("adamw+ema+rowclip", "adamw+ema"))
    found = {"lr": 0.02, "alpha": 0.5, "lamb": 3.0, "width": 16, "row_norm": 2.0}
    control = control_setting(arm, tuple(found.items()), reference)
    assert {**dict(control), "row_norm": 2.0} == found
    assert "row_norm" not in dict(control)


def test_the_control_of_a_published_arm_has_its_weight_decay() -> None:
    arms = [read_arm(name, BASE, tuned=False) for name in ("adam+ema", "adam")]
    assert control_setting(arms[0], (), arms[1]) == (("weight_decay", 0.005),)


def test_an_arm_with_nothing_to_tune_is_run_as_it_is() -> None:
    duel = make_duel(BASE, "paper")
    arm = read_arm("adam+ema", duel.base, tuned=False)
    assert tuning_spec(duel, arm) is None
    spec = verdict_spec(duel, arm, (), 3)
    config = spec.config(spec.points()[0])
    assert (config.optim.lr, config.optim.weight_decay, len(spec.points())) == (1e-3, 0.005, 3)
