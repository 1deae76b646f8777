from __future__ import annotations

import pytest

from grokfast.lab.paper.published import ARMS, Arm, arm_config, find_arm


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: f"{arm.task}: {arm.name}")
def test_the_configuration_of_an_arm_is_found_to_be_that_arm(arm: Arm) -> None:
    assert find_arm(arm_config(arm)) is arm


def test_published_times_are_published_steps_times_seconds_per_step() -> None:
    published = [arm.published for arm in ARMS if arm.published is not None]
    timed = [(p.steps, p.costs) for p in published if p.costs is not None and p.costs.seconds is not None]
    assert len(timed) == 5  # Tables 3 and 4
    for steps, costs in timed:
        assert steps is not None
        assert steps * costs.step_seconds == pytest.approx(costs.seconds, rel=0.005)
