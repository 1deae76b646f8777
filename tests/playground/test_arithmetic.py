"""The arithmetic of the playground is that of torch and of the library, in Node and in the page itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

import grokfast

P, WIDTH, BATCH, STEPS = 23, 128, 64, 50
EVERY = 40  # of the weights, to compare edited gradients at every step
Run = Callable[[str, Any], Any]
EXACT = 1e-9  # of the largest number: both sides compute in float64
SETTINGS = {"lr": 0.01, "weight_decay": 0.3, "alpha": 0.98, "window_size": 8, "lamb": 2.0, "start": 0}
SETTINGS |= {"share": 0.5, "seed": 0, "batch": "64", "loss": "squares", "filter": "none"}
CASES: list[dict[str, Any]] = [
    {"filter": "none"},
    {"filter": "none", "loss": "cross-entropy"},
    {"filter": "ema"},
    {"filter": "ema", "loss": "cross-entropy", "alpha": 0.9},
    {"filter": "ema", "start": 30},
    {"filter": "ma"},
    {"filter": "ma", "loss": "cross-entropy", "lamb": 5.0},
    {"filter": "ma", "start": 20},
    {"filter": "ma", "start": 3, "batch": "odd"},
]

TRAIN = """({settings, weights, batches, every}) => {
  const training = startTraining(settings, {weights: Float64Array.from(weights), nextBatch: (step) => batches[step]});
  const grads = [], losses = [];
  let first = null;
  for (const _ of batches) {
    training.advance();
    first ??= [...training.grads];
    losses.push(training.loss);
    grads.push([...training.grads].filter((_, i) => i % every === 0));
  }
  return {first, losses, grads, weights: [...training.weights]};
}"""


@pytest.fixture(params=["node", "chromium"])
def run(request: pytest.FixtureRequest, page_path: Path) -> Run:
    """Calls a function of JavaScript in Node or in the page."""
    if request.param == "node":
        return request.getfixturevalue("in_node")
    visit = request.getfixturevalue("visit")
    return visit(page_path, ready="#presets button", reduced_motion="reduce").evaluate


def flat(left: Tensor, right: Tensor, output: Tensor) -> list[float]:
    """The order of the page: both tables of numbers, then the output transposed."""
    return torch.cat([left.flatten(), right.flatten(), output.T.flatten()]).tolist()


def make_filter(settings: dict[str, Any]) -> grokfast.Filter | None:
    if settings["filter"] == "ema":
        return grokfast.EMA(alpha=settings["alpha"], lamb=settings["lamb"])
    if settings["filter"] == "ma":
        return grokfast.MA(window_size=settings["window_size"], lamb=settings["lamb"])
    return None


def reference(settings: dict[str, Any], weights: list[Tensor], batches: Tensor) -> dict[str, Any]:
    """The same training with torch and `grokfast.attach`."""
    left, right, output = parameters = [torch.nn.Parameter(weight.clone()) for weight in weights]
    optimizer = torch.optim.AdamW(
        parameters, lr=settings["lr"], betas=(0.9, 0.98), weight_decay=settings["weight_decay"]
    )
    filter = make_filter(settings)
    handle = None if filter is None else grokfast.attach(optimizer, filter, start=settings["start"])
    grads: list[list[float]] = []
    losses: list[float] = []
    for batch in batches:
        a, b = batch // P, batch % P
        logits = (left[a] + right[b]).square() @ output  # (batch, P)
        answers = (a + b) % P
        if settings["loss"] == "squares":
            loss = (logits - one_hot(answers, P)).square().sum(1).mean()
        else:
            loss = cross_entropy(logits, answers)
        optimizer.zero_grad()
        loss.backward()
        if handle is not None:
            handle.apply()
        losses.append(loss.item())
        grads.append(flat(*(parameter.grad for parameter in parameters)))
        optimizer.step()
    edited = [step[::EVERY] for step in grads]
    return {"first": grads[0], "losses": losses, "grads": edited, "weights": flat(*(p.detach() for p in parameters))}


def largest(ours: Any, theirs: Any) -> float:
    """The largest difference, over the largest number."""
    ours, theirs = torch.tensor(ours, dtype=torch.float64), torch.tensor(theirs, dtype=torch.float64)
    return float((ours - theirs).abs().max() / theirs.abs().max())


@pytest.fixture(scope="module")
def expected() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What JavaScript is given in each case, and what torch makes of it."""
    generator = torch.Generator().manual_seed(1)
    shapes = [((P, WIDTH), P), ((P, WIDTH), P), ((WIDTH, P), WIDTH)]
    weights = [
        torch.randn(shape, generator=generator, dtype=torch.float64) / math.sqrt(fan_in) for shape, fan_in in shapes
    ]
    made: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for case in CASES:
        settings = {**SETTINGS, **case}
        size = BATCH if settings["batch"] == "64" else 17  # an odd batch, as all pairs of a split may be
        batches = torch.randint(P * P, (STEPS, size), generator=generator)
        given = {"settings": settings, "weights": flat(*weights), "batches": batches.tolist(), "every": EVERY}
        made.append((given, reference(settings, weights, batches)))
    return made


