"""Brax's interface to environments, for its training algorithms.

>>> from brax.training.agents.ppo import train as ppo
>>> env, params = fraxenv.make("PandaReach-v0")
>>> ppo.train(BraxEnv(env), wrap_env_fn=wrap_for_brax, episode_length=150, ...)

`wrap_env_fn` is optional. Without it Brax's own wrappers reset, and restart each of the parallel
environments from the one state that it first had: `num_envs` goals are all that is ever seen.
`wrap_for_brax` differs from them in that every episode begins in a new random state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..errors import ConfigError, import_extra

import_extra("brax.envs.wrappers.training", "brax", "BraxEnv")

from brax.envs import base
from brax.envs.wrappers import training

from ..envs import Environment, EnvParams

_SAFETY = ("intervened", "feasible", "deviation", "slack")
"""Entries of the safety filter's report that can be summed over an episode."""


class BraxEnv(base.Env):  # type: ignore[misc]
    """One environment as a `brax.envs.base.Env`, which knows neither time limits nor resets.

    Brax's wrappers bring these along: `EpisodeWrapper` truncates after its `episode_length`, and
    `max_steps_in_episode` counts for nothing. `done` is terminated, as a float.

    `state.pipeline_state` is the environment's own state, `state.info["rng"]` what its noise and
    its next episodes are drawn from, and `state.metrics` holds all of the step's numbers: `success`
    and the other measures of the task, `reward/<term>` before weighting, and `safety/<name>`.
    Brax's evaluation adds them up over an episode.

    Args:
        env: an environment, as `fraxenv.make` returns it. The observation of a goal environment is
            a dict, as Brax has it for several.
        params: its parameters, constants of the compiled program; default its own.

    Raises:
        MissingExtraError: importing this class, where Brax is not installed.
    """

    def __init__(self, env: Environment, params: EnvParams | None = None) -> None:
        self.env = env
        self.params = env.default_params if params is None else params

    def reset(self, rng: Array) -> base.State:
        """The state at the beginning of a new episode, which `rng` decides."""
        rng, key = jax.random.split(rng)
        obs, env_state = self.env.reset_env(key, self.params)
        reward, metrics = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), self._reported)
        return base.State(env_state, obs, reward, reward, metrics, {"rng": rng})

    def step(self, state: base.State, action: Array) -> base.State:
        """The state after one policy step."""
        rng, key = jax.random.split(state.info["rng"])
        obs, env_state, reward, terminated, info = self.env.step_env(
            key, state.pipeline_state, action, self.params
        )
        return state.replace(
            pipeline_state=env_state,
            obs=obs,
            reward=reward,
            done=terminated.astype(reward.dtype),
            metrics={**state.metrics, **_metrics(info, reward.dtype)},
            info={**state.info, "rng": rng},
        )

    @property
    def observation_size(self) -> Any:
        """Length of an observation; shapes by name where it is a dict."""
        space = self.env.observation_space(self.params)
        if hasattr(space, "spaces"):
            return {name: box.shape for name, box in space.spaces.items()}
        return space.shape[0]

    @property
    def action_size(self) -> int:
        """Length of an action."""
        return self.env.num_actions

    @property
    def backend(self) -> str:
        """Name of the physics."""
        return "fraxenv"

    @property
    def dt(self) -> float:
        """s, of a policy step."""
        return 1.0 / self.env.policy_hz

    @cached_property
    def _reported(self) -> tuple[Any, dict[str, Any]]:
        """Shapes of the reward and the metrics."""

        def reported(key: Array) -> tuple[Array, dict[str, Array]]:
            _, state = self.env.reset_env(key, self.params)
            action = jnp.zeros(self.action_size, state.action.dtype)
            _, _, reward, _, info = self.env.step_env(key, state, action, self.params)
            return reward, _metrics(info, reward.dtype)

        return jax.eval_shape(reported, jax.random.key(0))  # type: ignore[no-any-return]


class RandomResetWrapper(training.Wrapper):  # type: ignore[misc]
    """Begins a new episode, from a new random state, in the step in which one is over.

    It takes the place of Brax's `AutoResetWrapper`, and is given a batch with `EpisodeWrapper`
    around it. `state.info["final_observation"]` is the observation before any reset.
    """

    def reset(self, rng: Array) -> base.State:
        """States at the beginning of new episodes; `rng` is a batch of keys."""
        state = self.env.reset(rng)
        return state.replace(info={**state.info, "final_observation": state.obs})

    def step(self, state: base.State, action: Array) -> base.State:
        """States after one policy step, of new episodes where `done`."""
        steps = jnp.where(state.done > 0, 0, state.info["steps"])
        ongoing = state.replace(
            done=jnp.zeros_like(state.done), info={**state.info, "steps": steps}
        )
        new = self.env.step(ongoing, action)
        over = new.done > 0
        rng, keys = jnp.swapaxes(jax.vmap(jax.random.split)(new.info["rng"]), 0, 1)

        def choose(fresh: Array, old: Array) -> Array:
            return jnp.where(over.reshape(-1, *(1,) * (old.ndim - 1)), fresh, old)

        old = new.pipeline_state, new.obs

        def restarted() -> Any:
            fresh = self.env.reset(keys)
            return jax.tree.map(choose, (fresh.pipeline_state, fresh.obs), old)

        pipeline_state, obs = jax.lax.cond(jnp.any(over), restarted, lambda: old)
        info = {**new.info, "rng": rng, "final_observation": new.obs}
        return new.replace(pipeline_state=pipeline_state, obs=obs, info=info)


def wrap_for_brax(
    env: BraxEnv,
    episode_length: int | None = None,
    action_repeat: int = 1,
    randomization_fn: Callable[..., Any] | None = None,
) -> RandomResetWrapper:
    """A batch with a time limit and random resets: what to give to Brax as `wrap_env_fn`.

    Or wrap the environment oneself and pass `wrap_env=False`.

    Args:
        env: one environment.
        episode_length: policy steps after which an episode is truncated; default the environment's
            `max_steps_in_episode`.
        action_repeat: how many policy steps an action is held.
        randomization_fn: must be None: Brax's changes a `System`, which there is none of.

    Raises:
        ConfigError: there is a `randomization_fn`.
    """
    if randomization_fn is not None:
        raise ConfigError(
            f"{env.env.name}: randomization_fn={randomization_fn!r}, expected None: there is no "
            "brax.System that it could change. Pass randomisation={...} to fraxenv.make instead."
        )
    if episode_length is None:
        episode_length = int(env.params.max_steps_in_episode)  # type: ignore[arg-type]
    batch = training.VmapWrapper(env)
    return RandomResetWrapper(training.EpisodeWrapper(batch, episode_length, action_repeat))


def _metrics(info: Mapping[str, Any], dtype: Any) -> dict[str, Array]:
    """The scalars of a step."""
    named = dict(info)
    named |= {f"reward/{name}": x for name, x in info["reward_terms"].items()}
    named |= {f"safety/{name}": info["safety"][name] for name in _SAFETY}
    return {
        name: x.astype(dtype)
        for name, x in named.items()
        if not isinstance(x, Mapping) and x.ndim == 0
    }
