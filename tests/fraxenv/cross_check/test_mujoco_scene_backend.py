"""`backend="mujoco"` of environments with a scene: MuJoCo's contacts, all else ours."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import jax
import numpy as np
import pytest
from pushing import Push, scene_of_arm

import fraxenv
from fraxenv.dynamics import box_geom, build_scene, free_body, placed_body, scene_step, sphere_geom
from fraxenv.errors import ConfigError
from fraxenv.recording.scripted import scripted_policy
from fraxenv.wrappers import GymnasiumEnv

pytest.importorskip("mujoco")

from fraxenv.cross_check.mujoco_scene import MujocoScene
from fraxenv.cross_check.physics import with_mujoco

PICK = {"id": "PandaPick-v0"}


def pushing(backend: str | None) -> GymnasiumEnv:
    """An arm that pushes a cube."""
    options = {"action": "ee_delta_position", "action_options": {"axes_used": ("x", "y")}}
    return GymnasiumEnv(None, robot=scene_of_arm(), task=Push(), backend=backend, **options)


def episode(env: GymnasiumEnv, steps: int, act: Any) -> list[dict[str, Any]]:
    """What each step says, with the configuration of the robot."""
    obs, _ = env.reset(seed=0)
    told = []
    for _ in range(steps):
        obs, reward, *_, info = env.step(act(obs))
        assert env.state is not None
        told.append(info | {"q": np.asarray(env.state.q), "reward": reward})
    return told


def test_the_same_episode(x64: None) -> None:
    """An arm pushes a cube: the same motion and the same forces, to rounding."""
    envs = [pushing(backend) for backend in (None, "mujoco")]
    ours, theirs = (episode(e, 12, lambda _: np.array([1.0, 0.1])) for e in envs)
    touched = [bool(x["contacts"]["active"][1]) for x in ours]
    assert touched.count(True) > 3
    for a, b in zip(ours, theirs, strict=True):
        for name in ("q", "reward"):
            np.testing.assert_allclose(a[name], b[name], rtol=0, atol=1e-9)
        np.testing.assert_allclose(
            a["objects"]["cube"]["q"], b["objects"]["cube"]["q"], rtol=0, atol=1e-9
        )
        assert (a["contacts"]["active"] == b["contacts"]["active"]).all()
        for name in ("normal_force", "tangential_force", "slip_speed"):
            np.testing.assert_allclose(
                a["contacts"][name], b["contacts"][name], rtol=1e-7, atol=1e-7, err_msg=name
            )
        assert b["contact_converged"]
    assert max(x["contacts"]["slip_speed"].max() for x in ours) > 0.01
    assert (ours[-1]["q"] != theirs[-1]["q"]).any()  # it was not us who computed both


def test_constraints_see_stiff_dampers(x64: None) -> None:
    """A ball on springs is thrown onto a block on dampers: all step as one, not in turn."""
    block = box_geom("top", (0.2, 0.2, 0.05))
    held = placed_body("block", block, place=(0.0, 0.0, 0.05), turn=0.3)
    ball = free_body("ball", sphere_geom("", 0.1), mass=5.0, position=(0.05, 0.0, 0.199))
    scene = build_scene(None, [held, ball], pairs=[("top", "ball")], integrator="discrete")
    scene = scene.replace(stiffness=np.array([1e5, 0.0, 0.0, 0.0, *[50.0] * 6]))
    mujoco = MujocoScene.of(scene, 0.002)
    ours = jax.jit(lambda q, v, tau, w: scene_step(scene, q, v, tau, 0.002, w))
    q, v, w = np.array(scene.system.q_default), np.zeros(scene.nv), np.zeros(scene.nv)
    v[4], v[6] = 0.5, -1.0
    tau = np.zeros(scene.nv)
    tau[1] = 1e4  # at the block
    for _ in range(30):
        theirs = mujoco.step(q, v, tau, w)
        q, v, solved = map(jax.device_get, ours(q, v, tau, w))
        w = solved.acceleration
        assert theirs.active.all()
        np.testing.assert_allclose(theirs.v, v, rtol=0, atol=1e-9)
        np.testing.assert_allclose(theirs.q, q, rtol=0, atol=1e-11)
        np.testing.assert_allclose(theirs.acceleration, w, rtol=0, atol=1e-6)
    assert 0.001 < np.abs(v[1]) < 0.1  # the dampers give way


@pytest.mark.slow
def test_the_expert_picks_in_mujoco_too() -> None:
    env = GymnasiumEnv("PandaPick-v0", backend="mujoco")
    act = jax.jit(scripted_policy(env.environment, env.environment.default_params))
    key = jax.random.key(0)
    last = episode(env, 110, lambda obs: np.asarray(act(obs, key)))[-1]
    assert last["success"]
    assert last["grasped"]
    # Half of kp (0.02 m - what the pads sink in) on each pad: MuJoCo's servo holds as ours does.
    np.testing.assert_allclose(last["contacts"]["normal_force"][3:], 10.0, atol=0.3)


def test_it_is_another_environment() -> None:
    env, params = fraxenv.make(**PICK)
    other = with_mujoco(env)
    assert other != env
    assert other == with_mujoco(env)
    assert hash(other.physics) == hash(with_mujoco(env).physics)
    assert not other.supports_transition_gradients
    with pytest.raises(ConfigError, match=r"PandaPick-v0 with backend='mujoco': params\.scene"):
        other.reset(jax.random.key(0), params.replace(scene=env.physics.scene))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"randomisation": {"link_mass": (0.5, 2.0)}}, "randomisation of link_mass, expected none"),
        ({"randomisation": {"damping": (0.5, 2.0)}}, "randomisation of damping, expected none"),
        ({"reset_pool": 2}, "there is a reset_pool, expected None"),
    ],
)
def test_what_its_model_cannot_follow_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=rf"with backend='mujoco': .*{match}"):
        gym.make("fraxenv/PandaPick-v0", backend="mujoco", **options)


def test_a_state_that_diverges_ends_the_episode(tmp_path: Any, monkeypatch: Any, x64: None) -> None:
    monkeypatch.chdir(tmp_path)
    env = pushing("mujoco")
    env.reset(seed=0)
    assert env.state is not None
    env.state = env.state.replace(v=env.state.v.at[0].set(1e30))
    _, _, terminated, _, info = env.step(np.zeros(2))
    assert terminated
    assert info["diverged"]
    assert list(tmp_path.iterdir()) == []  # MuJoCo would have written MUJOCO_LOG.TXT
