"""The world: the robot's surroundings, moved by the control loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike, DTypeLike

from fraxenv.dynamics import Obstacles, Shape, obstacle_shapes
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.dynamics.math.rotation import quaternion_to_matrix
from fraxenv.dynamics.scene.pair_contacts import PairContacts
from fraxenv.errors import ConfigError

OBSTACLE_COLOR = (0.85, 0.3, 0.2, 0.9)


@pytree_dataclass
class ObjectState:
    """Configuration and velocity of an object of a scene, in the coordinates of its joints.

    Attributes:
        q: (nq,), rad and m; of a free body, its position, m, and its quaternion wxyz.
        v: (nv,), rad/s and m/s; of a free body, its linear velocity in world axes, and its angular
            velocity in body axes. In a task's initial world None: at rest.
    """

    q: ArrayLike
    v: ArrayLike | None = None

    @property
    def position(self) -> Array:
        """(3,), m, of a free body, world."""
        return self._free()[:3]

    @property
    def rotation(self) -> Array:
        """(3, 3), of a free body, body to world."""
        return quaternion_to_matrix(self._free()[3:])

    def _free(self) -> Array:
        q = jnp.asarray(self.q)
        if q.shape != (7,):
            raise ConfigError(
                f"this object has a configuration of shape {q.shape}, expected (7,): that of a "
                "free body, which has a pose. Use dynamics.frame_pose with the object's model."
            )
        return q


@pytree_dataclass
class SolverReport:
    """How the constraints were solved: the worst of a policy step.

    Attributes:
        residual: the largest, m/s^2 or rad/s^2; see `fraxenv.dynamics.scene_step`.
        rounds: int32, the most, of Newton's method.
        converged: bool, whether all were solved as precisely as asked.
    """

    residual: Array
    rounds: Array
    converged: Array

    @classmethod
    def nothing(cls, dtype: DTypeLike) -> SolverReport:
        """With nothing yet to report."""
        return cls(jnp.zeros((), dtype), jnp.zeros((), jnp.int32), jnp.ones((), bool))


@pytree_dataclass
class SceneState:
    """What changes of a scene besides the controlled robot; moved by `ContactPhysics`.

    A task's initial world names the `objects` that are not where they are by default, and no more.

    Attributes:
        objects: state of every other robot and object of the scene, by name.
        warm_start: (nv,), rad/s^2 and m/s^2, the scene's last acceleration, zero at first: where
            the solver begins; what it finds does not depend on it beyond its tolerance.
        contacts: pair by pair, in the last physics step; none in an initial state.
        solver: how the constraints of the last policy step were solved.
    """

    objects: Mapping[str, ObjectState] = field(default_factory=dict)
    warm_start: Array | None = None
    contacts: PairContacts | None = None
    solver: SolverReport | None = None


@pytree_dataclass
class World:
    """The robot's surroundings.

    Attributes:
        obstacles: shapes that the robot should not touch, with their velocities.
        scene: objects and contacts, where the environment has a scene; None for no scene.
    """

    obstacles: Obstacles = field(default_factory=Obstacles)
    scene: SceneState | None = None

    @property
    def objects(self) -> Mapping[str, ObjectState]:
        """The objects of the scene by name; none without a scene."""
        return {} if self.scene is None else self.scene.objects

    @property
    def contacts(self) -> PairContacts:
        """The scene's contacts, pair by pair.

        Raises:
            ConfigError: there is no scene.
        """
        if self.scene is None or self.scene.contacts is None:
            raise ConfigError(
                "the world has no contacts, expected an environment that was made of a scene: "
                "fraxenv.make(robot=scene, ...)."
            )
        return self.scene.contacts


def world_shapes(world: World) -> dict[int, Shape]:
    """Shapes of the active obstacles by their index, to be drawn; the arrays are on the host."""
    return obstacle_shapes(world.obstacles, OBSTACLE_COLOR)
