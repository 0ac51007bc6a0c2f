"""An arm's controller with a gripper: the arm's torques stay, the fingers' servo is a spring."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv import dynamics
from fraxenv.controllers import OSC, ArmWithGripper, GripperTarget, PoseTarget, finger_joints
from fraxenv.controllers.groups import only_finger_joint
from fraxenv.dynamics import Robot
from fraxenv.errors import ArrayError, ConfigError, UnknownNameError

DT = 2e-3
FINGER = "panda_finger_joint1"


@pytest.fixture(scope="module")
def gripper() -> Robot:
    return dynamics.load_robot("panda_gripper")


@pytest.fixture(scope="module")
def law(gripper: Robot):
    """Torques, telemetry and the arm's own torques for a width and a position of the fingers."""
    group = ArmWithGripper(OSC("hand"), FINGER)

    @jax.jit
    def torques(group, width, x, shift):
        q = jnp.asarray(gripper.q_default).at[7].set(x)
        terms = dynamics.compute_terms(gripper, q, jnp.zeros(8))
        position, rotation = dynamics.frame_pose(gripper, q, "hand")
        arm = PoseTarget(position + shift, rotation)
        alone = group.arm(gripper, terms, arm, None, DT)[0]
        tau, _, told = group(gripper, terms, GripperTarget(arm, width), None, DT)
        return tau, told, alone

    return lambda width, x, shift=0.05, **options: torques(
        dataclasses.replace(group, **options), jnp.asarray(width), x, shift
    )


def test_which_joints_are_fingers(gripper: Robot) -> None:
    assert finger_joints(gripper) == (FINGER,)
    assert finger_joints(dynamics.load_robot("g1")) == ()
    with pytest.raises(ConfigError, match="robot 'panda' has no fingers, expected one pair"):
        only_finger_joint(dynamics.load_robot("panda"), "here")


def test_the_servo_is_a_spring_of_limited_force(law) -> None:
    for width, x, expected in ((0.05, 0.02, 5.0), (0.0, 0.02, -20.0), (0.08, 0.01, 30.0)):
        tau, told, alone = law(width, x)
        assert tau[7] == pytest.approx(expected, abs=1e-3)
        np.testing.assert_array_equal(tau[:7], alone[:7])
        assert told["gripper_width"] == pytest.approx(2 * x)
        assert told["target_finite"]
        assert "position_error" in told
    assert law(0.0, 0.02, gripper_force=7.0)[0][7] == pytest.approx(-7.0)
    assert law(0.0, 0.02, gripper_kp=100.0)[0][7] == pytest.approx(-2.0)


@pytest.mark.parametrize(("width", "shift"), [(np.nan, 0.05), (0.0, np.inf)])
def test_targets_that_are_not_finite_stop_their_part(law, width, shift) -> None:
    tau, told, alone = law(width, 0.02, shift)
    assert np.isfinite(tau).all()
    assert not told["target_finite"]
    np.testing.assert_array_equal(tau[:7], alone[:7])
    assert tau[7] == pytest.approx(0.0 if np.isnan(width) else -20.0, abs=1e-3)


def test_refusals(gripper: Robot) -> None:
    terms = jax.jit(dynamics.compute_terms)(gripper, gripper.q_default, np.zeros(8))
    group, target = ArmWithGripper(OSC("hand"), FINGER), PoseTarget(np.zeros(3), np.eye(3))

    def call(target):
        jax.eval_shape(lambda: group(gripper, terms, target, None, DT))

    with pytest.raises(ConfigError, match="is a PoseTarget, expected a GripperTarget"):
        call(target)
    with pytest.raises(ArrayError, match=r"target.width has shape \(1,\), expected \(\)"):
        call(GripperTarget(target, np.zeros(1)))
    with pytest.raises(UnknownNameError, match="finger joint 'panda_joint1'"):
        ArmWithGripper(OSC("hand"), "panda_joint1").init(gripper, terms)
    with pytest.raises(ConfigError, match="gripper_kp=-1"):
        ArmWithGripper(OSC("hand"), FINGER, gripper_kp=-1.0)
