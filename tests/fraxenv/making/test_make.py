"""`fraxenv.make`: ids, overrides, and what is said about wrong ones."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import OSC, PoseTarget
from fraxenv.controllers.hands import Hands
from fraxenv.controllers.osc import osc_torque
from fraxenv.dynamics.model.bundled import bundled_urdf
from fraxenv.envs import EEDelta
from fraxenv.errors import (
    ConfigError,
    FraxenvError,
    MissingExtraError,
    RobotLoadError,
    UnknownNameError,
    import_extra,
)
from fraxenv.making.make import OVERRIDES
from fraxenv.making.robots import place_robot
from fraxenv.making.setups import SETUPS


def test_ids() -> None:
    assert fraxenv.list_envs()[:4] == [
        "PandaReach-v0",
        "PandaReachPose-v0",
        "PandaTrack-v0",
        "PandaReachObstacles-v0",
    ]
    env, params = fraxenv.make("PandaReach-v0")
    assert env.name == "PandaReach-v0"
    assert env.action_space(params).shape == (6,)
    assert not params.task.orientation
    assert fraxenv.make("PandaReachPose-v0")[1].task.orientation
    assert fraxenv.make("fraxenv/PandaReach-v0")[0] == env


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({}, (50, 500, 1000)),
        ({"policy_hz": 250}, (250, 500, 1000)),
        ({"policy_hz": 200}, (200, 1000, 1000)),
        ({"policy_hz": 1000}, (1000, 1000, 1000)),
        ({"control_hz": 100}, (50, 100, 1000)),
    ],
)
def test_rates_among_obstacles(options: dict[str, int], rates: tuple[int, ...]) -> None:
    env, _ = fraxenv.make("PandaReachObstacles-v0", **options)
    assert (env.policy_hz, env.control_hz, env.physics_hz) == rates


@pytest.mark.parametrize(
    ("action", "size"),
    [
        ("ee_delta_pose", 6),
        pytest.param("ee_delta_position", 3, marks=pytest.mark.slow),
        pytest.param("torque", 7, marks=pytest.mark.slow),
    ],
)
def test_action_spaces(action: str, size: int) -> None:
    env, params = fraxenv.make("PandaReach-v0", action=action, control_hz=100, physics_hz=100)
    key = jax.random.key(0)
    _, state = env.reset(key, params)
    obs, *_ = env.step(key, state, jnp.zeros(size), params)
    assert obs.shape == env.observation_space(params).shape
    assert sum(env.observation_layout.values()) == obs.shape[0]
    assert list(env.observation_layout)[:2] == ["joint_position", "joint_velocity"]


def test_overrides_arrive() -> None:
    env, params = fraxenv.make(
        "PandaReach-v0",
        action_options={"position_scale": 0.02, "frame": "ee", "target": "desired"},
        controller_options={"kp": 80.0, "posture": "center"},
        task_options={"position_tolerance": 0.01, "reward_weights": {"action_rate": -1.0}},
        policy_hz=20,
        control_hz=500,
        max_steps_in_episode=40,
    )
    assert isinstance(params.action, EEDelta)
    assert isinstance(params.controller, OSC)
    assert (params.action.frame, params.action.target) == ("ee", "desired")
    np.testing.assert_allclose(params.action.position_scale, 0.02)
    assert params.controller.posture == "center"
    np.testing.assert_allclose(params.controller.kp, 80.0)
    np.testing.assert_allclose(params.task.reward_weights["action_rate"], -1.0)
    np.testing.assert_allclose(params.task.reward_weights["position_error"], -0.2)
    assert (env.policy_hz, env.control_hz, env.physics_hz) == (20, 500, 1000)
    assert int(params.max_steps_in_episode) == 40


@pytest.mark.parametrize("id", ["PandaReach-v0", "Iiwa14Reach-v0", "UR10Reach-v0", "G1Reach-v0"])
def test_no_robot_counts_as_singular_where_it_rests(id: str) -> None:
    env, params = fraxenv.make(id)
    osc: Any = params.controller

    @jax.jit
    def conditioning(q: Any) -> Any:
        here = [dynamics.frame_pose(env.robot, q, n) for n in Hands.of(osc.end_effector).names]
        target = PoseTarget(*(jnp.squeeze(jnp.stack(x)) for x in zip(*here, strict=True)))
        terms = dynamics.compute_terms(env.robot, q, jnp.zeros(env.robot.nv))
        return osc_torque(osc, env.robot, terms, target)[1]["conditioning"]

    assert np.min(conditioning(env.robot.q_default)) > 2 * osc.singularity_threshold


def test_objects_in_place_of_names() -> None:
    robot = dynamics.load_robot("panda").replace(damping=np.full(7, 2.0))
    env, _ = fraxenv.make(
        "PandaReach-v0",
        robot=robot,
        action=EEDelta(axes_used=("x", "y", "z")),
        controller=OSC("hand"),
    )
    assert env.robot is robot
    assert env.num_actions == 3


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("PandaReech-v0", {}), UnknownNameError, "Did you mean 'PandaReach-v0'"),
        (("PandaReach-v0", {"acton": "torque"}), UnknownNameError, "Did you mean 'action'"),
        (("PandaReach-v0", {"acton": "torque"}), UnknownNameError, "policy_hz, control_hz"),
        (("PandaReach-v0", {"controll_hz": 1}), UnknownNameError, "Did you mean 'control_hz'"),
        (("PandaReach-v0", {"action": "ee_pos"}), UnknownNameError, "Known: ee_delta_pose"),
        (
            ("PandaReach-v0", {"action_options": {"positon_scale": 1.0}}),
            UnknownNameError,
            "unknown action option 'positon_scale' of EEDelta. Did you mean 'position_scale'",
        ),
        (
            ("PandaReach-v0", {"controller_options": {"kd": 1.0}}),
            UnknownNameError,
            "unknown controller option 'kd' of OSC.*damping_ratio",
        ),
        (
            ("PandaReach-v0", {"task_options": {"reward_weights": {"distance": 1.0}}}),
            UnknownNameError,
            "unknown entry 'distance' of reward_weights.*position_error",
        ),
        (("PandaReach-v0", {"policy_hz": 33}), ConfigError, "not a multiple of policy_hz=33"),
        (
            ("PandaReach-v0", {"policy_hz": 50.0}),
            ConfigError,
            "policy_hz=50.0, expected a whole number >= 1",
        ),
        (("PandaReach-v0", {"control_hz": -1}), ConfigError, "control_hz=-1"),
        (("PandaReach-v0", {"max_steps_in_episode": 0}), ConfigError, "whole number >= 1"),
        (("PandaReach-v0", {"max_steps_in_episode": 2.5}), ConfigError, "whole number >= 1"),
        (("PandaReach-v0", {"robot": "pando"}), UnknownNameError, "Did you mean 'panda'"),
        (("PandaReach-v0", {"robot": 3}), ConfigError, "robot=3.*load_urdf"),
        ((None, {"robot": "panda"}), ConfigError, "has no task.*reach_pose"),
        ((None, {"task": "reach"}), ConfigError, "robot=None, expected the name"),
        ((None, {"robot": "panda", "task": "rech"}), UnknownNameError, "Did you mean 'reach'"),
        ((None, {"robot": "panda", "task": 3}), ConfigError, "task=3, expected the name"),
        (("PandaReach-v0", {"end_effector": "foot"}), UnknownNameError, "'foot'"),
        (("PandaReach-v0", {"goal_reward": "dense"}), ConfigError, "goal_env=True as well"),
        (("PandaReach-v0", {"goal_env": 1}), ConfigError, "goal_env=1, expected True or False"),
        (("PandaReach-v0", {"reset_pool": -1}), ConfigError, "reset_pool=-1"),
        (
            ("PandaReach-v0", {"task_options": {"goal_high": (2.0, 0.3, 0.6)}}),
            ConfigError,
            r"corner \(2, -0.3, 0.15\) m .* out of reach of 'hand'.*reaches 1\.",
        ),
        (
            ("PandaReach-v0", {"task_options": {"goal_low": (0.7, 0.0, 0.2)}}),
            ConfigError,
            "goal_low <= goal_high",
        ),
        (
            ("MobileReach-v0", {"action": "joint_position"}),
            ConfigError,
            "joint_position.*no position limits",
        ),
        (("PandaReach-v0", {"action_options": 3}), ConfigError, "action_options=3.*a dict"),
        (
            ("PandaReach-v0", {"action_options": {"position_scale": (1, 2)}}),
            ConfigError,
            r"position_scale=\[1, 2\], expected one number, or .* shape \(1, 3\)",
        ),
        (
            ("PandaReach-v0", {"action_options": {"position_scale": (0.1, np.nan, 0.1)}}),
            ConfigError,
            "action 'dy' of EEDelta would mean nan ... nan m, expected finite",
        ),
        (
            ("PandaReach-v0", {"action": "joint_position", "action_options": {"low": (1, 2)}}),
            ConfigError,
            r"low=\[1, 2\], expected one number, or .* shape \(7,\)",
        ),
        (
            (
                "PandaReach-v0",
                {"action": "ee_pose+impedance", "action_options": {"kp_range": (3, 1)}},
            ),
            ConfigError,
            "action 'kp_x' of VariableImpedance would mean 3 ... 1 1/s.2, expected .* smaller",
        ),
        (
            (None, {"robot": "mobile", "task": "reach"}),
            UnknownNameError,
            "Did you mean 'planar_mobile_manipulator'",
        ),
    ],
)
def test_wrong_input_is_refused(
    arguments: tuple[str, dict[str, Any]], error: type[FraxenvError], message: str
) -> None:
    id_, overrides = arguments
    with pytest.raises(error, match=message):
        fraxenv.make(id_, **overrides)


def test_any_combination_can_be_composed() -> None:
    env, params = fraxenv.make(robot="ur10", task="track", action="joint_velocity", safety="cbf")
    assert env.name == "UR10Track"
    assert env.num_actions == 6
    assert params.safety is not None
    assert type(params.task).__name__ == "Track"
    same, _ = fraxenv.make(robot="panda", task="reach")
    registered, _ = fraxenv.make("PandaReach-v0")
    assert same.name == "PandaReach"
    assert jax.tree.all(
        jax.tree.map(np.array_equal, same.default_params, registered.default_params)
    )


def test_ones_own_urdf_in_five_lines(tmp_path: Path) -> None:
    """Goals lie around where the hand is by default."""
    path = tmp_path / "arm.urdf"
    path.write_bytes(bundled_urdf("double_pendulum").read_bytes())
    robot = dynamics.load_urdf(path, q_default=[0.4, 0.5])
    env, params = fraxenv.make(robot=robot, task="reach", end_effector="tip", action="joint_delta")
    obs, state = env.reset(jax.random.key(0), params)
    obs, state, reward, *_ = env.step(jax.random.key(1), state, jnp.zeros(2), params)
    assert np.isfinite(obs).all()
    assert np.isfinite(reward)
    hand = np.asarray(dynamics.frame_pose(robot, robot.q_default, "tip")[0])
    low, high = np.asarray(params.task.goal_low), np.asarray(params.task.goal_high)
    np.testing.assert_allclose(0.5 * (low + high), hand, atol=0.25)
    assert (high - low > 0.1).tolist() == [True, False, True]  # it moves in a plane
    with pytest.raises(ConfigError, match=r"names none as end effectors.*end_effector='...'"):
        fraxenv.make(robot=robot, task="reach")


@pytest.fixture
def arm(tmp_path: Path) -> Path:
    """The setup of a robot of one's own, beside its URDF."""
    (tmp_path / "arm.urdf").write_bytes(bundled_urdf("double_pendulum").read_bytes())
    path = tmp_path / "arm.yaml"
    path.write_text("end_effector: tip\nheight: 0.4\nposture: {joint1: 0.3, joint2: 0.9}\n")
    return path


