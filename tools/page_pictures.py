"""The pictures of our pages by name, and what the demo shows of our runs. Each is made when a page asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import page_duels

from grokfast.lab import paper
from grokfast.lab.report.curves import PAPER, band, curves_picture, labelled_curves
from grokfast.lab.report.depth import gradient_pictures, response_picture, theorem_picture, weight_pictures
from grokfast.lab.report.duels import overview_picture
from grokfast.lab.report.pictures import COLOURS, Picture
from grokfast.lab.report.sweeps import sweep_pictures
from grokfast.lab.settings import filter_of, resolve
from grokfast.lab.tables import Arm, arms

if TYPE_CHECKING:
    from pages import Evidence

DIGITS = 4  # of an accuracy in the demo


def picture(name: str, evidence: Evidence) -> Picture:
    """The picture of that name."""
    kind, _, rest = name.partition("-")
    makers: dict[str, Callable[[], Picture | None]] = {
        "curves": partial(task_curves, rest, evidence),
        "sweep": lambda: find(name, sweep_pictures(evidence.tasks["modmul"])),
        "spectrum": lambda: find(name, gradient_pictures(one_of_each(evidence))),
        "response": lambda: response_picture(paper_filters()),
        "theorem": lambda: theorem_picture(paper_filters()),
        "trajectories": lambda: find(name, weight_pictures(recorded(evidence))),
        "deviation": lambda: find(name, weight_pictures(recorded(evidence))),
        "duel": lambda: overview(evidence),
        "answer": partial(answer_curves, evidence),
    }
    found = makers[kind]() if kind in makers else None
    if found is None:
        raise ValueError(f"there is no picture {name}")
    return found


def find(name: str, found: Sequence[Picture]) -> Picture | None:
    return next((each for each in found if each.name == name), None)


def task_curves(task: str, evidence: Evidence) -> Picture | None:
    return curves_picture([arm for arm in arms(evidence.tasks[task]) if arm.paper is not None], task)


def answer_curves(evidence: Evidence) -> Picture:
    """The README's picture: three validation curves with their names."""
    shown = {
        "the paper's baseline": evidence.arm("modmul"),
        "Grokfast-MA": evidence.arm("modmul", filter="ma"),
        "tuned AdamW, no filter": evidence.tuned(),
    }
    return labelled_curves(shown, "Modular multiplication: validation accuracy over training steps")


def paper_filters() -> dict[Any, str]:
    """The two filters of the paper, as it uses them on modular arithmetic, with the colours of their arms."""
    pairs = ((paper.MA, "Grokfast-MA"), (paper.EMA, "Grokfast-EMA"))
    return {filter_of(resolve(**given)): COLOURS[PAPER[name]] for given, name in pairs}


def recorded(evidence: Evidence) -> list[Any]:
    """The runs that kept weights and gradients."""
    return [run for run in evidence.tasks["modmul"] if run.tables]


def one_of_each(evidence: Evidence) -> list[Any]:
    """One run of each arm that recorded gradients."""
    return [arm.runs[0] for arm in arms(recorded(evidence))]


# Duels ----------------------------------------------------------------------------------------------------------------


def overview(evidence: Evidence) -> Picture:
    """All replicated verdicts by steps: each filter as tuned, and against its own settings without it."""
    rows: list[Any] = []
    for duel in evidence.replicated():
        for arm in page_duels.FILTERS:
            if (found := duel.judge(arm)) is not None:
                title = duel.title.removeprefix("modular ")
                rows.append((f"{title}: {page_duels.NAMES[arm]}", found, duel.share(arm)))
    return overview_picture(rows)


# The demo -------------------------------------------------------------------------------------------------------------


def demo_evidence(evidence: Evidence) -> str:
    """What the demo shows of our runs, as JSON: the paper's baseline of seed 0, and medians over seeds."""
    baseline, tuned = evidence.arm("modmul"), evidence.tuned()
    fast = min((evidence.arm("modmul", filter=name) for name in ("ma", "ema")), key=lambda arm: arm.steps().order)
    run = baseline.runs[0]
    alone = baseline._replace(runs=[run])
    found: Mapping[str, Any] = {
        "run": run.name,
        "seed": run.seed,
        "level": run.level,
        "by_heart": run.crossing("train").step,
        "reached": run.crossing().step,
        "training": curve(alone, "train_accuracy"),
        "validation": curve(alone, "val_accuracy"),
        "tuned": f"AdamW at weight decay {tuned.settings['weight_decay']:g} and learning rate {tuned.settings['lr']:g}",
        "tuned_steps": f"{tuned.steps().median} steps ({tuned.steps().interval}, {len(tuned.runs)} seeds)",
        "median": baseline.steps().median.value,
        "seeds": len(baseline.runs),
        "fast_median": fast.steps().median.value,
        "fast_seeds": len(fast.runs),
    }
    return json.dumps(found, separators=(",", ":")) + "\n"


def curve(arm: Arm, field: str) -> list[list[float]]:
    """A curve in as many points as a screen shows."""
    found = band(arm, field)
    assert found is not None
    return [[int(step), round(float(y), DIGITS)] for step, y in zip(found.steps, found.middle, strict=True)]
