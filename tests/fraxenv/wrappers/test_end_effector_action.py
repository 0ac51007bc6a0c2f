"""Our action spaces over Gymnasium environments that MuJoCo moves."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fraxenv.controllers import OSC
from fraxenv.errors import ActionError, ConfigError, UnknownNameError
from fraxenv.wrappers import EndEffectorAction

mujoco = pytest.importorskip("mujoco")

from mujoco_arms import HOME, MOTORS, SERVOS

DESIRED = {"target": "desired"}
ARM = """<mujoco><option timestep="0.002" {option}/><worldbody>
<body name="base" pos="0 0 .3" {compensated}>
 <joint name="j1" axis="0 0 1" range="-180 180"/><geom type="cylinder" size=".06 .1" mass="4"/>
 <body pos="0 0 .1" {compensated}><joint name="j2" axis="0 1 0" range="-120 120" {spring}/>
  <geom type="capsule" fromto="0 0 0 .4 0 0" size=".04" mass="3"/>
  <body pos=".4 0 0"><joint name="j3" axis="0 -1 0" range="-160 160"/>
   <geom type="capsule" fromto="0 0 0 .35 0 0" size=".03" mass="2"/>
   <body pos=".35 0 0"><joint name="j4" axis="1 0 0" range="-180 180" {spring}/>
    <geom type="box" size=".04 .03 .03" mass=".6"/>
    <body pos=".08 0 0"><joint name="j5" axis="0 1 0" range="-120 120"/>
     <geom type="box" size=".04 .03 .03" mass=".5"/>
     <body name="wrist" pos=".08 0 0"><joint name="j6" axis="1 0 0" range="-180 180"/>
      <geom type="box" size=".02 .03 .03" mass=".3"/><site name="grasp" pos=".1 0 0"/>
      <body name="finger" pos=".05 0 0">
       <joint name="finger" type="slide" axis="0 1 0" range="0 .04"/>
       <geom type="box" size=".02 .005 .01" mass=".01"/></body>
 </body></body></body></body></body></body></worldbody>
<actuator>
 <position name="finger" joint="finger" kp="20" kv="1" ctrlrange="0 .04"/>
 {actuators}
</actuator></mujoco>"""


class ArmEnv(gymnasium.Env[Any, Any]):
    """As a user writes one: model, data, and a step of twenty milliseconds."""

    def __init__(
        self, actuators: str = MOTORS, spring: str = "", compensated: str = "", option: str = ""
    ) -> None:
        text = ARM.format(
            actuators=actuators, spring=spring, compensated=compensated, option=option
        )
        self.model = mujoco.MjModel.from_xml_string(text)
        self.data = mujoco.MjData(self.model)
        low, high = np.full(self.model.nu, -40.0), np.full(self.model.nu, 40.0)
        low[0], high[0] = 0.0, 0.04
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float64)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (14,), np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:] = HOME + self.np_random.uniform(-0.05, 0.05, 7) * (np.arange(7) < 6)
        mujoco.mj_forward(self.model, self.data)
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, nstep=10)
        return self._seen(), 0.0, False, False, {}

    def _seen(self) -> Any:
        return np.concatenate([self.data.qpos, self.data.qvel])


def wrapped(**options: Any) -> EndEffectorAction:
    return EndEffectorAction(ArmEnv(**options), end_effector="grasp", action_options=DESIRED)


@functools.cache
def usual() -> EndEffectorAction:
    """The arm with motors, one for all: whoever takes it resets it."""
    return wrapped()


def place(env: gymnasium.Env[Any, Any]) -> np.ndarray:
    return np.array(env.unwrapped.data.site("grasp").xpos)  # type: ignore[attr-defined]


def moved(env: EndEffectorAction, axis: int, steps: int = 100) -> np.ndarray:
    """How far one full action along an axis brings the hand, m."""
    env.reset(seed=0)
    start, action = place(env), np.zeros(env.action_space.shape)
    action[axis] = 1.0
    for _ in range(steps):
        env.step(action)
        action[axis] = 0.0
    return place(env) - start


@pytest.mark.parametrize("actuators", [MOTORS, SERVOS], ids=["motors", "servos"])
def test_a_command_of_5_cm_arrives(actuators: str) -> None:
    env = usual() if actuators == MOTORS else wrapped(actuators=actuators)
    for axis in range(3):
        np.testing.assert_allclose(moved(env, axis), 0.05 * np.eye(3)[axis], atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"spring": 'stiffness="30" springref="40"'}, marks=pytest.mark.slow),
        {"compensated": 'gravcomp="1"', "option": 'integrator="RK4"'},
        pytest.param({"option": 'integrator="implicitfast"'}, marks=pytest.mark.slow),
    ],
)
def test_what_the_model_does_besides_makes_no_difference(options: dict[str, str]) -> None:
    np.testing.assert_allclose(moved(wrapped(**options), 0), moved(usual(), 0), atol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mass", "friction", "without"),
    [(0.8, 0.0, 0.05), (0.0, 1.0, 0.003)],
    ids=["load", "friction"],
)
def test_an_observer_finds_what_nobody_told_of(
    mass: float, friction: float, without: float
) -> None:
    """A load in the hand, kg, or friction of every joint, N m, which the model lacked."""
    missed = []
    for observer in (None, "momentum"):
        env = EndEffectorAction(
            ArmEnv(), end_effector="grasp", action_options=DESIRED, observer=observer
        )
        model = env.unwrapped.model  # type: ignore[attr-defined]
        model.body("wrist").mass += mass
        model.dof_frictionloss[:6] = friction
        mujoco.mj_setConst(model, mujoco.MjData(model))
        missed.append(np.linalg.norm(moved(env, 1, 150) - [0, 0.05, 0]))
    assert missed[0] > without
    assert missed[1] < 1e-3


def test_an_arm_in_a_plane() -> None:
    """Reacher's two joints cannot do most of what an action asks for, and do the rest."""
    env = EndEffectorAction(
        gymnasium.make("Reacher-v5"),
        "ee_delta_position",
        end_effector="fingertip",
        root="body0",
        action_options=DESIRED | {"position_scale": 0.02},
    )
    env.reset(seed=0)
    data = env.unwrapped.data  # type: ignore[attr-defined]
    start = np.array(data.body("fingertip").xpos)
    for i in range(40):
        env.step(np.array([0.0, i == 0, 0.0], np.float32))
    np.testing.assert_allclose(data.body("fingertip").xpos - start, [0, 0.02, 0], atol=4e-3)


