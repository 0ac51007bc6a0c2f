"""Drawer: open a drawer by its handle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar

import jax.numpy as jnp
from jax import Array
from numpy.typing import ArrayLike

from fraxenv.dynamics.math.pytree import pytree_dataclass, static

from .furniture import DRAWER
from .joint_goals import OPEN_WEIGHTS, JointGoals


@pytree_dataclass
class Drawer(JointGoals):
    """Open a drawer by 0.3 m, as in Isaac Lab's, and leave it still; Meta-World's asks for 0.2 m.

    Attributes:
        object: name of the drawer.
        start_opening: m, how far it is open at first, at most.
        opening: m, how far it has to be opened.
        speed_tolerance: m/s, of the drawer.
        reward_weights: term -> weight; see `reward_terms`.
    """

    object: str = static(default=DRAWER)
    start_opening: ArrayLike = 0.03
    opening: ArrayLike = 0.3
    speed_tolerance: ArrayLike = 0.05
    reward_weights: Any = field(default_factory=lambda: dict(OPEN_WEIGHTS))

    unit: ClassVar[str] = "m"

    observation_units: ClassVar[Mapping[str, str]] = {
        **JointGoals.observation_units,
        "opened": "m",
        "opening_velocity": "m/s",
    }

    def handle_pose(self, q: Array) -> tuple[Array, Array]:
        """As of `JointGoals`."""
        z, x, y, turn, opened = q
        facing = -jnp.stack([jnp.cos(turn), jnp.sin(turn)])
        return jnp.stack([x + opened * facing[0], y + opened * facing[1], z]), facing
