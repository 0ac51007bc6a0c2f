"""`fraxenv.make`: ids, overrides, and what is said about wrong ones."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fraxenv
from fraxenv import dynamics
from fraxenv.controllers import OSC
from fraxenv.envs import EEDelta
from fraxenv.errors import (
    ConfigError,
    FraxenvError,
    MissingExtraError,
    UnknownNameError,
    import_extra,
)


def test_ids() -> None:
    assert fraxenv.list_envs() == ["PandaReach-v0", "PandaReachPose-v0", "PandaReachObstacles-v0"]
    env, params = fraxenv.make("PandaReach-v0")
    assert env.name == "PandaReach-v0"
    assert env.action_space(params).shape == (6,)
    assert not params.task.orientation
    assert fraxenv.make("PandaReachPose-v0")[1].task.orientation
    assert fraxenv.make("fraxenv/PandaReach-v0")[0] == env


@pytest.mark.parametrize(
    ("action", "size"), [("ee_delta_pose", 6), ("ee_delta_position", 3), ("torque", 7)]
)
def test_action_spaces(action: str, size: int) -> None:
    env, params = fraxenv.make("PandaReach-v0", action=action, control_hz=100)
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


def test_objects_in_place_of_names() -> None:
    robot = dynamics.load_robot("panda").replace(damping=np.full(7, 2.0))
    env, _ = fraxenv.make(
        "PandaReach-v0", robot=robot, action=EEDelta(orientation="held"), controller=OSC("hand")
    )
    assert env.robot is robot
    assert env.num_actions == 3


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("PandaReech-v0", {}), UnknownNameError, "Did you mean 'PandaReach-v0'"),
        (("PandaReach-v0", {"acton": "torque"}), UnknownNameError, "Did you mean 'action'"),
        (("PandaReach-v0", {"acton": "torque"}), UnknownNameError, "policy_hz, control_hz"),
        (("PandaReach-v0", {"action": "ee_pos"}), UnknownNameError, "Known: ee_delta_pose"),
        (
            ("PandaReach-v0", {"action_options": {"positon_scale": 1.0}}),
            UnknownNameError,
            "unknown action option of EEDelta 'positon_scale'. Did you mean 'position_scale'",
        ),
        (
            ("PandaReach-v0", {"controller_options": {"kd": 1.0}}),
            UnknownNameError,
            "unknown controller option of OSC 'kd'.*damping_ratio",
        ),
        (
            ("PandaReach-v0", {"task_options": {"reward_weights": {"distance": 1.0}}}),
            UnknownNameError,
            "unknown entry of reward_weights 'distance'.*position_error",
        ),
        (("PandaReach-v0", {"policy_hz": 33}), ConfigError, "not a multiple of policy_hz=33"),
        (("PandaReach-v0", {"policy_hz": 50.0}), ConfigError, "positive whole number of Hz"),
        (("PandaReach-v0", {"control_hz": -1}), ConfigError, "control_hz=-1"),
        (("PandaReach-v0", {"max_steps_in_episode": 0}), ConfigError, "whole number >= 1"),
        (("PandaReach-v0", {"max_steps_in_episode": 2.5}), ConfigError, "whole number >= 1"),
        (("PandaReach-v0", {"robot": "panda"}), ConfigError, "robot='panda'.*load_robot"),
        (("PandaReach-v0", {"action_options": 3}), ConfigError, "action_options=3.*a dict"),
    ],
)
def test_wrong_input_is_refused(
    arguments: tuple[str, dict[str, Any]], error: type[FraxenvError], message: str
) -> None:
    id_, overrides = arguments
    with pytest.raises(error, match=message):
        fraxenv.make(id_, **overrides)


def test_params_replace_names_its_fields() -> None:
    _, params = fraxenv.make("PandaReach-v0")
    with pytest.raises(UnknownNameError, match="max_steps_in_episode"):
        params.replace(max_steps=3)


def test_missing_extra_says_how_to_install_it() -> None:
    with pytest.raises(MissingExtraError, match=r'pip install "fraxenv\[mujoco\]"'):
        import_extra("no_such_package", "mujoco", "The MuJoCo backend")


def test_import_is_light_and_silent() -> None:
    """No device is touched, no heavy package loaded, nothing printed, no flag changed."""
    code = """
import jax, sys
before = dict(jax.config.values)
import fraxenv
assert dict(jax.config.values) == before
heavy = {"gymnax", "flax", "yourdfpy", "trimesh", "matplotlib", "mujoco", "rejax"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
from jax._src import xla_bridge
assert not xla_bridge._backends, xla_bridge._backends
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_float64_follows_jax(x64: None) -> None:
    env, params = fraxenv.make("PandaReach-v0")
    key = jax.random.key(0)
    obs, state = env.reset(key, params)
    obs, state, reward, *_ = env.step(key, state, jnp.zeros(6), params)
    assert obs.dtype == reward.dtype == state.q.dtype == jnp.float64
    assert env.observation_space(params).dtype == jnp.float64