def test_ones_own_robot_from_yaml(arm: Path) -> None:
    """As a bundled one: what the file leaves out is guessed, and a TOML file beside it is read."""
    options: Any = {"robot": str(arm), "task": "reach", "action": "joint_delta"}
    env, params = fraxenv.make(**options)
    assert env.name == "armReach"
    by_hand = dynamics.load_urdf(arm.with_suffix(".urdf"))
    tip = np.asarray(dynamics.frame_pose(env.robot, env.robot.q_default, "tip")[0])
    moved = env.robot.q_default - by_hand.q_default
    np.testing.assert_allclose(moved, [0.3, 0.9])
    middle = 0.5 * (np.asarray(params.task.goal_low) + np.asarray(params.task.goal_high))
    np.testing.assert_allclose(middle, tip, atol=0.25)
    assert (env.robot.stop_stiffness == 2000.0).all()

    arm.with_suffix(".toml").write_text('armature = 0.25\nend_effectors = {end = "tip"}\n')
    arm.write_text(
        "title: Arm\nend_effector: end\ngoal_low: [0.1, 0.0, 0.6]\ngoal_high: [0.4, 0.0, 0.9]\n"
    )
    env, params = fraxenv.make(**options)
    assert env.name == "ArmReach"
    assert (env.robot.armature == 0.25).all()
    np.testing.assert_array_equal(params.task.goal_high, np.float32([0.4, 0.0, 0.9]))