def test_the_rest_of_the_action_is_the_environment_s() -> None:
    env = usual()
    assert [axis.name for axis in env.arm_axes] == ["dx", "dy", "dz", "drx", "dry", "drz"]
    np.testing.assert_allclose(env.action_space.low, [*[-1] * 6, 0])
    np.testing.assert_allclose(env.action_space.high, [*[1] * 6, 0.04])
    env.reset(seed=0)
    start = place(env)
    for _ in range(60):
        env.step(np.array([*[0.0] * 6, 0.03]))
    assert abs(env.unwrapped.data.joint("finger").qpos[0] - 0.03) < 2e-3  # type: ignore[attr-defined]
    np.testing.assert_allclose(place(env), start, atol=1e-3)


def test_other_spaces_and_controllers() -> None:
    options = {"low": (0.2, -0.3, 0.2), "high": (0.6, 0.3, 0.8)}
    env = EndEffectorAction(ArmEnv(), "ee_pose", end_effector="grasp", action_options=options)
    assert len(env.arm_axes) == env.action_space.shape[0] - 1 == 9
    stiff = OSC("hand", kp=900.0)
    env = EndEffectorAction(
        ArmEnv(), end_effector="grasp", controller=stiff, action_options=DESIRED
    )
    np.testing.assert_allclose(moved(env, 2, 60), [0, 0, 0.05], atol=1e-3)
    joints = EndEffectorAction(ArmEnv(), "joint_delta", end_effector="grasp")
    joints.reset(seed=0)
    before = joints.unwrapped.data.qpos[0]  # type: ignore[attr-defined]
    joints.step(np.array([1.0, *[0.0] * 6]))
    assert joints.unwrapped.data.qpos[0] > before + 1e-3  # type: ignore[attr-defined]


def test_the_same_seed_and_actions_give_the_same_bits() -> None:
    actions = np.random.default_rng(0).uniform(-1, 1, (20, 7))

    def seen(env: EndEffectorAction) -> np.ndarray:
        return np.array([env.reset(seed=3)[0], *(env.step(a)[0] for a in actions)])

    one = usual()
    np.testing.assert_array_equal(seen(one), seen(one))
    np.testing.assert_array_equal(seen(one), seen(wrapped()))


def test_gymnasium_s_own_environment_and_checks() -> None:
    def make() -> EndEffectorAction:
        pusher = gymnasium.make("Pusher-v5")
        return EndEffectorAction(pusher, end_effector="tips_arm", root="r_shoulder_pan_link")

    env = make()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(assumed|not within|render).*")
        check_env(env, skip_render_check=True)
    assert env.action_space.shape == (6,)
    again = gymnasium.make(env.spec)
    assert isinstance(again.get_wrapper_attr("robot"), type(env.robot))
    many = gymnasium.vector.SyncVectorEnv([lambda: env, lambda: again])
    first, _ = many.reset(seed=[1, 2])
    actions = np.random.default_rng(0).uniform(-1, 1, (5, 2, 6)).astype(np.float32)
    rows = np.array([first, *(many.step(a)[0] for a in actions)])
    for i, seed in enumerate((1, 2)):
        alone = [env.reset(seed=seed)[0], *(env.step(a[i])[0] for a in actions)]
        np.testing.assert_array_equal(rows[:, i], np.array(alone))


