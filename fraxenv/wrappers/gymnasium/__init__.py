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

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from jax import Array
from numpy.typing import ArrayLike, NDArray

from ...errors import (
    ActionError,
    ArrayError,
    ConfigError,
    EnvStateError,
    check_choice,
    unknown_name,
)
from ...kernels import fusible, resolve
from ...registration import CUSTOM
from ...registry import MAX_STEPS, NAMESPACE, env_spec, make

if TYPE_CHECKING:
    from ...envs import Environment, EnvState
    from ...rendering import Renderer
    from ...viewer import Viewer

_NO_LIMIT: Final = int(np.iinfo(np.int32).max)
_RENDER_MODES: Final = ("rgb_array", "human")
_VECTOR_RENDER_MODES: Final = ("rgb_array",)
_REWARD_ROWS: Final = 256
_KEY: Final = "threefry2x32"  # fixed, so that a seed means the same under every JAX configuration

_Numbers = NDArray[np.floating[Any]]
_Flags = NDArray[np.bool_]
_Words = NDArray[np.uint32]
_Info = dict[str, Any]
_Observation = _Numbers | dict[str, _Numbers]
_Transition = tuple[Any, Array, Array, Array, _Info]


class GymnasiumEnv(gymnasium.Env[_Observation, _Numbers]):
    """One environment as a `gymnasium.Env`.

    `gymnasium.make` truncates episodes by its `TimeLimit` wrapper, after the registered number of
    steps or after the `max_episode_steps` that it is given (-1: never); the environment then has no
    limit of its own. Made directly, it truncates its episodes itself.

    Args:
        env_id: one of `fraxenv.list_envs()`, or None to compose one of `robot` and `task`.
        render_mode: None; "rgb_array", for pictures; or "human", for a viewer in the browser, which
            shows every step at the policy's rate and needs the extra `viewer`.
        width: of a frame, pixels.
        height: of a frame, pixels.
        renderer: what draws frames: "auto", "mujoco" or "raycast"; see `fraxenv.rendering.render`.
        time_limit: whether the environment truncates episodes by itself. False is what
            `gymnasium.make` passes; a `max_steps_in_episode` among the overrides still holds then,
            but must not exceed the registered one.
        backend: None, or "mujoco": the same actions and controller, but MuJoCo's physics; see
            `fraxenv.cross_check.physics`.
        **overrides: of `fraxenv.make`.

    Attributes:
        environment: what `fraxenv.make` returns, for everything that Gymnasium has no name for.
        state: the state of that environment, None before the first `reset`.

    Raises:
        UnknownNameError: an unknown id, override or option.
        ConfigError: an argument has a value that it cannot have, or MuJoCo cannot model the robot.
        MissingExtraError: MuJoCo, or in `reset` the viewer, is asked for and not installed.

    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": list(_RENDER_MODES), "render_fps": 50}  # type: ignore[misc]

    def __init__(
        self,
        env_id: str | None,
        render_mode: str | None = None,
        width: int = 480,
        height: int = 480,
        *,
        renderer: Renderer = "auto",
        time_limit: bool = True,
        backend: str | None = None,
        **overrides: Any,
    ) -> None:
        id = CUSTOM if env_id is None else env_id
        if not time_limit:
            registered = MAX_STEPS if env_id is None else env_spec(env_id).max_steps_in_episode
            overrides.setdefault("max_steps_in_episode", _NO_LIMIT)
            if overrides["max_steps_in_episode"] != _NO_LIMIT:
                _check_not_longer(id, overrides["max_steps_in_episode"], registered)
        if backend not in (None, "mujoco"):
            raise ConfigError(
                f"{id}: backend={backend!r}, expected None, for fraxenv's own physics, or "
                "'mujoco'. Leave it out."
            )
        self.environment, params = make(env_id, **overrides)
        if backend == "mujoco":
            from ...cross_check.physics import with_mujoco

            self.environment = with_mujoco(self.environment)
        self._name = f"{NAMESPACE}/{self.environment.name}"
        self.render_mode = _render_mode(self._name, render_mode, _RENDER_MODES)
        self._size = _frame_size(self._name, width, height)
        self._renderer = _checked_renderer(self._name, renderer)
        self._viewer: Viewer | None = None
        self._safety: Any = None
        self.metadata = {**type(self).metadata, "render_fps": self.environment.policy_hz}  # type: ignore[misc]
        self.action_space = _box(self.environment.action_space(params))
        self.observation_space = _space(self.environment.observation_space(params))
        self._programs = _programs(self.environment)
        self._key: _Words = np.zeros(2, np.uint32)
        self._over = self._closed = False
        self.state: EnvState | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[_Observation, _Info]:
        """Begin a new episode.

        Args:
            seed: seeds `np_random`, from which the keys of this and all later episodes are drawn.
            options: there are none.

        Returns:
            The observation (k,), or a dict of such, and an empty info.

        Raises:
            EnvStateError: the environment is closed.
            UnknownNameError: an option was given.

        """
        self._check_open("reset")
        _check_options(self._name, options, ())
        super().reset(seed=seed)
        self._key = _draw_key(self.np_random)
        obs, self.state = self._programs.reset(self._key)
        self._over, self._safety = False, None
        self._show(self.state)
        return _fresh(obs), {}

    def step(self, action: ArrayLike) -> tuple[_Observation, float, bool, bool, _Info]:
        """One policy step.

        Args:
            action: (k,), any floating-point dtype, clipped to [-1, 1].

        Returns:
            Observation (k,), or a dict of such, reward, terminated, truncated, info.

        Raises:
            ActionError: the action has the wrong shape or dtype, or is not finite.
            EnvStateError: before `reset`, after `close`, or after the end of the episode.

        """
        state = self._current("step")
        if self._over:
            raise EnvStateError(
                f"{self._name}: step() was called after the end of the episode, expected reset() "
                "once terminated or truncated is True. Call reset() first."
            )
        action = _actions(self._name, self.environment, action, self.action_space)
        transition, self.state = self._programs.step(self._key, state, action)
        obs, reward, terminated, truncated, info = transition
        ended = bool(terminated), bool(truncated)
        self._over = any(ended)
        obs, info = _fresh(obs), _plain(info)
        if isinstance(obs, dict):
            reward = self.compute_reward(obs["achieved_goal"], obs["desired_goal"], info)
            info["is_success"] = info["success"]
        self._safety = info["safety"]
        self._show(self.state, float(reward), info)
        return obs, float(reward), *ended, info

    @property
    def compute_reward(self) -> Callable[..., Any]:
        """`compute_reward(achieved_goal, desired_goal, info=None)`, of goal environments alone.

        Rewards (...,), float64, for goals (..., g) and, for one goal, a float: those that `step`
        returns, bit for bit. `info` is not used, and may be a list of infos.

        Raises:
            AttributeError: the environment is none; Stable-Baselines3 asks in this way.
            ArrayError: from the call, goals whose shapes do not fit, or that are not numbers.

        """
        return _goal_reward(self._name, self._programs)

    def render(self) -> NDArray[np.uint8] | None:
        """A picture (height, width, 3) of the environment, uint8.

        With `render_mode="human"` it is None, since every step is shown anyway. With
        `render_mode=None` nothing is drawn: a warning and None, as is Gymnasium's convention.

        Raises:
            EnvStateError: before `reset`, or after `close`.

        """
        state = self._current("render")
        if self.render_mode is None:
            _warn_no_render_mode(self._name)
        if self.render_mode != "rgb_array":
            return None
        return _frame(self.environment, state, self._size, self._renderer, safety=self._safety)

    def close(self) -> None:
        """Let go of the state and of the viewer. Closing twice does no harm."""
        self._closed = True
        self.state = None
        if self._viewer is not None:
            self._viewer.close()
            self._viewer = None

    def _show(self, state: EnvState, reward: float = 0.0, info: _Info | None = None) -> None:
        """Show a state in the viewer, which opens with the first one."""
        if self.render_mode != "human":
            return
        if self._viewer is None:
            from ...viewer import watch

            self._viewer = watch(self.environment, self.environment.default_params)
        self._viewer.show(state, reward, info)

    def _check_open(self, method: str) -> None:
        if self._closed:
            raise _closed_error(self._name, method)

    def _current(self, method: str) -> EnvState:
        self._check_open(method)
        if self.state is None:
            raise _not_reset_error(self._name, method)
        return self.state


class GymnasiumVectorEnv(VectorEnv[_Observation, _Numbers, NDArray[Any]]):
    """A batch of environments as a `gymnasium.vector.VectorEnv`, in one compiled program.

    It behaves as `gymnasium.vector.SyncVectorEnv` does with the same `GymnasiumEnv`s, down to the
    format of `info` (every key has a mask `_key`) and to the seeds: environment i of a batch draws
    the same episodes as a single environment that is seeded alike. Rewards are float64.

    Three modes of what follows the end of an episode:

    - NEXT_STEP: the next `step` ignores that environment's action and begins a new episode, with
      reward zero and no flags. Gymnasium's vector wrappers want this one.
    - SAME_STEP: the same `step` returns the first observation of the new episode; the last one of
      the old and its info are in `info["final_obs"]` and `info["final_info"]`.
    - DISABLED: environments are reset by `reset(options={"reset_mask": mask})`.

    Args:
        env_id: one of `fraxenv.list_envs()`, or None to compose one of `robot` and `task`.
        num_envs: how many.
        render_mode: None, or "rgb_array".
        autoreset_mode: an `AutoresetMode` or its value.
        max_episode_steps: steps after which an episode is truncated; what `gymnasium.make_vec`
            passes. None for the registered number, or that of `max_steps_in_episode`.
        width: of a frame, pixels.
        height: of a frame, pixels.
        render_envs: how many environments `render` draws; it returns blank frames for the others.
        renderer: what draws frames: "auto", "mujoco" or "raycast"; see `fraxenv.rendering.render`.
        time_limit: whether there is a limit where neither `max_episode_steps` nor
            `max_steps_in_episode` sets one.
        **overrides: of `fraxenv.make`.

    Attributes:
        environment: what `fraxenv.make` returns, for everything that Gymnasium has no name for.
        state: the batched state of that environment, None before the first `reset`.

    Raises:
        UnknownNameError: an unknown id, override or option.
        ConfigError: an argument has a value that it cannot have.

    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "render_modes": list(_VECTOR_RENDER_MODES),
        "render_fps": 50,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    def __init__(
        self,
        env_id: str | None,
        num_envs: int = 1,
        render_mode: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        width: int = 240,
        height: int = 240,
        *,
        render_envs: int = 16,
        renderer: Renderer = "auto",
        time_limit: bool = True,
        **overrides: Any,
    ) -> None:
        if max_episode_steps is not None:
            id = CUSTOM if env_id is None else env_id
            max_episode_steps = _at_least_one(id, "max_episode_steps", max_episode_steps)
            own = overrides.setdefault("max_steps_in_episode", max_episode_steps)
            _check_not_longer(id, own, max_episode_steps)
        elif not time_limit:
            overrides.setdefault("max_steps_in_episode", _NO_LIMIT)
        self.environment, params = make(env_id, **overrides)
        self._name = f"{NAMESPACE}/{self.environment.name}"
        self.num_envs = _at_least_one(self._name, "num_envs", num_envs)
        self._render_envs = _at_least_one(self._name, "render_envs", render_envs)
        self.render_mode = _render_mode(self._name, render_mode, _VECTOR_RENDER_MODES)
        self._size = _frame_size(self._name, width, height)
        self._renderer = _checked_renderer(self._name, renderer)
        self._safety: Any = None
        self._mode = _autoreset_mode(self._name, autoreset_mode)
        self.metadata = {  # type: ignore[misc]
            **type(self).metadata,
            "render_fps": self.environment.policy_hz,
            "autoreset_mode": self._mode,
        }
        self.single_action_space = _box(self.environment.action_space(params))
        self.single_observation_space = _space(self.environment.observation_space(params))
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

        self._programs = _programs(self.environment)
        self._generators: list[tuple[np.random.Generator, int] | None] = [None] * self.num_envs
        self._keys: _Words = np.zeros((self.num_envs, 2), np.uint32)
        self._over: _Flags = np.zeros(self.num_envs, np.bool_)
        self._obs: Any = None
        self.state: EnvState | None = None

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random number generator of every environment, as of `SyncVectorEnv`."""
        return tuple(self._generator(i)[0] for i in range(self.num_envs))

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """What seeded them."""
        return tuple(self._generator(i)[1] for i in range(self.num_envs))

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[_Observation, _Info]:
        """Begin new episodes.

        Args:
            seed: an int s seeds environment i with s + i; a sequence has one seed, or None, for
                each; None goes on with the generators there are.
            options: `reset_mask`, (num_envs,) bool, the environments to reset; default all.

        Returns:
            Observations (num_envs, k), or a dict of such, the last ones of environments that were
            not reset; and an empty info.

        Raises:
            EnvStateError: closed, or a mask that leaves some out before all were reset once.
            UnknownNameError: an unknown option.
            ConfigError: seeds or a mask that do not fit.

        """
        self._check_open("reset")
        mask = self._reset_mask(options)
        seeds = self._seeds(seed)
        if self.state is None and not mask.all():
            raise EnvStateError(
                f"{self._name}: reset() was given a reset_mask that leaves environments out, "
                "but they have no state yet. Call reset() without reset_mask first."
            )
        seeded = {i: seeding.np_random(s) for i, s in enumerate(seeds) if mask[i] and s is not None}
        for i, generator in seeded.items():  # only now, when no seed can be wrong any more
            self._generators[i] = generator
        return self._begin_episodes(mask), {}

    def step(
        self, actions: ArrayLike
    ) -> tuple[_Observation, NDArray[np.float64], _Flags, _Flags, _Info]:
        """One policy step of every environment.

        Args:
            actions: (num_envs, k), any floating-point dtype, clipped to [-1, 1].

        Returns:
            Observations (num_envs, k), or a dict of such, rewards, terminations and truncations
            (num_envs,), infos.

        Raises:
            ActionError: the actions have the wrong shape or dtype, or are not finite.
            EnvStateError: before `reset`, after `close`, or, with autoreset disabled, where the
                episode of an environment is over.

        """
        state = self._current("step")
        actions = _actions(self._name, self.environment, actions, self.action_space)
        resetting = self._over  # of SAME_STEP none, it has reset them; of DISABLED none may be
        if self._mode == AutoresetMode.DISABLED and resetting.any():
            raise EnvStateError(
                f"{self._name}: step() was called after the end of the episodes of environments "
                f"{_some(np.flatnonzero(resetting))}, which nothing resets with "
                "autoreset_mode=DISABLED. Call "
                'reset(options={"reset_mask": np.logical_or(terminations, truncations)}) first.'
            )
        if resetting.all():
            none = np.zeros(self.num_envs, np.bool_)
            return self._begin_episodes(resetting), none.astype(np.float64), none, none.copy(), {}

        (self._obs, *rest, info), self.state = self._programs.step_batch(self._keys, state, actions)
        reward, terminated, truncated = (np.asarray(x) for x in rest)
        info, final = _plain_batch(info), {}
        self._safety = info["safety"]
        if isinstance(self._obs, dict):
            reward = self.compute_reward(self._obs["achieved_goal"], self._obs["desired_goal"])
            info["is_success"] = info["success"].copy()
        reward = np.where(resetting, 0.0, reward.astype(np.float64))
        terminated, truncated = terminated & ~resetting, truncated & ~resetting
        self._over = terminated | truncated
        if self._mode == AutoresetMode.SAME_STEP and self._over.any():
            resetting = self._over
            final = {
                "final_obs": _rows(_fresh(self._obs), resetting),
                "_final_obs": resetting.copy(),
                "final_info": _masked(info, resetting),
                "_final_info": resetting.copy(),
            }
        info = {} if resetting.all() else _masked(info, ~resetting)
        obs = self._begin_episodes(resetting) if resetting.any() else _fresh(self._obs)
        return obs, reward, terminated, truncated, {**info, **final}

    @property
    def compute_reward(self) -> Callable[..., Any]:
        """`compute_reward(achieved_goal, desired_goal, info=None)`, as of `GymnasiumEnv`."""
        return _goal_reward(self._name, self._programs)

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """A frame (height, width, 3), uint8, for every environment.

        The first `render_envs` environments are drawn, since drawing takes longer than stepping;
        the frames of all others are white. With `render_mode=None` nothing is drawn: a warning and
        None, as is Gymnasium's convention.

        Raises:
            EnvStateError: before `reset`, or after `close`.

        """
        state = self._current("render")
        if self.render_mode is None:
            _warn_no_render_mode(self._name)
            return None
        drawn = min(self.num_envs, self._render_envs)
        width, height = self._size
        return tuple(
            self._picture(state, i) if i < drawn else np.full((height, width, 3), 255, np.uint8)
            for i in range(self.num_envs)
        )

    def render_one(self, index: int) -> NDArray[np.uint8]:
        """A frame (height, width, 3), uint8, of one environment, whatever the render mode.

        Raises:
            EnvStateError: before `reset`, or after `close`.
            RenderError: there is no environment of that index.

        """
        return self._picture(self._current("render_one"), index)

    def render_tiled(self, columns: int | None = None) -> NDArray[np.uint8]:
        """One picture of the first `render_envs` environments side by side, in any render mode.

        Args:
            columns: frames in a row; the default makes the grid as square as possible.

        Raises:
            EnvStateError: before `reset`, or after `close`.
            RenderError: columns < 1.

        """
        from ...rendering import render_envs

        return render_envs(
            self.environment,
            self._current("render_tiled"),
            self.environment.default_params,
            *self._size,
            count=self._render_envs,
            columns=columns,
            safety=self._safety,
            renderer=self._renderer,
        )

    def close_extras(self, **kwargs: Any) -> None:
        """Let go of the state; `close` calls it once."""
        self._obs = self.state = None

    # --- parts ---

    def _picture(self, state: EnvState, index: int) -> NDArray[np.uint8]:
        return _frame(
            self.environment, state, self._size, self._renderer, index=index, safety=self._safety
        )

    def _begin_episodes(self, mask: _Flags) -> _Observation:
        """Reset the environments in `mask` (num_envs,) and return all observations."""
        if self._obs is None or self.state is None:
            shapes = jax.eval_shape(jax.vmap(self._programs.reset), self._keys)
            self._obs, self.state = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
        keys = self._keys.copy()
        for i in np.flatnonzero(mask):
            keys[i] = _draw_key(self._generator(int(i))[0])
        self._keys = keys
        self._obs, self.state = self._programs.reset_batch(keys, mask, self._obs, self.state)
        self._over = self._over & ~mask
        if self._safety is not None:
            self._safety["min_barrier"][mask] = np.inf  # nothing has been filtered yet
        return _fresh(self._obs)

    def _generator(self, i: int) -> tuple[np.random.Generator, int]:
        generator = self._generators[i]
        if generator is None:
            generator = self._generators[i] = seeding.np_random()
        return generator

    def _seeds(self, seed: int | Sequence[int | None] | None) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + i for i in range(self.num_envs)]
        if not isinstance(seed, Sequence | np.ndarray) or len(seed) != self.num_envs:
            raise ConfigError(
                f"{self._name}: reset() was given seed={seed!r}, expected None, an int, or "
                f"{self.num_envs} of these, one for each environment. "
                "Pass one int to have the others counted up from it."
            )
        return [int(s) if isinstance(s, np.integer) else s for s in seed]

    def _reset_mask(self, options: Mapping[str, Any] | None) -> _Flags:
        _check_options(self._name, options, ("reset_mask",))
        if not options:
            return np.ones(self.num_envs, np.bool_)
        mask = options["reset_mask"]
        expected = f"expected a NumPy array of shape ({self.num_envs},) and dtype bool with a True"
        if not isinstance(mask, np.ndarray):
            given = f"of type {type(mask).__name__}"
        elif mask.shape != (self.num_envs,) or mask.dtype != np.bool_:
            given = f"of shape {mask.shape} and dtype {mask.dtype}"
        elif not mask.any():
            given = "without a True"
        else:
            return mask.copy()
        raise ConfigError(
            f"{self._name}: reset() was given a reset_mask {given}, {expected}. "
            "Pass np.logical_or(terminations, truncations) when it has any."
        )

    def _check_open(self, method: str) -> None:
        if self.closed:
            raise _closed_error(self._name, method)

    def _current(self, method: str) -> EnvState:
        self._check_open(method)
        if self.state is None:
            raise _not_reset_error(self._name, method)
        return self.state


# --- Compiled programs ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Programs:
    """An environment's programs. Episodes have a key of two words, of shape (2,) or (n, 2).

    `reward` gives those of exactly `_REWARD_ROWS` pairs of goals. There is one program for however
    many are asked for, so that a reward's last bit does not depend on which others come with it.
    """

    env: Environment
    reset: Callable[[_Words], tuple[Any, EnvState]]
    step: Callable[[_Words, EnvState, _Numbers], tuple[_Transition, EnvState]]
    reset_batch: Callable[[_Words, _Flags, Any, EnvState], tuple[Any, EnvState]]
    step_batch: Callable[[_Words, EnvState, _Numbers], tuple[_Transition, EnvState]]
    reward: Callable[[_Numbers, _Numbers], Array] | None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        # Copies and pickles of an environment find the programs that there are.
        return _programs, (self.env,)


@functools.lru_cache(maxsize=32)
def _programs(env: Environment) -> _Programs:
    """Compiled once for all environments that are equal; parameters are constants of them."""
    params = env.default_params

    def key(words: Array, time: Array | int) -> Array:
        return jax.random.fold_in(jax.random.wrap_key_data(words, impl=_KEY), time)

    def reset(words: Array) -> tuple[Any, EnvState]:
        return env.reset_env(key(words, 0), params)

    def step(words: Array, state: EnvState, action: Array) -> tuple[_Transition, EnvState]:
        obs, new, reward, terminated, info = env.step_env(
            key(words, state.time + 1), state, action, params
        )
        truncated = env.is_truncated(new, params)
        transition = obs, reward, terminated, truncated, info
        return transition, new

    def reset_batch(words: Array, mask: Array, obs: Any, state: EnvState) -> tuple[Any, EnvState]:
        def choose(new: Array, old: Array) -> Array:
            return jnp.where(mask.reshape(-1, *(1,) * (new.ndim - 1)), new, old)

        fresh = jax.vmap(fusible(reset, env.backend))(words)
        return jax.tree.map(choose, fresh, (obs, state))  # type: ignore[no-any-return]

    step_batch = jax.vmap(fusible(step, env.backend))
    compute_reward = getattr(env, "compute_reward", None)
    return _Programs(
        env,
        _single(reset, env),
        _single(step, env),
        jax.jit(reset_batch),
        jax.jit(step_batch),
        None if compute_reward is None else jax.jit(lambda a, d: compute_reward(a, d)),
    )


def _single(fn: Callable[..., Any], env: Environment) -> Callable[..., Any]:
    """A function of one environment, as a batch of one where batches are compiled kernels."""
    if resolve(env.backend) != "native":
        return jax.jit(fn)
    batch = jax.vmap(fusible(fn, env.backend))

    @functools.wraps(fn)
    def single(*args: Any) -> Any:
        results = batch(*jax.tree.map(lambda x: x[None], args))
        return jax.tree.map(lambda x: x[0], results)

    return jax.jit(single)


def _draw_key(generator: np.random.Generator) -> _Words:
    return generator.integers(2**32, size=2, dtype=np.uint32)


# --- Goals ----------------------------------------------------------------------------------------


def _goal_reward(name: str, programs: _Programs) -> Callable[..., Any]:
    """`compute_reward` of an environment.

    Raises:
        AttributeError: it is no goal environment.
    """
    program = programs.reward
    if program is None:
        raise AttributeError(
            f"{name} has no compute_reward(): it is no goal environment. Make it with "
            "goal_env=True, e.g. for hindsight experience replay."
        )
    box = programs.env.observation_space().spaces["desired_goal"]

    def compute_reward(
        achieved_goal: ArrayLike, desired_goal: ArrayLike, info: Any = None
    ) -> float | NDArray[np.float64]:
        given = {"achieved_goal": achieved_goal, "desired_goal": desired_goal}
        achieved, desired = (_goals(name, what, x, box) for what, x in given.items())
        try:
            shape = np.broadcast_shapes(achieved.shape, desired.shape)
        except ValueError as error:
            raise ArrayError(
                f"{name}: compute_reward() was given achieved_goal of shape {achieved.shape} and "
                f"desired_goal of shape {desired.shape}, expected as many of the one as of the "
                "other. Pass rows that belong together."
            ) from error
        pairs = [np.broadcast_to(x, shape).reshape(-1, shape[-1]) for x in (achieved, desired)]
        rewards = np.empty(len(pairs[0]))
        for start in range(0, len(rewards), _REWARD_ROWS):
            rows = [x[start : start + _REWARD_ROWS] for x in pairs]
            count = len(rows[0])
            filled = (
                np.concatenate([x, np.zeros((_REWARD_ROWS - count, x.shape[1]), x.dtype)])
                for x in rows
            )
            rewards[start : start + count] = np.asarray(program(*filled))[:count]
        return rewards.reshape(shape[:-1]) if len(shape) > 1 else float(rewards[0])

    return compute_reward


def _goals(name: str, what: str, goals: ArrayLike, box: Any) -> _Numbers:
    """Goals (..., g) in the dtype of their space."""
    try:
        array = np.asarray(goals)
    except ValueError as error:
        raise ArrayError(
            f"{name}: compute_reward() was given {what}={goals!r}, expected an array of shape "
            f"(..., {box.shape[0]}). Pass a NumPy array."
        ) from error
    if array.shape[-1:] != box.shape or not np.issubdtype(array.dtype, np.number):
        raise ArrayError(
            f"{name}: compute_reward() was given {what} of shape {array.shape} and dtype "
            f"{array.dtype}, expected (..., {box.shape[0]}) numbers. Pass what observations hold "
            "under that name."
        )
    return array.astype(box.dtype)


# --- Values ---------------------------------------------------------------------------------------


def _fresh(obs: Any) -> _Observation:
    """A NumPy copy of an observation."""
    if isinstance(obs, dict):
        return {name: np.array(x) for name, x in obs.items()}
    return np.array(obs)


def _plain(info: _Info) -> _Info:
    """Fresh NumPy arrays, and Python values for scalars."""
    return {name: _plain(x) if isinstance(x, dict) else _value(x) for name, x in info.items()}


def _value(x: Array) -> Any:
    return np.array(x) if x.ndim else x.item()


def _plain_batch(info: _Info) -> _Info:
    """Fresh NumPy arrays; scalars in the dtypes in which NumPy holds Python's values."""
    return {
        name: _plain_batch(x) if isinstance(x, dict) else _column(np.asarray(x))
        for name, x in info.items()
    }


