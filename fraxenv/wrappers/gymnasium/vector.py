"""A batch of environments as a `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

import jax
import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike, NDArray

from ...envs import EnvState
from ...errors import ConfigError, EnvStateError, check_count
from ...making.make import make
from ...making.peers import with_peer
from ...making.registry import CUSTOM, NAMESPACE
from ...rendering import Renderer, render_envs
from .checks import (
    NO_LIMIT,
    check_not_longer,
    check_options,
    checked_actions,
    checked_render_mode,
    checked_renderer,
    checked_size,
    closed_error,
    not_reset_error,
    some,
    warn_no_render_mode,
)
from .programs import goal_reward, programs_of
from .seeding import Words, draw_key
from .values import (
    Flags,
    Info,
    Numbers,
    Observation,
    frame,
    fresh,
    gymnasium_box,
    gymnasium_space,
    masked,
    plain_batch,
    rows_of,
)

_VECTOR_RENDER_MODES: Final = ("rgb_array",)


class GymnasiumVectorEnv(VectorEnv[Observation, Numbers, NDArray[Any]]):
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
        overrides = with_peer(env_id, overrides)
        if max_episode_steps is not None:
            id = CUSTOM if env_id is None else env_id
            max_episode_steps = check_count(f"{id}: max_episode_steps", max_episode_steps)
            own = overrides.setdefault("max_steps_in_episode", max_episode_steps)
            check_not_longer(id, own, max_episode_steps)
        elif not time_limit:
            overrides.setdefault("max_steps_in_episode", NO_LIMIT)
        self.environment, params = make(env_id, **overrides)
        self._name = f"{NAMESPACE}/{self.environment.name}"
        self.num_envs = check_count(f"{self._name}: num_envs", num_envs)
        self._render_envs = check_count(f"{self._name}: render_envs", render_envs)
        self.render_mode = checked_render_mode(self._name, render_mode, _VECTOR_RENDER_MODES)
        self._size = checked_size(self._name, width, height)
        self._renderer = checked_renderer(self._name, renderer)
        self._safety: Any = None
        self._mode = _checked_autoreset_mode(self._name, autoreset_mode)
        self.metadata = {  # type: ignore[misc]
            **type(self).metadata,
            "render_fps": self.environment.policy_hz,
            "autoreset_mode": self._mode,
        }
        self.single_action_space = gymnasium_box(self.environment.action_space(params))
        self.single_observation_space = gymnasium_space(self.environment.observation_space(params))
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)

        self._programs = programs_of(self.environment)
        self._generators: list[tuple[np.random.Generator, int] | None] = [None] * self.num_envs
        self._keys: Words = np.zeros((self.num_envs, 2), np.uint32)
        self._over: Flags = np.zeros(self.num_envs, np.bool_)
        self._obs: Any = None
        self.state: EnvState | None = None

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The random number generator of every environment, as of `SyncVectorEnv`."""
        return tuple(self._generator(i)[0] for i in range(self.num_envs))

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The seed of every environment's generator."""
        return tuple(self._generator(i)[1] for i in range(self.num_envs))

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, Info]:
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
    ) -> tuple[Observation, NDArray[np.float64], Flags, Flags, Info]:
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
        actions = checked_actions(self._name, self.environment, actions, self.action_space)
        resetting = self._over  # of SAME_STEP none, it has reset them; of DISABLED none may be
        if self._mode == AutoresetMode.DISABLED and resetting.any():
            raise EnvStateError(
                f"{self._name}: step() was called after the end of the episodes of environments "
                f"{some(np.flatnonzero(resetting))}, which nothing resets with "
                "autoreset_mode=DISABLED. Call "
                'reset(options={"reset_mask": np.logical_or(terminations, truncations)}) first.'
            )
        if resetting.all():
            none = np.zeros(self.num_envs, np.bool_)
            return self._begin_episodes(resetting), none.astype(np.float64), none, none.copy(), {}

        (self._obs, *rest, info), self.state = self._programs.step_batch(self._keys, state, actions)
        reward, terminated, truncated = (np.asarray(x) for x in rest)
        info, final = plain_batch(info), {}
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
                "final_obs": rows_of(fresh(self._obs), resetting),
                "_final_obs": resetting.copy(),
                "final_info": masked(info, resetting),
                "_final_info": resetting.copy(),
            }
        info = {} if resetting.all() else masked(info, ~resetting)
        obs = self._begin_episodes(resetting) if resetting.any() else fresh(self._obs)
        return obs, reward, terminated, truncated, {**info, **final}

    @property
    def compute_reward(self) -> Callable[..., Any]:
        """`compute_reward(achieved_goal, desired_goal, info=None)`, as of `GymnasiumEnv`."""
        return goal_reward(self._name, self._programs)

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
            warn_no_render_mode(self._name)
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
        return frame(
            self.environment, state, self._size, self._renderer, index=index, safety=self._safety
        )

    def _begin_episodes(self, mask: Flags) -> Observation:
        """Reset the environments in `mask` (num_envs,) and return all observations."""
        if self._obs is None or self.state is None:
            shapes = jax.eval_shape(jax.vmap(self._programs.first), self._keys)
            self._obs, self.state = jax.tree.map(lambda s: np.zeros(s.shape, s.dtype), shapes)
        keys = self._keys.copy()
        for i in np.flatnonzero(mask):
            keys[i] = draw_key(self._generator(int(i))[0])
        self._keys = keys
        self._obs, self.state = self._programs.reset_batch(keys, mask, self._obs, self.state)
        self._over = self._over & ~mask
        if self._safety is not None:
            self._safety["min_barrier"][mask] = np.inf  # nothing has been filtered yet
        return fresh(self._obs)

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

    def _reset_mask(self, options: Mapping[str, Any] | None) -> Flags:
        check_options(self._name, options, ("reset_mask",))
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
            raise closed_error(self._name, method)

    def _current(self, method: str) -> EnvState:
        self._check_open(method)
        if self.state is None:
            raise not_reset_error(self._name, method)
        return self.state


def _checked_autoreset_mode(name: str, mode: AutoresetMode | str) -> AutoresetMode:
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        known = ", ".join(f"AutoresetMode.{m.name} ({m.value!r})" for m in AutoresetMode)
        raise ConfigError(f"{name}: autoreset_mode={mode!r}, expected one of {known}.") from error