@pytest.fixture
def no_callback() -> Iterator[None]:
    yield
    mujoco.set_mjcb_control(None)


def test_somebody_else_s_callback_stays(no_callback: None) -> None:
    env, other = usual(), ArmEnv()
    env.reset(seed=0)
    other.reset(seed=0)
    times: list[float] = []

    def theirs(model: Any, data: Any) -> None:
        times.append(data.time)

    mujoco.set_mjcb_control(theirs)
    env.step(np.zeros(7))
    assert len(times) == 10
    assert mujoco.get_mjcb_control() is theirs
    other.step(np.zeros(7))
    assert len(times) == 20
    assert not other.data.ctrl.any()


def test_by_another_name() -> None:
    class Hidden(ArmEnv):
        def __init__(self) -> None:
            super().__init__()
            self.sim = self.model, self.data
            del self.model, self.data

        def reset(self, **given: Any) -> Any:
            self.model, self.data = self.sim
            result = super().reset(**given)
            del self.model, self.data
            return result

        def step(self, action: Any) -> Any:
            self.model, self.data = self.sim
            result = super().step(action)
            del self.model, self.data
            return result

    with pytest.raises(ConfigError, match=r"Hidden has no `model`.*model=\.\.\."):
        EndEffectorAction(Hidden(), end_effector="grasp")
    inner = Hidden()
    env = EndEffectorAction(
        inner,
        end_effector="grasp",
        action_options=DESIRED,
        model=inner.sim[0],
        data=lambda: inner.sim[1],
    )
    expected = usual()
    for each in (env, expected):
        each.reset(seed=0)
    action = np.array([0.5, *[0.0] * 6])
    np.testing.assert_array_equal(env.step(action)[0], expected.step(action)[0])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"end_effector": "grsp"}, UnknownNameError, "unknown body or site 'grsp'"),
        ({"end_effector": "grasp", "root": "bse"}, UnknownNameError, "unknown body 'bse'"),
        (
            {"end_effector": "base", "root": "wrist"},
            UnknownNameError,
            "unknown body or site 'base'",
        ),
        ({"end_effector": "finger", "action": "joint_delta"}, ConfigError, None),
        ({"end_effector": "grasp", "action": "ee_dlta"}, UnknownNameError, "action space"),
        (
            {"end_effector": "grasp", "action_options": {"scale": 1}},
            UnknownNameError,
            "unknown option 'scale'",
        ),
    ],
)
def test_what_cannot_be(options: Any, error: type[Exception], message: str | None) -> None:
    if message is None:
        assert EndEffectorAction(ArmEnv(), **options).robot.nv == 7  # the finger is moved, too
        return
    with pytest.raises(error, match=message):
        EndEffectorAction(ArmEnv(), **options)


