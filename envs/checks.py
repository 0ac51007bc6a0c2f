"""Checks of what `step` is given: a state and an action of this environment, and not of another."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import Robot, obstacle_count
from fraxenv.errors import ActionError, EnvStateError

from .actions.base import ActionAxis
from .state import EnvParams, EnvState
from .tasks.base import Task
from .world import World


def checked_action(name: str, action: ArrayLike, axes: tuple[ActionAxis, ...]) -> Array:
    """The action as an array.

    Args:
        name: of the environment.
        action: (k,), expected to be floating-point.
        axes: of the action space, k of them.

    Raises:
        ActionError: it has another shape or dtype.
    """
    action = jnp.asarray(action)
    if action.shape != (len(axes),):
        names = ", ".join(axis.name for axis in axes)
        raise ActionError(
            f"{name}: the action has shape {action.shape}, expected ({len(axes)},): {names}. Batch "
            "environments with jax.vmap."
        )
    if not jnp.issubdtype(action.dtype, jnp.floating):
        raise ActionError(
            f"{name}: the action has dtype {action.dtype}, expected a floating-point one with "
            "values in [-1, 1]. Convert it, e.g. action.astype(jnp.float32)."
        )
    return action


def check_state(
    name: str, state: EnvState, params: EnvParams, robot: Robot, num_actions: int
) -> None:
    """Refuse the state of another environment.

    Args:
        name: of the environment.
        state: to be checked.
        params: that it is used with.
        robot: the model.
        num_actions: size of an action.

    Raises:
        EnvStateError: it is one.
    """
    remedy = f"Use a state that {name}'s own reset or step returned."
    if not isinstance(state, EnvState):
        raise EnvStateError(
            f"{name}: the state is a {type(state).__name__}, expected an EnvState. {remedy}"
        )
    expected = {"q": (robot.nq,), "v": (robot.nv,), "action": (num_actions,)}
    for field, shape in expected.items():
        have = jnp.shape(getattr(state, field))
        if have != shape:
            raise EnvStateError(
                f"{name}: state.{field} has shape {have}, expected {shape}: the state is another "
                f"environment's, or a batch without jax.vmap. {remedy}"
            )
    kind = params.task.state_type
    if kind is not None and not isinstance(state.task_state, kind):
        raise EnvStateError(
            f"{name}: state.task_state is a {type(state.task_state).__name__}, expected a "
            f"{kind.__name__}: the state is another environment's. {remedy}"
        )
    note = f": the state is another environment's. {remedy}"
    check_world(f"{name}: state.world", state.world, params.task, note)
    if (state.episode is None) != (params.randomisation is None):
        given, wanted = ("without", "with") if state.episode is None else ("with", "without")
        raise EnvStateError(
            f"{name}: the state is of an environment {given} randomisation, and "
            f"params.randomisation asks for one {wanted}. Reset with these parameters first."
        )


def check_world(what: str, world: World, task: Task, note: str = ".") -> None:
    """Check that the world has as many obstacles as the task says.

    Args:
        what: beginning of the error's message.
        world: to be checked.
        task: with the expected number.
        note: end of the error's message.

    Raises:
        EnvStateError: it has not.
    """
    count, expected = obstacle_count(world.obstacles), task.obstacle_count
    if count != expected:
        raise EnvStateError(
            f"{what} has {count} obstacles, expected {expected}, as obstacle_count of "
            f"{type(task).__name__} says{note}"
        )
