"""An environment's parameters, and its state; and whether a state is this environment's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.controllers import Controller, MomentumObserver
from fraxenv.controllers.observer import ObserverState
from fraxenv.controllers.safety.filter import SafetyFilter
from fraxenv.dynamics import (
    Actuators,
    ActuatorState,
    MemberSlices,
    Robot,
    Scene,
    obstacle_count,
)
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.errors import EnvStateError, unknown_name

from .actions.base import ActionSpace
from .payload import Load
from .randomisation import Randomisation, RandomisedEpisode
from .tasks.base import Task
from .world import World


class _Replace:
    """`replace` for frozen dataclasses, with an error that names the fields."""

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


@pytree_dataclass
class EnvParams(_Replace):
    """Parameters: every number of an environment. All leaves may be batched.

    Attributes:
        max_steps_in_episode: policy steps after which an episode is truncated.
        action: the action space; its scales are leaves.
        controller: the controller; its gains are leaves.
        task: the task; its goal distribution, tolerances and reward weights are leaves.
        safety: the filter of the controller's torques; None for none.
        actuators: the motors that apply the torques; their limits, gain and delay are leaves.
        robot: the robot if its parameters are to be batched or changed; None for the
            environment's own, whose parameters are then constants of the compiled program.
        scene: of an environment of a scene, the scene if its parameters are to be batched or
            changed; None for the environment's own, constant likewise.
        randomisation: ranges of what is drawn for every episode, besides the task's draws; None for
            none.
        payload: what controller and filter know that the hand carries; None for nothing. The
            physics does not have it.
        observer: of torques that act and that the model lacks; None for none.
        reset_pool: observations and states (n, ...), as `Environment.draw_pool` makes them, of
            which every reset takes one; None to compute a new one at every reset.
        lost_gradients: a zero whose derivative counts the environments' steps of which the gradient
            was not finite, and became zero; None not to count them.
    """

    max_steps_in_episode: ArrayLike
    action: ActionSpace
    controller: Controller[Any]
    task: Task
    safety: SafetyFilter | None = None
    actuators: Actuators = field(default_factory=Actuators)
    robot: Robot | None = None
    scene: Scene | None = None
    randomisation: Randomisation | None = None
    payload: Load | None = None
    observer: MomentumObserver | None = None
    reset_pool: Any = None
    lost_gradients: ArrayLike | None = None

    @property
    def without_pool(self) -> EnvParams:
        """The parameters with a new state computed at every reset."""
        return dataclasses.replace(self, reset_pool=None)


@pytree_dataclass
class EnvState(_Replace):
    """State: everything about an environment that changes.

    Attributes:
        time: (), int32, policy steps since the episode began.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        action: (k,), the last action, in [-1, 1].
        action_state: of the action space.
        controller_state: of the controller.
        actuator_state: of the motors.
        world: the robot's surroundings.
        task_state: of the task: its goal, for example.
        episode: the draws of randomisation; None without it.
        observer_state: of the observer; None without one.
    """

    time: Array
    q: Array
    v: Array
    action: Array
    action_state: Any
    controller_state: Any
    actuator_state: ActuatorState
    world: World
    task_state: Any
    episode: RandomisedEpisode | None = None
    observer_state: ObserverState | None = None

    @property
    def sizes(self) -> Mapping[str, Array]:
        """Factors () of the sizes of objects by name; none where they are as they are."""
        return {} if self.episode is None else self.episode.sizes

    def own_task(self, nominal: Task) -> Task:
        """The task with the sizes of this episode's objects."""
        return nominal if self.episode is None else self.episode.own_task(nominal)


def check_state(
    name: str,
    state: EnvState,
    params: EnvParams,
    robot: Robot,
    num_actions: int,
    objects: Mapping[str, MemberSlices],
) -> None:
    """Refuse the state of another environment.

    Args:
        name: of the environment.
        state: to be checked.
        params: that it is used with.
        robot: the model.
        num_actions: size of an action.
        objects: of the environment's scene, by name.

    Raises:
        EnvStateError: it is one.
    """
    remedy = f"Use a state that {name}'s own reset or step returned."
    if not isinstance(state, EnvState):
        raise EnvStateError(
            f"{name}: the state is a {type(state).__name__}, expected an EnvState. {remedy}"
        )
    expected = {"q": (robot.nq,), "v": (robot.nv,), "action": (num_actions,)}
    for part, shape in expected.items():
        have = jnp.shape(getattr(state, part))
        if have != shape:
            raise EnvStateError(
                f"{name}: state.{part} has shape {have}, expected {shape}: the state is another "
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
    _check_objects(f"{name}: state.world", state.world, objects, note)
    if (state.episode is None) != (params.randomisation is None):
        given, wanted = ("without", "with") if state.episode is None else ("with", "without")
        raise EnvStateError(
            f"{name}: the state is of an environment {given} randomisation, and "
            f"params.randomisation asks for one {wanted}. Reset with these parameters first."
        )
    if (state.observer_state is None) != (params.observer is None):
        given, wanted = ("out", "") if state.observer_state is None else ("", "out")
        raise EnvStateError(
            f"{name}: the state is of an environment with{given} an observer, and params.observer "
            f"asks for one with{wanted}. Reset with these parameters first."
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


def _check_objects(what: str, world: World, objects: Mapping[str, MemberSlices], note: str) -> None:
    """Check that the world has the scene's objects."""
    if set(world.objects) != set(objects):
        found, expected = (", ".join(sorted(x)) or "none" for x in (world.objects, objects))
        raise EnvStateError(f"{what} has the objects {found}, expected {expected}{note}")
    for thing, own in objects.items():
        for part, entries in (("q", own.q), ("v", own.v)):
            have = jnp.shape(getattr(world.objects[thing], part))
            if have != (entries.stop - entries.start,):
                raise EnvStateError(
                    f"{what}.objects[{thing!r}].{part} has shape {have}, expected "
                    f"({entries.stop - entries.start},){note}"
                )


def default_dtype() -> np.dtype[Any]:
    """The dtype of floats, as JAX is configured now."""
    return np.dtype(jnp.result_type(float))


def strongly_typed(params: EnvParams) -> EnvParams:
    """Parameters as arrays of their default dtype, so that nothing is compiled twice.

    A tuple of numbers becomes one array, as users will replace it with.
    """
    dtype = default_dtype()

    def convert(x: Any) -> np.ndarray:
        array = np.asarray(x)
        floating = np.issubdtype(array.dtype, np.floating)
        return array.astype(dtype if floating else np.dtype(np.int32))

    return jax.tree.map(convert, params, is_leaf=_is_nested_numbers)  # type: ignore[no-any-return]


def _is_nested_numbers(x: Any) -> bool:
    """Whether `x` is a tuple or list of numbers, or of those of one shape, at any depth."""
    if not (isinstance(x, tuple | list) and x):
        return False
    if all(isinstance(y, int | float | np.number) for y in x):
        return True
    return all(_is_nested_numbers(y) for y in x) and len({np.shape(y) for y in x}) == 1
