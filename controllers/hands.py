"""Hands, one or several: their names, targets, poses, Jacobians and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fraxenv.dynamics import (
    WORLD,
    Robot,
    Terms,
    frame_bias_acceleration,
    frame_jacobian,
    orientation_error,
)
from fraxenv.dynamics.kinematics import frame_poses
from fraxenv.dynamics.math.algebra import norm
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.errors import ConfigError

from .base import Telemetry

EndEffectors = str | tuple[str, ...]
"""Type of the option `end_effector`: the name of a frame, or several in a tuple."""

TreeT = TypeVar("TreeT")


@pytree_dataclass
class PoseTarget:
    """A pose for the hand, with feed-forward motion, wrench and gains.

    For a controller of several end effectors every array has a leading axis, one row for each.

    Attributes:
        position: (3,), m, world.
        rotation: (3, 3), hand to world.
        velocity: (6,), `[linear; angular]`, m/s and rad/s, world axes; zero if None.
        acceleration: (6,), m/s^2 and rad/s^2, world axes; zero if None.
        wrench: (6,), `[force; torque]`, N and N m, world axes, at the hand's origin: feed-forward
            wrench of the hand on its surroundings; zero if None.
        kp: (6,), stiffness; the controller's if None; negative numbers count as zero.
        damping_ratio: (6,); the controller's if None; negative numbers count as zero.
    """

    position: Array
    rotation: Array
    velocity: Array | None = None
    acceleration: Array | None = None
    wrench: Array | None = None
    kp: Array | None = None
    damping_ratio: Array | None = None


class Errors(NamedTuple):
    """Pose errors of k hands: `position` (k, 3), m, and `rotation` (k, 3), rad, world axes."""

    position: Array
    rotation: Array


@dataclass(frozen=True)
class Hands:
    """End effectors, one or several.

    Inside the library arrays always have an axis of hands. Users who name one hand get and give
    arrays without it: `with_axis` and `without_axis` convert.

    Attributes:
        names: of their frames.
        alone: whether there is one hand, named by a string instead of a tuple.
    """

    names: tuple[str, ...]
    alone: bool

    @classmethod
    def of(cls, end_effector: EndEffectors) -> Hands:
        """The hands that an option `end_effector` names.

        Raises:
            ConfigError: the option is neither a name nor a tuple of different names.
        """
        alone = isinstance(end_effector, str)
        names: Any = (end_effector,) if alone else end_effector
        valid = isinstance(names, tuple) and names and all(isinstance(n, str) for n in names)
        if not (valid and len(set(names)) == len(names)):
            raise ConfigError(
                f"end_effector={end_effector!r}, expected the name of a frame, or a tuple of "
                "different ones such as ('left_hand', 'right_hand')."
            )
        return cls(names, alone)

    @property
    def count(self) -> int:
        """The number of hands."""
        return len(self.names)

    def check(self, robot: Robot) -> None:
        """Raise UnknownNameError if the robot lacks one of the frames."""
        for name in self.names:
            robot.frame(name)

    def with_axis(self, tree: TreeT) -> TreeT:
        """Arrays (...) of one hand, or (k, ...) of several, as (k, ...)."""
        return jax.tree.map(lambda x: x[None], tree) if self.alone else tree

    def without_axis(self, tree: TreeT) -> TreeT:
        """Arrays (k, ...) as users see them: (...) of one hand, (k, ...) of several."""
        return jax.tree.map(lambda x: x[0], tree) if self.alone else tree

    def prefix(self, name: str) -> str:
        """The beginning of names of a hand's numbers: "hand.", or "" of a hand that is alone."""
        return "" if self.alone else f"{name}."


def jacobians(robot: Robot, terms: Terms, hands: Hands, rows: int) -> Array:
    """The first `rows` rows of the Jacobian of each of k hands, stacked: (k rows, nv)."""
    blocks = [frame_jacobian(robot, terms.q, n, kin=terms.kin)[:rows] for n in hands.names]
    return jnp.concatenate(blocks)


def bias_accelerations(robot: Robot, terms: Terms, hands: Hands, rows: int) -> Array:
    """The first `rows` rows of `Jdot v` of each of k hands, stacked: (k rows,)."""
    q, v = terms.q, terms.v
    parts = [frame_bias_acceleration(robot, q, v, n, kin=terms.kin)[:rows] for n in hands.names]
    return jnp.concatenate(parts)


def pose_errors(robot: Robot, terms: Terms, hands: Hands, target: PoseTarget) -> Errors:
    """Errors from the measured poses of k hands to a target with an axis of hands."""
    position, rotation = frame_poses(robot, terms.q, hands.names, kin=terms.kin)
    turn = jnp.stack([orientation_error(*r) for r in zip(target.rotation, rotation, strict=True)])
    return Errors(target.position - position, turn)


def error_lengths(errors: Errors) -> Telemetry:
    """Telemetry of pose errors: their lengths (k,), m and rad."""
    return {
        "position_error": jnp.stack([norm(e) for e in errors.position]),
        "orientation_error": jnp.stack([norm(e) for e in errors.rotation]),
    }


def turning(robot: Robot, hands: Hands) -> np.ndarray:
    """(k,) bool, whether any joint turns each end effector."""
    bodies = [robot.frame(name).body for name in hands.names]
    axes = robot.topology.axes
    return np.array([b != WORLD and bool((axes.moves[b] & axes.rotates).any()) for b in bodies])