def test_fifty_steps_are_those_of_torch_and_the_library(
    run: Run, expected: list[tuple[dict[str, Any], dict[str, Any]]]
) -> None:
    for given, theirs in expected:
        ours, case = run(TRAIN, given), given["settings"]
        assert largest(ours["first"], theirs["first"]) < EXACT, case
        assert largest(ours["losses"], theirs["losses"]) < EXACT, case
        for step, (mine, other) in enumerate(zip(ours["grads"], theirs["grads"], strict=True)):
            assert largest(mine, other) < EXACT, (case, step)
        assert largest(ours["weights"], theirs["weights"]) < EXACT, case


def impulse_response(filter: grokfast.Filter, steps: int) -> list[float]:
    """What the filter adds to a gradient of 1 and to the zeros after it."""
    grads = [torch.zeros(1, dtype=torch.float64) for _ in range(200)] + [torch.ones(1, dtype=torch.float64)]
    grads += [torch.zeros(1, dtype=torch.float64) for _ in range(steps - 1)]
    state, added = filter.new_state(grads[0]), list[float]()
    for count, grad in enumerate(grads):
        before = grad.item()
        filter.update([grad], [state], count)
        added.append(grad.item() - before)
    return added[200:]


@pytest.mark.parametrize(
    "values",
    [
        {"filter": "ema", "alpha": 0.98, "lamb": 2.0},
        {"filter": "ema", "alpha": 0.5, "lamb": 0.3},
        {"filter": "ma", "window_size": 100, "lamb": 5.0},
        {"filter": "ma", "window_size": 2, "lamb": 1.0},
    ],
    ids=str,
)
def test_gains_and_impulse_response_are_those_of_the_library(in_node: Run, values: dict[str, Any]) -> None:
    settings = {**SETTINGS, **values}
    filter = make_filter(settings)
    assert filter is not None
    frequencies = [0.0, 1e-4, 0.003, 0.02, 0.1, 0.37, 0.5]
    code = "({set, at}) => [at.map((frequency) => gains(set, frequency)), impulse(set, 120), cutoff(set)]"
    found, answer, cutoff = in_node(code, {"set": settings, "at": frequencies})
    for name, of in (("slow", "h"), ("total", "1+h")):
        theory = filter.frequency_response([2 * math.pi * f for f in frequencies], of=of).abs().tolist()
        assert [gain[name] for gain in found] == pytest.approx(theory, abs=1e-9)
    assert answer == pytest.approx(impulse_response(filter, 120), abs=1e-12)
    theory = filter.cutoff_frequency()
    assert cutoff == (None if theory is None else pytest.approx(theory, rel=1e-6))


def test_a_recorded_series_is_filtered_as_by_the_library(in_node: Run) -> None:
    series = torch.randn(60, generator=torch.Generator().manual_seed(2), dtype=torch.float64).tolist()
    code = "({settings, series}) => filterSeries(settings, series)"
    for values in ({"filter": "ema", "start": 20}, {"filter": "ma", "start": 20}, {"filter": "none"}):
        settings = {**SETTINGS, **values}
        weight = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
        optimizer, filter = torch.optim.SGD([weight], lr=0.0), make_filter(settings)
        handle = None if filter is None else grokfast.attach(optimizer, filter, start=20)
        expected: list[float] = []
        for grad in series:
            weight.grad = torch.tensor([grad], dtype=torch.float64)
            if handle is not None:
                handle.apply()
            expected.append(weight.grad.item())
            optimizer.step()
        assert in_node(code, {"settings": settings, "series": series}) == pytest.approx(expected, abs=1e-12)


def test_a_seed_gives_normal_weights_and_a_split_of_all_pairs(in_node: Run) -> None:
    code = "(seed) => [initialWeights(seed), ...Object.values(splitPairs(seed, 0.5))].map((array) => [...array])"
    weights, train, val = in_node(code, 3)
    tables, output = torch.tensor(weights[: 2 * P * WIDTH]), torch.tensor(weights[2 * P * WIDTH :])
    assert float(tables.std() * math.sqrt(P)) == pytest.approx(1, abs=0.05)
    assert float(output.std() * math.sqrt(WIDTH)) == pytest.approx(1, abs=0.05)
    assert abs(float(tables.mean())) < 0.01
    assert (len(train), sorted(train + val)) == (264, list(range(P * P)))
    assert in_node(code, 4)[0] != weights
