"""The environment core: robot x task x action space x controller, as one pure function.

It follows the gymnax 1.0.1 protocol. Structure is in the object; every number is in `EnvParams`,
and everything that changes is in `EnvState`, so that both can be batched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments import environment as gymnax_environment
from gymnax.environments import spaces
from jax import Array
from jax.typing import ArrayLike

from fraxenv.controllers import Controller
from fraxenv.controllers.limits import TorqueLimits, torque_range, with_torque
from fraxenv.controllers.safety.filter import (
    SafetyFilter,
    SafetyReport,
    no_safety_report,
    worse_report,
)
from fraxenv.dynamics import (
    Robot,
    Shape,
    Terms,
    compute_terms,
    forward_kinematics,
    move_obstacles,
)
from fraxenv.dynamics import step as dynamics_step
from fraxenv.dynamics.model.fingerprint import fingerprint
from fraxenv.errors import ActionError, ConfigError, EnvStateError, unknown_name
from fraxenv.kernels import check_backend, fusible

from .actions.base import ActionSpace, check_axes
from .randomisation import (
    Episode,
    Randomisation,
    draw_episode,
    draw_velocity,
    pushed,
    with_noise,
)
from .tasks.base import Motion, Task

OBSERVATION_BOUND = 10.0
"""Observations are clipped to plus and minus this; terms are scaled to be about one."""

DIVERGED_SPEED = 1e3
"""Joint speed, rad/s or m/s, beyond which an environment counts as diverged."""


class _Replace:
    """`replace` for frozen dataclasses, with an error that names the fields there are."""

    def replace(self, **changes: Any) -> Any:
        """A copy with some fields changed.

        Raises:
            UnknownNameError: there is no such field.
        """
        names = [f.name for f in dataclasses.fields(self)]  # type: ignore[arg-type]
        for name in changes:
            if name not in names:
                raise unknown_name("field", name, names, f"of {type(self).__name__}")
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvParams(_Replace):
    """Everything about an environment that is a number. All leaves may be batched.

    Attributes:
        max_steps_in_episode: policy steps after which an episode is truncated.
        action: the action space; its scales are leaves.
        controller: the controller; its gains are leaves.
        task: the task; its goal distribution, tolerances and reward weights are leaves.
        safety: the filter that the controller's torques go through; None for none.
        randomisation: what differs from episode to episode; None for nothing but the task.
        reset_pool: observations and states (n, ...), as `Environment.draw_pool` makes them, of
            which every reset takes one; None to work out a new one at every reset.
        robot: the robot if its parameters are to be batched or changed; None for the
            environment's own, whose parameters are then constants of the compiled program.
    """

    max_steps_in_episode: ArrayLike
    action: ActionSpace
    controller: Controller[Any]
    task: Task
    safety: SafetyFilter | None = None
    robot: Robot | None = None
    randomisation: Randomisation | None = None
    reset_pool: Any = None


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvState(_Replace):
    """Everything about an environment that changes.

    Attributes:
        time: (), int32, policy steps since the episode began.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        action: (k,), the last action, in [-1, 1].
        action_state: what the action space remembers.
        controller_state: what the controller remembers.
        task_state: what the task remembers, its goal among it.
        episode: what was drawn for the episode; None where nothing is randomised.
    """

    time: Array
    q: Array
    v: Array
    action: Array
    action_state: Any
    controller_state: Any
    task_state: Any
    episode: Episode | None = None


class Environment(gymnax_environment.Environment[EnvState, EnvParams]):  # type: ignore[misc]
    """A robot with a task, moved through an action space.

    Hashable and comparable by content: two environments that are made alike share one compiled
    program. Use `fraxenv.make` to build one of the registered ones.

    Args:
        name: what `env.name` returns.
        robot: the model.
        params: the default parameters, with the task, action space and controller.
        policy_hz: actions per second.
        control_hz: controller updates per second, a multiple of `policy_hz`.
        physics_hz: integration steps per second, a multiple of `control_hz`.
        backend: how batches are computed; see `fraxenv.fuse`.
        reset_pool: how many initial states to work out once, here, for resets to draw from; zero
            to work out a new one at every reset.

    Raises:
        ConfigError: the rates are not multiples of each other, or a parameter is not possible.
        KernelError: there is no such backend.
    """

    _supports_transition_gradients = True

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
    ) -> None:
        _check_rates(policy_hz, control_hz, physics_hz)
        check_backend(backend)
        if params.randomisation is not None:
            sized = params.randomisation.sized(control_hz, policy_hz)
            params = params.replace(randomisation=sized)
        self._name = name
        self.robot = robot
        self._params = _strongly_typed(params)
        self.policy_hz, self.control_hz, self.physics_hz = policy_hz, control_hz, physics_hz
        self.backend = backend
        self.check_params(self._params)
        if reset_pool:
            pool = self.draw_pool(jax.random.key(0), self._params, reset_pool)
            self._params = self._params.replace(reset_pool=jax.tree.map(np.asarray, pool))

    # --- identity ---

    @cached_property
    def _fingerprint(self) -> bytes:
        return fingerprint(self._identity())

    def _identity(self) -> tuple[Any, ...]:
        """All that makes two environments the same."""
        rates = (self.policy_hz, self.control_hz, self.physics_hz)
        kind = (type(self).__qualname__, self._name, self.backend)
        return kind, self.robot, self._params, rates

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
        """Check those of the parameters that are numbers; those that are being traced cannot be.

        `reset` does so as well.

        Raises:
            ConfigError: one is not possible, such as a goal out of reach.
        """
        leaves = jax.tree.leaves((params.action, params.task, params.randomisation))
        if any(isinstance(x, jax.core.Tracer) for x in leaves):
            return
        check_axes(params.action, self.robot)
        if params.robot is None:
            params.task.check(self.robot)
        if params.randomisation is not None:
            params.randomisation.check()
            params.randomisation.sized(self.control_hz, self.policy_hz)

    @cached_property
    def observation_layout(self) -> dict[str, int]:
        """Name and size of each observation term, in the order of the observation."""
        names: list[str] = []

        def sizes(key: Array) -> list[Array]:
            params = self._params.replace(reset_pool=None)
            _, state = self._reset_env(key, params)
            terms = self._observation_terms(state, params)
            names.extend(terms)  # here, because a dict comes out of a transformation sorted
            return list(terms.values())

        shapes = jax.eval_shape(sizes, jax.random.key(0))
        return {name: s.shape[0] for name, s in zip(names, shapes, strict=True)}

    # --- the protocol ---
    # Each is one kernel over the batch when it is called under `jax.vmap`.

    def reset(self, key: Array, params: EnvParams | None = None) -> tuple[Array, EnvState]:
        """A new episode: observation and state.

        Raises:
            ConfigError: a parameter is not possible, such as a goal out of reach.
        """
        if params is None:
            params = self.default_params
        elif params is not self.default_params:
            self.check_params(params)
        return self._reset(key, params)  # type: ignore[no-any-return]

    @partial(jax.jit, static_argnames=("self",))
    def _reset(self, key: Array, params: EnvParams) -> tuple[Array, EnvState]:
        return self.reset_env(key, params)

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
        """
        params = self.default_params if params is None else params
        self._check_state(state, params)
        if params.reset_pool is None:
            return fusible(self._step, self.backend)(key, state, action, params)
        return self._step_and_reset(self.step_env, self.reset_env, key, state, action, params)

    def reset_env(self, key: Array, params: EnvParams) -> tuple[Array, EnvState]:
        """A new episode: observation and state."""
        if params.reset_pool is not None:
            return self._drawn_from_pool(key, params.reset_pool)
        return fusible(self._reset_env, self.backend)(key, params)

    def draw_pool(self, key: Array, params: EnvParams, size: int) -> tuple[Array, EnvState]:
        """Initial observations and states (size, ...) for `params.reset_pool`.

        Draw a new pool when parameters change that resets depend on.

        Raises:
            ConfigError: the size is not possible.
        """
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ConfigError(f"reset_pool={size!r}, expected a whole number >= 1 of states.")
        params = params.replace(reset_pool=None)
        draw = jax.jit(jax.vmap(lambda k: self.reset_env(k, params)))
        return draw(jax.random.split(key, size))  # type: ignore[no-any-return]

    def step_env(
        self, key: Array, state: EnvState, action: Array, params: EnvParams
    ) -> tuple[Array, EnvState, Array, Array, dict[str, Any]]:
        """One policy step without autoreset: observation, state, reward, terminated, info.

        Actions are clipped to [-1, 1]. A state or an action that is not finite ends the episode:
        `info["diverged"]` is True, the reward zero, and the state that is returned the last finite
        one.

        Raises:
            ActionError: the action has the wrong shape or dtype.
        """
        self._check_state(state, params)
        params = params.replace(reset_pool=None)
        return fusible(self._step_env, self.backend)(key, state, action, params)

    def _step(
        self, key: Array, state: EnvState, action: Array, params: EnvParams
    ) -> tuple[Array, EnvState, Array, Array, Array, dict[str, Any]]:
        return self._step_and_reset(self._step_env, self._reset_env, key, state, action, params)

    def _step_and_reset(
        self,
        step_env: Callable[..., Any],
        reset_env: Callable[..., Any],
        key: Array,
        state: EnvState,
        action: Array,
        params: EnvParams,
    ) -> tuple[Array, EnvState, Array, Array, Array, dict[str, Any]]:
        """A step by one of the functions, and where it ends an episode a reset by the other."""
        key_step, key_reset = jax.random.split(key)
        obs, new, reward, terminated, info = step_env(key_step, state, action, params)
        truncated = self.is_truncated(new, params)
        # A kernel computes the reset only where some environment of a vector of them is done.
        next_obs, next_state = jax.lax.cond(
            terminated | truncated,
            lambda: reset_env(key_reset, params),
            lambda: (obs, new),
        )
        ends = {"terminated": terminated, "truncated": truncated, "final_observation": obs}
        return next_obs, next_state, reward, terminated, truncated, {**info, **ends}

    def _drawn_from_pool(self, key: Array, pool: Any) -> tuple[Array, EnvState]:
        size = jax.tree.leaves(pool)[0].shape[0]
        index = jax.random.randint(key, (), 0, size)
        drawn: tuple[Array, EnvState] = jax.tree.map(lambda x: jnp.asarray(x)[index], pool)
        return drawn

    def _reset_env(self, key: Array, params: EnvParams) -> tuple[Array, EnvState]:
        robot, random = self._robot(params), params.randomisation
        keys = [key] * 4 if random is None else list(jax.random.split(key, 4))
        q, task_state = params.task.reset(keys[0], robot)
        v = draw_velocity(keys[1], random, jnp.zeros(robot.nv, q.dtype))
        terms = compute_terms(robot, q, v)
        state = EnvState(
            time=jnp.zeros((), jnp.int32),
            q=q,
            v=v,
            action=jnp.zeros(self.num_actions, q.dtype),
            action_state=params.action.init(robot, q),
            controller_state=params.controller.init(robot, terms),
            task_state=task_state,
        )
        if random is not None:
            rates = (self.control_hz, self.policy_hz)
            observation = self._observation(keys[2], state, params)
            episode = draw_episode(
                keys[3],
                random,
                robot,
                params.controller,
                rates,
                terms.bias,
                state.action,
                observation,
            )
            state = state.replace(episode=episode)
        return self.observe(key, state, None, params), state

    def _step_env(
        self, key: Array, state: EnvState, action: Array, params: EnvParams
    ) -> tuple[Array, EnvState, Array, Array, dict[str, Any]]:
        robot = self._robot(params)
        dtype = state.q.dtype
        action = self._check_action(action)
        finite_action = jnp.all(jnp.isfinite(action))
        action = jnp.clip(jnp.where(jnp.isfinite(action), action, 0.0), -1.0, 1.0).astype(dtype)

        target, action_state, episode = self._command(robot, state, action, params)
        q, v, controller_state, episode, control, safety = self._control(
            robot, state.replace(episode=episode), target, params
        )

        healthy = jnp.all(jnp.isfinite(q)) & jnp.all(jnp.abs(v) < DIVERGED_SPEED)
        diverged = ~(healthy & finite_action)
        task_state = params.task.advance(state.task_state, jnp.asarray(1.0 / self.policy_hz, dtype))
        new = EnvState(
            state.time, q, v, action, action_state, controller_state, task_state, episode
        )
        new = jax.tree.map(lambda a, b: jnp.where(diverged, a, b), state, new)
        new = new.replace(time=state.time + 1)
        control = jax.tree.map(lambda x: jnp.where(diverged, jnp.zeros_like(x), x), control)
        safety = jax.tree.map(
            lambda a, b: jnp.where(diverged, a, b), no_safety_report(dtype), safety
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
            seen = pushed(self._observation(key, new, params), new.episode.observations)
            new = new.replace(episode=dataclasses.replace(new.episode, observations=seen))
        obs = self.observe(key, new, action, params)
        obs, new = self._apply_transition_gradient_policy(obs, new)
        reward = jnp.where(diverged, self._reward_of_divergence(reward), reward)
        return obs, new, reward, terminated, info

    def observe(
        self, key: Array, state: EnvState, action: Array | None, params: EnvParams
    ) -> Array:
        """The observation (k,) of a state: its terms, concatenated and clipped.

        With randomisation on, it has noise, which `key` decides, and is as old as was drawn.
        """
        episode = state.episode
        if episode is not None and episode.observations is not None:
            return episode.observations[episode.observation_delay]
        return self._observation(key, state, params)

    def is_terminated(self, state: EnvState, params: EnvParams) -> Array:
        """Whether the task ends the episode here; a diverged environment ends in `step_env`."""
        motion = self._motion(state, state.action, params)
        return params.task.terminated(self._robot(params), motion, state.task_state)

    def markers(self, state: EnvState, params: EnvParams) -> list[Shape]:
        """What to draw of the task."""
        return params.task.markers(state.task_state)

    # --- parts ---

    def _robot(self, params: EnvParams) -> Robot:
        return self.robot if params.robot is None else params.robot

    def _motion(self, state: EnvState, previous_action: Array, params: EnvParams) -> Motion:
        poses = forward_kinematics(self._robot(params), state.q)
        return Motion(state.q, state.v, poses, state.action, previous_action)

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
        """What a diverged step gets, whose last finite state would have got `reward`."""
        return jnp.zeros_like(reward)

    def _observation(self, key: Array, state: EnvState, params: EnvParams) -> Array:
        """What is measured in a state (k,), noise included."""
        obs = jnp.concatenate(list(self._seen_terms(state, params).values()))
        obs = with_noise(key, params.randomisation, obs)
        obs = jnp.where(jnp.isnan(obs), 0.0, obs)  # of a state that was given: it has diverged
        return jnp.clip(obs, -OBSERVATION_BOUND, OBSERVATION_BOUND)

    def _observation_terms(self, state: EnvState, params: EnvParams) -> dict[str, Array]:
        motion = self._motion(state, state.action, params)
        return params.task.observation_terms(self._robot(params), motion, state.task_state)

    def _seen_terms(self, state: EnvState, params: EnvParams) -> dict[str, Array]:
        """Those that the policy sees."""
        return self._observation_terms(state, params)

    def _check_action(self, action: ArrayLike) -> Array:
        action = jnp.asarray(action)
        if action.shape != (self.num_actions,):
            names = ", ".join(axis.name for axis in self._params.action.axes(self.robot))
            raise ActionError(
                f"{self.name}: the action has shape {action.shape}, expected "
                f"({self.num_actions},): {names}. Batch environments with jax.vmap."
            )
        if not jnp.issubdtype(action.dtype, jnp.floating):
            raise ActionError(
                f"{self.name}: the action has dtype {action.dtype}, expected a floating-point one "
                "with values in [-1, 1]. Convert it, e.g. action.astype(jnp.float32)."
            )
        return action

    def _check_state(self, state: EnvState, params: EnvParams) -> None:
        """Refuse the state of another environment.

        Raises:
            EnvStateError: it is one.
        """
        remedy = f"Use a state that {self.name}'s own reset or step returned."
        if not isinstance(state, EnvState):
            raise EnvStateError(
                f"{self.name}: the state is a {type(state).__name__}, expected an EnvState. "
                f"{remedy}"
            )
        robot = self._robot(params)
        expected = {"q": (robot.nq,), "v": (robot.nv,), "action": (self.num_actions,)}
        for name, shape in expected.items():
            have = jnp.shape(getattr(state, name))
            if have != shape:
                raise EnvStateError(
                    f"{self.name}: state.{name} has shape {have}, expected {shape}: the state is "
                    f"another environment's, or a batch without jax.vmap. {remedy}"
                )
        kind = params.task.state_type
        if kind is not None and not isinstance(state.task_state, kind):
            raise EnvStateError(
                f"{self.name}: state.task_state is a {type(state.task_state).__name__}, expected a "
                f"{kind.__name__}: the state is another environment's. {remedy}"
            )
        if (state.episode is None) != (params.randomisation is None):
            given, wanted = ("without", "with") if state.episode is None else ("with", "without")
            raise EnvStateError(
                f"{self.name}: the state is of an environment {given} randomisation, and "
                f"params.randomisation asks for one {wanted}. Reset with these parameters first."
            )

    def _command(
        self, robot: Robot, state: EnvState, action: Array, params: EnvParams
    ) -> tuple[Any, Any, Episode | None]:
        """The controller's target, and the next states of the action space and the episode."""
        episode, before = state.episode, state.action_state
        if episode is None or episode.actions is None:
            return (*params.action.command(robot, state.q, action, before), episode)
        actions = pushed(action, episode.actions)
        due = actions[episode.action_delay]
        command = params.action.command(robot, state.q, due, before)
        hold = params.action.hold(robot, state.q, before), before
        # Before the first action arrives the robot stays where it is.
        arrived = state.time >= jnp.asarray(episode.action_delay)
        command = jax.tree.map(lambda a, b: jnp.where(arrived, a, b), command, hold)
        return (*command, dataclasses.replace(episode, actions=actions))

    def _control(
        self, robot: Robot, state: EnvState, target: Any, params: EnvParams
    ) -> tuple[Array, Array, Any, Episode | None, dict[str, Array], SafetyReport]:
        """The control steps of one policy step: `q`, `v`, what is remembered, what is reported.

        Telemetry is that of the last control step, the safety report the worst of all.
        """
        dtype = state.q.dtype
        dt = jnp.asarray(1.0 / self.physics_hz, dtype)
        control_dt = jnp.asarray(1.0 / self.control_hz, dtype)
        obstacles = params.task.obstacles(state.task_state)
        episode = state.episode
        true_robot = robot if episode is None else episode.true_robot(robot)
        same_robot = episode is None or not episode.robot
        controller = params.controller
        if episode is not None:
            controller = episode.own_controller(controller)
        if params.safety is not None:
            obstacles = params.safety.look_around(robot, state.q, obstacles)

        def control_step(carry: tuple[Any, ...], k: Array) -> tuple[tuple[Any, ...], Any]:
            q, v, controller_state, torques, worst = carry
            terms = compute_terms(robot, q, v)
            bounds = None  # the robot's own
            if isinstance(controller, TorqueLimits):
                bounds = torque_range(controller, robot, controller_state.torque, control_dt)
            tau, controller_state, telemetry = controller(
                robot, terms, target, controller_state, control_dt
            )
            if params.safety is not None:
                around = move_obstacles(obstacles, control_dt * k.astype(dtype))
                tau, report = params.safety(robot, terms, tau, dt, around, bounds)
                worst = worse_report(worst, report)
                if bounds is not None:
                    controller_state = with_torque(controller_state, tau)
            applied = tau
            if episode is not None:
                applied, torques = episode.applied_torque(robot, tau, torques)
            q, v = self._physics_step(true_robot, q, v, applied, dt, terms if same_robot else None)
            for _substep in range(self.physics_hz // self.control_hz - 1):
                q, v = self._physics_step(true_robot, q, v, applied, dt, None)
            return (q, v, controller_state, torques, worst), {"torque": tau, **telemetry}

        torques = None if episode is None else episode.torques
        start = (state.q, state.v, state.controller_state, torques, no_safety_report(dtype))
        substeps = jnp.arange(self.control_hz // self.policy_hz, dtype=jnp.int32)
        (q, v, controller_state, torques, safety), telemetry = jax.lax.scan(
            control_step, start, substeps
        )
        if episode is not None:
            episode = dataclasses.replace(episode, torques=torques)
        last = jax.tree.map(lambda x: x[-1], telemetry)
        return q, v, controller_state, episode, last, safety

    def _physics_step(
        self, robot: Robot, q: Array, v: Array, tau: Array, dt: Array, terms: Terms | None
    ) -> tuple[Array, Array]:
        """`q` and `v` after one step of the physics; `terms` at `q`, `v` if already computed."""
        return dynamics_step(robot, q, v, tau, dt, terms=terms)


def default_dtype() -> np.dtype[Any]:
    """That of floats, as JAX is configured now."""
    return np.dtype(jnp.result_type(float))


def _strongly_typed(params: EnvParams) -> EnvParams:
    """Numbers as arrays of their default dtype, so that nothing is compiled twice.

    Tuples of numbers become one array each, as users will replace them with.
    """
    dtype = default_dtype()

    def convert(x: Any) -> np.ndarray:
        array = np.asarray(x)
        floating = np.issubdtype(array.dtype, np.floating)
        return array.astype(dtype if floating else np.dtype(np.int32))

    return jax.tree.map(convert, params, is_leaf=_is_row)  # type: ignore[no-any-return]


def _is_row(x: Any) -> bool:
    """A tuple or list of numbers, or of such."""
    if not (isinstance(x, tuple | list) and x):
        return False
    return all(isinstance(y, int | float | np.number) or _is_row(y) for y in x)


def _check_rates(policy_hz: int, control_hz: int, physics_hz: int) -> None:
    rates = {"policy_hz": policy_hz, "control_hz": control_hz, "physics_hz": physics_hz}
    for name, rate in rates.items():
        if isinstance(rate, bool) or not isinstance(rate, int) or rate <= 0:
            raise ConfigError(f"{name}={rate!r}, expected a positive whole number of Hz.")
    for slow, fast in (("policy_hz", "control_hz"), ("control_hz", "physics_hz")):
        if rates[fast] % rates[slow]:
            raise ConfigError(
                f"{fast}={rates[fast]} is not a multiple of {slow}={rates[slow]}. "
                f"Choose a {fast} that is, e.g. {rates[slow] * max(1, rates[fast] // rates[slow])}."
            )
