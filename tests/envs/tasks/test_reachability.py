"""Reach, by what the drawings of the robots say, and the boxes that are refused for it."""

from __future__ import annotations

import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.envs.tasks.reachability import check_within_reach, reach
from fraxenv.errors import ConfigError


def test_a_slider_reaches_as_far_as_it_travels() -> None:
    """2.4 m of rail to either side, 0.11 m to the hinge, 1 m of pole."""
    anchor, length = reach(dynamics.load_robot("cartpole"), "tip")
    np.testing.assert_array_equal(anchor, [0, 0, 0.5])
    assert length == pytest.approx(2.4 + 0.11 + 1.0)


def test_a_base_that_travels_reaches_everything() -> None:
    assert reach(dynamics.load_robot("planar_mobile_manipulator"), "hand")[1] == np.inf


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        ((0, 0), (1, 1), r"goal_low=\(0, 0\) and goal_high=\(1, 1\), expected corners \(3,\)"),
        ((0.3, 0, 0), (0.2, 0, 0), "expected finite corners of a box with goal_low <= goal_high"),
        ((0.3, 0, 0), (0.4, 0, np.nan), "expected finite corners"),
        ((0.3, 0, 0), (0.4, 0, 2), r"the corner \(0.3, 0, 2\) m .* out of reach of 'hand'"),
    ],
)
def test_boxes_that_no_hand_can_fill(low: tuple, high: tuple, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_within_reach(dynamics.load_robot("panda"), "hand", "goal", low, high)
