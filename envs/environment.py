"""The environment: robot x task x action space x controller, by the protocol of gymnax 1.0.1.

Structure is in the object; every number is in `EnvParams`, and everything that changes is in
`EnvState`, so that both can be batched. An episode begins in `_begin`, and a policy step is
`_advance`: pure functions of one environment, which `reset` and `step` check, compile and batch.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.controllers.safety.foresight import WayOut
from fraxenv.dynamics import Robot, Shape, forward_kinematics
from fraxenv.dynamics.model.fingerprint import fingerprint
from fraxenv.errors import is_concrete
from fraxenv.kernels import check_backend, fusible

from .actions.base import check_axes, checked_action
from .control_loop import Physics, Rates, RigidBodyPhysics
from .episode import drawn_beginning, first_state, foreseen, next_state, with_room_for_delays
from .gradients import with_finite_gradients
from .observation import (
    OBSERVATION_BOUND,
    TaskInputs,
    named_shapes,
    observation,
    task_inputs,
    with_delayed,
)
from .protocol import environment as gymnax_environment
from .protocol import spaces
from .reset_pool import draw_from_pool, draw_pool
from .state import EnvParams, EnvState, check_state, default_dtype, strongly_typed
from .tasks.base import Motion, Task
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
        physics: how the robot moves; `RigidBodyPhysics` if None, `ContactPhysics` of a scene.

    Raises:
        ConfigError: the rates are not multiples of each other, or a parameter is not possible.
        KernelError: there is no such backend.
    """

    _hidden_terms: tuple[str, ...] = ()
    """Observation terms that are no part of the observation."""

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
        self._name, self.robot, self.backend = name, robot, backend
        self._params = strongly_typed(with_room_for_delays(params, self.rates))
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
        layout = self.observation_layout
        size = sum(n for name, n in layout.items() if name not in self._hidden_terms)
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
        tasks = [params.task]
        if params.randomisation is not None:
            params.randomisation.check()
            sizes = params.randomisation.object_size
            if sizes is not None:
                ends = np.min(np.asarray(sizes)), np.max(np.asarray(sizes))
                alike = (dict.fromkeys(self.physics.loose, end) for end in ends)
                tasks += [params.task.resized(factors) for factors in alike]
        if params.robot is None and params.scene is None:
            for task in tasks:
                task.check(self.robot)
        with_room_for_delays(params, self.rates)

    @cached_property
    def observation_layout(self) -> dict[str, int]:
        """Name and size of each observation term, in the order of the observation."""
        terms = self._shapes(self._params.task.observation_terms)
        return {name: x.shape[0] for name, x in terms.items()}

    @cached_property
    def reported(self) -> tuple[Measure, ...]:
        """The task's measures that people are shown, in order; checked.

        Raises:
            ConfigError: the task measures no success, or describes what is not a number.
            UnknownNameError: the task describes what it does not measure, or has no such tolerance.
        """
        return reported_measures(self._params.task, self._shapes(self._params.task.measures))

    def _shapes(self, says: Callable[..., dict[str, Array]]) -> dict[str, jax.ShapeDtypeStruct]:
        """Shapes of what a function of the task says of a state, in its order."""
        robot, params = self._robot(self._params), self._params.without_pool

        def said(key: Array) -> dict[str, Array]:
            drawn, _ = drawn_beginning(key, robot, params, self.physics)
            poses = forward_kinematics(robot, drawn.q)
            action = jnp.zeros(self.num_actions, drawn.q.dtype)
            motion = Motion(drawn.q, drawn.v, poses, drawn.world, action, action)
            return says(robot, motion, drawn.task_state)

        return named_shapes(said)

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

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Array, EnvState]:
        """A new episode: observation and state; parameters are not checked."""
        if params.reset_pool is not None:
            drawn: tuple[Array, EnvState] = draw_from_pool(key, params.reset_pool)
            return drawn
        return fusible(self._begin, self.backend)(key, params)

    _compiled_reset = jax.jit(reset_env, static_argnames=("self",))

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
        self.check_state(state, params)
        way = self._way_out(state, params)
        if params.reset_pool is not None:
            return self._advance_or_begin(key, state, action, params, way)
        return fusible(self._advance_or_begin, self.backend)(key, state, action, params, way)

    def check_state(self, state: EnvState, params: EnvParams) -> None:
        """Refuse the state of another environment.

        Raises:
            EnvStateError: it is one.
        """
        robot, objects = self._robot(params), self.physics.objects
        check_state(self.name, state, params, robot, self.num_actions, objects)

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
        self.check_state(state, params)
        way = self._way_out(state, params)
        return fusible(self._advance, self.backend)(key, state, action, params.without_pool, way)

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
        return state.own_task(params.task).terminated(*self._inputs(state, params))

    def markers(self, state: EnvState, params: EnvParams) -> list[Shape]:
        """Shapes of the task and of the world, to be drawn; the state's arrays are on the host."""
        shapes = self.physics.shapes(state.world, state.sizes)
        around = [*world_shapes(state.world).values(), *shapes]
        return [*state.own_task(params.task).markers(state.task_state), *around]

    # --- of one environment ---

    def _begin(self, key: Array, params: EnvParams) -> tuple[Array, EnvState]:
        """The beginning of an episode: observation and state."""
        robot, observation = self._robot(params), partial(self._observation, params=params)
        parts = params, self.rates, self.physics, self.num_actions
        state = first_state(key, robot, *parts, observation)
        return self.observe(key, state, None, params), state

    def _way_out(self, state: EnvState, params: EnvParams) -> WayOut | None:
        """The safety filter's way out of what moves, from this state; None without foresight.

        Two kernels of their own: few environments search, fewer search twice, and a kernel gathers
        for one such branch. They have no derivative, as a way is a constant to derivatives.
        """
        if params.safety is None or params.safety.foresight is None:
            return None
        given = jax.lax.stop_gradient((state, params.without_pool))
        foreseen = fusible(self._foreseen, self.backend)
        way: WayOut | None = foreseen(*given, None)
        if way is None or state.world.obstacles.velocity is None:
            return way
        return foreseen(*given, way)

    def _foreseen(self, state: EnvState, params: EnvParams, way: WayOut | None) -> WayOut | None:
        return foreseen(self._robot(params), state, params, self.rates, self.physics, way)

    def _advance(
        self,
        key: Array,
        state: EnvState,
        action: Array,
        params: EnvParams,
        way: WayOut | None,
    ) -> tuple[Array, EnvState, Array, Array, dict[str, Any]]:
        """One policy step: motion, task, observation."""
        action = checked_action(self.name, action, self._params.action.axes(self.robot))
        state, action, params = with_finite_gradients(state, action, params)
        robot, task = self._robot(params), state.own_task(params.task)
        new, report = next_state(robot, state, action, params, self.rates, self.physics, way)
        diverged = report["diverged"]
        _, motion, task_state = task_inputs(robot, new, state.action)
        new = new.replace(task_state=task.after(robot, motion, task_state))
        inputs = robot, motion, new.task_state
        terms = task.reward_terms(*inputs)
        reward = self._reward(inputs, terms, diverged, task)
        terminated = diverged | task.terminated(*inputs)
        info = {**task.measures(*inputs), **report, "reward_terms": terms}
        new = with_delayed(new, partial(self._observation, key, new, params))
        obs = self.observe(key, new, action, params)
        obs, new = self._apply_transition_gradient_policy(obs, new)
        return obs, new, reward, terminated, info

    def _advance_or_begin(
        self,
        key: Array,
        state: EnvState,
        action: Array,
        params: EnvParams,
        way: WayOut | None,
    ) -> tuple[Array, EnvState, Array, Array, Array, dict[str, Any]]:
        """One policy step, and where it ends the episode the beginning of the next one."""
        key_step, key_reset = jax.random.split(key)
        advance = fusible(self._advance, self.backend)
        here = key_step, state, action, params.without_pool, way
        obs, new, reward, terminated, info = advance(*here)
        truncated = self.is_truncated(new, params)
        # What happened before an episode, and what it is drawn from, has no gradient in it.
        fixed = jax.lax.stop_gradient(params)
        # A kernel computes the reset only where some environment of a vector of them is done.
        next_obs, next_state = jax.lax.cond(
            terminated | truncated,
            lambda: self.reset_env(key_reset, fixed),
            lambda: (obs, new),
        )
        ends = {"terminated": terminated, "truncated": truncated, "final_observation": obs}
        return next_obs, next_state, reward, terminated, truncated, {**info, **ends}

    def _reward(
        self, inputs: TaskInputs, terms: dict[str, Array], diverged: Array, task: Task
    ) -> Array:
        """The weighted sum of the reward terms; zero for a step that diverged."""
        weights, dtype = task.reward_weights, inputs[1].q.dtype
        weighted = (jnp.asarray(weights.get(n, 1.0), dtype) * x for n, x in terms.items())
        return jnp.where(diverged, 0.0, sum(weighted, jnp.zeros((), dtype)))

    def _observation(self, key: Array, state: EnvState, params: EnvParams) -> Array:
        """The observation (k,) of a state without delay."""
        return observation(key, self._robot(params), state, params, self._hidden_terms)

    def _inputs(self, state: EnvState, params: EnvParams) -> TaskInputs:
        """What the task is told of a state."""
        return task_inputs(self._robot(params), state)

    def _robot(self, params: EnvParams) -> Robot:
        """The model that these parameters have."""
        self.physics.check(self.name, params)
        return self.physics.nominal(self.robot, params)
