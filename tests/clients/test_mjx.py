"""Our action spaces over MJX's worlds. Needs the extra `mjx`; skipped without it."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv.errors import ConfigError
from fraxenv.wrappers import EEAction, EndEffectorAction, ee_action

mujoco = pytest.importorskip("mujoco")
mjx = pytest.importorskip("mujoco.mjx")

from mujoco_arms import CART, MOTORS, POST, SERVOS, SUBSTEPS, ArmEnv, arm_model, start

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

DESIRED = {"target": "desired"}
FINGER = 0.03


class Worlds:
    """A batch of MJX's worlds, stepped by one compiled function."""

    def __init__(self, arm: EEAction, model: Any, count: int, v: tuple[float, ...] = ()) -> None:
        put, ctrl = mjx.put_model(model), jnp.zeros(model.nu).at[0].set(FINGER)
        self.traced = 0
        first = mjx.make_data(model)
        qvel = first.qvel.at[: len(v)].set(jnp.asarray(v))
        q = np.tile(model.qpos0, (count, 1))
        q[:, -7:] = [start(seed) for seed in range(count)]
        worlds = jax.vmap(lambda q: first.replace(qpos=q, qvel=qvel))(jnp.asarray(q, jnp.float32))
        self.worlds = jax.jit(jax.vmap(lambda d: mjx.forward(put, d)))(worlds)
        self.memory = jax.jit(jax.vmap(arm.init))(self.worlds.qpos, self.worlds.qvel)

        def step(data: Any, memory: Any, action: jax.Array) -> Any:
            self.traced += 1
            return arm.step(put, data, memory, action, ctrl, SUBSTEPS)

        self.one, self.batch = step, jax.jit(jax.vmap(step))

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Coordinates after one action (k,) in each world."""
        actions = jnp.asarray(actions, jnp.float32)
        self.worlds, self.memory = self.batch(self.worlds, self.memory, actions)
        return np.asarray(self.worlds.qpos)


@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        ({}, 2e-5),
        ({"actuators": SERVOS}, 1e-3),
        ({"spring": 'stiffness="30" springref="40"', "compensated": 'gravcomp="1"'}, 2e-5),
    ],
    ids=["motors", "servos", "springs and gravcomp"],
)
def test_worlds_move_as_mujoco_s(options: Any, tolerance: float) -> None:
    model = arm_model(**options)
    arm = ee_action(model, end_effector="grasp", action_options=DESIRED)
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 2, 6))
    worlds = Worlds(arm, model, 2)
    moved = np.array([worlds.step(a) for a in actions])
    assert worlds.traced == 1
    for k in range(2):
        env = EndEffectorAction(ArmEnv(model), end_effector="grasp", action_options=DESIRED)
        env.reset(seed=k)
        expected = np.array([env.step(np.append(a, FINGER))[0] for a in actions[:, k]])
        np.testing.assert_allclose(moved[:, k], expected, atol=tolerance)


@pytest.mark.parametrize("actuators", [MOTORS, SERVOS], ids=["motors", "servos"])
def test_a_command_of_5_cm_arrives_in_every_world(actuators: str) -> None:
    model = arm_model(actuators)
    arm = ee_action(model, end_effector="grasp", action_options=DESIRED)
    worlds = Worlds(arm, model, 3)
    before = np.asarray(worlds.worlds.site_xpos[:, 0])
    worlds.step(np.eye(3, 6))
    for _ in range(99):
        worlds.step(np.zeros((3, 6)))
    after = np.asarray(worlds.worlds.site_xpos[:, 0])
    np.testing.assert_allclose(after - before, 0.05 * np.eye(3), atol=1e-3)
    assert np.abs(np.asarray(worlds.worlds.qpos)[:, 6] - FINGER).max() < 2e-3


def test_a_batch_is_each_world_alone() -> None:
    model = arm_model()
    arm = ee_action(model, end_effector="grasp")
    worlds = Worlds(arm, model, 3)
    data, memory = jax.tree.map(lambda x: x[1], (worlds.worlds, worlds.memory))
    alone = jax.jit(worlds.one)
    for action in np.random.default_rng(1).uniform(-1, 1, (5, 3, 6)):
        moved = worlds.step(action)
        data, memory = alone(data, memory, jnp.asarray(action[1], jnp.float32))
        np.testing.assert_allclose(moved[1], data.qpos, atol=2e-5)


@pytest.mark.parametrize("around", [POST, CART], ids=["standing", "moving"])
def test_a_filter_keeps_the_arms_off(around: str) -> None:
    """One world's hand is sent to the obstacle, the other's away from it."""
    model = arm_model(around=around)
    options: dict[str, Any] = {"end_effector": "grasp", "root": "base", "velocity_limits": 3.0}
    filtered = {"safety": "cbf"} | ({"obstacles": ["ball"]} if around is CART else {})
    touched = []
    for arm in (ee_action(model, **filtered, **options), ee_action(model, **options)):
        worlds = Worlds(arm, model, 2, (0.3, 0.5) if around is CART else ())
        hit = np.zeros(2, bool)
        for _ in range(40):
            worlds.step(np.array([[0, 1, 0, 0, 0, 0], [0, -1, 0, 0, 0, 0]]))
            hit |= (np.asarray(worlds.worlds._impl.contact.dist) < 0).any(axis=1)
            assert np.asarray(worlds.memory.report["feasible"]).all()
        touched.append(hit.tolist())
    assert touched[0] == [False, False]
    assert touched[1][0]


def test_the_filter_sees_moving_obstacles_where_they_are_now() -> None:
    """Whatever poses the data has: here those of `mjx.make_data`, which are zeros."""
    model = arm_model(around=CART)
    options: dict[str, Any] = {"safety": "cbf", "velocity_limits": 3.0, "obstacles": ["ball"]}
    arm, put = ee_action(model, end_effector="grasp", root="base", **options), mjx.put_model(model)
    data = mjx.make_data(model)
    near = data.qpos.at[-7:].set(start(0)).at[0].set(0.36)  # the ball beside the hand
    data = data.replace(qpos=near)
    memory = arm.init(data.qpos, data.qvel)
    step = jax.jit(lambda d: arm.step(put, d, memory, jnp.zeros(6), jnp.zeros(7)))
    stale, fresh = step(data)[1].report, step(mjx.forward(put, data))[1].report
    assert fresh["min_barrier"] < 0.05
    np.testing.assert_allclose(stale["min_barrier"], fresh["min_barrier"], atol=1e-6)


def test_the_model_is_mujoco_s() -> None:
    with pytest.raises(ConfigError, match=r"expected the mujoco.MjModel that it was put from"):
        ee_action(mjx.put_model(arm_model()), end_effector="grasp")