@pytest.mark.parametrize(
    ("actuators", "message"),
    [
        (MOTORS.replace('<motor joint="j3" gear="30" ctrlrange="-40 40"/>', ""), "'j3' of the arm"),
        (MOTORS + '<motor joint="j2"/>', "'j2' of the arm has no actuator of its own"),
        (
            MOTORS.replace("<motor", '<general dyntype="filter" dynprm=".1"', 1),
            "'j1' has a state",
        ),
        (MOTORS.replace("<motor", "<muscle", 1), "'j1' has a state"),
    ],
)
def test_actuators_that_give_no_torque(actuators: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EndEffectorAction(ArmEnv(actuators), end_effector="grasp")


def test_a_tree_that_begins_without_a_name() -> None:
    env = ArmEnv()
    text = ARM.format(actuators=MOTORS, spring="", compensated="", option="")
    env.model = mujoco.MjModel.from_xml_string(text.replace('name="base" ', ""))
    env.data = mujoco.MjData(env.model)
    with pytest.raises(ConfigError, match="tree of end_effector='grasp' begins with has no name"):
        EndEffectorAction(env, end_effector="grasp")
    with pytest.raises(ConfigError, match=r"joints \(j6\) cannot move the hand.*joint_delta"):
        EndEffectorAction(env, end_effector="grasp", root="wrist")
    one = EndEffectorAction(env, "joint_delta", end_effector="grasp", root="wrist")
    assert one.robot.nv == 1


def test_actions_that_are_not_its_own() -> None:
    class Two(ArmEnv):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = gymnasium.spaces.Box(-1, 1, (2,))

        def step(self, action: Any) -> Any:
            return super().step(np.array([action[1] * 0.04, *[0.0] * 6]))

    with pytest.raises(ConfigError, match="2 numbers, and the model 7 inputs"):
        EndEffectorAction(Two(), "joint_delta", end_effector="grasp")
    env = EndEffectorAction(Two(), "joint_delta", end_effector="grasp", arm_actions=[0])
    assert env.action_space.shape == (7,)
    env.reset(seed=0)
    env.step(np.zeros(7, np.float32))
    with pytest.raises(ActionError, match="expected 7 finite numbers: dj1, dj2"):
        env.step(np.zeros(6))
    with pytest.raises(ActionError, match="finite"):
        env.step(np.full(7, np.nan))


# --- other ways of driving, and other models ---

POSITIONS = "".join(f'<position joint="j{i}" kp="{900 * i}" kv="60"/>' for i in range(1, 7))
IMPLICIT = 'integrator="implicitfast"'


def test_position_servos_follow_inverse_kinematics() -> None:
    env = wrapped(actuators=POSITIONS, option=IMPLICIT)
    for axis in range(3):
        np.testing.assert_allclose(moved(env, axis), 0.05 * np.eye(3)[axis], atol=1e-3)
    # The inputs at rest are where the joints are, and what holds them against gravity.
    data = env.unwrapped.data  # type: ignore[attr-defined]
    kp = 900.0 * np.arange(1, 7)
    held = (data.ctrl[1:] - data.qpos[:6]) * kp
    np.testing.assert_allclose(held, data.qfrc_bias[:6], atol=0.05)
    # The arm is as stiff as its servos, which an operational space controller would not leave it.
    before = data.qpos[0]
    for _ in range(50):
        data.qfrc_applied[0] = 9.0
        env.step(np.zeros(7))
    assert data.qpos[0] - before == pytest.approx(9.0 / 900.0, rel=0.02)


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"actuators": POSITIONS, "option": IMPLICIT}, marks=pytest.mark.slow),
        pytest.param({"actuators": SERVOS, "option": IMPLICIT}, marks=pytest.mark.slow),
        {"spring": 'damping="40"'},
        pytest.param({"spring": 'damping="40"', "option": IMPLICIT}, marks=pytest.mark.slow),
        pytest.param(
            {"spring": 'damping="5"', "option": 'integrator="RK4"'}, marks=pytest.mark.slow
        ),
    ],
)
def test_damping_is_made_up_for_however_it_is_stepped(options: Any) -> None:
    """An operational space controller moves the hand as without damping, on the way, too."""
    from fraxenv.envs.mujoco_arm import Applied, arm_space, usual_controller

    damped = EndEffectorAction(ArmEnv(**options), "joint_delta", end_effector="grasp")
    robot, model = damped.robot, damped.unwrapped.model  # type: ignore[attr-defined]
    space = arm_space(robot, "ee_delta_pose", None)
    law = usual_controller(robot, space, Applied.of(model, robot))
    expected = moved(usual(), 0, 10)
    assert 0.02 < expected[0] < 0.045
    env = EndEffectorAction(
        ArmEnv(**options), end_effector="grasp", controller=law, action_options=DESIRED
    )
    np.testing.assert_allclose(moved(env, 0, 10), expected, atol=2e-4)


@pytest.mark.parametrize("action", ["joint_delta", "ee_delta_pose+impedance"])
def test_position_servos_and_other_actions_keep_their_controller(action: str) -> None:
    env = EndEffectorAction(ArmEnv(POSITIONS, option=IMPLICIT), action, end_effector="grasp")
    env.reset(seed=0)
    env.step(np.zeros(env.action_space.shape))


HELD = """
<body name="cube" pos="0 0 2"><freejoint/><geom name="cube" size=".02 .02 .03" type="box"
 mass="{mass}" friction="2 .1 .1" condim="6"/><geom name="knob" pos=".03 .01 .05" size=".01"
 mass="{mass}" contype="0" conaffinity="0"/></body>
"""


