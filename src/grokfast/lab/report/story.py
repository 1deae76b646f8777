"""The demo's story as data: one picture of the archived baseline beside the filters that were just trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grokfast.lab.compare.seeds import Arm, make_arms
from grokfast.lab.report.colours import PAPER, number_arms
from grokfast.lab.report.curves import band
from grokfast.lab.report.evidence import Archived
from grokfast.lab.report.pictures import Note, Panel, Plot, Series
from grokfast.lab.runs.directory import Run


class Story(NamedTuple):
    """The settings with a filter that reached the level here, the fastest first, and what the archive says."""

    archived: Archived
    arms: list[Arm]

    @property
    def steps(self) -> int | None:
        """How many steps the fastest took; None where none got there."""
        return int(self.arms[0].steps().median.value) if self.arms else None


def tell(runs: Sequence[Run], archived: Archived) -> Story:
    arms = [arm for arm in make_arms(runs) if arm.runs[0].filter is not None and arm.steps().median.exact]
    return Story(archived, sorted(arms, key=lambda arm: arm.steps().order))


def story_plot(story: Story) -> Plot:
    """Accuracy over steps: by heart early, understood late, the gap between them, and how early with a filter."""
    old, numbers = story.archived, number_arms(story.arms)
    baseline = PAPER["Baseline"]
    shown, unseen = columns(old.training), columns(old.validation)
    name, top = "without Grokfast, the half it has never seen (archived)", np.interp(unseen[0], *shown)
    series = [
        Series(baseline, "without Grokfast, the half it was shown (archived)", *shown, "dashed", what="training"),
        Series(baseline, name, *unseen, what="validation", low=unseen[1], high=top),
    ]
    for arm in story.arms:
        curve = band(arm, "val_accuracy")
        if curve is not None:
            name = f"{arm.name}, the half it has never seen"
            series.append(Series(numbers[arm.key], name, curve.steps, curve.middle, what="validation"))
    panel = Panel("steps", "right answers", series, percent=True, notes=notes(story))
    return Plot("story", "Right answers over training steps, without a filter and with Grokfast", [panel])


def columns(curve: Sequence[Sequence[float]]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    steps, values = zip(*curve, strict=True)
    return np.array(steps, np.int64), np.array(values)


def notes(story: Story) -> list[Note]:
    old = story.archived
    middle = (old.by_heart * old.reached) ** 0.5  # of the gap, where factors are distances
    found = [
        Note(middle, 0.7, "knows the answers,\nnot the rule"),
        Note(old.by_heart, old.level, "knows what it was\nshown by heart", (-80, -2)),
        Note(old.reached, old.level, "without Grokfast:\nunderstands here", (-80, 24)),
    ]
    if story.arms and (curve := band(story.arms[-1], "val_accuracy")) is not None:
        half = int(np.argmax(curve.middle >= old.level / 2))  # on the slowest rise
        where = float(curve.steps[half]), float(curve.middle[half])
        found.append(Note(*where, "with Grokfast:\nunderstands here", (80, 0)))
    return found
