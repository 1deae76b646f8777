from __future__ import annotations

import math

import pytest

from grokfast.lab.config import to_json
from grokfast.lab.paper.published import ARMS, PaperArm, find_arm
from grokfast.lab.request import resolve


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: f"{arm.task}: {arm.name}")
def test_the_configuration_of_an_arm_is_found_to_be_that_arm(arm: PaperArm) -> None:
    assert find_arm(to_json(resolve(arm.request))) is arm


def test_published_times_are_published_steps_times_seconds_per_step() -> None:
    published = [arm.published for arm in ARMS if arm.published is not None]
    timed = [(p.steps, p.costs) for p in published if p.costs is not None and p.costs.seconds is not None]
    assert len(timed) == 5  # Tables 3 and 4
    for steps, costs in timed:
        assert steps is not None
        assert steps * costs.step_seconds == pytest.approx(costs.seconds, rel=0.005)


def test_published_distances_violate_the_triangle_inequality_unless_they_are_squares() -> None:
    found = [arm.published.distances for arm in ARMS if arm.published is not None and arm.published.distances]
    assert len(found) == 2
    for sides in found:
        ab, bc, ac = (side.mean for side in sides)
        assert ac > ab + bc
        assert math.sqrt(ac) <= math.sqrt(ab) + math.sqrt(bc)


def test_the_summary_is_short_and_has_a_control_with_the_same_weight_decay() -> None:
    rows = [arm for arm in ARMS if arm.in_summary]
    assert len(rows) in (4, 5)
    decays = {(arm.task, arm.published is None): resolve(arm.request).optim.weight_decay for arm in rows}
    assert decays["mnist", True] == decays["mnist", False]