def _column(x: NDArray[Any]) -> NDArray[Any]:
    if x.ndim > 1 or x.dtype == np.bool_:
        return x.copy()
    return x.astype(np.float64 if np.issubdtype(x.dtype, np.floating) else np.int64)


def _masked(info: _Info, mask: _Flags) -> _Info:
    """Gymnasium's format: a mask for every key, and zeros where it is False."""
    out: _Info = {}
    for name, x in info.items():
        if isinstance(x, dict):
            out[name] = _masked(x, mask)
        else:
            out[name] = np.where(mask.reshape(-1, *(1,) * (x.ndim - 1)), x, np.zeros((), x.dtype))
        out[f"_{name}"] = mask.copy()
    return out


def _rows(obs: _Observation, mask: _Flags) -> NDArray[np.object_]:
    rows = np.full(len(mask), None, dtype=object)
    for i in np.flatnonzero(mask):
        rows[i] = (
            {k: x[i].copy() for k, x in obs.items()} if isinstance(obs, dict) else obs[i].copy()
        )
    return rows


def _actions(
    name: str, env: Environment, action: ArrayLike, space: gymnasium.Space[Any]
) -> _Numbers:
    """Actions of the shape and dtype of the space, clipped to [-1, 1]."""
    try:
        array = np.asarray(action)
    except ValueError as error:
        raise ActionError(
            f"{name}: the action is {action!r}, expected an array of shape {space.shape}: "
            f"{_columns(env, space)}. Pass a NumPy array."
        ) from error
    if array.shape != space.shape:
        raise ActionError(
            f"{name}: the action has shape {array.shape}, expected {space.shape}: "
            f"{_columns(env, space)}. Pass one number for each of these."
        )
    if not jnp.issubdtype(array.dtype, np.floating):
        raise ActionError(
            f"{name}: the action has dtype {array.dtype}, expected a floating-point one with "
            f"values in [-1, 1]. Convert it, e.g. action.astype(np.{space.dtype})."
        )
    if not np.isfinite(array).all():
        raise ActionError(
            f"{name}: the action is not finite at {_some(np.argwhere(~np.isfinite(array)))}, "
            f"where it is {_some(array[~np.isfinite(array)])}, expected finite numbers in [-1, 1]. "
            "Check what computed it: a policy whose weights are not finite, or an array that was "
            "never filled."
        )
    clipped: _Numbers = np.clip(array, -1.0, 1.0).astype(space.dtype)
    return clipped


