"""Our actions over an environment that no MuJoCo moves, by an adapter of four methods."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from fraxenv import dynamics
from fraxenv.errors import ActionError, ConfigError, UnknownNameError
from fraxenv.wrappers import EndEffectorAction

PANDA = dynamics.load_robot("panda")
HZ, SUBSTEPS = 500, 2
STRONGEST = np.asarray(PANDA.effort_limits)


@jax.jit
def simulated(q: Any, v: Any, torque: Any) -> Any:
    """Somebody's simulator: a control step of a Panda in two time steps, by Runge and Kutta."""

    def rate(q: Any, v: Any) -> Any:
        return v, dynamics.forward_dynamics(PANDA, q, v, torque)

    def step(state: Any, _: None) -> Any:
        (q, v), dt = state, 1 / (HZ * SUBSTEPS)
        a, b = rate(q, v)
        c, d = rate(q + dt / 2 * a, v + dt / 2 * b)
        return (q + dt * c, v + dt * d), None

    return jax.lax.scan(step, (q, v), None, SUBSTEPS)[0]


class Simulated(gymnasium.Env[Any, Any]):
    """Actions are torques in parts of the largest, and a number for a gripper."""

    action_space = gymnasium.spaces.Box(-1, 1, (8,), np.float64)
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (14,), np.float64)

    def __init__(self, length: int = 10_000) -> None:
        self.length = length
        self.gripper: list[float] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.q, self.v = np.asarray(PANDA.q_default, float), np.zeros(7)
        self.q = self.q + self.np_random.uniform(-0.05, 0.05, 7)
        self.count = 0
        return self.seen(), {}

    def seen(self) -> Any:
        return np.concatenate([self.q, self.v])

    def step(self, action: Any) -> Any:
        self.gripper.append(action[7])
        moved = simulated(self.q, self.v, action[:7] * STRONGEST)
        self.q, self.v = (np.asarray(x, float) for x in moved)
        self.count += 1
        return self.seen(), 1.0, self.count >= self.length, False, {}


class ByAction:
    """The adapter, for an environment whose actions are the torques."""

    def __init__(self, env: Simulated, time_step: float = 1 / (HZ * SUBSTEPS)) -> None:
        self.env, self.dt, self.torques = env, time_step, list[Any]()

    def state(self) -> Any:
        return self.env.q, self.env.v

    def command(self, torque: Any) -> Any:
        self.torques.append(torque)
        return torque / STRONGEST

    def time_step(self) -> float:
        return self.dt

    def control_rate(self) -> float:
        return HZ


def wrapped(env: Simulated | None = None, adapter: Any = None, **options: Any) -> EndEffectorAction:
    env = env or Simulated()
    given: dict[str, Any] = {"robot": PANDA, "end_effector": "hand", "arm_actions": range(7)}
    return EndEffectorAction(env, adapter=adapter or ByAction(env), **given | options)


def hand(env: EndEffectorAction) -> np.ndarray:
    own: Any = env.unwrapped
    return np.asarray(dynamics.frame_pose(PANDA, own.q, "hand")[0], float)


@pytest.fixture(scope="module")
def arm() -> EndEffectorAction:
    return wrapped(action_options={"target": "desired"}, policy_hz=20)


@pytest.mark.parametrize("axis", [0, 2])
def test_a_command_of_5_cm_arrives(arm: EndEffectorAction, axis: int) -> None:
    inner: Any = arm.unwrapped
    arm.reset(seed=axis)
    start, action = hand(arm), np.zeros(7)
    action[axis], action[6] = 1.0, 0.3
    assert arm.step(action)[1] == HZ / 20  # rewards are summed
    action[axis] = 0.0
    for _ in range(39):
        arm.step(action)
    np.testing.assert_allclose(hand(arm) - start, 0.05 * np.eye(3)[axis], atol=1e-3)
    assert set(inner.gripper[-100:]) == {0.3}


