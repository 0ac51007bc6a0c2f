"""Our actions over dm_control's arm, through Shimmy, in the five lines that docs/extend has."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

from fraxenv.wrappers import EndEffectorAction

pytest.importorskip("dm_control")
shimmy = pytest.importorskip("shimmy")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(("axis", "way"), [(0, 1.0), (2, -1.0)])
def test_the_hand_goes_where_it_is_told_to(axis: int, way: float) -> None:
    gymnasium.register_envs(shimmy)
    arm = gymnasium.make("dm_control/manipulator-bring_ball-v0", max_episode_steps=1000)
    env = EndEffectorAction(
        arm,
        "ee_delta_position",
        end_effector="grasp",
        root="upper_arm",
        action_options={"target": "desired", "position_scale": 0.05},
    )
    physics = arm.unwrapped._env.physics  # type: ignore[attr-defined]

    def place() -> np.ndarray:
        return np.array(physics.data.ptr.site("grasp").xpos)

    for seed in range(3):
        env.reset(seed=seed)
        action = np.zeros(env.action_space.shape)
        for _ in range(200):
            env.step(action)
        start = place()
        action[axis] = way
        for _ in range(200):
            env.step(action)
            action[axis] = 0.0
        np.testing.assert_allclose(place() - start, way * 0.05 * np.eye(3)[axis], atol=1e-3)
