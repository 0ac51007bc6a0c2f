"""Our actions over Gymnasium-Robotics' Fetch, in the five lines that docs/extend has."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from fraxenv.wrappers import EndEffectorAction

robotics = pytest.importorskip("gymnasium_robotics")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_hand_goes_where_it_is_told_to() -> None:
    gymnasium.register_envs(robotics)
    fetch = gymnasium.make("FetchPickAndPlace-v4", max_episode_steps=200)
    env = EndEffectorAction(
        fetch,
        end_effector="robot0:grip",
        root="robot0:torso_lift_link",
        drive="joints",
        arm_actions=[0, 1, 2],
        action_options={"target": "desired"},
    )
    data = fetch.unwrapped.data  # type: ignore[attr-defined]

    def place() -> np.ndarray:
        return np.array(data.site("robot0:grip").xpos)

    for axis in range(3):
        env.reset(seed=axis)
        action = np.zeros(env.action_space.shape, np.float32)
        for _ in range(25):  # Fetch's torso begins below its range, and rises
            env.step(action)
        start = place()
        action[axis] = 1.0
        for _ in range(60):
            env.step(action)
            action[axis] = 0.0
        np.testing.assert_allclose(place() - start, 0.05 * np.eye(3)[axis], atol=1e-3)

    action[-1] = -1.0  # the fingers are the environment's
    for _ in range(20):
        env.step(action)
    closed = data.joint("robot0:l_gripper_finger_joint").qpos[0]
    action[-1] = 1.0
    for _ in range(20):
        env.step(action)
    assert data.joint("robot0:l_gripper_finger_joint").qpos[0] > closed + 0.01
