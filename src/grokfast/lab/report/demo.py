"""The demo as data: one picture of the recorded baseline beside the filters that were just trained, and its numbers.

evidence.json has the numbers of our recorded runs. tools/pages.py writes it, and the package contains it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from grokfast.lab.report.curves import PAPER, arm_colours, band
from grokfast.lab.report.pictures import COLOURS, Picture, axis, line, make_view, note
from grokfast.lab.runs.directory import Run
from grokfast.lab.tables import Arm, arms

FILE = Path(__file__).with_name("evidence.json")
SLOW = COLOURS[PAPER["Baseline"]]


def load() -> dict[str, Any]:
    """The recorded baseline: its curves, its steps to memorise and to generalise; medians over seeds."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def fast_arms(runs: Sequence[Run]) -> list[Arm]:
    """The settings with a filter that reached the level, the fastest first."""
    found = [arm for arm in arms(runs) if arm.settings["filter"] is not None and arm.steps().median.exact]
    return sorted(found, key=lambda arm: arm.steps().order)


def demo_story(runs: Sequence[Run]) -> dict[str, Any]:
    """The numbers of the demo's template."""
    old, shown = load(), fast_arms(runs)
    steps = int(shown[0].steps().median.value) if shown else None
    settings = runs[0].settings
    p = settings["p"]
    a, b = 5, p * 4 // 9  # 5 x 43 on a clock of 97 hours
    return {
        "old": old,
        "steps": steps,
        "times": None if steps is None else old["reached"] / steps,
        "median_times": old["median"] / old["fast_median"],
        "share": None if steps is None else max(100 * steps / old["reached"], 0.5),
        "names": [arm.name for arm in shown],
        "colour": arm_colours(shown)[shown[0].key] if shown else COLOURS[PAPER["Grokfast-EMA"]],
        "slow": SLOW,
        "sum": {"a": a, "b": b, "p": p, "product": a * b, "rounds": a * b // p, "rest": a * b % p},
        "half": settings["train_fraction"] == 0.5,
        "fraction": settings["train_fraction"],
        "picture": story_picture(old, shown),
    }


def story_picture(old: dict[str, Any], shown: Sequence[Arm]) -> Picture:
    """Accuracy over steps: training and validation without a filter, the gap between them, validation with a filter."""
    seen, unseen = (np.array(old[name], float).T for name in ("training", "validation"))
    top = np.interp(unseen[0], *seen)
    slow = "without Grokfast"
    lines = [
        line(slow, seen[0], seen[1], SLOW, "dashed", what="the half it was shown"),
        line(slow, unseen[0], unseen[1], SLOW, low=unseen[1], high=top, what="the half it has never seen"),
    ]
    colours = arm_colours(shown)
    curves = [(arm, curve) for arm in shown if (curve := band(arm, "val_accuracy")) is not None]
    for arm, curve in curves:
        lines.append(line(arm.name, curve.steps, curve.middle, colours[arm.key], what="the half it has never seen"))
    heart, reached, level = old["by_heart"], old["reached"], old["level"]
    # In the gap, one above the other, so that they fit on a phone too.
    notes = [
        note((heart * reached) ** 0.5 * 1.2, 0.9, "knows the answers,\nnot the rule"),
        note(heart * 0.14, 0.78, "knows its examples\nby heart", to=(heart, level)),
        note(reached * 0.62, 0.78, "without Grokfast:\nunderstands here", "right", to=(reached, level), colour=SLOW),
    ]
    if curves:
        arm, curve = curves[0]
        fast = float(curve.steps[int(np.argmax(curve.middle >= level))])
        slowest = max(float(each.steps[int(np.argmax(each.middle >= level))]) for _, each in curves)
        words = "with Grokfast:\nunderstands here"
        notes.append(note(slowest * 1.18, 0.63, words, "left", to=(fast, level), colour=colours[arm.key]))
    x = axis("training steps", log=True, values=[10, 100, 1000, 10_000], domain=[10, reached * 1.1])
    drawn = make_view(lines, x, axis("right answers", percent=True, domain=[0, 1]), notes=notes)
    return Picture("story", "Right answers over training steps, without a filter and with Grokfast", [drawn])
