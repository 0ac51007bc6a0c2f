"""The environment core: robot x task x action space x controller, as one pure function.

It follows the gymnax 1.0.1 protocol. Structure is in the object; every number is in `EnvParams`,
and everything that changes is in `EnvState`, so that both can be batched. A policy step is
`_step_one`: action space, control loop, task.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import environment as gymnax_environment
from gymnax.environments import spaces
from jax import Array

from fraxenv.dynamics import (
    Robot,
    Shape,
)
from fraxenv.dynamics.delay import pushed
from fraxenv.dynamics.model.fingerprint import fingerprint
from fraxenv.errors import is_concrete
from fraxenv.kernels import check_backend, fusible

from .actions.base import check_axes
from .checks import check_state, checked_action
from .control_loop import Rates
from .episode import first_state, next_state, sized_actuators
from .observation import OBSERVATION_BOUND, motion_of, observation
from .physics import Physics, RigidBodyPhysics
from .reset_pool import draw_from_pool, draw_pool
from .state import EnvParams, EnvState, default_dtype, strongly_typed
from .tasks.base import Motion
from .tasks.measures import Measure, reported_measures
from .world import world_shapes


class Environment(gymnax_environment.Environment[EnvState, EnvParams]):  # type: ignore[misc]
    """A robot with a task, moved through an action space.

    Hashable and comparable by content: two environments that are made alike share one compiled
    program. Use `fraxenv.make` to build one of the registered ones.

    Args:
        name: the id.
        robot: the model.
        params: the default parameters, with the task, action space and controller.
        policy_hz: actions per second.
        control_hz: controller updates per second, a multiple of `policy_hz`.
        physics_hz: integration steps per second, a multiple of `control_hz`.
        backend: of the kernels; see `fraxenv.fuse`.
        reset_pool: size of a pool of initial states for resets to draw from, computed here; zero to
            compute a new one at every reset.
        physics: the integrator of the robot's motion; `RigidBodyPhysics` if None.

    Raises:
        ConfigError: the rates are not multiples of each other, or a parameter is not possible.
        KernelError: there is no such backend.
    """

    def __init__(
        self,
        name: str,
        robot: Robot,
        params: EnvParams,
        *,
        policy_hz: int = 50,
        control_hz: int = 1000,
        physics_hz: int = 1000,
        backend: str = "auto",
        reset_pool: int = 0,
        physics: Physics | None = None,
    ) -> None:
        self.rates = Rates(policy_hz, control_hz, physics_hz)
        check_backend(backend)
        if params.randomisation is not None:
            sized = params.randomisation.sized(control_hz, policy_hz)
            params = params.replace(randomisation=sized)
        params = params.replace(actuators=sized_actuators(params, self.rates))
        self._name = name
        self.robot = robot
        self._params = strongly_typed(params)
        self.backend = backend
        self.physics = RigidBodyPhysics() if physics is None else physics
        self._supports_transition_gradients = self.physics.differentiable
        self.check_params(self._params)
        if reset_pool:
            pool = self.draw_pool(jax.random.key(0), self._params, reset_pool)
            self._params = self._params.replace(reset_pool=jax.tree.map(np.asarray, pool))

    # --- identity ---

    @cached_property
    def _fingerprint(self) -> bytes:
        return fingerprint(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        """The values that equal environments share."""
        kind = (type(self).__qualname__, self._name, self.backend)
        return kind, self.robot, self._params, self.rates, self.physics

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Environment)
            and self._fingerprint == other._fingerprint
            and self.transition_gradients_enabled == other.transition_gradients_enabled
        )

    def __hash__(self) -> int:
        return hash((self._fingerprint, self.transition_gradients_enabled))

    @property
    def name(self) -> str:
        """The id."""
        return self._name

    @property
    def default_params(self) -> EnvParams:
        """The parameters the environment was made with."""
        return self._params

    @property
    def policy_hz(self) -> int:
        """Actions per second."""
        return self.rates.policy

    @property
    def control_hz(self) -> int:
        """Controller updates per second."""
        return self.rates.control

    @property
    def physics_hz(self) -> int:
        """Integration steps per second."""
        return self.rates.physics

    # --- spaces ---

    @property
    def num_actions(self) -> int:
        """Size of an action."""
        return len(self._params.action.axes(self.robot))

    def action_space(self, params: EnvParams | None = None) -> spaces.Box:
        """Box [-1, 1]; `params.action.axes(robot)` says what each number means."""
        return spaces.Box(-1.0, 1.0, (self.num_actions,), default_dtype())

    def observation_space(self, params: EnvParams | None = None) -> spaces.Box:
        """Box of the concatenated observation terms."""
        size = sum(self.observation_layout.values())
        return spaces.Box(-OBSERVATION_BOUND, OBSERVATION_BOUND, (size,), default_dtype())

    def check_params(self, params: EnvParams) -> None:
        """Check the parameters, except traced ones; `reset` does so as well.

        Raises:
            ConfigError: one is not possible, such as a goal out of reach.
        """
        self.physics.check(self.name, params)
        parts = (params.action, params.task, params.actuators, params.randomisation)
        if not is_concrete(parts):
            return
        check_axes(params.action, self.robot)
        sized_actuators(params, self.rates)
        if params.robot is None:
            params.task.check(self.robot)
        if params.randomisation is not None:
            params.randomisation.check()
            params.randomisation.sized(self.control_hz, self.policy_hz)

    @cached_property
    def observation_layout(self) -> dict[str, int]:
        """Name and size of each observation term, in the order of the observation."""
        return {name: x.shape[0] for name, x in self._shapes(self._observation_terms).items()}

    @cached_property
    def reported(self) -> tuple[Measure, ...]:
        """The task's measures that people are shown, in order; checked.

        Raises:
            ConfigError: the task measures no success, or describes what is not a number.
            UnknownNameError: the task describes what it does not measure, or has no such tolerance.
        """
        return reported_measures(self._params.task, self._shapes(self._measures))

    def _shapes(
        self, arrays: Callable[[EnvState, EnvParams], dict[str, Array]]
    ) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of named arrays, functions of a state and parameters, in their order."""
        names: list[str] = []

        def listed(key: Array) -> list[Array]:
            params = self._params.without_pool
            found = arrays(self._reset_one(key, params)[1], params)
            names.extend(found)  # here, because a dict comes out of a transformation sorted
            return [jnp.asarray(x) for x in found.values()]

        shapes = jax.eval_shape(listed, jax.random.key(0))
        return dict(zip(names, shapes, strict=True))

    # --- the protocol ---
    # `reset` and `step` are compiled, and one kernel over the batch under `jax.vmap`.

    def reset(self, key: Array, params: EnvParams | None = None) -> tuple[Array, EnvState]:
        """A new episode: observation and state.

        Raises:
            ConfigError: a parameter is not possible, such as a goal out of reach.
        """
        if params is None:
            params = self.default_params
        elif params is not self.default_params:
            self.check_params(params)
        return self._compiled_reset(key, params)  # type: ignore[no-any-return]

    @partial(jax.jit, static_argnames=("self",))
    def _compiled_reset(self, key: Array, params: EnvParams) -> tuple[Array, EnvState]:
        return self.reset_env(key, params)

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Array, EnvState]:
        """A new episode: observation and state; parameters are not checked."""
        if params.reset_pool is not None:
            drawn: tuple[Array, EnvState] = draw_from_pool(key, params.reset_pool)
            return drawn
        return fusible(self._reset_one, self.backend)(key, params)

    @partial(jax.jit, static_argnames=("self",))
    def step(
        self, key: Array, state: EnvState, action: Array, params: EnvParams | None = None
    ) -> tuple[Array, EnvState, Array, Array, Array, dict[str, Any]]:
        """One policy step; where the episode ends, the state and observation of the next one.

        Returns:
            Observation, state, reward, terminated, truncated, and `info` of the step, with
            `final_observation`, the observation before any reset.

        Raises:
            ActionError: the action has the wrong shape or dtype.
            EnvStateError: the state is another environment's.
        """
        params = self.default_params if params is None else params
        check_state(self.name, state, params, self._robot(params), self.num_actions)
        if params.reset_pool is not None:
            return self._autoreset(self.step_env, self.reset_env, key, state, action, params)
        whole = partial(self._autoreset, self._step_one, self._reset_one)
        return fusible(whole, self.backend)(key, state, action, params)

    def step_env(
        self, key: Array, state: EnvState, action: Array, params: EnvParams
    ) -> tuple[Array, EnvState, Array, Array, dict[str, Any]]:
        """One policy step without autoreset: observation, state, reward, terminated, info.

        Actions are clipped to [-1, 1]. A state or an action that is not finite ends the episode:
        `info["diverged"]` is True, the reward zero, and the returned state the last finite one.

        Raises:
            ActionError: the action has the wrong shape or dtype.
            EnvStateError: the state is another environment's.
        """
        check_state(self.name, state, params, self._robot(params), self.num_actions)
        return fusible(self._step_one, self.backend)(key, state, action, params.without_pool)

    def draw_pool(self, key: Array, params: EnvParams, size: int) -> tuple[Array, EnvState]:
        """Initial observations and states (size, ...) for `params.reset_pool`.

        Draw a new pool when parameters change that resets depend on.

        Raises:
            ConfigError: the size is not possible.
        """
        return draw_pool(partial(self.reset_env, params=params.without_pool), key, size)

    def observe(
        self, key: Array, state: EnvState, action: Array | None, params: EnvParams
    ) -> Array:
        """The observation (k,) of a state: its terms, concatenated and clipped.

        Randomisation adds noise, which `key` decides, and delay.
        """
        episode = state.episode
        if episode is not None and episode.observations is not None:
            return episode.observations.due
        return self._observation(key, state, params)

    def is_terminated(self, state: EnvState, params: EnvParams) -> Array:
        """Whether the task ends the episode here; a diverged environment ends in `step_env`."""
        motion = self._motion(state, state.action, params)
        return params.task.terminated(self._robot(params), motion, state.task_state)

    def markers(self, state: EnvState, params: EnvParams) -> list[Shape]:
        """Shapes of the task and of the world, to be drawn; the state's arrays are on the host."""
        return [*params.task.markers(state.task_state), *world_shapes(state.world).values()]

    # --- reset and step of one environment ---

    def _autoreset(
        self,
        step: Callable[..., Any],
        reset: Callable[..., Any],
        key: Array,
        state: EnvState,
        action: Array,
        params: EnvParams,
    ) -> tuple[Array, EnvState, Array, Array, Array, dict[str, Any]]:
        """A step, and where it ends the episode a reset."""
        key_step, key_reset = jax.random.split(key)
        obs, new, reward, terminated, info = step(key_step, state, action, params)
        truncated = self.is_truncated(new, params)
        # A kernel computes the reset only where some environment of a vector of them is done.
        next_obs, next_state = jax.lax.cond(
            terminated | truncated,
            lambda: reset(key_reset, params),
            lambda: (obs, new),
        )
        ends = {"terminated": terminated, "truncated": truncated, "final_observation": obs}
        return next_obs, next_state, reward, terminated, truncated, {**info, **ends}

    def _reset_one(self, key: Array, params: EnvParams) -> tuple[Array, EnvState]:
        """A new episode: observation and state."""
        state = first_state(
            self.name,
            key,
            self._robot(params),
            params,
            self.rates,
            self.num_actions,
            partial(self._observation, params=params),
        )
        return self.observe(key, state, None, params), state

    def _step_one(
        self, key: Array, state: EnvState, action: Array, params: EnvParams
    ) -> tuple[Array, EnvState, Array, Array, dict[str, Any]]:
        """One policy step: command, control loop, task."""
        robot = self._robot(params)
        action = checked_action(self.name, action, self._params.action.axes(self.robot))
        new, diverged, control, safety = next_state(
            robot, state, action, params, self.rates, self.physics
        )
        motion = self._motion(new, state.action, params)
        terms = params.task.reward_terms(robot, motion, new.task_state)
        reward = self._reward(robot, motion, new, terms, params)
        terminated = diverged | params.task.terminated(robot, motion, new.task_state)
        info = {
            **params.task.measures(robot, motion, new.task_state),
            "diverged": diverged,
            "reward_terms": terms,
            "safety": safety,
            "controller": control,
        }
        if new.episode is not None and new.episode.observations is not None:
            delayed = pushed(new.episode.observations, self._observation(key, new, params))
            new = new.replace(episode=dataclasses.replace(new.episode, observations=delayed))
        obs = self.observe(key, new, action, params)
        obs, new = self._apply_transition_gradient_policy(obs, new)
        reward = jnp.where(diverged, self._reward_of_divergence(reward), reward)
        return obs, new, reward, terminated, info

    # --- parts of reset and step ---

    def _robot(self, params: EnvParams) -> Robot:
        """The model that these parameters have."""
        self.physics.check(self.name, params)
        return self.robot if params.robot is None else params.robot

    def _motion(self, state: EnvState, previous_action: Array, params: EnvParams) -> Motion:
        """The argument of the task's functions."""
        return motion_of(self._robot(params), state, previous_action)

    def _measures(self, state: EnvState, params: EnvParams) -> dict[str, Array]:
        """The task's measures of a state."""
        motion = self._motion(state, state.action, params)
        return params.task.measures(self._robot(params), motion, state.task_state)

    def _reward(
        self,
        robot: Robot,
        motion: Motion,
        state: EnvState,
        terms: dict[str, Array],
        params: EnvParams,
    ) -> Array:
        """The weighted sum of the reward terms."""
        weights, dtype = params.task.reward_weights, motion.q.dtype
        weighted = (jnp.asarray(weights.get(n, 1.0), dtype) * x for n, x in terms.items())
        return sum(weighted, jnp.zeros((), dtype))

    def _reward_of_divergence(self, reward: Array) -> Array:
        """The reward of a diverged step; `reward` is that of its last finite state."""
        return jnp.zeros_like(reward)

    def _observation_terms(self, state: EnvState, params: EnvParams) -> dict[str, Array]:
        """All observation terms of the task."""
        motion = self._motion(state, state.action, params)
        return params.task.observation_terms(self._robot(params), motion, state.task_state)

    def _hidden_terms(self, params: EnvParams) -> tuple[str, ...]:
        """Names of the observation terms that are no part of the observation."""
        return ()

    def _observation(self, key: Array, state: EnvState, params: EnvParams) -> Array:
        """The observation (k,) of a state without delay."""
        return observation(key, self._robot(params), state, params, self._hidden_terms(params))
