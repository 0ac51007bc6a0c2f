"""Bodies on a joint, and those on none: MuJoCo's view of them, and mounts that stay where put."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scenes import mass_matrix

from fraxenv import dynamics
from fraxenv.dynamics import box_geom, jointed_body, placed_body, plane_geom, sphere_geom
from fraxenv.errors import ArrayError, ConfigError

pose = jax.jit(dynamics.frame_pose, static_argnums=2)

LID: dict[str, Any] = {
    "kind": "revolute",
    "axis": (0.0, -2.0, 0.0),
    "limits": (0.0, 1.5),
    "mass": 0.7,
    "pivot": (0.0, 0.0, 0.1),
    "damping": 0.4,
    "friction": 0.3,
}
KNOB = np.array([0.2, 0.05, 0.13])
PARTS = (
    box_geom("board", (0.15, 0.2, 0.01), position=(0.15, 0.0, 0.1)),
    sphere_geom("knob", 0.02, position=KNOB),
)


@pytest.fixture(scope="module")
def chest() -> dynamics.Scene:
    with jax.enable_x64(True):
        walls = [box_geom("walls", (0.15, 0.2, 0.05), position=(0.15, 0.0, 0.03))]
        lid = jointed_body("lid", *PARTS, mount=walls, place=(0.5, 0.1, 0.2), turn=0.3, **LID)
        return dynamics.build_scene(None, [lid], [plane_geom("floor")], pairs=[("knob", "floor")])


def test_mujoco_has_the_same_masses_forces_and_poses(chest) -> None:
    with jax.enable_x64(True):
        model = chest.to_mujoco()
    data = mujoco.MjData(model)
    q = np.array([0.2, 0.5, 0.1, 0.3, 0.8])  # height, x, y, turn, joint
    np.testing.assert_array_equal(chest.system.q_default[:4], q[:4])
    data.qpos[:], data.qvel[:] = q, np.random.default_rng(0).normal(size=5)
    mujoco.mj_forward(model, data)
    with jax.enable_x64(True):
        terms = jax.jit(dynamics.compute_terms)(chest.system, data.qpos, data.qvel)
        at, rotation = map(np.asarray, pose(chest.system, q, "lid"))
    np.testing.assert_allclose(terms.mass_matrix, mass_matrix(model, data), atol=1e-11)
    np.testing.assert_allclose(terms.bias, data.qfrc_bias, atol=1e-11)
    # The knob by hand: a turn about the hinge, then the mount's turn and place.
    c, s = np.cos(0.8), np.sin(0.8)
    lift = np.array([[c, 0.0, -s], [0.0, 1.0, 0.0], [s, 0.0, c]])
    pivot = np.array(LID["pivot"])
    local = pivot + lift @ (KNOB - pivot)
    c, s = np.cos(0.3), np.sin(0.3)
    expected = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]]) @ local + [0.5, 0.1, 0.2]
    np.testing.assert_allclose(data.geom("knob").xpos, expected, atol=1e-12)
    np.testing.assert_allclose(at + rotation @ (KNOB - pivot), expected, atol=1e-12)
    assert expected[2] > 0.2 + 0.13  # it opens upwards


def test_mounts_stay_and_joints_fall_shut(chest) -> None:
    """A second of gravity, and of 50 N across: the mount stays, the lid slams on its stop."""
    tau = np.array([0.0, 50.0, 0.0, 0.0, 0.0])

    def step(carry, _):
        q, v, _ = dynamics.scene_step(chest, *carry, tau, 0.002, integrator="discrete")
        return (q, v), None

    with jax.enable_x64(True):
        begin = jnp.array([0.2, 0.5, 0.1, 0.3, 1.0]), jnp.zeros(5)
        (end, v), _ = jax.jit(lambda c: jax.lax.scan(step, c, None, 500))(begin)
    q, end = np.asarray(begin[0]), np.asarray(end)
    np.testing.assert_allclose(end[:4], q[:4], atol=1e-4)
    assert end[1] - q[1] == pytest.approx(5e-5, rel=0.02)
    assert abs(end[4]) < 0.01
    np.testing.assert_allclose(v[:4], 0.0, atol=1e-4)


def test_what_is_put_somewhere_stays_there() -> None:
    """A step to climb: it carries a ball of 5 kg that rolls off, and is where it was."""
    with jax.enable_x64(True):
        step = placed_body(
            "step", box_geom("tread", (0.2, 0.2, 0.05)), place=(1.0, 2.0, 0.3), turn=0.4
        )
        ball = dynamics.free_body(
            "ball", sphere_geom("", 0.1, condim=1), mass=5.0, position=(1.15, 2.0, 0.45)
        )
        scene = dynamics.build_scene(
            None, [step, ball], pairs=[("tread", "ball")], integrator="discrete"
        )
        q = jnp.asarray(scene.system.q_default)
        at, rotation = map(np.asarray, pose(scene.system, q, "step"))
        np.testing.assert_allclose(at, (1.0, 2.0, 0.3), atol=1e-12)
        np.testing.assert_allclose(rotation[:2, 0], (np.cos(0.4), np.sin(0.4)), atol=1e-12)

        def advance(carry, _):
            q, v, _ = dynamics.scene_step(scene, *carry, jnp.zeros(10), 0.002)
            return (q, v), q

        start = q, jnp.zeros(10).at[4].set(1.0)
        _, path = jax.jit(lambda c: jax.lax.scan(advance, c, None, 500))(start)
    path = np.asarray(path)
    assert path[20, 6] > 0.4498  # carried
    assert path[-1, 6] < 0.0  # and gone
    np.testing.assert_allclose(path[-1, :4], (0.3, 1.0, 2.0, 0.4), atol=1e-4)
    with pytest.raises(ConfigError, match=r"placed_body 'x': expected at least one geom"):
        placed_body("x")
    with pytest.raises(ConfigError, match="none of them a plane"):
        placed_body("x", plane_geom("p"))


def test_refusals() -> None:
    with pytest.raises(ConfigError, match="expected at least one geom, none of them a plane"):
        jointed_body("lid", **LID)
    with pytest.raises(ConfigError, match=r"limits=\(1.0, 0.0\)"):
        jointed_body("lid", *PARTS, **LID | {"limits": (1.0, 0.0)})
    with pytest.raises(ConfigError, match="an axis that is not zero"):
        jointed_body("lid", *PARTS, **LID | {"axis": (0.0, 0.0, 0.0)})
    with pytest.raises(ConfigError, match="damping=-1"):
        jointed_body("lid", *PARTS, **LID | {"damping": -1.0})
    with pytest.raises(ConfigError, match="kind"):
        jointed_body("lid", *PARTS, **LID | {"kind": "ball"})
    with pytest.raises(ArrayError, match="pivot"):
        jointed_body("lid", *PARTS, **LID | {"pivot": (0.0, 1.0)})
