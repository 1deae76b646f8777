"""The pictures of our pages by name, and what the demo shows of our runs. Each is made when a page asks for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import page_addition
import page_duels

from grokfast.lab import paper
from grokfast.lab.report.curves import PAPER, band, curves_picture, labelled_curves
from grokfast.lab.report.depth import gradient_pictures, response_picture, theorem_picture, weight_pictures
from grokfast.lab.report.duels import overview_picture
from grokfast.lab.report.pictures import COLOURS, Picture, axis, line, make_view, note
from grokfast.lab.report.sweeps import sweep_pictures
from grokfast.lab.settings import filter_of, resolve
from grokfast.lab.stats import spread_of
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
        "addition": lambda: decay_picture(evidence) if rest == "decay" else surrogate_picture(evidence),
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
        "AdamW, averaged weights": evidence.best_without(),
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


# The small task -------------------------------------------------------------------------------------------------------


def decay_picture(evidence: Evidence) -> Picture:
    """Steps over weight decay, with and without filters, for three learning rates."""
    small, least = evidence.small_task(), 0.01  # stands for decay 0 on a log axis
    colours = dict(zip(("no filter", "MA", "late EMA", "paper's EMA"), COLOURS, strict=False))
    names = {arm: page_addition.FIXED.get(arm, arm) for arm in colours}
    views: list[Any] = []
    for version, rate in (("learning rate 0.003", 0.003), ("as usual", 0.01), ("learning rate 0.03", 0.03)):
        lines: list[Any] = []
        for arm, colour in colours.items():
            found = {decay: spread_of(small.steps(arm, decay, version)) for decay in page_addition.MAP_DECAYS[:-1]}
            known = {max(decay, least): spread for decay, spread in found.items() if spread.median.exact}
            y = [spread.median.value for spread in known.values()]
            lines += [line(names[arm], list(known), y, colour, style) for style in ("solid", "rings")]
        label = "weight decay (0 at the left edge)"
        across = axis(label, log=True, values=(0.01, 0.03, 0.1, 0.3, 1, 3), domain=(0.01, 3))
        up = axis("" if views else "steps until 95% is held", log=True, domain=(100, 4000))
        views.append(make_view(lines, across, up, notes=[note(0.18, 3700, f"learning rate {rate:g}")]))
    title = "Steps over weight decay on the small task, medians of 10 seeds; missing marks: most runs never hold 95%"
    return Picture("addition-decay", title, views, {names[arm]: colour for arm, colour in colours.items()})


def surrogate_picture(evidence: Evidence) -> Picture:
    """Filters against 1 + lamb times the learning rate, over their memory."""
    names = {lamb: f"lamb {lamb:g}" for lamb in page_addition.LAMBS}
    colours = dict(zip(names.values(), COLOURS, strict=False))
    views: list[Any] = []
    for kind in page_addition.KINDS:
        for batch in page_addition.BATCHES:
            lines: list[Any] = []
            for lamb, name in names.items():
                found = {m: evidence.small_task().surrogate(kind, batch, m, lamb) for m in page_addition.MEMORIES}
                known = {memory: each.ratio for memory, each in found.items() if each.ratio is not None}
                lines += [line(name, list(known), list(known.values()), colours[name], s) for s in ("solid", "rings")]
            up = axis("" if views else "surrogate's steps / filter's steps", log=True, domain=(0.08, 2))
            across = axis("memory in steps", log=True, values=page_addition.MEMORIES, domain=(3, 200))
            notes = [note(25, 1.85, f"{kind.upper()}, batch {batch or 'all'}")]
            views.append(make_view(lines, across, up, notes=notes, rules=[1.0]))
    title = "Above 1 the filter beats 1 + lamb times the learning rate (decay 1, 10 seeds); missing: too many runs fail"
    return Picture("addition-surrogate", title, views, colours)


# The demo -------------------------------------------------------------------------------------------------------------


def demo_evidence(evidence: Evidence) -> str:
    """What the demo shows of our runs, as JSON: the paper's baseline of seed 0, and medians over seeds."""
    baseline, better = evidence.arm("modmul"), evidence.best_without()
    held = better.steps("held")
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
        "better": f"AdamW, weight decay {better.settings['weight_decay']:g}, clipped gradients and averaged weights",
        "better_steps": f"{held.median} steps ({held.interval}, {held.count} seeds)",
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
