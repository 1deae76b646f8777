"""What the page says about a race, and that its presets tell what they promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import grokfast

Run = Callable[[str, Any], Any]
OUTCOME = "({history, budget}) => outcome(history, budget)"


def evaluations(*values: float, train: float = 1.0) -> list[dict[str, Any]]:
    return [{"step": 100 * i, "train": train, "val": val, "broken": False} for i, val in enumerate(values)]


def test_understood_is_reached_and_held(in_node: Run) -> None:
    def understood(*values: float, budget: int = 6000) -> int | None:
        return in_node(OUTCOME, {"history": evaluations(*values), "budget": budget})["understood"]

    assert understood(0, 0.95, 1, 1, 0.96, 0) == 100  # held for 300 steps, whatever comes later
    assert understood(0, 0.95, 1, 0.94, 1, 1, 1, 1) == 400  # a dip before that starts anew
    assert understood(0, 0.95, 1, 1) is None  # not known yet
    assert understood(0, 0.95, 1, 1, budget=300) == 100  # the race ends here
    assert understood(0, 0.9, 0.9, 0.9, 0.9) is None


def test_memorised_is_the_first_evaluation_with_99_percent(in_node: Run) -> None:
    history = [*evaluations(0, 0, train=0.98), {"step": 200, "train": 0.99, "val": 0, "broken": False}]
    assert in_node(OUTCOME, {"history": history, "budget": 6000})["memorised"] == 200


def network(memorised: int | None = 60, understood: int | None = None, step: int = 6000) -> dict[str, Any]:
    right = 1.0 if understood else 0.2
    return {
        "memorised": memorised,
        "understood": understood,
        "step": step,
        "val": right,
        "train": 1.0,
        "broken": False,
    }


@pytest.mark.parametrize(
    ("without", "filtered", "result", "says"),
    [
        (network(), network(70, 1840), "rescued", "looked hopeless"),
        (network(60, 3000), network(70, 1500), "faster", "saves 50% of the steps"),
        (network(60, 400), network(70, 440), "same", "no clear difference"),
        (network(60, 400), network(70, 800), "slower", "takes 2.0 times as many steps"),
        (network(60, 400), network(None), "ruined", "training fails"),
        (network(), network(), "neither", "Neither network understood"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_result_has_its_sentences(
    in_node: Run, without: dict[str, Any], filtered: dict[str, Any], result: str, says: str
) -> None:
    code = "([a, b]) => [result(a, b), happened(a, b, DEFAULTS), meaning(a, b, DEFAULTS), during(a, b, DEFAULTS)]"
    found, told, means, meanwhile = in_node(code, [without, filtered])
    assert found == result
    assert told.startswith("Without the filter: memorised at step 60, ")
    assert says in means
    assert meanwhile.endswith(".")


def test_a_network_that_broke_is_named(in_node: Run) -> None:
    broken = {**network(None, None, 40), "broken": True}
    told = in_node("([a, b]) => happened(a, b, DEFAULTS)", [network(60, 400), broken])
    assert "With the filter: broke at step 40" in told


def test_settings_survive_the_address_and_wrong_ones_are_mended(in_node: Run) -> None:
    settings = in_node("() => ({...DEFAULTS, filter: 'ma', window_size: 20, loss: 'cross-entropy', seed: 7})", None)
    assert in_node("(settings) => fromHash(toHash(settings))", settings) == settings
    default = in_node("() => DEFAULTS", None)
    assert in_node("fromHash", "#filter=nonsense&alpha=&lr=abc&seed=1e999&x=1") == default
    assert in_node("fromHash", "#lamb=1e9&weight_decay=-3&seed=3.4") == {**default, "lamb": 10, "seed": 3}


def test_the_python_that_is_shown_runs(in_node: Run) -> None:
    code = "(filter) => PRESETS.map((preset) => toPython({...presetSettings(preset, 0), filter}))"
    for text in [*in_node(code, "ema"), *in_node(code, "ma")]:
        names = {"torch": torch, "grokfast": grokfast, "model": torch.nn.Linear(2, 2)}
        exec(text, names)
        assert isinstance(names["optimizer"], torch.optim.AdamW)
        assert text.count("grokfast.attach") == 1


RACES = """({seed, budget}) => {
  const alone = {};  // two pairs of presets share a network without a filter
  return PRESETS.map((preset) => {
    const settings = presetSettings(preset, seed);
    alone[settings.weight_decay] ??= runToEnd({...settings, filter: "none"}, budget);
    return [alone[settings.weight_decay], runToEnd(settings, budget)];
  });
}"""


def test_the_presets_tell_their_story(in_node: Run) -> None:
    """One seed for a part of the race; benchmarks/playground.py runs five seeds to the end."""
    claim, little, alone, strong, late = in_node(RACES, {"seed": 4, "budget": 1920})
    assert claim[0]["understood"] is None
    assert 1000 < claim[1]["understood"] < 1920
    assert little[0]["understood"] is None
    assert 900 < little[1]["understood"] < 1800
    assert 250 < alone[0]["understood"] < 500
    assert 500 < alone[1]["understood"] < 1000
    assert strong[1]["memorised"] is None
    assert strong[1]["val"] < 0.2
    assert 300 < late[1]["understood"] < 1.3 * late[0]["understood"]
    for without, _ in (claim, little, alone, strong, late):
        assert 40 <= without["memorised"] <= 100