def test_a_bundled_robot_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "high.yaml"
    path.write_text("robot: panda\nheight: 0.5\n")
    env, params = fraxenv.make(robot=str(path), task="reach")
    low = fraxenv.make("PandaReach-v0")[0].robot
    lifted, there = (
        np.asarray(dynamics.frame_pose(r, r.q_default, "hand")[0]) for r in (env.robot, low)
    )
    np.testing.assert_allclose(lifted - there, [0.0, 0.0, 0.5], atol=1e-6)
    assert np.asarray(params.task.goal_low)[2] > 0.5


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (
            "goal_lo: [0, 0, 0]",
            UnknownNameError,
            "'goal_lo' in .*arm.yaml. Did you mean 'goal_low'",
        ),
        ("height: tall", ConfigError, "arm.yaml: height: 'tall', expected a number"),
        ("locked: joint1", ConfigError, "locked='joint1', expected a list of names"),
        ("posture: {joint1: [0.1]}", ConfigError, r"joint1=\(0.1,\), expected a number"),
        ("robot: pando", UnknownNameError, "Did you mean 'panda'"),
        ("robot: other.urdf", RobotLoadError, "other.urdf"),
        ("posture: {joint9: 0.1}", UnknownNameError, "Did you mean 'joint2' or 'joint1'"),
        ("{}", ConfigError, "names none as end effectors"),
    ],
)
def test_wrong_setups_are_refused(
    arm: Path, text: str, error: type[FraxenvError], message: str
) -> None:
    arm.write_text(text)
    with pytest.raises(error, match=message):
        fraxenv.make(robot=str(arm), task="reach", action="joint_delta")


