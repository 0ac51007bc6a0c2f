"""Stable-Baselines3 on `gym.make`. Needs the extra `clients`; skipped without it."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import fraxenv  # noqa: F401 - registers the ids

stable_baselines3 = pytest.importorskip("stable_baselines3")


@pytest.mark.parametrize("env_id", ["fraxenv/PandaReach-v0", "fraxenv/PandaReachPose-v0"])
def test_sb3_checks_and_trains(env_id: str) -> None:
    from stable_baselines3.common.env_checker import check_env

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
