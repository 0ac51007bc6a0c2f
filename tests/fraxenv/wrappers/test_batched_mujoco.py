"""Our action spaces over batches of MuJoCo worlds, which MuJoCo itself moves one by one.

MJX and MuJoCo Warp move them in tests/clients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fraxenv.errors import ActionError, ConfigError, UnknownNameError
from fraxenv.wrappers import EEAction, EndEffectorAction, ee_action

mujoco = pytest.importorskip("mujoco")

from mujoco_arms import CART, MOTORS, POST, SERVOS, SUBSTEPS, ArmEnv, arm_model, start

DESIRED = {"target": "desired"}
FINGER = 0.03


class Poses(NamedTuple):
    """What `obstacles` reads of a world."""

    geom_xpos: Any
    geom_xmat: Any
    cvel: Any
    subtree_com: Any


class Worlds:
    """Worlds of one model, whose arms one batch of calls controls."""

    def __init__(self, arm: EEAction, model: Any, count: int) -> None:
        self.arm, self.model = arm, model
        self.worlds = [mujoco.MjData(model) for _ in range(count)]
        self.init, self.aim, self.control, self.rows = (
            jax.jit(jax.vmap(f)) for f in (arm.init, arm.aim, arm.control, arm.obstacles)
        )
        self.begin()

    def begin(self) -> None:
        """The arms at rest near `HOME`, told to stay there."""
        for seed, data in enumerate(self.worlds):
            mujoco.mj_resetData(self.model, data)
            if self.model.nq >= 7:
                data.qpos[-7:] = start(seed)
            data.ctrl[0] = FINGER
            mujoco.mj_forward(self.model, data)
        self.memory = self.init(self.read("qpos"), self.read("qvel"))

    def read(self, name: str) -> jax.Array:
        return jnp.asarray(np.array([getattr(d, name) for d in self.worlds]), jnp.float32)

    def step(self, actions: np.ndarray) -> np.ndarray:
        """Coordinates after one action (k,) in each world."""
        self.memory = self.aim(self.memory, self.read("qpos"), jnp.asarray(actions, jnp.float32))
        for _ in range(SUBSTEPS):
            seen = (self.seen(),) if self.arm.moving else ()
            state = self.read("qpos"), self.read("qvel")
            inputs, self.memory = self.control(self.memory, *state, *seen)
            for data, own in zip(self.worlds, np.asarray(inputs), strict=True):
                data.ctrl[self.arm.ctrl_index] = own
                mujoco.mj_step(self.model, data)
        return np.array([d.qpos for d in self.worlds])

    def seen(self) -> jax.Array:
        """Where the obstacles are now."""
        for data in self.worlds:
            mujoco.mj_kinematics(self.model, data)
            mujoco.mj_comPos(self.model, data)
            mujoco.mj_comVel(self.model, data)
        return self.rows(Poses(*(self.read(name) for name in Poses._fields)))


@pytest.fixture(scope="module")
def motors() -> Worlds:
    """Three worlds of the arm with motors: whoever takes them begins anew."""
    model = arm_model()
    return Worlds(ee_action(model, end_effector="grasp", action_options=DESIRED), model, 3)


def alone(model: Any, seed: int, actions: np.ndarray) -> np.ndarray:
    """Coordinates after each action (k,), as `EndEffectorAction` moves the arm in one world."""
    env = EndEffectorAction(ArmEnv(model), end_effector="grasp", action_options=DESIRED)
    env.reset(seed=seed)
    return np.array([env.step(np.append(a, FINGER))[0] for a in actions])


SLOW = pytest.mark.slow


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "tolerance"),
    [
        pytest.param({}, 2e-5, id="motors"),
        # A stiff servo's input is a position, rounded to 32 bits: 1e-7 of it are 0.3 mN m here.
        pytest.param({"actuators": SERVOS}, 1e-3, id="servos", marks=SLOW),
        pytest.param({"spring": 'stiffness="30" springref="40"'}, 2e-5, id="springs", marks=SLOW),
        pytest.param({"compensated": 'gravcomp="1"'}, 2e-5, id="gravcomp", marks=SLOW),
        pytest.param({"spring": 'damping="2"'}, 2e-5, id="damping", marks=SLOW),
    ],
)
def test_each_world_moves_as_the_wrapper_moves_it(
    options: Any, tolerance: float, motors: Worlds
) -> None:
    model, worlds = motors.model, motors
    if options:
        model = arm_model(**options)
        worlds = Worlds(ee_action(model, end_effector="grasp", action_options=DESIRED), model, 3)
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 3, 6))
    worlds.begin()
    moved = np.array([worlds.step(a) for a in actions])
    for k in range(2):
        expected = alone(model, k, actions[:, k])
        np.testing.assert_allclose(moved[:, k], expected, atol=tolerance)
    assert [f._cache_size() for f in (worlds.aim, worlds.control)] == [1, 1]


@pytest.mark.slow
def test_an_observer_sees_the_same_in_every_world() -> None:
    model, observer = arm_model(), {"gain": 30.0, "late": 1}
    arm = ee_action(model, end_effector="grasp", action_options=DESIRED, observer=observer)
    worlds = Worlds(arm, model, 2)
    model.opt.gravity[2] *= 1.1  # all that stands still weighs more than they know
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 2, 6))
    moved = np.array([worlds.step(a) for a in actions])
    heavy = arm_model()
    env = EndEffectorAction(
        ArmEnv(heavy), end_effector="grasp", action_options=DESIRED, observer=observer
    )
    heavy.opt.gravity[2] *= 1.1
    env.reset(seed=1)
    expected = np.array([env.step(np.append(a, FINGER))[0] for a in actions[:, 1]])
    np.testing.assert_allclose(moved[:, 1], expected, atol=1e-4)


@pytest.mark.parametrize("flag", ["", "gravity", "spring", "damper"])
def test_passive_forces_are_mujoco_s(flag: str) -> None:
    from fraxenv.envs.mujoco_arm import arm_of, drive_of
    from fraxenv.envs.mujoco_batch import passive_of

    off = f'<flag {flag}="disable"/>' if flag else ""
    spring = 'stiffness="30" springref="40" damping="3"'
    model = arm_model(spring=spring, compensated='gravcomp=".7"', option=off)
    drive = drive_of(mujoco, model, arm_of(mujoco, model, "grasp", None))
    passive, data = passive_of(mujoco, model, drive, "grasp", None), mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = start(0), start(1)
    mujoco.mj_forward(model, data)
    q, v = data.qpos[drive.at.qpos], data.qvel[drive.at.qvel]
    own = passive.forces(jnp.asarray(q, jnp.float32), jnp.asarray(v, jnp.float32))
    expected = data.qfrc_passive[drive.at.qvel]
    np.testing.assert_allclose(own, expected, atol=1e-5)


@pytest.mark.parametrize(
    "actuators", [pytest.param(MOTORS, id="motors"), pytest.param(SERVOS, id="servos", marks=SLOW)]
)
def test_a_command_of_5_cm_arrives_in_every_world(actuators: str, motors: Worlds) -> None:
    worlds = motors
    if actuators != MOTORS:
        model = arm_model(actuators)
        worlds = Worlds(ee_action(model, end_effector="grasp", action_options=DESIRED), model, 3)
    worlds.begin()

    def places() -> np.ndarray:
        return np.array([d.site("grasp").xpos for d in worlds.worlds])

    before = places()
    worlds.step(np.eye(3, 6))
    for _ in range(99):
        worlds.step(np.zeros((3, 6)))
    np.testing.assert_allclose(places() - before, 0.05 * np.eye(3), atol=1e-3)
    fingers = [d.joint("finger").qpos[0] for d in worlds.worlds]
    np.testing.assert_allclose(fingers, FINGER, atol=2e-3)


def test_a_batch_is_each_world_alone(motors: Worlds) -> None:
    arm, aim, control = motors.arm, motors.aim, motors.control
    q = jnp.asarray([start(seed) for seed in range(3)], jnp.float32)
    v = jnp.asarray(np.random.default_rng(0).normal(size=(3, 7)), jnp.float32)
    actions = jnp.asarray(np.random.default_rng(1).uniform(-1, 1, (3, 6)), jnp.float32)

    def both(q: jax.Array, v: jax.Array, action: jax.Array) -> Any:
        return arm.control(arm.aim(arm.init(q, v), q, action), q, v)

    batch, one = control(aim(motors.init(q, v), q, actions), q, v), jax.jit(both)
    for k in range(3):
        mine = jax.tree.map(lambda x, k=k: x[k], batch)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4),
            mine,
            one(q[k], v[k], actions[k]),
        )


# A hand on one joint, between the cart's ball and nothing.
TURNTABLE = f"""<mujoco><option timestep="0.002"/>
<default><geom contype="1" conaffinity="0"/>
 <default class="around"><geom contype="0" conaffinity="1"/></default></default>