class Holding(ArmEnv):
    """The arm with two fingers, and a body between them when an episode begins."""

    def __init__(self, mass: float = 0.4) -> None:
        super().__init__()
        firm = 'cone="elliptic" impratio="100"'
        text = ARM.format(actuators=MOTORS, spring="", compensated="", option=firm)
        i = text.index('<body name="finger"')
        j = text.index("</body>", i) + len("</body>")
        finger = (
            '<body name="{0}" pos=".1 0 0"><joint name="{0}" type="slide" axis="0 {1} 0" '
            'range="-.04 .04"/><geom type="box" pos="0 {2} 0" size=".02 .005 .02" mass=".01" '
            'friction="2 .1 .1" condim="6"/></body>'
        )
        text = (
            text[:i]
            + finger.format("finger", 1, 0.05)
            + finger.format("other", -1, -0.05)
            + text[j:]
        )
        closing = '<position name="{0}" joint="{0}" kp="400" kv="2" ctrlrange="-.06 0"/>'
        k = text.index('<position name="finger"')
        text = (
            text[:k]
            + closing.format("finger")
            + closing.format("other")
            + text[text.index("/>", k) + 2 :]
        )
        text = text.replace("</worldbody>", HELD.format(mass=mass) + "</worldbody>", 1)
        self.model = mujoco.MjModel.from_xml_string(text)
        self.data = mujoco.MjData(self.model)
        low, high = self.model.actuator_ctrlrange.T
        self.action_space = gymnasium.spaces.Box(low, high, dtype=np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[:6] = HOME[:6]
        self.data.qpos[6:8] = -0.025
        mujoco.mj_forward(self.model, self.data)
        self.data.joint(8).qpos[:3] = self.data.site("grasp").xpos
        mujoco.mju_mat2Quat(self.data.joint(8).qpos[3:], self.data.site("grasp").xmat)
        mujoco.mj_forward(self.model, self.data)
        return self._seen(), {}


def test_what_the_hand_holds_is_a_load() -> None:
    env = EndEffectorAction(Holding(), end_effector="grasp", action_options=DESIRED)
    closed = np.array([*[0.0] * 6, -0.06, -0.06])
    env.reset(seed=0)
    start, data = place(env), env.unwrapped.data  # type: ignore[attr-defined]
    for _ in range(100):
        env.step(closed)
    assert np.linalg.norm(data.body("cube").xpos - place(env)) < 0.01
    np.testing.assert_allclose(place(env), start, atol=1e-3)  # 0.8 kg


def test_loads_are_those_of_mujoco() -> None:
    from fraxenv.envs.mujoco_load import held_bodies

    env = EndEffectorAction(Holding(), "joint_delta", end_effector="grasp")
    inner: Any = env.unwrapped
    env.reset(seed=0)
    held = held_bodies(mujoco, inner.model, "grasp")
    assert held is not None
    for _ in range(20):
        env.step(np.array([*[0.0] * 6, -0.06, -0.06]))
    load = held.read(mujoco, inner.model, inner.data)
    data, model = inner.data, inner.model
    assert load[0] == pytest.approx(0.8)
    turn = data.site("grasp").xmat.reshape(3, 3)
    com = turn.T @ (data.body("cube").xipos - data.site("grasp").xpos)
    np.testing.assert_allclose(load[1:4], com, atol=1e-9)
    body = model.body("cube").id
    turned = turn.T @ data.ximat[body].reshape(3, 3)
    inertia = turned @ np.diag(model.body_inertia[body]) @ turned.T
    np.testing.assert_allclose(load[4:7], np.diag(inertia), atol=1e-9)
    np.testing.assert_allclose(load[7:], inertia[[0, 0, 1], [1, 2, 2]], atol=1e-9)
    for _ in range(20):
        env.step(np.array([*[0.0] * 6, 0.0, 0.0]))
    assert not held.read(mujoco, model, data).any()  # it has been let go of
    assert held_bodies(mujoco, ArmEnv().model, "grasp") is None


@functools.cache
def own_model() -> Any:
    from fraxenv import dynamics

    arm = ArmEnv()
    hand = {"hand": "grasp"}
    return dynamics.load_mjcf_robot(arm.model, root="base", end_effectors=hand, freeze=["finger"])


def renamed(robot: Any, prefix: str) -> Any:
    topology = robot.topology
    joints = tuple(dataclasses.replace(j, name=prefix + j.name) for j in topology.joints)
    return dataclasses.replace(robot, topology=dataclasses.replace(topology, joints=joints))


def test_a_robot_of_ones_own() -> None:
    env = EndEffectorAction(
        ArmEnv(),
        end_effector="grasp",
        robot=renamed(own_model(), "my_"),
        joints=[f"j{i}" for i in range(1, 7)],
        action_options=DESIRED,
    )
    np.testing.assert_allclose(moved(env, 1, 30), moved(usual(), 1, 30), atol=1e-6)


def test_a_robot_that_is_another() -> None:
    def make(robot: Any, **options: Any) -> None:
        EndEffectorAction(ArmEnv(), "joint_delta", end_effector="grasp", robot=robot, **options)

    make(own_model())
    with pytest.raises(UnknownNameError, match="my_j1"):
        make(renamed(own_model(), "my_"))
    with pytest.raises(ConfigError, match=r"joints=\['a'\], expected one name for each"):
        make(own_model(), joints=["a"])
    turned = [f"j{i}" for i in (2, 1, 3, 4, 5, 6)]
    with pytest.raises(ConfigError, match=r"expected the same kinematics from body 'base'"):
        make(own_model(), joints=turned)
    longer = own_model()
    position = np.array(longer.topology.position)
    position[2, 0] += 0.02
    topology = dataclasses.replace(longer.topology, position=position)
    with pytest.raises(ConfigError, match=r"rad from where the model has 'grasp'"):
        make(dataclasses.replace(longer, topology=topology))


def test_a_gripper_of_one_number() -> None:
    env = EndEffectorAction(Holding(), "joint_delta", end_effector="grasp", gripper="binary")
    np.testing.assert_array_equal(env.action_space.low, -np.ones(7))
    env.reset(seed=0)
    data = env.unwrapped.data  # type: ignore[attr-defined]
    env.step(np.array([*[0.0] * 6, -0.2]))
    np.testing.assert_array_equal(data.ctrl[:2], [-0.06, -0.06])
    env.step(np.array([*[0.0] * 6, 0.2]))
    np.testing.assert_array_equal(data.ctrl[:2], [0.0, 0.0])
    own = {"open": [-0.01, -0.02], "closed": [-0.05, -0.05]}
    env = EndEffectorAction(Holding(), "joint_delta", end_effector="grasp", gripper=own)
    env.reset(seed=0)
    env.step(np.array([*[0.0] * 6, 1.0]))
    np.testing.assert_array_equal(env.unwrapped.data.ctrl[:2], own["open"])  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gripper": "bnary"}, "gripper='bnary', expected one of"),
        ({"gripper": {"open": [0.0], "closed": [0.0]}}, "each with the 2 numbers"),
        ({"gripper": {"open": [0.0, 0.0]}}, "'open' and 'closed'"),
        ({"drive": "motors"}, "drive='motors', expected one of"),
    ],
)
def test_options_that_cannot_be(options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EndEffectorAction(Holding(), "joint_delta", end_effector="grasp", **options)


class Pulled(ArmEnv):
    """An arm without motors, which a mocap body pulls, as Gymnasium-Robotics' Fetch is."""

    def __init__(self) -> None:
        super().__init__()
        text = ARM.format(actuators="", spring="", compensated="", option="")
        text = text.replace("<worldbody>", '<worldbody><body name="mocap" mocap="true"/>')
        weld = '<equality><weld body1="mocap" body2="wrist"/></equality></mujoco>'
        self.model = mujoco.MjModel.from_xml_string(text.replace("</mujoco>", weld))
        self.data = mujoco.MjData(self.model)
        self.action_space = gymnasium.spaces.Box(-1, 1, (4,))

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.data.mocap_pos[0] += 0.05 * action[:3]
        self.data.ctrl[0] = 0.02 * (1 + action[3])
        mujoco.mj_step(self.model, self.data, nstep=10)
        return self._seen(), 0.0, False, False, {}


def test_an_arm_that_a_mocap_body_pulls() -> None:
    env = EndEffectorAction(
        Pulled(),
        end_effector="grasp",
        root="base",
        drive="joints",
        arm_actions=[0, 1, 2],
        action_options=DESIRED,
    )
    assert env.action_space.shape == (7,)
    for axis in range(3):
        np.testing.assert_allclose(moved(env, axis), 0.05 * np.eye(3)[axis], atol=1e-3)
    with pytest.raises(ConfigError, match=r"'j1' of the arm has no actuator.*drive='joints'"):
        EndEffectorAction(Pulled(), end_effector="grasp", root="base", arm_actions=[0, 1, 2])


# --- who steps how ---


class AsRobosuite(ArmEnv):
    """Inputs are written between the two halves of a physics step, as robosuite does."""

    lite_physics = True

    def __init__(self) -> None:
        super().__init__()
        model, data = self.__dict__.pop("model"), self.__dict__.pop("data")

        class Sim:
            def __init__(self) -> None:
                self.model, self.data = SimpleNamespace(_model=model), SimpleNamespace(_data=data)

            def step1(self) -> None:
                mujoco.mj_step1(model, data)

            def step2(self) -> None:
                mujoco.mj_step2(model, data)

        self.sim = Sim()

    def __getattr__(self, name: str) -> Any:
        if name in ("model", "data") and "sim" in self.__dict__:
            return getattr(getattr(self.sim, name), f"_{name}")
        raise AttributeError(name)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        for _ in range(10):
            self.sim.step1()
            self.data.ctrl[:] = action
            self.sim.step2()
        return self._seen(), 0.0, False, False, {}


class AsDmControl(ArmEnv):
    """Inputs are written after the first half of a physics step, as dm_control does."""

    def __init__(self) -> None:
        super().__init__()
        model, data = self.model, self.data

        class Physics:
            legacy_step = True

            def __init__(self) -> None:
                self.model, self.data = SimpleNamespace(ptr=model), SimpleNamespace(ptr=data)

            def step(self, nstep: int) -> None:
                for _ in range(nstep):
                    mujoco.mj_step2(model, data)
                    mujoco.mj_step1(model, data)

        self.physics = Physics()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        for _ in range(10):
            self.data.ctrl[:] = action
            self.physics.step(1)
        return self._seen(), 0.0, False, False, {}


@pytest.mark.parametrize("kind", [AsRobosuite, AsDmControl])
def test_inputs_written_within_a_step_are_ours(kind: Any) -> None:
    inner = kind()
    stepper = inner.sim if kind is AsRobosuite else inner.physics
    before = dict(vars(stepper))
    env = EndEffectorAction(inner, end_effector="grasp", action_options=DESIRED)
    np.testing.assert_allclose(moved(env, 2), [0, 0, 0.05], atol=1e-3)
    assert vars(stepper) == before  # nothing of ours stays behind


# --- the safety filter ---

SURROUNDINGS = """
<geom name="floor" type="plane" pos="0 0 -.35" size="2 2 .1"/>
<geom name="post" type="capsule" fromto=".45 .3 -.3 .45 .3 .6" size=".04"/>
<geom name="ball" type="sphere" pos=".45 -.3 0" size=".08"/>
<geom name="shelf" type="box" pos=".5 0 .7" size=".3 .3 .02" euler="0 10 0"/>
<geom name="pipe" type="cylinder" pos="-.3 .3 .5" size=".05 .4"/>
<geom name="picture" type="box" pos=".6 0 .4" size=".2 .2 .2" contype="0" conaffinity="0"/>
"""

FAN = """
<body name="fan" pos=".2 -.6 .4"><joint name="fan" axis="0 0 1" damping=".01"/>
 <geom name="blade" type="ellipsoid" size=".2 .02 .02" mass=".1"/></body>
"""


class Crowded(ArmEnv):
    """The arm among geoms, of which one may turn."""

    def __init__(self, around: str = SURROUNDINGS) -> None:
        super().__init__()
        text = ARM.format(actuators=MOTORS, spring="", compensated="", option="")
        text = text.replace("<worldbody>", f"<worldbody>{around}", 1)
        # A finger that stays within its range, whatever the arm does.
        text = text.replace('kp="20" kv="1"', 'kp="200" kv="2"')
        self.model = mujoco.MjModel.from_xml_string(text.replace("-40 40", "-4 4"))
        self.data = mujoco.MjData(self.model)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        gymnasium.Env.reset(self, seed=seed)
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[-7:] = HOME
        mujoco.mj_forward(self.model, self.data)
        return self._seen(), {}


def guarded(around: str = SURROUNDINGS, **options: Any) -> EndEffectorAction:
    return EndEffectorAction(
        Crowded(around),
        end_effector="grasp",
        root="base",
        **{"safety": "cbf", "velocity_limits": 3.0, **options},
    )


def touched(env: EndEffectorAction) -> set[str]:
    """What the arm touches of what it is to keep off."""
    data, model = env.unwrapped.data, env.unwrapped.model  # type: ignore[attr-defined]
    arm = {g for g in range(model.ngeom) if model.geom_bodyid[g] >= model.body("base").id}
    pairs = [set(pair) for pair in data.contact.geom.tolist()]
    others = [next(iter(p - arm)) for p in pairs if len(p & arm) == 1]
    return {model.geom(g).name for g in others}


def walk(env: EndEffectorAction, steps: int) -> tuple[set[str], list[dict[str, Any]]]:
    """Random actions, each for a while: what the arm has touched, and the filter's reports."""
    env.reset(seed=0)
    random = np.random.default_rng(0)
    hit, reports = set(), []
    for k in range(steps):
        if k % 40 == 0:
            action = random.uniform(-1, 1, env.action_space.shape)
            action[-1] = 0.0  # at `qpos0`, where the filter takes the finger's weight to be
        *_, info = env.step(action)
        hit |= touched(env)
        reports.append(info.get("safety"))
    return hit, reports


@pytest.mark.slow
def test_a_filter_keeps_the_arm_off_what_stands_around() -> None:
    hit, reports = walk(guarded(), 1000)
    assert hit == set()
    assert sum(r["intervened"] for r in reports) > 100
    assert all(r["feasible"] for r in reports)
    bare, none = walk(guarded(safety=None), 1000)
    assert bare
    assert none == [None] * 1000


def test_obstacles_are_the_scenes_geoms() -> None:
    env = guarded(action="joint_delta")
    assert set(env.obstacle_names) == {"floor", "post", "ball", "shelf", "pipe"}
    assert env.obstacle_names == ("ball", "post", "pipe", "shelf", "floor")
    env = guarded(SURROUNDINGS + FAN, action="joint_delta", obstacles=["fan", "post"])
    assert env.obstacle_names == ("post", "blade")


def test_obstacles_are_where_the_geoms_are() -> None:
    """Distances of a point from them, as MuJoCo's rays have them."""
    from fraxenv.envs.mujoco_obstacles import geom_obstacles

    env = Crowded(SURROUNDINGS + FAN)
    env.reset(seed=0)
    env.data.joint("fan").qpos = 0.7
    env.data.joint("fan").qvel = 3.0
    mujoco.mj_forward(env.model, env.data)
    found = geom_obstacles(mujoco, env.model, env.model.body("base").id, ["blade", "shelf"])
    assert found.moving
    made = found.place(found.read(mujoco, env.model, env.data).astype(np.float32))
    assert found.names == ("shelf", "blade")
    for k, name in enumerate(found.names):
        geom = env.data.geom(name)
        np.testing.assert_allclose(made.boxes.position[k], geom.xpos, atol=1e-6)
        np.testing.assert_allclose(made.boxes.rotation[k], geom.xmat.reshape(3, 3), atol=1e-6)
        half = env.model.geom(name).size
        np.testing.assert_allclose(made.boxes.half_extents[k], half, atol=1e-6)
    assert np.abs(made.velocity).max() < 1e-6  # the blade turns about its middle


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"safety": "cfb"}, ConfigError, "safety='cfb', expected one of"),
        ({"velocity_limits": [1.0, 2.0]}, ConfigError, "one for each of the joints j1, j2"),
        ({"obstacles": ["balll"]}, UnknownNameError, "ball"),
        ({"obstacles": ["wrist"]}, ConfigError, "is part of the arm's tree"),
    ],
)
def test_what_a_filter_cannot_do(options: Any, error: Any, says: str) -> None:
    with pytest.raises(error, match=says):
        guarded(action="joint_delta", **options)


