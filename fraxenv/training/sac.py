"""rejax's SAC, to which an episode that ran out of time is not over."""

from __future__ import annotations

from typing import Any

import jax
import rejax
from rejax.buffers import Minibatch


class SAC(rejax.SAC):  # type: ignore[misc]
    """Soft actor-critic that goes on counting on rewards beyond a time limit.

    rejax knows one `done`. Were a time limit the end of all rewards, one transition of every
    episode would say that the goal, once reached, is worth nothing, and outweigh in the critic's
    loss the fine differences close to the goal. Takes the environments that `FiveTuple` makes.
    """

    def collect_transitions(self, ts: Any) -> tuple[Any, Minibatch]:
        """Take one step in all environments: rejax's new state, and the transitions."""
        rng, rng_action, rng_steps = jax.random.split(ts.rng, 3)
        seen = ts.last_obs
        if self.normalize_observations:
            seen = self.normalize_obs(ts.obs_rms_state, seen)
        action = self.actor.apply(ts.actor_ts.params, seen, rng_action, method="act")
        obs, env_state, reward, done, info = self.vmap_step(
            jax.random.split(rng_steps, self.num_envs), ts.env_state, action, self.env_params
        )
        if self.normalize_observations:
            ts = ts.replace(obs_rms_state=self.update_obs_rms(ts.obs_rms_state, obs))
        if self.normalize_rewards:
            ts = ts.replace(rew_rms_state=self.update_rew_rms(ts.rew_rms_state, reward, done))
        batch = Minibatch(
            obs=ts.last_obs,
            action=action,
            reward=reward,
            next_obs=info["final_observation"],
            done=info["terminated"],
        )
        steps = ts.global_step + self.num_envs
        return ts.replace(rng=rng, last_obs=obs, env_state=env_state, global_step=steps), batch
