"""Our action spaces over MuJoCo Warp's worlds. Needs `mujoco-warp`; skipped without it."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv.wrappers import EEAction, EndEffectorAction, ee_action

mujoco = pytest.importorskip("mujoco")
mjw = pytest.importorskip("mujoco_warp")

import warp as wp
from mujoco_arms import CART, MOTORS, SERVOS, SUBSTEPS, ArmEnv, arm_model, start

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

DESIRED = {"target": "desired"}
FINGER = 0.03


class Poses(NamedTuple):
    """What `obstacles` reads."""

    geom_xpos: Any
    geom_xmat: Any
    cvel: Any
    subtree_com: Any


class Worlds:
    """A batch of MuJoCo Warp's worlds; one batch of calls controls their arms."""

    def __init__(self, arm: EEAction, model: Any, count: int, v: tuple[float, ...] = ()) -> None:
        self.arm, self.model = arm, mjw.put_model(model)
        self.data = mjw.make_data(model, nworld=count)
        q, qvel = np.tile(model.qpos0, (count, 1)), np.zeros((count, model.nv))
        q[:, -7:] = [start(seed) for seed in range(count)]
        qvel[:, : len(v)] = v
        self.data.qpos.assign(q.astype(np.float32))
        self.data.qvel.assign(qvel.astype(np.float32))
        self.aim, self.control, self.rows = (
            jax.jit(jax.vmap(f)) for f in (arm.aim, arm.control, arm.obstacles)
        )
        self.ctrl = jnp.zeros((count, model.nu)).at[:, 0].set(FINGER)
        self.memory = jax.jit(jax.vmap(arm.init))(*self.state())

    def state(self) -> tuple[jax.Array, jax.Array]:
        return wp.to_jax(self.data.qpos), wp.to_jax(self.data.qvel)

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Coordinates after one action (k,) in each world."""
        q, _ = self.state()
        self.memory = self.aim(self.memory, q, jnp.asarray(actions, jnp.float32))
        for _ in range(SUBSTEPS):
            seen = (self.seen(),) if self.arm.moving else ()
            inputs, self.memory = self.control(self.memory, *self.state(), *seen)
            ctrl = self.ctrl.at[:, self.arm.ctrl_index].set(inputs)
            # Warp writes where JAX reads: not before JAX has read.
            wp.copy(self.data.ctrl, wp.from_jax(jax.block_until_ready(ctrl)))
            mjw.step(self.model, self.data)
        return np.array(self.data.qpos.numpy())  # which Warp goes on to write to

    def seen(self) -> jax.Array:
        """Where the obstacles are now."""
        mjw.kinematics(self.model, self.data)
        mjw.com_pos(self.model, self.data)
        mjw.com_vel(self.model, self.data)
        return self.rows(Poses(*(wp.to_jax(getattr(self.data, f)) for f in Poses._fields)))


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [({}, 2e-5), ({"actuators": SERVOS}, 1e-3), ({"compensated": 'gravcomp="1"'}, 2e-5)],
    ids=["motors", "servos", "gravcomp"],
)
def test_worlds_move_as_mujoco_s(options: Any, tolerance: float) -> None:
    model = arm_model(**options)
    arm = ee_action(model, end_effector="grasp", action_options=DESIRED)
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 2, 6))
    worlds = Worlds(arm, model, 2)
    moved = np.array([worlds.step(a) for a in actions])
    for k in range(2):
        env = EndEffectorAction(ArmEnv(model), end_effector="grasp", action_options=DESIRED)
        env.reset(seed=k)
        expected = np.array([env.step(np.append(a, FINGER))[0] for a in actions[:, k]])
        np.testing.assert_allclose(moved[:, k], expected, atol=tolerance)


def test_a_command_of_5_cm_arrives_in_every_world() -> None:
    model = arm_model(MOTORS)
    worlds = Worlds(ee_action(model, end_effector="grasp", action_options=DESIRED), model, 3)

    def places() -> np.ndarray:
        mjw.kinematics(worlds.model, worlds.data)
        return np.array(worlds.data.site_xpos.numpy()[:, 0])

    before = places()
    worlds.step(np.eye(3, 6))
    for _ in range(99):
        worlds.step(np.zeros((3, 6)))
    np.testing.assert_allclose(places() - before, 0.05 * np.eye(3), atol=1e-3)


def test_a_filter_keeps_the_arm_off_what_moves() -> None:
    """One world's hand is sent to the obstacle, the other's away from it."""
    model = arm_model(around=CART)
    options: dict[str, Any] = {"end_effector": "grasp", "root": "base", "velocity_limits": 3.0}
    touched = []
    for filtered in ({"safety": "cbf", "obstacles": ["ball"]}, {}):
        worlds = Worlds(ee_action(model, **filtered, **options), model, 2, (0.3, 0.5))
        hit = False
        for _ in range(40):
            worlds.step(np.array([[0, 1, 0, 0, 0, 0], [0, -1, 0, 0, 0, 0]]))
            hit |= bool(worlds.data.nacon.numpy()[0])
        touched.append(hit)
    assert touched == [False, True]
