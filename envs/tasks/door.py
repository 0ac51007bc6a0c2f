"""Door: open a door by its handle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics.math.pytree import pytree_dataclass, static

from .furniture import DOOR, HINGE
from .joint_goals import OPEN_WEIGHTS, JointGoals


@pytree_dataclass
class Door(JointGoals):
    """Open a door by 0.3 rad, as in robosuite's, and leave it still, which is not asked there.

    Attributes:
        object: name of the door.
        hinge: (2,), m, from the closed handle to the hinge, into the furniture and to its left.
        start_opening: rad, how far it is open at first, at most.
        opening: rad, how far it has to be opened.
        speed_tolerance: rad/s, of the door.
        reward_weights: term -> weight; see `reward_terms`.
    """

    object: str = static(default=DOOR)
    hinge: ArrayLike = HINGE
    start_opening: ArrayLike = 0.03
    opening: ArrayLike = 0.3
    speed_tolerance: ArrayLike = 0.1
    reward_weights: Any = field(default_factory=lambda: dict(OPEN_WEIGHTS))

    unit: ClassVar[str] = "rad"

    observation_units: ClassVar[Mapping[str, str]] = {
        **JointGoals.observation_units,
        "opened": "rad",
        "opening_velocity": "rad/s",
    }

    def handle_pose(self, q: Array) -> tuple[Array, Array]:
        """As of `JointGoals`."""
        z, x, y, turn, opened = q
        into, left = jnp.asarray(self.hinge, q.dtype)
        # From the handle to the hinge before the door opens, and back as it is.
        there, back = _turned(into, left, turn), _turned(into, left, turn - opened)
        facing = -_turned(jnp.ones_like(into), jnp.zeros_like(left), turn - opened)
        across = jnp.stack([x, y]) + there - back
        return jnp.stack([across[0], across[1], z]), facing


def _turned(x: Array, y: Array, angle: Array) -> Array:
    """A vector (2,), turned by an angle."""
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([c * x - s * y, s * x + c * y])
