"""Physics: the integrators of the robot's motion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from jax import Array

from fraxenv.dynamics import Robot, Terms
from fraxenv.dynamics import step as dynamics_step

from .state import EnvParams


class Physics(Protocol):
    """One step in time of a robot under joint torques.

    It is a part of an environment's identity: hashable by content, and constant in its programs.
    """

    differentiable: ClassVar[bool]
    """Whether a step has derivatives."""

    def check(self, where: str, params: EnvParams) -> None:
        """Check that this physics has what an environment's parameters need.

        Args:
            where: name of the environment.
            params: its parameters.

        Raises:
            ConfigError: it has not.
        """

    def step(
        self, robot: Robot, q: Array, v: Array, tau: Array, dt: Array, terms: Terms | None
    ) -> tuple[Array, Array]:
        """Configuration (nq,) and velocity (nv,) after `dt`, s, under the torques `tau` (nv,).

        `terms` are the robot's at `q` and `v`, or None for the physics to compute them.
        """


@dataclass(frozen=True)
class RigidBodyPhysics:
    """`fraxenv.dynamics.step`: semi-implicit Euler, with implicit damping, friction and stops."""

    differentiable: ClassVar[bool] = True

    def check(self, where: str, params: EnvParams) -> None:
        """Nothing is refused."""

    def step(
        self, robot: Robot, q: Array, v: Array, tau: Array, dt: Array, terms: Terms | None
    ) -> tuple[Array, Array]:
        """Configuration (nq,) and velocity (nv,) after `dt`, s."""
        return dynamics_step(robot, q, v, tau, dt, terms=terms)