def test_it_is_an_environment_of_gymnasiums(arm: EndEffectorAction) -> None:
    assert arm.action_space.shape == (7,)
    assert [axis.name for axis in arm.arm_axes][:3] == ["dx", "dy", "dz"]
    check_env(wrapped(policy_hz=100), skip_render_check=True)


def test_an_episode_ends_between_two_actions() -> None:
    env = wrapped(Simulated(length=7), policy_hz=100)
    env.reset(seed=0)
    rewards = [env.step(np.zeros(7))[1:3] for _ in range(2)]
    assert rewards == [(5.0, False), (2.0, True)]


def test_an_adapter_that_commands_by_itself() -> None:
    class Direct(ByAction):
        def command(self, torque: Any) -> None:
            self.torques.append(torque)

    inner = Simulated()
    env = wrapped(inner, Direct(inner), arm_actions=None)
    assert env.action_space.shape == (6 + 8,)  # the environment's own action is left whole
    env.reset(seed=0)
    env.step(np.zeros(14))
    adapter: Any = env._drive._adapter  # type: ignore[union-attr]
    (torque,) = adapter.torques
    expected = dynamics.gravity_forces(PANDA, env.unwrapped.q)  # type: ignore[attr-defined]
    assert np.abs(torque - expected).max() < 3.0  # near rest it holds the arm


@pytest.mark.slow
def test_a_filter_keeps_the_joints_within_their_limits() -> None:
    low, high = np.asarray(PANDA.position_limits, float).T
    nearest = {}
    for safety in (None, "cbf"):
        env = wrapped(policy_hz=10, action="joint_velocity", safety=safety)
        env.reset(seed=0)
        own: Any = env.unwrapped
        nearest[safety] = np.inf
        for _ in range(60):
            info = env.step(np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0, 1.0, 0.0]))[-1]
            room = min((own.q - low).min(), (high - own.q).min())
            nearest[safety] = min(nearest[safety], room)
    assert info["safety"]["feasible"]
    assert nearest[None] < 1e-4 < nearest["cbf"]  # the filter keeps a margin


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"robot": None}, ConfigError, "Pass robot="),
        ({"end_effector": "paw"}, UnknownNameError, "paw"),
        ({"policy_hz": 300}, ConfigError, r"policy_hz of 300 Hz is one in 1.66667 steps"),
        ({"obstacles": ["post"]}, ConfigError, r"obstacles=\['post'\]"),
        ({"drive": "joints"}, ConfigError, "drive='joints'"),
        (
            {"robot": dynamics.load_robot("g1"), "end_effector": "left_hand"},
            ConfigError,
            "free or a ball",
        ),
    ],
)
def test_what_cannot_be(options: Any, error: type[Exception], says: str) -> None:
    if isinstance(options.get("robot"), str):
        options = options | {"robot": dynamics.load_robot(options["robot"])}
    with pytest.raises(error, match=says):
        wrapped(**options)


def test_what_an_adapter_cannot_say() -> None:
    inner = Simulated()
    with pytest.raises(ConfigError, match=r"control_rate\(\) of 500 Hz is one in 0.6"):
        wrapped(inner, ByAction(inner, 1 / 300))
    with pytest.raises(ConfigError, match="policy_hz=20 without an adapter"):
        EndEffectorAction(inner, end_effector="hand", policy_hz=20)
    env = wrapped(inner, arm_actions=[0, 1])
    env.reset(seed=0)
    with pytest.raises(ConfigError, match=r"command\(\) returned \(7,\), expected.*\[0, 1\]"):
        env.step(np.zeros(env.action_space.shape))
    with pytest.raises(ActionError, match="finite"):
        env.step(np.full(env.action_space.shape, np.nan))
    env = wrapped(inner)
    inner.reset(seed=0)
    inner.q = inner.q[:6]
    with pytest.raises(ConfigError, match=r"positions \(6,\) and velocities \(7,\), expected 7"):
        env.step(np.zeros(7))
