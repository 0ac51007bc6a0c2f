"""Stable-Baselines3 on `gym.make` and `gym.make_vec`. Needs the extra `sb3`; skipped without it."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import fraxenv  # noqa: F401 - registers the ids
from fraxenv.errors import ConfigError

stable_baselines3 = pytest.importorskip("stable_baselines3")

import torch
from stable_baselines3 import SAC, HerReplayBuffer
from stable_baselines3.common.env_checker import check_env
from stable_baselines3.common.vec_env import VecMonitor, VecNormalize

from fraxenv.wrappers import StableBaselinesVecEnv

torch.set_num_threads(1)  # more of them only wait for each other with networks this small

NAME = "fraxenv/PandaReach-v0"
FAST: dict[str, Any] = {"action": "ee_delta_position", "control_hz": 100, "physics_hz": 100}
STEPS = 4
NUM_ENVS = 3


def batch(num_envs: int = NUM_ENVS, **options: Any) -> StableBaselinesVecEnv:
    options = {"max_episode_steps": STEPS, "autoreset_mode": "SameStep", **FAST, **options}
    return StableBaselinesVecEnv(gym.make_vec(NAME, num_envs=num_envs, **options))


@pytest.mark.parametrize("env_id", ["fraxenv/PandaReach-v0", "fraxenv/PandaReachPose-v0"])
def test_sb3_checks_and_trains(env_id: str) -> None:
    env = gym.make(env_id, control_hz=100)
    check_env(env.unwrapped, warn=True)
    model = stable_baselines3.PPO("MlpPolicy", env, n_steps=128, batch_size=64, seed=0)
    model.learn(256)
    obs, _ = env.reset(seed=0)
    action, _ = model.predict(obs, deterministic=True)
    obs, reward, terminated, truncated, _info = env.step(action)
    assert np.all(np.isfinite(obs))
    assert isinstance(reward, float)
    assert (terminated, truncated) == (False, False)


@pytest.mark.parametrize("reward", ["sparse", "dense"])
def test_goal_environment_is_one_for_sb3(reward: str) -> None:
    check_env(gym.make(NAME, goal_env=True, goal_reward=reward, **FAST).unwrapped, warn=True)


def test_batch_is_a_vec_env() -> None:
    envs, own = (
        batch(goal_env=True),
        gym.make_vec(NAME, num_envs=NUM_ENVS, goal_env=True, max_episode_steps=STEPS, **FAST),
    )
    envs.seed(7)
    obs = envs.reset()
    same, _ = own.reset(seed=7)
    for t in range(1, STEPS + 1):
        action = np.full((NUM_ENVS, 3), 0.5, np.float32)
        np.testing.assert_array_equal(obs["observation"], same["observation"])
        obs, reward, done, infos = envs.step(action)
        same, own_reward, *_ = own.step(action)
        np.testing.assert_array_equal(reward, own_reward.astype(np.float32))
        assert reward.dtype == np.float32
        assert done.tolist() == [t == STEPS] * NUM_ENVS
        assert [i["TimeLimit.truncated"] for i in infos] == done.tolist()
        assert {type(i["is_success"]) for i in infos} == {bool}
    for i, info in enumerate(infos):
        last = info["terminal_observation"]
        for name, x in last.items():
            np.testing.assert_array_equal(x, same[name][i])
            assert name == "desired_goal" or not np.array_equal(x, obs[name][i])
    goals = same["achieved_goal"], same["desired_goal"]
    (again,) = envs.env_method("compute_reward", *goals, [{}] * NUM_ENVS, indices=[0])
    np.testing.assert_array_equal(again, own_reward)
    assert envs.get_attr("num_envs") == [NUM_ENVS] * NUM_ENVS
    assert envs.env_is_wrapped(gym.Wrapper) == [False] * NUM_ENVS
    envs.set_attr("note", "all")
    assert envs.get_attr("note", 1) == ["all"]
    with pytest.raises(ConfigError, match="expected None: the environments of a batch"):
        envs.set_attr("note", "some", indices=[0])
    envs.close()


def test_batch_is_drawn() -> None:
    envs = batch(num_envs=2, render_mode="rgb_array", width=32, height=24)
    envs.reset()
    assert [x.shape for x in envs.get_images()] == [(24, 32, 3)] * 2
    assert envs.render().size == 2 * 24 * 32 * 3  # tiled


def test_other_modes_of_reset_are_refused() -> None:
    envs = gym.make_vec(NAME, num_envs=2, autoreset_mode=AutoresetMode.NEXT_STEP, **FAST)
    with pytest.raises(ConfigError, match=r'NEXT_STEP.*expected.*autoreset_mode="SameStep"'):
        StableBaselinesVecEnv(envs)


def evaluate(
    model: Any, options: dict[str, Any], episodes: int = 64, normalizer: Any = None
) -> tuple[float, float]:
    """Mean return and rate of success, at the end of episodes, of the deterministic policy."""
    envs = VecMonitor(batch(episodes, **options))
    envs.seed(1000)
    obs, done = envs.reset(), np.zeros(episodes, bool)
    while not done.all():  # they end together
        seen = obs if normalizer is None else normalizer.normalize_obs(obs)
        obs, _, done, infos = envs.step(model.predict(seen, deterministic=True)[0])
    returns = [info["episode"]["r"] for info in infos]
    return float(np.mean(returns)), float(np.mean([info["is_success"] for info in infos]))


@pytest.mark.parametrize("how", ["make", "make_vec"])
def test_ppo_improves(how: str) -> None:
    """For ten seconds, one environment at a time and in batches."""
    options = {**FAST, "control_hz": 200, "physics_hz": 200, "max_episode_steps": 50}
    if how == "make":
        envs: Any = stable_baselines3.common.env_util.make_vec_env(
            NAME, n_envs=8, env_kwargs=options, seed=0
        )
        steps, n_steps = 30_000, 128
    else:
        envs = VecMonitor(batch(num_envs=64, **options))
        steps, n_steps = 130_000, 64
    model = stable_baselines3.PPO(
        "MlpPolicy", envs, n_steps=n_steps, batch_size=256, gamma=0.95, learning_rate=1e-3, seed=0
    )
    first, _ = evaluate(model, options)
    model.learn(steps)
    last, success = evaluate(model, options)
    assert last > first + 2.0
    assert success > 0.5


@pytest.mark.slow
def test_sac_with_hindsight_learns_from_a_sparse_reward() -> None:
    """In two minutes. Without normalised observations, 2 cm are too little to be noticed early."""
    options = {**FAST, "policy_hz": 25, "physics_hz": 500, "goal_env": True}
    options["max_episode_steps"] = 50
    envs = VecNormalize(VecMonitor(batch(num_envs=8, **options)), norm_reward=False)
    model = SAC(
        "MultiInputPolicy",
        envs,
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        learning_starts=1000,
        gradient_steps=8,
        learning_rate=1e-3,
        gamma=0.95,
        policy_kwargs={"net_arch": [64, 64]},
        seed=0,
    )
    assert evaluate(model, options, normalizer=envs)[1] < 0.1
    model.learn(14_000)
    assert evaluate(model, options, 256, envs)[1] >= 0.9
