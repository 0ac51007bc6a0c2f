"""An episode of one environment: its first state, and after an action the next one.

Rewards and observations of a state are the task's: `Environment` puts them together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fraxenv.controllers.safety.filter import no_safety_report
from fraxenv.controllers.safety.foresight import WayOut
from fraxenv.dynamics import Actuators, ActuatorState, Robot, compute_terms
from fraxenv.dynamics.delay import pushed

from .control_loop import (
    LoopParts,
    LoopState,
    Physics,
    Rates,
    control_loop,
    loaded,
    look_ahead,
)
from .randomisation import RandomisedEpisode, draw_episode, draw_scene, draw_velocity
from .state import EnvParams, EnvState, check_world
from .world import World

DIVERGED_SPEED = 1e3
"""Joint speed, rad/s or m/s, beyond which an environment counts as diverged."""


class Beginning(NamedTuple):
    """What is drawn of an episode, before anything is computed of it.

    Attributes:
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        world: what is around the robot.
        task_state: the task's own.
        episode: what randomisation drew so far; None without it.
    """

    q: Array
    v: Array
    world: World
    task_state: Any
    episode: RandomisedEpisode | None


def drawn_beginning(
    key: Array, robot: Robot, params: EnvParams, physics: Physics
) -> tuple[Beginning, list[Array]]:
    """The robot, the task and the world as an episode finds them; keys for what is drawn later.

    Raises:
        EnvStateError: the world has not as many obstacles as the task says.
        ConfigError: the scene has no such object as the world.
    """
    random = params.randomisation
    keys = [key] * 4 if random is None else list(jax.random.split(key, 4))
    task, episode = params.task, None
    if random is not None:
        dtype = jnp.asarray(robot.q_default).dtype
        things = tuple(physics.objects), physics.loose
        episode = RandomisedEpisode({}, {}, {}, scene=draw_scene(keys[3], random, *things, dtype))
        task = episode.own_task(task)
    q, task_state = task.reset(keys[0], robot)
    world = task.world(keys[0], robot, q, task_state)
    where = f"{type(task).__name__}.world"
    check_world(where, world, task)
    world = physics.begin(where, world, q.dtype)
    v = draw_velocity(keys[1], random, jnp.zeros(robot.nv, q.dtype))
    return Beginning(q, v, world, task_state, episode), keys[2:]


def first_state(
    key: Array,
    robot: Robot,
    params: EnvParams,
    rates: Rates,
    physics: Physics,
    num_actions: int,
    observation: Callable[[Array, EnvState], Array],
) -> EnvState:
    """The beginning of an episode: task, world, randomisation, motors.

    Args:
        key: decides all draws.
        robot: the model.
        params: of the environment.
        rates: of policy, controller and physics.
        physics: how the robot moves, and the objects around it.
        num_actions: size of an action.
        observation: (key, state) -> observation, which delays begin with.

    Raises:
        EnvStateError: the world has not as many obstacles as the task says.
        ConfigError: there is no room for a delay, or the scene has no such object as the world.
    """
    random = params.randomisation
    drawn, keys = drawn_beginning(key, robot, params, physics)
    q, v, world, task_state, episode = drawn
    known, terms = loaded(robot, compute_terms(robot, q, v), params.payload, world.scene)
    state = EnvState(
        time=jnp.zeros((), jnp.int32),
        q=q,
        v=v,
        action=jnp.zeros(num_actions, q.dtype),
        action_state=params.action.init(robot, q),
        controller_state=params.controller.init(known, terms),
        actuator_state=ActuatorState(),
        observer_state=None if params.observer is None else params.observer.init(terms),
        world=world,
        task_state=task_state,
        episode=episode,
    )
    actuators = _sized_actuators(params, rates)
    if random is not None and episode is not None:
        episode = draw_episode(
            keys[1],
            random,
            robot,
            params.controller,
            actuators,
            rates.policy,
            state.action,
            observation(keys[0], state),
            episode.scene,
        )
        actuators = episode.own_actuators(actuators)
        state = state.replace(episode=episode)
    motors = actuators.init(robot, terms.bias, 1.0 / rates.control)
    return state.replace(actuator_state=motors)  # type: ignore[no-any-return]


def next_state(
    robot: Robot,
    state: EnvState,
    action: Array,
    params: EnvParams,
    rates: Rates,
    physics: Physics,
    way: WayOut | None = None,
) -> tuple[EnvState, dict[str, Any]]:
    """The state one policy step later: action space, control loop, the task's goal.

    Args:
        robot: the model.
        state: at the beginning of the policy step.
        action: (k,), clipped to [-1, 1].
        params: of the environment.
        rates: of policy, controller and physics.
        physics: how the robot moves, and the objects around it.
        way: of `foreseen`, from this state.

    Returns:
        The state, and for `info`: `diverged`, () bool, whether the new state has, or the action was
        not finite, and the state is the given one; the `controller`'s telemetry; the `safety`
        filter's report; the physics' own.
    """
    dtype = state.q.dtype
    finite_action = jnp.all(jnp.isfinite(action))
    action = jnp.clip(jnp.where(jnp.isfinite(action), action, 0.0), -1.0, 1.0).astype(dtype)

    target, action_state, episode = _command(robot, state, action, params)
    moved, control, safety = control_loop(
        _loop_parts(robot, episode, params, physics),
        _loop_state(state),
        target,
        rates,
        way,
    )

    healthy = _healthy(moved.q, moved.v)
    for thing in moved.world.objects.values():
        healthy = healthy & _healthy(thing.q, thing.v)
    diverged = ~(healthy & finite_action)
    task = state.own_task(params.task)
    task_state = task.advance(state.task_state, jnp.asarray(1.0 / rates.policy, dtype))
    new = EnvState(
        time=state.time,
        q=moved.q,
        v=moved.v,
        action=action,
        action_state=action_state,
        controller_state=moved.controller,
        actuator_state=moved.actuators,
        observer_state=moved.observer,
        world=moved.world,
        task_state=task_state,
        episode=episode,
    )
    new = _select(diverged, state, new).replace(time=state.time + 1)
    control = _select(diverged, jax.tree.map(jnp.zeros_like, control), control)
    safety = _select(diverged, no_safety_report(dtype), safety)
    report = {"diverged": diverged, "controller": control, "safety": safety}
    return new, {**report, **physics.report(new.world)}


def foreseen(
    robot: Robot,
    state: EnvState,
    params: EnvParams,
    rates: Rates,
    physics: Physics,
    way: WayOut | None = None,
) -> WayOut | None:
    """The safety filter's way out of what moves, from this state; None without foresight.

    Args:
        robot: the model.
        state: at the beginning of the policy step.
        params: of the environment.
        rates: of policy, controller and physics.
        physics: how the robot moves, and the objects around it.
        way: see `look_ahead`.
    """
    parts = _loop_parts(robot, state.episode, params, physics)
    return look_ahead(parts, _loop_state(state), rates, way)


def with_room_for_delays(params: EnvParams, rates: Rates) -> EnvParams:
    """The parameters with capacity for their longest delays, which must not be traced.

    Raises:
        ConfigError: the capacity is set already, and too small.
    """
    random = params.randomisation
    if random is not None:
        params = params.replace(randomisation=random.sized(rates.control, rates.policy))
    return params.replace(actuators=_sized_actuators(params, rates))  # type: ignore[no-any-return]


def _sized_actuators(params: EnvParams, rates: Rates) -> Actuators:
    """The motors, with room for the longest delay of randomised ones."""
    random = params.randomisation
    room = 0 if random is None or random.steps is None else random.steps[0]
    return params.actuators.sized(rates.control, room)


def _command(
    robot: Robot, state: EnvState, action: Array, params: EnvParams
) -> tuple[Any, Any, RandomisedEpisode | None]:
    """The controller's target, and the next states of the action space and the episode."""
    episode, before = state.episode, state.action_state
    if episode is None or episode.actions is None:
        return (*params.action.command(robot, state.q, action, before), episode)
    actions = pushed(episode.actions, action)
    command = params.action.command(robot, state.q, actions.due, before)
    hold = params.action.hold(robot, state.q, before), before
    # Before the first action arrives the robot stays where it is.
    command = _select(state.time >= actions.steps, command, hold)
    return (*command, dataclasses.replace(episode, actions=actions))


def _loop_state(state: EnvState) -> LoopState:
    """What the control loop goes on from."""
    return LoopState(
        state.q,
        state.v,
        state.world,
        state.controller_state,
        state.actuator_state,
        state.observer_state,
    )


def _loop_parts(
    robot: Robot, episode: RandomisedEpisode | None, params: EnvParams, physics: Physics
) -> LoopParts:
    """The parts of the control loop in an episode."""
    controller, actuators, true_robot = params.controller, params.actuators, None
    if episode is not None:
        controller = episode.own_controller(controller)
        actuators = episode.own_actuators(actuators)
        true_robot = episode.true_robot(robot)
    drawn = {} if episode is None else episode.scene
    model, nominal = physics.model(robot, true_robot, params, drawn), true_robot is None
    parts = (robot, model, nominal, controller, params.safety, actuators, physics)
    return LoopParts(*parts, params.payload, params.observer)


def _healthy(q: Any, v: Any) -> Array:
    """Whether a configuration is finite, and a velocity no diverged one."""
    return jnp.all(jnp.isfinite(q)) & jnp.all(jnp.abs(v) < DIVERGED_SPEED)


def _select(condition: Array, a: Any, b: Any) -> Any:
    """The pytree `a` where the condition holds, else `b`."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)
