"""Action spaces with a gripper: one number more, whatever the space in front."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import OSC, ArmWithGripper, Torque
from fraxenv.dynamics import Robot
from fraxenv.envs import ActionAxis, EEDelta, JointDelta, JointTorque, WithGripper, action_names
from fraxenv.envs.actions.base import Steerable
from fraxenv.errors import ConfigError

FINGER = "panda_finger_joint1"


@jax.jit
def commanded(space, robot: Robot, q, action):
    """What an action asks for at first."""
    return space.command(robot, q, action, space.init(robot, q))[0]


@pytest.fixture(scope="module")
def gripper() -> Robot:
    return dynamics.load_robot("panda_gripper")


@pytest.mark.parametrize("name", action_names())
def test_every_space_has_one_number_for_the_gripper(gripper: Robot, name: str) -> None:
    """As many numbers as without fingers, and one; and they mean the same to the arm."""
    env, params = fraxenv.make(robot=gripper, task="reach", action=name)
    plain, own = fraxenv.make("PandaReach-v0", action=name)
    axes = params.action.axes(gripper)
    assert axes[-1] == ActionAxis("gripper", 0.0, 0.08, "m")
    assert [a.name for a in axes[:-1]] == [a.name for a in own.action.axes(plain.robot)]
    assert isinstance(params.controller, ArmWithGripper)

    q, n = jnp.asarray(gripper.q_default), env.num_actions
    action = jnp.linspace(-0.4, 0.4, n)
    target = commanded(params.action, gripper, q, action)
    alone = commanded(own.action, plain.robot, q[:7], action[:-1])
    if not name.startswith("ee_pose"):  # whose box is the setup's
        for a, b in zip(jax.tree.leaves(target.arm), jax.tree.leaves(alone), strict=True):
            np.testing.assert_allclose(np.ravel(a)[:7], np.ravel(b)[:7], atol=1e-6)
    assert target.width == pytest.approx(0.04 * 1.4)


def test_width_and_binary(gripper: Robot) -> None:
    q = jnp.asarray(gripper.q_default)
    for mode, widths in (("width", (0.0, 0.02, 0.04, 0.08)), ("binary", (0.0, 0.0, 0.0, 0.08))):
        space = WithGripper.of(EEDelta(), gripper, mode)
        state = space.init(gripper, q)
        for last, expected in zip((-1.0, -0.5, 0.0, 1.0), widths, strict=True):
            target, state = space.command(gripper, q, jnp.zeros(7).at[6].set(last), state)
            assert target.width == pytest.approx(expected)
        assert space.hold(gripper, q, state).width == pytest.approx(0.04)


def test_towards_is_that_of_the_space_in_front(gripper: Robot) -> None:
    q = jnp.asarray(gripper.q_default)
    ways = {"hand": (jnp.array([0.01, 0.0, -0.02]), jnp.zeros(3))}
    space = WithGripper.of(EEDelta(), gripper)
    assert isinstance(space, Steerable)
    np.testing.assert_array_equal(
        space.towards(gripper, q, ways), EEDelta().towards(gripper, q, ways)
    )
    joints = WithGripper.of(JointDelta(), gripper).towards(gripper, q, ways)
    np.testing.assert_array_equal(joints, JointDelta().towards(gripper, q, ways)[:7])
    with pytest.raises(ConfigError, match="JointTorque has no method `towards`"):
        WithGripper.of(JointTorque(), gripper).towards(gripper, q, ways)


def test_options_reach_arm_and_servo(gripper: Robot) -> None:
    options = {"kp": 99.0, "gripper_force": 12.0}
    _, params = fraxenv.make(robot=gripper, task="reach", controller_options=options)
    assert params.controller.arm.kp == 99.0
    assert params.controller.gripper_force == 12.0
    _, params = fraxenv.make(robot=gripper, task="reach", action="torque", controller=Torque())
    assert isinstance(params.controller.arm, Torque)
    _, params = fraxenv.make(
        robot=gripper, task="reach", controller=ArmWithGripper(OSC("hand"), FINGER)
    )
    assert isinstance(params.controller.arm, OSC)


def test_refusals(gripper: Robot) -> None:
    with pytest.raises(ConfigError, match=r"robot 'panda' has no fingers.*Leave gripper out"):
        fraxenv.make("PandaReach-v0", gripper="width")
    with pytest.raises(ConfigError, match=r"gripper of .*='wide', expected one of 'width'"):
        fraxenv.make(robot=gripper, task="reach", gripper="wide")
    space = WithGripper.of(EEDelta(), gripper)
    with pytest.raises(ConfigError, match="space is a WithGripper"):
        WithGripper.of(space, gripper)


@pytest.mark.slow
def test_the_fingers_follow_the_width(gripper: Robot) -> None:
    """In a rollout of a batch: one closes, one opens, and both arms stay where they are."""
    env, params = fraxenv.make(robot=gripper, task="reach", task_options={"start_noise": 0.0})
    step = jax.jit(jax.vmap(lambda key, s, a: env.step_env(key, s, a, params)))
    keys = jax.random.split(jax.random.key(0), 2)
    _, state = jax.vmap(lambda key: env.reset(key, params))(keys)
    start = state.q
    for _ in range(25):
        _, state, _, _, info = step(keys, state, jnp.zeros((2, 7)).at[:, 6].set(jnp.array([-1, 1])))
    np.testing.assert_allclose(state.q[:, 7], [0.0, 0.04], atol=1e-3)
    np.testing.assert_allclose(state.q[:, :7], start[:, :7], atol=2e-3)
    np.testing.assert_allclose(info["controller"]["gripper_width"], 2 * state.q[:, 7], atol=1e-3)
