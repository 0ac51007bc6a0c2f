"""What an action means, in metres, radians and newton metres."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import OSC, JointImpedance, JointTarget, JointVelocity, PoseTarget, Torque
from fraxenv.dynamics import Robot
from fraxenv.envs import (
    EEDelta,
    EEPose,
    JointDelta,
    JointPosition,
    JointRate,
    JointTorque,
    VariableImpedance,
    action_names,
    make_action,
)
from fraxenv.errors import ConfigError, UnknownNameError

BOX = ((0.3, -0.3, 0.1), (0.7, 0.3, 0.7))


@pytest.fixture(scope="module")
def panda() -> Robot:
    return dynamics.load_robot("panda")


@jax.jit
def commanded(space: Any, robot: Robot, q: Any, action: Any) -> tuple[Any, Any]:
    """The first state of an action space, and what an action asks for then."""
    state = space.init(robot, q)
    return state, space.command(robot, q, action, state)[0]


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
    space = make_action("ee_delta_position", "hand", BOX)
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


# --- Absolute poses -------------------------------------------------------------------------------


def test_ee_pose_maps_to_the_workspace_box(panda: Robot) -> None:
    space = EEPose("hand", low=BOX[0], high=BOX[1])
    q = jnp.asarray(panda.q_default, float)
    first = space.init(panda, q)
    for position, expected in ((-1.0, BOX[0]), (1.0, BOX[1]), (0.0, (0.5, 0.0, 0.4))):
        action = jnp.array([position] * 3 + [1.0, 0, 0, 0, -1.0, 0])
        goal, _ = space.command(panda, q, action, first)
        np.testing.assert_allclose(goal.position, expected, atol=1e-6)
        np.testing.assert_allclose(goal.rotation, np.diag([1.0, -1, -1]), atol=1e-6)
    axes = space.axes(panda)
    assert [a.name for a in axes] == ["x", "y", "z", "rxx", "rxy", "rxz", "ryx", "ryy", "ryz"]
    assert (axes[1].low, axes[1].high, axes[1].unit) == (-0.3, 0.3, "m")


def test_six_numbers_are_a_rotation(panda: Robot) -> None:
    space = EEPose("hand", low=BOX[0], high=BOX[1])
    q = jnp.asarray(panda.q_default, float)
    actions = np.random.default_rng(0).uniform(-1, 1, (200, 9))
    first = space.init(panda, q)
    turned = jax.jit(jax.vmap(lambda a: space.command(panda, q, a, first)[0].rotation))
    goals = turned(actions)
    identity = np.broadcast_to(np.eye(3), (200, 3, 3))
    np.testing.assert_allclose(goals @ np.swapaxes(goals, 1, 2), identity, atol=1e-5)
    np.testing.assert_allclose(np.linalg.det(goals), 1.0, atol=1e-5)
    # The first column is the direction of the first three numbers, the second in their plane.
    x = actions[:, 3:6] / np.linalg.norm(actions[:, 3:6], axis=1, keepdims=True)
    np.testing.assert_allclose(goals[:, :, 0], x, atol=1e-5)
    assert (np.einsum("ni,ni->n", goals[:, :, 1], actions[:, 6:9]) > 0).all()


@pytest.mark.parametrize("columns", [(0,) * 6, (1, 0, 0, 1, 0, 0), (0, 0, 0, 0, 1, 0)])
def test_what_is_no_rotation_keeps_the_one_before(panda: Robot, columns: Any) -> None:
    space = EEPose("hand", low=BOX[0], high=BOX[1])
    q = jnp.asarray(panda.q_default, float)
    before = space.init(panda, q)

    def rotation(numbers: Any) -> Any:
        action = jnp.concatenate([jnp.zeros(3), numbers])
        return space.command(panda, q, action, before)[0].rotation

    numbers = jnp.array(columns, float)
    np.testing.assert_allclose(jax.jit(rotation)(numbers), before.rotation, atol=1e-7)
    assert bool(jnp.isfinite(jax.jit(jax.jacrev(rotation))(numbers)).all())


# --- Some of the axes, several hands --------------------------------------------------------------


def test_some_axes(panda: Robot) -> None:
    space = EEDelta(axes_used=("x", "rz"), position_scale=(0.02, 0.03, 0.04))
    assert [a.name for a in space.axes(panda)] == ["dx", "drz"]
    position, rotation = dynamics.frame_pose(panda, panda.q_default, "hand")
    goal = command(panda, space, [1, -1])
    np.testing.assert_allclose(goal.position - position, [0.02, 0, 0], atol=1e-6)
    turn = dynamics.orientation_error(goal.rotation, rotation)
    np.testing.assert_allclose(turn, [0, 0, -0.5], atol=1e-6)


def test_two_hands_have_their_actions_one_after_the_other() -> None:
    g1 = dynamics.load_robot("g1", floating_base=False)
    hands = ("left_hand", "right_hand")
    space = EEDelta(hands, position_scale=((0.1,) * 3, (0.2,) * 3))
    names = [a.name for a in space.axes(g1)]
    assert names[:2] == ["left_hand.dx", "left_hand.dy"]
    assert names[6] == "right_hand.dx"
    assert len(names) == 12
    q = jnp.asarray(g1.q_default, float)
    action = jnp.zeros(12).at[0].set(1.0).at[8].set(-1.0)
    state, goal = commanded(space, g1, q, action)
    assert state.position.shape == (2, 3)
    np.testing.assert_allclose(
        goal.position - state.position, [[0.1, 0, 0], [0, 0, -0.2]], atol=1e-6
    )
    np.testing.assert_allclose(goal.rotation, state.rotation, atol=1e-6)
    one = EEDelta("right_hand", position_scale=0.2)
    _, alone = commanded(one, g1, q, action[6:])
    np.testing.assert_allclose(goal.position[1], alone.position, atol=1e-7)


# --- Joints ---------------------------------------------------------------------------------------


def test_joint_delta(panda: Robot) -> None:
    q = jnp.asarray(panda.q_default, float)
    space = JointDelta(scale=0.2)
    goal, state = space.command(panda, q, jnp.ones(7), space.init(panda, q))
    np.testing.assert_allclose(goal.position - q, 0.2, atol=1e-6)
    desired = JointDelta(target="desired", scale=0.2)
    for _ in range(3):  # the joints are blocked
        goal, state = desired.command(panda, q, 0.75 * jnp.ones(7), state)
    np.testing.assert_allclose(goal.position - q, 0.2, atol=1e-6)
    at_limit = jnp.asarray(panda.position_limits, float)[:, 1]
    goal, _ = space.command(panda, at_limit, jnp.ones(7), space.init(panda, q))
    np.testing.assert_allclose(goal.position, at_limit, atol=1e-6)
    assert {a.unit for a in space.axes(panda)} == {"rad"}
    assert space.axes(dynamics.load_robot("cartpole"))[0].unit == "m"


def test_joint_position_maps_to_the_limits(panda: Robot) -> None:
    space, q = JointPosition(), jnp.asarray(panda.q_default, float)
    for action, column in ((-1.0, 0), (1.0, 1)):
        goal, _ = space.command(panda, q, jnp.full(7, action), space.init(panda, q))
        np.testing.assert_allclose(goal.position, panda.position_limits[:, column], atol=1e-6)
    assert space.axes(panda)[3].high == pytest.approx(-0.0698)
    own = JointPosition(low=-0.5 * np.ones(7), high=np.ones(7))
    goal, _ = own.command(panda, q, jnp.zeros(7), own.init(panda, q))
    np.testing.assert_allclose(goal.position, 0.25, atol=1e-7)


def test_joints_without_limits(panda: Robot) -> None:
    """One that turns has half a turn to each side; one that slides has to be given a range."""
    turning = panda.replace(position_limits=np.tile([-np.inf, np.inf], (7, 1)))
    assert JointPosition().axes(turning)[0].high == pytest.approx(np.pi)
    mobile = dynamics.load_robot("planar_mobile_manipulator")
    with pytest.raises(ConfigError, match=r"joint_position.*no position limits"):
        JointPosition().axes(mobile)
    JointPosition(low=-np.ones(5), high=np.ones(5)).axes(mobile)


def test_a_rotation_in_space_has_no_range_of_positions(tmp_path: Path) -> None:
    urdf = tmp_path / "ball.urdf"
    urdf.write_text(
        """<robot name="ball"><link name="base"/>
        <link name="body"><inertial><mass value="1"/>
          <inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/></inertial></link>
        <joint name="socket" type="spherical"><parent link="base"/><child link="body"/></joint>
        </robot>"""
    )
    with pytest.raises(ConfigError, match=r"joint_position.*rotation in space.*joint_delta"):
        JointPosition(low=-1.0, high=1.0).axes(dynamics.load_urdf(urdf))


SPACES = [
    JointDelta(),
    JointDelta(target="desired"),
    JointPosition(),
    JointPosition(about=0.5),
    JointRate(),
    JointTorque(),
    VariableImpedance(JointPosition(about=0.5)),
]


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_nothing_drives_a_base_that_floats(space: Any) -> None:
    """It has no part in an action, and is where it is in what an action asks for."""
    robot = dynamics.load_robot("a1")
    axes = space.axes(robot)
    each = 3 if isinstance(space, VariableImpedance) else 1
    assert len(axes) == 12 * each
    assert not [axis for axis in axes if "root" in axis.name]
    q = jnp.asarray(robot.q_default, float).at[:3].set(jnp.array([1.0, 2.0, 3.0]))
    state = space.init(robot, q)
    q = q.at[0].add(0.1)
    action = jnp.zeros(12 * each).at[2].set(0.25)
    target, _ = space.command(robot, q, action, state)
    position = getattr(target, "position", None)
    if position is None:
        np.testing.assert_array_equal(target[:6], 0.0)
        asked = target[6:]
    else:
        np.testing.assert_allclose(position[:7], q[:7], atol=1e-6)
        asked = position[7:]
    middle, half = (jnp.asarray([x(a) for a in axes[:12]]) for x in (_middle, _half))
    delta = isinstance(space, JointDelta)
    expected = (q[7:] if delta else middle) + half * action[:12]
    np.testing.assert_allclose(asked, expected, atol=1e-5)


def _middle(axis: Any) -> float:
    return 0.5 * float(axis.high + axis.low)


def _half(axis: Any) -> float:
    return 0.5 * float(axis.high - axis.low)


def test_positions_about_the_default_or_between_ends(panda: Robot) -> None:
    axes = JointPosition(about=0.2).axes(panda)
    assert axes[1].low == pytest.approx(float(panda.q_default[1]) - 0.2)
    assert axes[1].high == pytest.approx(float(panda.q_default[1]) + 0.2)
    with pytest.raises(ConfigError, match=r"about=0\.2 with low or high.*Leave the other out"):
        JointPosition(low=-1.0, about=0.2)


def test_joint_velocity_scales_the_limits(panda: Robot) -> None:
    v, _ = JointRate(scale=0.5).command(panda, jnp.zeros(7), -jnp.ones(7), ())
    np.testing.assert_allclose(v, -0.5 * np.asarray(panda.velocity_limits), rtol=1e-6)
    unlimited = panda.replace(velocity_limits=np.full(7, np.inf))
    with pytest.raises(ConfigError, match=r"joint_velocity.*no velocity limit"):
        JointRate().axes(unlimited)


# --- Gains ----------------------------------------------------------------------------------------


def test_gains_follow_the_action(panda: Robot) -> None:
    q = jnp.asarray(panda.q_default, float)
    space = VariableImpedance(EEDelta())
    assert len(space.axes(panda)) == 18
    assert space.axes(panda)[6].name == "kp_x"
    assert (space.axes(panda)[6].low, space.axes(panda)[6].high) == (0.0, 300.0)
    state = space.init(panda, q)
    goal, after = space.command(panda, q, jnp.zeros(18), state)
    np.testing.assert_allclose(goal.kp, 150.0)  # the controller's own
    np.testing.assert_allclose(goal.damping_ratio, 1.0)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, state)
    action = jnp.zeros(18).at[6].set(1.0).at[17].set(-1.0)
    goal, _ = space.command(panda, q, action, state)
    np.testing.assert_allclose(goal.kp, [300.0] + [150.0] * 5)
    np.testing.assert_allclose(goal.damping_ratio, [1.0] * 5 + [0.0])
    stiffness = VariableImpedance(EEDelta(), gains="stiffness", kp_range=(50.0, 100.0))
    goal, _ = stiffness.command(panda, q, jnp.ones(12), state)
    np.testing.assert_allclose(goal.kp, 100.0)
    assert goal.damping_ratio is None


def test_gains_of_two_hands_and_of_joints(panda: Robot) -> None:
    g1 = dynamics.load_robot("g1", floating_base=False)
    space = VariableImpedance(EEDelta(("left_hand", "right_hand")))
    names = [a.name for a in space.axes(g1)]
    assert len(names) == 36
    assert names[18] == "kp_right_hand.x"
    q = jnp.asarray(g1.q_default, float)
    goal, _ = space.command(g1, q, jnp.zeros(36).at[18].set(1.0), space.init(g1, q))
    assert goal.kp.shape == (2, 6)
    assert float(goal.kp[1, 0]) == 300.0
    joints = VariableImpedance(JointDelta())
    q = jnp.asarray(panda.q_default, float)
    goal, _ = joints.command(panda, q, jnp.zeros(21).at[7].set(-1.0), joints.init(panda, q))
    assert goal.kp.shape == goal.damping_ratio.shape == (7,)
    assert float(goal.kp[0]) == 0.0


@pytest.mark.slow
def test_softer_hands_follow_later(panda: Robot) -> None:
    """The gains arrive at the controller: a tenth of the stiffness moves less in a step."""
    moved = {}
    env, params = fraxenv.make("PandaReach-v0", action="ee_delta_pose+impedance", control_hz=250)
    key = jax.random.key(0)
    _, state = env.reset(key, params)
    start = dynamics.frame_pose(env.robot, state.q, "hand")[0]
    for kp in (-0.9, 1.0):
        action = jnp.zeros(18).at[0].set(1.0).at[6:12].set(kp)
        _, new, *_ = env.step(key, state, action, params)
        moved[kp] = float(dynamics.frame_pose(env.robot, new.q, "hand")[0][0] - start[0])
    assert 0 < 4 * moved[-0.9] < moved[1.0]


# --- Names ----------------------------------------------------------------------------------------

CONTROLLERS = {
    "ee_delta_pose": (6, OSC, PoseTarget),
    "ee_delta_position": (3, OSC, PoseTarget),
    "ee_pose": (9, OSC, PoseTarget),
    "joint_delta": (7, JointImpedance, JointTarget),
    "joint_position": (7, JointImpedance, JointTarget),
    "joint_velocity": (7, JointVelocity, jax.Array),
    "torque": (7, Torque, jax.Array),
    "ee_delta_pose+impedance": (18, OSC, PoseTarget),
    "ee_delta_position+impedance": (15, OSC, PoseTarget),
    "ee_pose+impedance": (21, OSC, PoseTarget),
    "joint_delta+impedance": (21, JointImpedance, JointTarget),
    "joint_position+impedance": (21, JointImpedance, JointTarget),
}


@pytest.mark.parametrize("name", action_names())
def test_every_space_by_name(panda: Robot, name: str) -> None:
    size, controller, target = CONTROLLERS[name]
    space = make_action(name, "hand", BOX)
    assert len(space.axes(panda)) == size
    assert isinstance(space.controller(), controller)
    q = jnp.asarray(panda.q_default, float)
    state = space.init(panda, q)
    goal, after = space.command(panda, q, jnp.zeros(size), state)
    assert isinstance(goal, target)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, state)
    hold = space.hold(panda, q, state)
    chex.assert_trees_all_equal_shapes(hold, goal)
    axes = space.axes(panda)
    assert len({a.name for a in axes}) == size
    assert all(a.low < a.high and a.unit for a in axes)


def test_wrong_options() -> None:
    with pytest.raises(UnknownNameError, match=r"'ee_delta'. Did you mean"):
        make_action("ee_delta", "hand", BOX)
    with pytest.raises(UnknownNameError, match=r"torque\+impedance"):
        make_action("torque+impedance", "hand", BOX)
    with pytest.raises(ConfigError, match=r"axes_used=\('z', 'x'\), expected some of 'x'"):
        EEDelta(axes_used=("z", "x"))
    with pytest.raises(ConfigError, match="space=JointTorque, expected one of EEDelta"):
        VariableImpedance(JointTorque())
    with pytest.raises(ConfigError, match="gains='kp'"):
        VariableImpedance(EEDelta(), gains="kp")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="target='last'"):
        JointDelta(target="last")  # type: ignore[arg-type]


def test_hands_that_the_robot_does_not_have(panda: Robot) -> None:
    for space in (EEDelta("foot"), EEPose("foot", low=BOX[0], high=BOX[1])):
        with pytest.raises(UnknownNameError, match="'foot'"):
            space.axes(panda)
