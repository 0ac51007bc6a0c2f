"""Stable-Baselines3's interface to batches of environments.

>>> envs = gymnasium.make_vec("fraxenv/PandaReach-v0", num_envs=64, autoreset_mode="SameStep")
>>> model = stable_baselines3.PPO("MlpPolicy", VecMonitor(StableBaselinesVecEnv(envs)))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from ..errors import ConfigError, import_extra

import_extra("stable_baselines3", "sb3", "StableBaselinesVecEnv")

from stable_baselines3.common.vec_env import VecEnv


class StableBaselinesVecEnv(VecEnv):  # type: ignore[misc]
    """A vector environment of Gymnasium's as Stable-Baselines3's `VecEnv`.

    Stable-Baselines3 steps a `gymnasium.make` environment one by one; this is how it gets a batch
    of them in one compiled program. The infos have what it looks for: `TimeLimit.truncated`,
    `is_success`, and `terminal_observation` where an episode is over; put `VecMonitor` around it to
    have returns and success rates logged. Goal environments work with `HerReplayBuffer`.

    Args:
        envs: made with `autoreset_mode="SameStep"`.

    Raises:
        ConfigError: the environments reset in another mode.
        MissingExtraError: importing this class, where Stable-Baselines3 is not installed.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        mode = envs.metadata.get("autoreset_mode")
        if mode != AutoresetMode.SAME_STEP:
            raise ConfigError(
                f"StableBaselinesVecEnv was given environments with autoreset_mode={mode!r}, "
                "expected AutoresetMode.SAME_STEP, which is how Stable-Baselines3 resets. Make "
                'them with autoreset_mode="SameStep".'
            )
        self.envs = envs
        self._actions: Any = None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> Any:
        """Begin new episodes, and return the observations."""
        seeds = None if all(s is None for s in self._seeds) else list(self._seeds)
        obs, _ = self.envs.reset(seed=seeds)  # type: ignore[arg-type]
        self._reset_seeds()
        self._reset_options()
        return obs

    def step_async(self, actions: NDArray[Any]) -> None:
        """Take note of the actions (num_envs, k)."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, NDArray[np.float32], NDArray[np.bool_], list[dict[str, Any]]]:
        """Observations, rewards (num_envs,), dones (num_envs,) and infos of a step."""
        obs, rewards, terminated, truncated, info = self.envs.step(self._actions)
        dones = terminated | truncated
        success = _success(info, self.num_envs)
        timed_out = truncated & ~terminated
        infos: list[dict[str, Any]] = [
            {"TimeLimit.truncated": bool(t), "is_success": bool(s)}
            for t, s in zip(timed_out, success, strict=True)
        ]
        for i in np.flatnonzero(dones):
            infos[i]["terminal_observation"] = info["final_obs"][i]
        return obs, rewards.astype(np.float32), dones, infos

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()

    def get_images(self) -> Sequence[NDArray[np.uint8] | None]:
        """A picture of every environment."""
        frames: Any = self.envs.render()
        return frames or ()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute, which all environments have in common."""
        return [getattr(self.envs, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of all environments.

        Raises:
            ConfigError: `indices` leave some out.
        """
        if set(self._get_indices(indices)) != set(range(self.num_envs)):
            raise ConfigError(
                f"set_attr({attr_name!r}) was given indices={indices!r}, expected None: the "
                "environments of a batch have their attributes in common."
            )
        setattr(self.envs, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """What a method of the batch returns, for each of the `indices`; for `compute_reward`."""
        method = getattr(self.envs, method_name)
        return [method(*method_args, **method_kwargs) for _ in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[Any], indices: Any = None) -> list[bool]:
        """Whether there is such a wrapper around single environments: there is none."""
        return [False for _ in self._get_indices(indices)]


def _success(info: dict[str, Any], num_envs: int) -> NDArray[np.bool_]:
    """Success (num_envs,) of the step, also where an episode is over."""
    none = np.zeros(num_envs, np.bool_)
    last = info.get("final_info", {}).get("success", none)
    return np.asarray(info.get("success", none), np.bool_) | np.asarray(last, np.bool_)
