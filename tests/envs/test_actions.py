"""What an action means, in metres, radians and newton metres."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.controllers import PoseTarget
from fraxenv.dynamics import Robot
from fraxenv.envs import ACTION_SPACES, EEDelta, JointTorque
from fraxenv.errors import ConfigError


@pytest.fixture(scope="module")
def panda() -> Robot:
    return dynamics.load_robot("panda")


def command(
    panda: Robot, space: EEDelta, action: Any, state: PoseTarget | None = None
) -> PoseTarget:
    q = jnp.asarray(panda.q_default, float)
    state = space.init(panda, q) if state is None else state
    return space.command(panda, q, jnp.asarray(action, float), state)[0]


@pytest.mark.parametrize("target", ["measured", "desired"])
def test_full_action_is_5_cm_and_half_a_radian(panda: Robot, target: Any) -> None:
    position, rotation = dynamics.frame_pose(panda, panda.q_default, "hand")
    space = EEDelta(target=target)
    goal = command(panda, space, [1, 0, 0, 0, 0, 1])
    np.testing.assert_allclose(goal.position - position, [0.05, 0, 0], atol=1e-6)
    turn = dynamics.orientation_error(goal.rotation, rotation)
    np.testing.assert_allclose(turn, [0, 0, 0.5], atol=1e-6)
    units = [(a.name, a.low, a.high, a.unit) for a in space.axes(panda)]
    assert units[0] == ("dx", -0.05, 0.05, "m")
    assert units[5] == ("drz", -0.5, 0.5, "rad")


def test_scales_are_per_axis(panda: Robot) -> None:
    position, _ = dynamics.frame_pose(panda, panda.q_default, "hand")
    space = EEDelta(position_scale=np.array([0.01, 0.02, 0.03]))
    goal = command(panda, space, [1, -1, 0.5, 0, 0, 0])
    np.testing.assert_allclose(goal.position - position, [0.01, -0.02, 0.015], atol=1e-6)
    assert [a.high for a in space.axes(panda)[:3]] == [0.01, 0.02, 0.03]


def test_ee_frame(panda: Robot) -> None:
    """In the hand's own frame, z is where the fingers point: down, at the ready pose."""
    position, rotation = dynamics.frame_pose(panda, panda.q_default, "hand")
    goal = command(panda, EEDelta(frame="ee"), [0, 0, 1, 0, 0, 1])
    np.testing.assert_allclose(goal.position - position, 0.05 * rotation[:, 2], atol=1e-6)
    assert float(goal.position[2] - position[2]) < -0.04
    turn = dynamics.orientation_error(goal.rotation, rotation)
    np.testing.assert_allclose(turn, 0.5 * rotation[:, 2], atol=1e-6)


def test_held_orientation_is_that_of_the_reset(panda: Robot) -> None:
    space = ACTION_SPACES["ee_delta_position"](end_effector="hand")
    assert len(space.axes(panda)) == 3
    q = jnp.asarray(panda.q_default, float)
    state = space.init(panda, q)
    moved = q.at[6].add(0.3)  # the hand has been turned by something
    goal, state = space.command(panda, moved, jnp.array([1.0, 0, 0]), state)
    np.testing.assert_allclose(goal.rotation, dynamics.frame_pose(panda, q, "hand")[1], atol=1e-6)


def test_desired_target_integrates_but_does_not_run_away(panda: Robot) -> None:
    position, rotation = dynamics.frame_pose(panda, panda.q_default, "hand")
    space = EEDelta(target="desired")
    goal = command(panda, space, [0.4, 0, 0, 0, 0, 0.4])
    goal = command(panda, space, [0.4, 0, 0, 0, 0, 0.4], goal)
    np.testing.assert_allclose(goal.position - position, [0.04, 0, 0], atol=1e-6)
    np.testing.assert_allclose(
        dynamics.orientation_error(goal.rotation, rotation), [0, 0, 0.4], atol=1e-6
    )
    for _ in range(10):  # the hand is blocked: q stays
        goal = command(panda, space, [1, 0, 0, 0, 0, 1], goal)
    np.testing.assert_allclose(goal.position - position, [0.05, 0, 0], atol=1e-6)
    np.testing.assert_allclose(
        dynamics.orientation_error(goal.rotation, rotation), [0, 0, 0.5], atol=1e-6
    )


def test_measured_target_follows_the_hand(panda: Robot) -> None:
    space = EEDelta(target="measured")
    q = jnp.asarray(panda.q_default, float)
    goal, state = space.command(panda, q, jnp.ones(6), space.init(panda, q))
    moved = q + 0.1
    goal, _ = space.command(panda, moved, jnp.zeros(6), state)
    np.testing.assert_allclose(
        goal.position, dynamics.frame_pose(panda, moved, "hand")[0], atol=1e-6
    )


def test_torque_scales_the_effort_limits(panda: Robot) -> None:
    space = JointTorque(scale=0.5)
    tau, _ = space.command(panda, jnp.zeros(7), jnp.ones(7), ())
    np.testing.assert_allclose(tau, 0.5 * np.asarray(panda.effort_limits))
    assert space.axes(panda)[0].high == 43.5
    assert space.axes(panda)[0].unit == "N m"


def test_torque_needs_effort_limits(panda: Robot) -> None:
    unlimited = panda.replace(effort_limits=np.full(7, np.inf))
    with pytest.raises(ConfigError, match=r"joint 'panda_joint1'.*has no effort limit"):
        JointTorque().axes(unlimited)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="target='absolute', expected one of 'measured'"):
        EEDelta(target="absolute")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="frame='world', expected one of 'base', 'ee'"):
        EEDelta(frame="world")  # type: ignore[arg-type]
