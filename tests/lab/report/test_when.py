"""When the filter helps: advice follows from verdicts by rule, whatever they are."""

from __future__ import annotations

from typing import Any

import pytest

from grokfast.lab.compare.seeds import Bound
from grokfast.lab.duel.arms import control_name
from grokfast.lab.duel.outcome import Result
from grokfast.lab.duel.plan import make_duel, to_json
from grokfast.lab.duel.planned import PLANNED, TUNED, Planned
from grokfast.lab.report.when import Outcome, advice, when_section
from grokfast.lab.request import ask

STEPS = [100 + seed for seed in range(10)]


def outcome(planned: Planned, factor: float, *, spread: float = 0.0) -> Outcome:
    """A duel whose reference takes so many times the steps of the challenger."""

    def arm(name: str, times: float, wobble: float) -> Result:
        numbers = {seed: Bound(n * times * (1 + wobble * (-1) ** seed)) for seed, n in enumerate(STEPS)}
        return Result(name, {}, "", {}, numbers, numbers, numbers)

    results = [arm(planned.arms[0], factor, spread), arm(planned.arms[1], 1.0, -spread)]
    return to_json(make_duel(ask(planned.task), planned.regime)), results


def named(name: str) -> Planned:
    return next(planned for planned in PLANNED if planned.name == name)


@pytest.mark.parametrize(
    ("factor", "spread", "said"),
    [
        (
            2.0,
            0.0,
            "betas with it.** On modmul with everything tuned the filter still helps: 2x faster, ",
        ),
        (0.5, 0.0, "betas first.** On modmul with everything tuned the filter hurts: 2x slower, 95% interval 2 to 2, "),
        (1.0, 0.0, "the filter makes no difference that matters: as fast, "),
        (1.0, 0.5, "it is not decided whether the filter helps: "),
    ],
)
def test_the_first_advice_follows_from_the_duel_with_both_tuned(factor: float, spread: float, said: str) -> None:
    first, rest = advice({TUNED.name: outcome(TUNED, factor, spread=spread)})
    assert said in first
    assert rest == "7 of the 8 planned duels are not run yet."


def test_each_verdict_has_its_advice() -> None:
    found = {"modmul-noise": (2.0, 0.0), "mnist-tuned": (0.5, 0.0), "parity-tuned": (1.0, 0.5)}
    kept = {name: outcome(named(name), factor, spread=spread) for name, (factor, spread) in found.items()}
    helps, hurts, open, rest = advice(kept)
    assert helps == "**Use the filter** for modmul with 5% of the training answers wrong (2x faster)."
    assert hurts == "**Leave it out** for mnist with everything tuned (2x slower)."
    assert open.startswith("**Not decided**: parity with everything tuned (between ")
    assert rest == "5 of the 8 planned duels are not run yet."


def test_a_gain_that_the_same_settings_give_without_the_filter_is_put_down_to_tuning() -> None:
    duel, (reference, arm) = outcome(named("modmul-noise"), 2.0)
    name = control_name(reference.name, arm.name)
    for control, said in ((arm, "**Luck of tuning, not the filter**"), (reference, "**Use the filter**")):
        kept = {"modmul-noise": (duel, [reference, arm, control._replace(name=name)])}
        assert advice(kept)[0].startswith(said)
        text = {"**Use": "**helps**", "**Luc": "**luck of tuning**"}[said[:5]]
        assert f"| adamw+ema | adamw | {text} | 2x faster |" in when_section(kept)
    duel, (reference, arm) = outcome(TUNED, 2.0)
    first, _ = advice({TUNED.name: (duel, [reference, arm, arm._replace(name=name)])})
    assert "betas first.** On modmul with everything tuned a gain comes from luck of tuning" in first


def test_what_is_not_run_is_a_row_and_a_command() -> None:
    text = when_section({TUNED.name: outcome(TUNED, 2.0)})
    assert "| mnist | with everything tuned | adamw+ema | adamw | **not run** |" in text
    assert "grokfast duel modmul adam adam+ema --regime paper --duel-dir duels/modmul-paper" in text
    assert f"--duel-dir duels/{TUNED.name}" not in text
    whole: dict[str, Any] = {planned.name: outcome(planned, 2.0) for planned in PLANNED}
    assert "not run" not in when_section(whole)
    assert "grokfast duel" not in when_section(whole)


def test_other_arms_and_other_duels_stand_in_the_table_but_give_no_advice() -> None:
    other = outcome(Planned("modmul", "noise", "muon"), 2.0)
    text = when_section({"mine": other})
    assert "| modmul | with 5% of the training answers wrong | muon+ema | muon | **helps** |" in text
    assert advice({"mine": other}) == advice({})