MESH = """<mujoco><asset>
<mesh name="wedge" vertex="0 0 0  .3 0 0  .3 .1 0  0 .1 0  0 0 .2  .3 0 .2"/>
</asset><worldbody><geom name="wall" type="box" pos=".6 0 0" size=".02 1 1"/>
<body name="arm"><joint name="slide" type="slide" axis="1 0 0"/><geom type="mesh" mesh="wedge"
 pos=".05 .1 -.3" euler="10 20 30" mass="1"/><geom type="ellipsoid" size=".1 .02 .02"
 pos="0 .5 0" mass=".1"/><site name="tip"/></body></worldbody>
<actuator><motor joint="slide" ctrlrange="-50 50"/></actuator></mujoco>"""


@pytest.mark.slow
def test_meshes_of_the_arm_are_the_boxes_around_them() -> None:
    inner = ArmEnv()
    inner.model = mujoco.MjModel.from_xml_string(MESH)
    inner.data = mujoco.MjData(inner.model)
    inner.action_space = gymnasium.spaces.Box(-1, 1, (1,), dtype=np.float64)
    kinds = inner.model.geom_type.copy()
    env = EndEffectorAction(
        inner, "joint_delta", end_effector="tip", safety="cbf", velocity_limits=1.0
    )
    np.testing.assert_array_equal(inner.model.geom_type, kinds)  # MuJoCo's own stays as it is
    mesh, ellipsoid = env.robot.topology.collision_shapes
    assert mesh.kind == ellipsoid.kind == "box"
    data = inner.data
    mujoco.mj_kinematics(inner.model, data)
    points = inner.model.mesh_vert @ data.geom_xmat[1].reshape(3, 3).T + data.geom_xpos[1]
    seen = (points - np.asarray(mesh.position)) @ np.asarray(mesh.rotation)
    half = np.asarray(mesh.size) / 2
    np.testing.assert_allclose(seen.max(axis=0), half, atol=1e-6)
    np.testing.assert_allclose(seen.min(axis=0), -half, atol=1e-6)
    data.qpos[:] = 0.0
    for _ in range(200):
        mujoco.mj_forward(inner.model, data)
        env.step(np.ones(1))
        assert not data.ncon
        assert np.isfinite(data.ctrl).all()  # the hand only slides: nothing turns it
    assert points[:, 0].max() + data.qpos[0] > 0.5  # near the wall, off which it is kept


@pytest.mark.slow
def test_an_arm_without_shapes_cannot_be_kept_off() -> None:
    env = Crowded()
    env.model.geom_contype[6:] = 0
    env.model.geom_conaffinity[6:] = 0
    with pytest.raises(ConfigError, match="knows no shape of the arm"):
        EndEffectorAction(env, end_effector="grasp", root="base", safety="cbf")
    EndEffectorAction(env, end_effector="grasp", root="base", safety="cbf", obstacles=())