def _columns(env: Environment, space: gymnasium.Space[Any]) -> str:
    """What the numbers of an action are, for a message."""
    axes = ", ".join(axis.name for axis in env.default_params.action.axes(env.robot))
    return f"{axes}{', for each environment' if len(space.shape or ()) == 2 else ''}"


def _some(values: NDArray[Any]) -> str:
    """A few of many values, for a message."""
    shown = ", ".join(str(v) for v in values[:5].tolist())
    return shown if len(values) <= 5 else f"{shown}, ... ({len(values)} in all)"


def _frame(
    env: Environment,
    state: EnvState,
    size: tuple[int, int],
    renderer: Renderer,
    *,
    index: int | None = None,
    safety: Any,
) -> NDArray[np.uint8]:
    # Here, because training loads this module and does not draw.
    from ...rendering import render_env

    return render_env(
        env, state, env.default_params, *size, index=index, safety=safety, renderer=renderer
    )


# --- Arguments ------------------------------------------------------------------------------------


def _space(space: Any) -> gymnasium.Space[Any]:
    """Gymnasium's counterpart of gymnax's box, or dict of boxes."""
    if hasattr(space, "spaces"):
        return gymnasium.spaces.Dict({name: _box(box) for name, box in space.spaces.items()})
    return _box(space)


