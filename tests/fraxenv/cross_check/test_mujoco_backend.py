"""`backend="mujoco"`: the same environment, with MuJoCo's physics."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import chex
import gymnasium as gym
import jax
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from numpy.typing import NDArray
from support import dtype_with_slow

import fraxenv
from fraxenv import dynamics
from fraxenv.errors import ConfigError, MissingExtraError
from fraxenv.wrappers import GymnasiumEnv

pytest.importorskip("mujoco")

from fraxenv.cross_check.physics import with_mujoco

ID = "PandaReach-v0"
NAME = f"fraxenv/{ID}"
FAST: dict[str, Any] = {"control_hz": 100, "physics_hz": 100, "max_steps_in_episode": 40}

# The largest differences measured over 100 steps, times about ten: in float64 4e-13 rad. In float32
# both round the state at every step, and the arm in its stops amplifies that, to 2e-5 rad.
TOLERANCE = {"float64": 1e-11, "float32": 5e-4}

Step = tuple[NDArray[Any], Any, Any, Any, dict[str, Any]]


def run(env: gym.Env[Any, Any], actions: NDArray[Any]) -> tuple[list[Step], list[Any]]:
    """What the steps return, and the states after them."""
    steps, states = [], []
    env.reset(seed=3)
    for action in actions:
        steps.append(env.step(action))
        states.append(env.unwrapped.state)
    return steps, states


def assert_alike(ours: Any, theirs: Any, tolerance: float) -> None:
    """Equal trees of numbers, to a tolerance relative to one and to the numbers' own size."""
    assert jax.tree.map(type, ours) == jax.tree.map(type, theirs)
    chex.assert_trees_all_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
@dtype_with_slow("float64")
def test_the_same_episode(dtype: np.dtype[Any]) -> None:
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (100, 6)).astype(dtype)
    actions[50:] = [-1, 1, 1, 1, -1, 1]  # into the limits of its reach
    steps, states = run(gym.make(NAME), actions)
    other_steps, other_states = run(gym.make(NAME, backend="mujoco"), actions)
    tolerance = TOLERANCE[dtype.name]
    for (obs, *rest, info), (other_obs, *other_rest, other_info) in zip(
        steps, other_steps, strict=True
    ):
        assert obs.dtype == other_obs.dtype == dtype
        assert_alike(obs, other_obs, 10 * tolerance)
        assert_alike(rest, other_rest, tolerance)
        assert set(info) == set(other_info)
        for name in ("position_error", "reward_terms", "safety"):
            assert_alike(info[name], other_info[name], tolerance)
    q, other_q = (np.stack([s.q for s in x]) for x in (states, other_states))
    np.testing.assert_allclose(q, other_q, rtol=0, atol=tolerance)
    assert np.ptp(q, axis=0).max() > 1.0
    assert (q != other_q).any()  # it was not us who computed both


@pytest.mark.slow
def test_soft_stops_and_friction_act_alike(x64: None) -> None:
    """Full torques drive the joints into their stops, which explicit forces could not hold."""
    robot = dynamics.load_robot("panda")
    robot = robot.replace(
        friction=np.full(7, 2.0),
        damping=np.full(7, 0.5),
        armature=np.full(7, 0.05),
        stop_stiffness=np.full(7, 2000.0),
        stop_damping=np.full(7, 50.0),
        velocity_limits=np.full(7, np.inf),  # a motor that lets go there magnifies rounding
    )
    # Two steps of the physics for each of the controller.
    options = {"robot": robot, "action": "torque", "control_hz": 500, "physics_hz": 1000}
    actions = np.repeat(np.random.default_rng(1).uniform(-0.6, 0.6, (4, 7)), 15, axis=0)
    _, states = run(gym.make(NAME, **options), actions)
    _, others = run(gym.make(NAME, backend="mujoco", **options), actions)
    q, other_q = (np.stack([s.q for s in x]) for x in (states, others))
    v, other_v = (np.stack([s.v for s in x]) for x in (states, others))
    lower, upper = robot.position_limits.T
    assert ((q < lower) | (q > upper)).any(axis=1).sum() > 20
    np.testing.assert_allclose(q, other_q, rtol=0, atol=1e-9)
    np.testing.assert_allclose(v, other_v, rtol=0, atol=1e-7)


@pytest.mark.slow  # tests/fraxenv/wrappers/test_gymnasium.py asks the checker of the class
def test_it_passes_gymnasiums_checker() -> None:
    env = gym.make(NAME, backend="mujoco", render_mode="rgb_array", width=32, height=24, **FAST)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)


def test_episodes_end_and_repeat() -> None:
    env = GymnasiumEnv(ID, backend="mujoco", **FAST)
    actions = np.full((40, 6), 0.5, np.float32)
    first, _ = run(env, actions)
    again, _ = run(copy.deepcopy(env), actions)
    pickled, _ = run(pickle.loads(pickle.dumps(env)), actions)
    assert [s[3] for s in first] == [False] * 39 + [True]
    for other in (again, pickled):
        for (obs, *_), (other_obs, *_) in zip(first, other, strict=True):
            np.testing.assert_array_equal(obs, other_obs)


