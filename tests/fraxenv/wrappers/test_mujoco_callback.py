"""The arm's control as MuJoCo calls it by itself: it does what Python's does."""

from __future__ import annotations

import copy
import ctypes
import pickle
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from fraxenv.errors import UnknownNameError
from fraxenv.wrappers import EndEffectorAction

mujoco = pytest.importorskip("mujoco")

from mujoco_arms import SERVOS, ArmEnv, arm_model

pytestmark = pytest.mark.cpu


@pytest.fixture(autouse=True)
def no_callback() -> Iterator[None]:
    yield
    mujoco.set_mjcb_control(None)


def walked(env: EndEffectorAction, steps: int = 40) -> np.ndarray:
    """The states on a way of random actions."""
    rng = np.random.default_rng(1)
    env.reset(seed=0)
    return np.array([env.step(0.5 * rng.uniform(-1, 1, 7))[0] for _ in range(steps)])


def arm(integrator: str = "EULER", model: Any = None, **options: Any) -> EndEffectorAction:
    model = arm_model(**(model or {}))
    model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}")
    return EndEffectorAction(
        ArmEnv(model),
        end_effector="grasp",
        action_options={"target": "desired"},
        **options,
    )


@pytest.mark.parametrize(
    "options",
    [
        {
            "integrator": "RK4",
            "model": {"spring": 'stiffness="30" springref="40"'},
            "observer": "momentum",
        },
        {"model": {"actuators": SERVOS}},
        pytest.param({"drive": "joints"}, marks=pytest.mark.slow),
    ],
    ids=["motors", "servos", "joints"],
)
def test_it_does_what_pythons_does(options: Any) -> None:
    env = arm(**options)
    found = walked(env)
    assert env._drive._native is not None
    # Beside a callback of Python's, ours is Python's too.
    calls: list[float] = []
    mujoco.set_mjcb_control(lambda model, data: calls.append(data.time))
    np.testing.assert_allclose(walked(env), found, atol=1e-9)
    assert len(calls) >= 400


def test_somebodys_machine_code_is_called_before() -> None:
    calls: list[int] = []
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    theirs = kind(lambda model, data: calls.append(data))
    env = arm()
    found = walked(env, 3)
    mujoco.set_mjcb_control(theirs)
    np.testing.assert_allclose(walked(env, 3), found, atol=1e-9)
    assert set(calls) == {env.unwrapped.data._address}  # type: ignore[attr-defined]
    assert ctypes.cast(mujoco.get_mjcb_control(), ctypes.c_void_p).value == (
        ctypes.cast(theirs, ctypes.c_void_p).value
    )


LIFTS = """<mujoco><option timestep="0.002"/><worldbody>
<body name="a"><joint name="a" type="slide" axis="0 0 1" range="-1 1"/>
 <geom name="a" size=".05" mass="2"/></body>
<body name="b" pos="1 0 0"><joint name="b" type="slide" axis="0 0 1" range="-1 1"/>
 <geom name="b" size=".05" mass="3"/></body></worldbody>
<actuator><motor joint="a"/><motor joint="b"/></actuator></mujoco>"""


class Lifts(gymnasium.Env[Any, Any]):
    """Two lifts, whose `MjData` every reset makes anew."""

    action_space = gymnasium.spaces.Box(-100, 100, (2,), np.float64)
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)

    def __init__(self) -> None:
        self.model = mujoco.MjModel.from_xml_string(LIFTS)
        self.data = mujoco.MjData(self.model)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.other, self.data = mujoco.MjData(self.model), mujoco.MjData(self.model)
        return self.data.qpos.copy(), {}

    def step(self, action: Any) -> Any:
        self.data.ctrl[:] = action
        mujoco.mj_step(self.model, self.data, nstep=10)
        mujoco.mj_step(self.model, self.other, nstep=10)
        return self.data.qpos.copy(), 0.0, False, False, {}


def test_two_arms_of_one_model_and_new_data() -> None:
    options: Any = {"action": "joint_delta", "action_options": {"scale": 0.1}}
    lifts = Lifts()
    one = EndEffectorAction(lifts, end_effector="a", root="a", arm_actions=[0], **options)
    both = EndEffectorAction(one, end_effector="b", root="b", arm_actions=[1], **options)
    for seed in range(2):
        both.reset(seed=seed)
        q = both.step(np.array([1.0, -0.5]))[0]  # b's number comes first
        for _ in range(150):
            q = both.step(np.zeros(2))[0]
        assert one._drive._native is not None
        assert both._drive._native is not None
        assert mujoco.get_mjcb_control() is None
        assert -0.1 < q[0] < 0 < q[1] < 0.1
        # Other data is nobody's: it falls to the end.
        assert (lifts.other.qpos < -0.99).all()


def test_an_unknown_hand_of_a_model_without_sites() -> None:
    with pytest.raises(UnknownNameError, match="unknown body or site 'c'"):
        EndEffectorAction(Lifts(), end_effector="c", root="a", arm_actions=[0])


def test_copies_and_pickles_go_on_alike() -> None:
    """An environment of Gymnasium's that is pickled is made anew; this one keeps its `MjData`."""
    env = arm()
    env.reset(seed=0)
    env.step(np.eye(7)[0])
    others = copy.deepcopy(env), pickle.loads(pickle.dumps(env))
    expected = [env.step(np.zeros(7))[0] for _ in range(3)]
    for other in others:
        found = [other.step(np.zeros(7))[0] for _ in range(3)]
        np.testing.assert_array_equal(found, expected)