def _box(space: Any) -> gymnasium.spaces.Box:
    """Gymnasium's counterpart of gymnax's box."""
    low, high = (np.broadcast_to(bound, space.shape) for bound in (space.low, space.high))
    return gymnasium.spaces.Box(
        low.astype(space.dtype), high.astype(space.dtype), space.shape, space.dtype
    )


def _at_least_one(name: str, argument: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ConfigError(f"{name}: {argument}={value!r}, expected a whole number >= 1.")
    return int(value)


def _frame_size(name: str, width: int, height: int) -> tuple[int, int]:
    return _at_least_one(name, "width", width), _at_least_one(name, "height", height)


def _render_mode(name: str, mode: str | None, known: tuple[str, ...]) -> str | None:
    if mode is not None and mode not in known:
        raise ConfigError(
            f"{name}: render_mode={mode!r}, expected None or one of "
            f"{', '.join(map(repr, known))}. Make the environment with one of these."
        )
    return mode


def _checked_renderer(name: str, renderer: Renderer) -> Renderer:
    from ...rendering import RENDERERS

    check_choice(f"renderer of {name}", renderer, RENDERERS)
    return renderer


def _autoreset_mode(name: str, mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        known = ", ".join(f"AutoresetMode.{m.name} ({m.value!r})" for m in AutoresetMode)
        raise ConfigError(f"{name}: autoreset_mode={mode!r}, expected one of {known}.") from error


def _check_not_longer(env_id: str, own: object, outer: int) -> None:
    """An episode cannot be longer than Gymnasium lets it be."""
    if isinstance(own, int) and own > outer:
        raise ConfigError(
            f"{env_id}: max_steps_in_episode={own!r}, but Gymnasium truncates episodes after "
            f"max_episode_steps={outer}. Pass max_episode_steps={own!r} to gymnasium.make or "
            "make_vec instead."
        )


def _check_options(name: str, options: Mapping[str, Any] | None, known: tuple[str, ...]) -> None:
    for option in options or ():
        if option not in known:
            raise unknown_name("option", option, known, f"of reset() of {name}")


def _warn_no_render_mode(name: str) -> None:
    gymnasium.logger.warn(
        f"{name}: render() was called, but the environment was made without a render mode, so that "
        'nothing is drawn. Make it with render_mode="rgb_array".'
    )


def _closed_error(name: str, method: str) -> EnvStateError:
    return EnvStateError(
        f"{name}: {method}() was called after close(), expected an open environment. "
        "Make a new one."
    )


def _not_reset_error(name: str, method: str) -> EnvStateError:
    return EnvStateError(
        f"{name}: {method}() was called before reset(), expected an environment with a state. "
        "Call reset() first."
    )
