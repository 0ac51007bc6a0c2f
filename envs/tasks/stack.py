"""Stack: put one cube on another, and let go of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics import Robot
from fraxenv.dynamics.math.algebra import norm
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.errors import ConfigError, is_concrete

from ..world import ObjectState, SceneState, World
from .base import Motion
from .object_goals import ObjectGoalState
from .release_goals import ReleaseGoals

STACK_WEIGHTS = {
    "reach": 0.1,
    "grasp": 0.1,
    "place": 0.2,
    "place_fine": 0.1,
    "release": 0.4,
    "object_distance": -0.1,
    "action_rate": -1e-3,
    "joint_velocity": -1e-4,
}


@pytree_dataclass
class StackState(ObjectGoalState):
    """The beginning of an episode with two cubes: two goals, of the upper cube and of the base.

    Attributes:
        base: (7,), the base's pose at the beginning: position, m, and quaternion wxyz.
    """

    base: Array


@pytree_dataclass
class Stack(ReleaseGoals):
    """Put a cube on another of its size, the base, and let go of it.

    Success is the cube within `position_tolerance` of its place on the base, wherever that is by
    now, and within `height_tolerance` of its height, flat and at rest, on the base and touched by
    no pad. As ManiSkill's StackCube, where 33 mm instead of 20 mm will do, and any tilt; there it
    counts that the cube is not grasped.

    As goals of a goal environment count the places of both: the cube's above where the base was at
    first, and the base's there.

    Attributes:
        base: name of the cube below, and of its geom.
        base_half_height: m, of the base; that of the cube if None.
        half_height: m, of the cube.
        goal_low: (3,), m, corner of the box of places on the base; as high as the cube is there.
        goal_high: (3,), m, the other corner.
        least_distance: m, between the cube at first and its place on the base, along x.
        height_tolerance: m.
        reward_weights: term -> weight; see `stages`.
    """

    position_tolerance: ArrayLike = 0.02
    base: str = static(default="base")
    base_half_height: ArrayLike | None = None
    object_low: ArrayLike = (0.4, -0.15)
    object_high: ArrayLike = (0.6, 0.15)
    goal_low: ArrayLike = (0.4, -0.15, 0.06)
    goal_high: ArrayLike = (0.6, 0.15, 0.06)
    least_distance: ArrayLike = 0.08
    height_tolerance: ArrayLike = 0.005
    reward_weights: Any = field(default_factory=lambda: dict(STACK_WEIGHTS))

    state_type: ClassVar[type | None] = StackState

    observation_units: ClassVar[Mapping[str, str]] = {
        **ReleaseGoals.observation_units,
        "base_position": "m",
        "base_axes": "1, two columns of the rotation matrix",
        "base_velocity": "m/s",
        "to_goal": "dm, from the object to its place on the base",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.goal_from_object or self.table_share:
            raise ConfigError(
                f"{type(self).__name__}: goal_from_object={self.goal_from_object} and table_share="
                f"{self.table_share!r}, expected False and 0: the cube's place is on the base."
            )

    def check(self, robot: Robot) -> None:
        """As of `ObjectGoals`, and that the cubes are apart at first, the base on the table.

        Raises:
            ConfigError: they might overlap, or the places are not those on a base on the table.
        """
        super().check(robot)
        both = self.half_height, self._base_half()
        if not is_concrete((both, self.least_distance, self.goal_low, self.goal_high)):
            return
        half, base, least = (float(np.asarray(x)) for x in (*both, self.least_distance))
        heights = [float(np.asarray(corner)[2]) for corner in (self.goal_low, self.goal_high)]
        if any(abs(height - 2 * base - half) > 1e-6 for height in heights):
            raise ConfigError(
                f"{type(self).__name__}: goals at heights from {heights[0]:g} to {heights[1]:g} m, "
                f"expected {2 * base + half:g} m, of a cube of half_height={half:g} m on another "
                f"of {base:g} m."
            )
        apart = _apart(half, base)
        if least < apart - 1e-6:
            raise ConfigError(
                f"{type(self).__name__}: least_distance={least:g} m, expected at least {apart:.4f} "
                "m, so that the cubes do not overlap at first."
            )

    def resized(self, factors: Mapping[str, Array]) -> Any:
        """The task of cubes of other sizes: places as high as they are, and far enough apart."""
        half = factors[self.object] * jnp.asarray(self.half_height)
        base = factors[self.base] * jnp.asarray(self._base_half())
        low, high = (
            jnp.asarray(corner).at[2].set(2.0 * base + half)
            for corner in (self.goal_low, self.goal_high)
        )
        least = jnp.maximum(jnp.asarray(self.least_distance), _apart(half, base))
        return replace(
            self,
            half_height=half,
            base_half_height=base,
            goal_low=low,
            goal_high=high,
            least_distance=least,
        )

    def reset(self, key: Array, robot: Robot) -> tuple[Array, StackState]:
        """Initial configuration (nq,) near the default one; both cubes at random."""
        q, drawn = super().reset(key, robot)
        dtype = q.dtype
        # Of keys that are folded in, the first are those of `split`.
        half = jax.random.uniform(jax.random.fold_in(key, 5), (), dtype, -1.0, 1.0)
        half = 0.5 * jnp.asarray(self.object_turn, dtype) * half
        zero = jnp.zeros((), dtype)
        turn = jnp.stack([jnp.cos(half), zero, zero, jnp.sin(half)])
        place = drawn.position[0] - self._up(dtype)
        position = jnp.stack([drawn.position[0], place])
        rotation = jnp.broadcast_to(jnp.eye(3, dtype=dtype), (2, 3, 3))
        base = jnp.concatenate([place, turn])
        return q, StackState(position, rotation, drawn.start, base)

    def world(self, key: Array, robot: Robot, q: Array, state: Any) -> World:
        """Both cubes where the state says."""
        cubes = {self.object: ObjectState(state.start), self.base: ObjectState(state.base)}
        return World(scene=SceneState(cubes))

    def subjects(self, robot: Robot, motion: Motion) -> tuple[Array, Array]:
        """Positions (2, 3), m, and rotations (2, 3, 3), to world, of the cube and the base."""
        cubes = self._object(motion), self._base(motion)
        return jnp.stack([c.position for c in cubes]), jnp.stack([c.rotation for c in cubes])

    def goal(self, motion: Motion, state: Any) -> Array:
        """The cube's place on the base (3,), m, world, where the base is now."""
        return self._place(motion)

    def goal_observations(self, motion: Motion, state: Any) -> dict[str, Array]:
        """The base, and the cube's way to its place there."""
        base = self._base(motion)
        way = self._place(motion) - self._object(motion).position
        return {
            "base_position": base.position,
            "base_axes": base.rotation[:, :2].T.ravel(),
            "base_velocity": jnp.asarray(base.v)[:3],
            "to_goal": 10.0 * way,
        }

    def placed(self, motion: Motion) -> Array:
        """Whether the cube lies on the base, flat; () bool."""
        thing = self._object(motion)
        way = self._place(motion) - thing.position
        upright = jnp.max(jnp.abs(thing.rotation[2]))
        touch = motion.world.contacts.between(self.object, self.base)
        return (
            (norm(way) < jnp.asarray(self.position_tolerance))
            & (jnp.abs(way[2]) < jnp.asarray(self.height_tolerance))
            & (upright > jnp.cos(jnp.asarray(self.tilt_tolerance)))
            & jnp.any(touch.active)
        )

    def _place(self, motion: Motion) -> Array:
        position = self._base(motion).position
        return position + self._up(position.dtype)

    def _base(self, motion: Motion) -> ObjectState:
        return motion.world.objects[self.base]

    def _up(self, dtype: Any) -> Array:
        """From the base to a cube on it (3,), m."""
        half = jnp.asarray(self.half_height, dtype)
        base = self.base_half_height
        height = 2.0 * half if base is None else half + jnp.asarray(base, dtype)
        return jnp.stack([jnp.zeros_like(height), jnp.zeros_like(height), height])

    def _base_half(self) -> ArrayLike:
        return self.half_height if self.base_half_height is None else self.base_half_height


def _apart(half: Any, base: Any) -> Any:
    """m, from one cube to its place on the other that keeps them apart on the table.

    Diagonals side by side, and the base's height up.
    """
    return (2.0 * (half + base) ** 2 + (2.0 * base) ** 2) ** 0.5
