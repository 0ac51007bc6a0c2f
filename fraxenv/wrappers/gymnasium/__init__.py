"""Gymnasium's two interfaces, NumPy in and out: one environment, and a batch of them.

`import fraxenv` registers both for every id of `fraxenv.list_envs()`:

>>> import gymnasium
>>> env = gymnasium.make("fraxenv/PandaReach-v0", render_mode="rgb_array")
>>> envs = gymnasium.make_vec("fraxenv/PandaReach-v0", num_envs=256)

An environment without an id is composed of the same options that `fraxenv.make` takes:

>>> env = gymnasium.make("fraxenv/Custom-v0", robot="ur10", task="track", goal_env=True)

What both have in common:

- Spaces are boxes of the environment's dtype, actions [-1, 1]. An action that is finite but out of
  range is clipped; one of another shape, of a dtype that is not floating-point, or with a number
  that is not finite is an `ActionError`.
- All randomness comes from the seed given to `reset`: an episode's JAX key is drawn from
  `np_random` when it begins, so that an equal seed gives, bit for bit, an equal trajectory.
- Everything returned is a fresh NumPy array or a plain Python value. `info` is empty at a reset; at
  a step it holds what the task reports, and the dicts `reward_terms`, `safety` and `controller`.
- With `goal_env=True` observations are dicts of `observation`, `achieved_goal` and `desired_goal`,
  `info` has `is_success`, and `compute_reward` gives, bit for bit, the rewards that `step` does.
- Equal environments share their compiled programs: one for `step` and one for `reset`.
- Calling `step`, `reset` or `render` after `close`, `step` or `render` before `reset`, and `step`
  after the end of an episode (where nothing resets it) is an `EnvStateError`.
"""

from .single import GymnasiumEnv
from .vector import GymnasiumVectorEnv

__all__ = ["GymnasiumEnv", "GymnasiumVectorEnv"]