@pytest.mark.parametrize("text", ["armature = ", "armatur = 1.0"])
def test_wrong_companions_are_refused(arm: Path, text: str) -> None:
    arm.with_suffix(".toml").write_text(text)
    with pytest.raises(FraxenvError, match=r"arm\.toml"):
        fraxenv.make(robot=str(arm), task="reach", action="joint_delta")


def test_every_option_is_described() -> None:
    """The names are those of the signature, the words those of the docstring."""
    names = list(inspect.signature(fraxenv.make).parameters)
    assert ["id", *OVERRIDES] == names
    assert all(OVERRIDES.values())
    assert OVERRIDES["end_effector"].endswith("the robot's own if omitted.")


def test_goals_out_of_reach_are_reported_at_reset() -> None:
    env, params = fraxenv.make("PandaReach-v0")
    far = dataclasses.replace(params.task, goal_high=np.array([0.6, 0.3, 5.0], np.float32))
    with pytest.raises(ConfigError, match=r"goal_low..goal_high is out of reach of 'hand'"):
        env.reset(jax.random.key(0), params.replace(task=far))


def test_params_replace_names_its_fields() -> None:
    _, params = fraxenv.make("PandaReach-v0")
    with pytest.raises(UnknownNameError, match="max_steps_in_episode"):
        params.replace(max_steps=3)


def test_missing_extra_says_how_to_install_it() -> None:
    with pytest.raises(MissingExtraError, match=r'pip install "fraxenv\[mujoco\]"'):
        import_extra("no_such_package", "mujoco", "The MuJoCo backend")


def test_float64_follows_jax(x64: None) -> None:
    env, params = fraxenv.make("PandaReach-v0", action="joint_velocity")
    key = jax.random.key(0)
    obs, state = env.reset(key, params)
    obs, state, reward, *_ = env.step(key, state, jnp.zeros(7), params)
    assert obs.dtype == reward.dtype == state.q.dtype == jnp.float64
    assert env.observation_space(params).dtype == jnp.float64


def test_what_is_said_to_be_out_of_reach_is() -> None:
    """The pairs that a setup leaves out never come near each other."""
    setup = SETUPS["g1"]
    assert setup.out_of_reach
    robot, all_pairs = place_robot(setup), place_robot(dataclasses.replace(setup, out_of_reach=()))
    names = dynamics.self_distance_names(all_pairs)
    left_out = [name not in dynamics.self_distance_names(robot) for name in names]
    assert 0 < sum(left_out) < len(names)
    keys = jax.random.split(jax.random.key(0), 5_000)
    distances = jax.jit(
        jax.vmap(
            lambda key: dynamics.self_distances(
                all_pairs, dynamics.random_configuration(all_pairs, key)
            )
        )
    )(keys)
    assert np.asarray(distances)[:, left_out].min() > 0.15


def test_a_posture_is_where_its_joints_are_by_default() -> None:
    setup = SETUPS["g1"]
    env, _ = fraxenv.make("G1Reach-v0")
    for joint, position in setup.posture.items():
        at = env.robot.topology.q_index[env.robot.joint_names.index(joint)]
        assert env.robot.q_default[at] == position
