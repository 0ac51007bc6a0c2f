"""One environment as a `gymnasium.Env`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast

import gymnasium
import numpy as np
from jax import Array
from numpy.typing import ArrayLike, NDArray

from ...envs import EnvState
from ...errors import ConfigError, EnvStateError
from ...making.make import make
from ...making.registry import CUSTOM, MAX_STEPS, NAMESPACE, env_spec
from ...rendering import Renderer
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
    warn_no_render_mode,
    with_peer_within,
)
from .programs import goal_reward, programs_of
from .seeding import Words, draw_key
from .values import Info, Numbers, Observation, frame, fresh, gymnasium_box, gymnasium_space

if TYPE_CHECKING:
    from ...viewer import Viewer

_RENDER_MODES: Final = ("rgb_array", "human")


class GymnasiumEnv(gymnasium.Env[Observation, Numbers]):
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
            overrides = with_peer_within(id, env_id, overrides, registered)
            overrides.setdefault("max_steps_in_episode", NO_LIMIT)
            if overrides["max_steps_in_episode"] != NO_LIMIT:
                check_not_longer(id, overrides["max_steps_in_episode"], registered)
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
        self.render_mode = checked_render_mode(self._name, render_mode, _RENDER_MODES)
        self._size = checked_size(self._name, width, height)
        self._renderer = checked_renderer(self._name, renderer)
        self._viewer: Viewer | None = None
        self._safety: Any = None
        self.metadata = {**type(self).metadata, "render_fps": self.environment.policy_hz}  # type: ignore[misc]
        self.action_space = gymnasium_box(self.environment.action_space(params))
        self.observation_space = gymnasium_space(self.environment.observation_space(params))
        self._programs = programs_of(self.environment)
        self._key: Words = np.zeros(2, np.uint32)
        self._over = self._closed = False
        # The state as programs have it, and as it was last asked for.
        self._packed: Array | None = None
        self._state: EnvState | None = None

    @property
    def state(self) -> EnvState | None:
        """The state of the environment, None before the first `reset`; may be set.

        Raises:
            EnvStateError: what is set is another environment's.
        """
        if self._state is None and self._packed is not None:
            self._state = self._programs.unpack(self._packed)
        return self._state

    @state.setter
    def state(self, state: EnvState | None) -> None:
        self._packed = None if state is None else self._programs.pack(state)
        self._state = state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
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
        check_options(self._name, options, ())
        super().reset(seed=seed)
        self._key = draw_key(self.np_random)
        obs, self._packed = self._programs.reset(self._key)
        self._state = None
        self._over, self._safety = False, None
        self._show()
        return fresh(obs), {}

    def step(self, action: ArrayLike) -> tuple[Observation, float, bool, bool, Info]:
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
        action = checked_actions(self._name, self.environment, action, self.action_space)
        transition, self._packed = self._programs.step(self._key, state, action)
        self._state = None
        obs, reward, terminated, truncated, info = transition
        self._over = terminated or truncated
        if isinstance(obs, dict):
            reward = self.compute_reward(obs["achieved_goal"], obs["desired_goal"], info)
            info["is_success"] = info["success"]
        self._safety = info["safety"]
        self._show(reward, info)
        return obs, reward, terminated, truncated, info

    @property
    def compute_reward(self) -> Callable[..., Any]:
        """`compute_reward(achieved_goal, desired_goal, info=None)`, of goal environments alone.

        Rewards (...,), float64, for goals (..., g) and, for one goal, a float: those that `step`
        returns, bit for bit. `info` is not used, and may be a list of infos.

        Raises:
            AttributeError: the environment is none; Stable-Baselines3 asks in this way.
            ArrayError: from the call, goals whose shapes do not fit, or that are not numbers.

        """
        return goal_reward(self._name, self._programs)

    def render(self) -> NDArray[np.uint8] | None:
        """A picture (height, width, 3) of the environment, uint8.

        With `render_mode="human"` it is None, since every step is shown anyway. With
        `render_mode=None` nothing is drawn: a warning and None, as is Gymnasium's convention.

        Raises:
            EnvStateError: before `reset`, or after `close`.

        """
        self._current("render")
        if self.render_mode is None:
            warn_no_render_mode(self._name)
        if self.render_mode != "rgb_array":
            return None
        state = cast("EnvState", self.state)
        return frame(self.environment, state, self._size, self._renderer, safety=self._safety)

    def close(self) -> None:
        """Let go of the state and of the viewer. Closing twice does no harm."""
        self._closed = True
        self.state = None
        if self._viewer is not None:
            self._viewer.close()
            self._viewer = None

    def _show(self, reward: float = 0.0, info: Info | None = None) -> None:
        """Show the state in the viewer, which opens with the first one."""
        if self.render_mode != "human":
            return
        if self._viewer is None:
            from ...viewer import watch

            self._viewer = watch(self.environment, self.environment.default_params)
        self._viewer.show(cast("EnvState", self.state), reward, info)

    def _check_open(self, method: str) -> None:
        if self._closed:
            raise closed_error(self._name, method)

    def _current(self, method: str) -> Array:
        self._check_open(method)
        if self._packed is None:
            raise not_reset_error(self._name, method)
        return self._packed
