"""Our actions over robosuite's Lift, in the five lines that docs/extend/environment.md has."""

from __future__ import annotations

import numpy as np
import pytest

from fraxenv.wrappers import EndEffectorAction

suite = pytest.importorskip("robosuite")

LIFT = {"robots": "Panda", "has_renderer": False, "has_offscreen_renderer": False,
        "use_camera_obs": False}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("lite", [True, False])
def test_the_hand_goes_where_it_is_told_to(lite: bool) -> None:
    from robosuite.wrappers import GymWrapper

    lift = suite.make("Lift", **LIFT, lite_physics=lite)
    env = EndEffectorAction(
        GymWrapper(lift),
        end_effector="gripper0_right_grip_site",
        root="robot0_base",
        arm_actions=range(6),
        action_options={"target": "desired"},
    )

    def place() -> np.ndarray:
        site = lift.sim.data._data.site("gripper0_right_grip_site")
        return np.array(site.xpos)

    for axis in range(3):  # a reset makes a new simulation
        env.reset(seed=axis)
        start, action = place(), np.zeros(env.action_space.shape, np.float32)
        action[axis] = 1.0
        for _ in range(60):
            env.step(action)
            action[axis] = 0.0
        np.testing.assert_allclose(place() - start, 0.05 * np.eye(3)[axis], atol=1e-3)