def test_threads_do_not_disturb_each_other() -> None:
    """Equal environments share MuJoCo's model and data."""
    envs = [GymnasiumEnv(ID, backend="mujoco", **FAST) for _ in range(2)]
    actions = [np.full((40, 6), x, np.float32) for x in (-0.5, 0.5)]
    alone = [run(env, a)[0][-1][0] for env, a in zip(envs, actions, strict=True)]
    together: dict[int, NDArray[Any]] = {}

    def work(i: int) -> None:
        together[i] = run(envs[i], actions[i])[0][-1][0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(2):
        np.testing.assert_array_equal(together[i], alone[i])


def test_it_is_another_environment() -> None:
    env = GymnasiumEnv(ID, backend="mujoco").environment
    own, _ = fraxenv.make(ID)
    assert env != own
    assert env == with_mujoco(own)
    assert hash(env) == hash(with_mujoco(own))
    assert not env.supports_transition_gradients


def test_a_state_that_diverges_ends_the_episode(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = GymnasiumEnv(ID, backend="mujoco", **FAST)
    env.reset(seed=0)
    assert env.state is not None
    env.state = env.state.replace(v=env.state.v.at[0].set(1e30))
    obs, reward, terminated, _, info = env.step(np.zeros(6, np.float32))
    assert terminated
    assert info["diverged"]
    assert reward == 0.0
    assert np.isfinite(obs).all()
    assert list(tmp_path.iterdir()) == []  # MuJoCo would have written MUJOCO_LOG.TXT


def test_batches_of_single_environments() -> None:
    envs = gym.make_vec(NAME, num_envs=2, backend="mujoco", vectorization_mode="sync", **FAST)
    envs.reset(seed=0)
    obs, *_ = envs.step(np.zeros((2, 6), np.float32))
    assert obs.shape[0] == 2


@pytest.mark.slow
def test_vmap_steps_them_one_by_one() -> None:
    env = GymnasiumEnv(ID, backend="mujoco", **FAST).environment
    params, key, action = env.default_params, jax.random.key(0), np.full(6, 0.5, np.float32)
    keys = jax.random.split(key, 3)
    _, states = jax.jit(jax.vmap(env.reset_env, in_axes=(0, None)))(keys, params)
    step = jax.jit(env.step_env)
    batched, *_ = jax.jit(jax.vmap(env.step_env, in_axes=(None, 0, None, None)))(
        key, states, action, params
    )
    for i in range(3):
        one, *_ = step(key, jax.tree.map(lambda x, i=i: x[i], states), action, params)
        np.testing.assert_allclose(batched[i], one, rtol=0, atol=1e-5)


def batch(backend: str) -> Any:
    return gym.make_vec(NAME, num_envs=2, backend=backend, vectorization_mode="vector_entry_point")


def functional(backend: str) -> Any:
    return fraxenv.make(ID, backend=backend)


@pytest.mark.parametrize("make", [functional, batch])
def test_elsewhere_it_is_refused(make: Callable[[str], Any]) -> None:
    with pytest.raises(ConfigError, match=r"expected it with gymnasium\.make alone") as caught:
        make("mujoco")
    assert f"gymnasium.make('{NAME}', backend='mujoco')" in str(caught.value)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"backend='bullet', expected None.*'mujoco'"):
        gym.make(NAME, backend="bullet")


def test_a_robot_in_the_parameters_is_refused() -> None:
    env = GymnasiumEnv(ID, backend="mujoco").environment
    params = env.default_params.replace(robot=env.robot)
    with pytest.raises(ConfigError, match=r"params\.robot is set"):
        env.reset(jax.random.key(0), params)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"randomisation": {"link_mass": (0.5, 2.0)}}, "randomisation of link_mass, expected none"),
        ({"randomisation": {"payload": (0, 1), "gravity": 1.0}}, "of payload, gravity, expected"),
        ({"reset_pool": 2}, "there is a reset_pool, expected None"),
    ],
)
def test_what_its_model_cannot_follow_is_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=rf"{ID} with backend='mujoco': .*{match}"):
        gym.make(NAME, backend="mujoco", **FAST, **options)


@pytest.mark.slow
def test_goals_and_the_randomisation_that_is_ours() -> None:
    """Resistance of the joints, motors and noise are the same with either physics."""
    randomisation = {
        "damping": (0.5, 2.0),
        "friction": (0.5, 2.0),
        "motor_gain": (0.8, 1.2),
        "observation_noise": 0.01,
    }
    robot = dynamics.load_robot("panda").replace(damping=np.ones(7), friction=np.ones(7))
    options = {"randomisation": randomisation, "robot": robot, "goal_env": True, **FAST}
    actions = np.random.default_rng(0).uniform(-1.0, 1.0, (20, 6))
    steps, _ = run(gym.make(NAME, **options), actions)
    others, _ = run(gym.make(NAME, backend="mujoco", **options), actions)
    for (obs, reward, *_), (other_obs, other_reward, *_) in zip(steps, others, strict=True):
        assert_alike(obs, other_obs, 1e-3)
        assert reward == other_reward
    assert not np.array_equal(obs["observation"], other_obs["observation"])


def test_without_mujoco_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(MissingExtraError, match=r'pip install "fraxenv\[mujoco\]"'):
        gym.make(NAME, backend="mujoco")