<worldbody>{CART}
<body name="base" pos="0 0 -.28"><joint name="j1" axis="0 0 1" range="-180 180"/>
 <geom type="capsule" fromto="0 0 0 .45 0 0" size=".04" mass="3"/><site name="grasp" pos=".49 0 0"/>
</body></worldbody><actuator><motor joint="j1" ctrlrange="-40 40"/></actuator></mujoco>"""


@pytest.mark.slow
def test_a_filter_keeps_a_hand_off_what_moves() -> None:
    """One world's hand is sent to the ball, the other's away from it."""
    model = mujoco.MjModel.from_xml_string(TURNTABLE)
    touched = []
    for safety in ("cbf", None):
        arm = ee_action(
            model,
            "joint_delta",
            end_effector="grasp",
            root="base",
            velocity_limits=3.0,
            safety=safety,
            obstacles=["ball"] if safety else None,
        )
        worlds = Worlds(arm, model, 2)
        for data in worlds.worlds:  # it comes closer, and turns
            data.qvel[:2] = 0.3, 0.5
        hit, intervened = np.zeros(2, bool), np.zeros(2, bool)
        for _ in range(40):
            worlds.step(np.array([[1.0], [-1.0]]))
            hit |= [bool(d.ncon) for d in worlds.worlds]
            intervened |= np.asarray(worlds.memory.report["intervened"])
            assert np.asarray(worlds.memory.report["feasible"]).all()
        touched.append(hit.tolist())
        assert intervened[0] == (safety is not None)
    assert touched[0] == [False, False]
    assert touched[1][0]


@pytest.mark.parametrize(
    "around",
    [pytest.param(POST, id="standing", marks=SLOW), pytest.param(CART, id="moving", marks=SLOW)],
)
def test_a_filter_keeps_the_arms_off(around: str) -> None:
    """One world's hand is sent to the obstacle, the other's away from it."""
    model = arm_model(around=around)
    options: dict[str, Any] = {"end_effector": "grasp", "root": "base"}
    if around is CART:
        options["obstacles"] = ["ball"]
    guarded = ee_action(model, safety="cbf", velocity_limits=3.0, **options)
    options.pop("obstacles", None)
    touched = []
    for arm in (guarded, ee_action(model, velocity_limits=3.0, **options)):
        worlds = Worlds(arm, model, 2)
        if around is CART:  # it comes closer, and turns
            for data in worlds.worlds:
                data.qvel[:2] = 0.3, 0.5
        hit, intervened = np.zeros(2, bool), np.zeros(2, bool)
        for _ in range(40):
            worlds.step(np.array([[0, 1, 0, 0, 0, 0], [0, -1, 0, 0, 0, 0]]))
            hit |= [bool(d.ncon) for d in worlds.worlds]
            intervened |= np.asarray(worlds.memory.report["intervened"])
            assert np.asarray(worlds.memory.report["feasible"]).all()
        touched.append(hit.tolist())
        assert intervened[0] == (arm is guarded)
    assert touched[0] == [False, False]
    assert touched[1][0]


def test_rows_are_where_the_geoms_are() -> None:
    """As `GeomObstacles.read` has them from MuJoCo."""
    from fraxenv.envs.mujoco_obstacles import geom_obstacles

    model = arm_model(around=POST + CART)
    names = ["ball", "post"]
    arm = ee_action(model, end_effector="grasp", root="base", safety="cbf", obstacles=names)
    assert arm.obstacle_names == ("ball", "post")
    assert arm.moving
    worlds = Worlds(arm, model, 2)
    worlds.worlds[1].qpos[:2] = 0.3, 0.7
    worlds.worlds[1].qvel[:2] = 0.2, -2.0
    rows = np.asarray(worlds.seen())
    found = geom_obstacles(mujoco, model, model.body("base").id, names)
    for own, data in zip(rows, worlds.worlds, strict=True):
        np.testing.assert_allclose(own, found.read(mujoco, model, data), atol=1e-6)
    assert np.abs(rows[1, 0, 12:]).max() > 0.1
    with pytest.raises(ConfigError, match="control was not told where ball, post are"):
        arm.control(None, worlds.read("qpos")[0], worlds.read("qvel")[0])


def test_other_action_spaces() -> None:
    model = arm_model()
    arm = ee_action(model, "joint_delta", end_effector="grasp")
    assert len(arm.axes) == arm.robot.nv == 6
    assert arm.ctrl_index.tolist() == [1, 2, 3, 4, 5, 6]
    assert arm.obstacle_names == ()
    worlds = Worlds(arm, model, 2)
    before = worlds.read("qpos")[:, 0]
    worlds.step(np.eye(2, 6))
    after = worlds.read("qpos")[:, 0]
    assert after[0] - before[0] > 1e-3
    assert abs(after[1] - before[1]) < 1e-3


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"end_effector": "grsp"}, UnknownNameError, "unknown body or site 'grsp'"),
        ({"action": "ee_dlta"}, UnknownNameError, "action space"),
        ({"safety": "cfb"}, ConfigError, "safety='cfb', expected one of"),
        ({"velocity_limits": [1.0, 2.0]}, ConfigError, "one for each of the joints j1, j2"),
        ({"safety": "cbf", "obstacles": ["balll"]}, UnknownNameError, "post"),
    ],
)
def test_what_cannot_be(options: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        ee_action(arm_model(around=POST), **{"end_effector": "grasp", "root": "base", **options})


def test_models_that_cannot_be() -> None:
    with pytest.raises(ConfigError, match=r"expected the mujoco.MjModel that it was put from"):
        ee_action({"nq": 7}, end_effector="grasp")
    compensated = arm_model(compensated='gravcomp="-1"')
    with pytest.raises(ConfigError, match="gravcomp below 0"):
        ee_action(compensated, end_effector="grasp")
    bare = arm_model(around=POST)
    bare.geom_contype[1:] = 0
    with pytest.raises(ConfigError, match="knows no shape of the arm"):
        ee_action(bare, end_effector="grasp", root="base", safety="cbf")


def test_an_action_is_of_one_world(motors: Worlds) -> None:
    q = motors.read("qpos")[0]
    memory = jax.tree.map(lambda x: x[0], motors.memory)
    with pytest.raises(ActionError, match=r"shape \(2, 6\), expected \(6,\), .*dx, dy.*jax.vmap"):
        motors.arm.aim(memory, q, jnp.zeros((2, 6)))
