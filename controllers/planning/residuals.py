"""Residuals: what a plan is to make small, each with a weight and a norm.

A residual is a function of a robot, its terms at a state, the joint torques, and a reference. Most
of this module bring derivatives of their own; those of users are differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from fraxenv.dynamics import (
    Obstacles,
    Robot,
    Terms,
    center_of_mass,
    center_of_mass_jacobian,
    centroidal_momentum,
    centroidal_momentum_derivative,
    centroidal_momentum_matrix,
    compute_terms,
    difference_derivatives,
    frame_derivatives,
    frame_jacobian,
    frame_pose,
    frame_velocity,
    gravity_forces,
    integrate,
    inverse_dynamics_derivatives,
    residual_derivatives,
)
from fraxenv.dynamics.math.algebra import matmul
from fraxenv.dynamics.math.pytree import pytree_dataclass, static
from fraxenv.dynamics.math.rigid import pose_log, pose_log_derivative
from fraxenv.dynamics.math.rotation import right_jacobian_inverse, rotation_log
from fraxenv.errors import ArrayError, ConfigError, is_concrete

from ..safety.barriers import NO_OBSTACLES, Barrier, situation
from .norms import Norm, is_joint, quadratic, rectify
from .states import displacement

ResidualFunction = Callable[[Robot, Terms, Array, Any], Array]
"""`r(robot, terms, tau, reference)` -> (m,).

A method `slopes` of it, with the same arguments, gives its derivatives, which are found
automatically without one; or a method `factors`, where they are a product of fewer rows than they
have; and a method `bends(robot)` says of what it is no linear function: some of "q", "v" and "tau",
or all of them without one."""

Slopes = tuple[Array, Array]
"""`C` (m, 2 nv) by the state's tangent vector `[dq; dv]`, and `D` (m, nv) by the torques."""


@pytree_dataclass
class Residual:
    """A term of a plan's cost: `norm(function(...))`, each component by its weight.

    Attributes:
        function: see `ResidualFunction`; compiled programs are looked up by it.
        reference: a pytree for `function`; its leaves may be batched.
        weight: (m,) or (), or (N, m) for every knot; () for norms of all components together.
        norm: what it costs.
        each: whether leaves of `reference` have a leading axis, a value for every knot.
    """

    function: ResidualFunction = static()
    reference: Any = ()
    weight: ArrayLike = 1.0
    norm: Norm = Norm("quadratic")
    each: bool = static(default=False)

    def __post_init__(self) -> None:
        if is_joint(self.norm) and np.ndim(self.weight) > self.each:
            raise ConfigError(
                f"a weight of shape {jnp.shape(self.weight)} for the norm {self.norm.kind!r}, "
                "expected one number: it is of all components together."
            )


def residual(
    function: ResidualFunction,
    reference: Any = (),
    weight: ArrayLike = 1.0,
    norm: Norm | None = None,
    *,
    each: bool = False,
) -> Residual:
    """A residual of one's own.

    Args:
        function: `r(robot, terms, tau, reference)` -> (m,), pure.
        reference: a pytree for it.
        weight: (m,) or (); with `each` also (N, m).
        norm: `quadratic()` if omitted.
        each: whether leaves of `reference` have a leading axis, a value for every knot.

    Raises:
        ConfigError: a weight is negative.
    """
    if is_concrete(weight) and np.any(np.asarray(weight) < 0):
        raise ConfigError(
            f"a weight of {np.min(np.asarray(weight))}: what is worth more the larger it is has no "
            "least cost. Expected numbers of at least 0."
        )
    return Residual(function, reference, weight, norm or quadratic(), each)


def pose(
    frame: str, position: ArrayLike, rotation: ArrayLike, weight: ArrayLike = 1.0, **options: Any
) -> Residual:
    """The motion (6,) `[linear; angular]`, m and rad, from a target to a frame, in its axes.

    It is the logarithm of the frame's pose as the target sees it: Crocoddyl's
    `ResidualModelFramePlacement`.

    Args:
        frame: name of a link or of an end effector.
        position: (3,) of the target, m.
        rotation: (3, 3), target to world.
        weight: (6,) or ().
        **options: `norm` and `each`, as of `residual`.
    """
    target = _numbers("position", position, 3), _numbers("rotation", rotation, 3, 3)
    return residual(_Pose(frame), target, weight, **options)


def position(frame: str, position: ArrayLike, weight: ArrayLike = 1.0, **options: Any) -> Residual:
    """How far a frame is from a point (3,), m, in world axes.

    Args:
        frame: name of a link or of an end effector.
        position: (3,), m.
        weight: (3,) or ().
        **options: `norm` and `each`, as of `residual`.
    """
    return residual(_Position(frame), _numbers("position", position, 3), weight, **options)


def orientation(
    frame: str, rotation: ArrayLike, weight: ArrayLike = 1.0, **options: Any
) -> Residual:
    """The rotation vector (3,), rad, from a target to a frame, in the frame's axes.

    Args:
        frame: name of a link or of an end effector.
        rotation: (3, 3), target to world.
        weight: (3,) or ().
        **options: `norm` and `each`, as of `residual`.
    """
    return residual(_Orientation(frame), _numbers("rotation", rotation, 3, 3), weight, **options)


def posture(q: ArrayLike, weight: ArrayLike = 1.0, **options: Any) -> Residual:
    """The displacement (nv,), rad and m, from a configuration; of continuous joints the short way.

    Args:
        q: (nq,), rad and m.
        weight: (nv,) or ().
        **options: `norm` and `each`, as of `residual`.
    """
    return residual(_Posture(), jnp.asarray(q), weight, **options)


def velocity(v: ArrayLike = 0.0, weight: ArrayLike = 1.0, **options: Any) -> Residual:
    """Joint velocities (nv,), rad/s and m/s, less those that are wanted.

    Args:
        v: (nv,) or ().
        weight: (nv,) or ().
        **options: `norm` and `each`, as of `residual`.
    """
    return residual(_Velocity(), jnp.asarray(v), weight, **options)


def frame_twist(
    frame: str, twist: ArrayLike = 0.0, weight: ArrayLike = 1.0, **options: Any
) -> Residual:
    """A frame's velocity (6,) `[linear; angular]` in world axes, less the one that is wanted.

    Args:
        frame: name of a link or of an end effector.
        twist: (6,) or (), m/s and rad/s.
        weight: (6,) or ().
        **options: `norm` and `each`, as of `residual`.
    """
    return residual(_Twist(frame), jnp.asarray(twist), weight, **options)


def torque(
    tau: ArrayLike = 0.0, weight: ArrayLike = 1.0, *, beyond_gravity: bool = False, **options: Any
) -> Residual:
    """Joint torques (nv,), N m and N, less those that are wanted.

    Args:
        tau: (nv,) or ().
        weight: (nv,) or ().
        beyond_gravity: count from those that hold the robot still.
        **options: `norm` and `each`, as of `residual`.
    """
    function = _TorqueBeyondGravity() if beyond_gravity else _Torque()
    return residual(function, jnp.asarray(tau), weight, **options)


def com(position: ArrayLike, weight: ArrayLike = 1.0, **options: Any) -> Residual:
    """How far the centre of mass is from a point (3,), m, in world axes.

    Args:
        position: (3,), m.
        weight: (3,) or ().
        **options: `norm` and `each`, as of `residual`.
    """
    return residual(_CentreOfMass(), _numbers("position", position, 3), weight, **options)


def momentum(value: ArrayLike = 0.0, weight: ArrayLike = 1.0, **options: Any) -> Residual:
    """Momentum (6,) `[linear; angular]` about the centre of mass, less what is wanted.

    Args:
        value: (6,) or (), kg m/s and kg m^2/s.
        weight: (6,) or ().
        **options: `norm` and `each`, as of `residual`.
    """
    return residual(_Momentum(), jnp.asarray(value), weight, **options)


def below(
    barrier: Barrier,
    obstacles: Obstacles = NO_OBSTACLES,
    weight: ArrayLike = 1.0,
    norm: Norm | None = None,
    each: bool = False,
) -> Residual:
    """By how much a barrier's values are below its margin, (rows,), in its unit: a soft constraint.

    Args:
        barrier: of the safety filter's.
        obstacles: in the world.
        weight: (rows,) or ().
        norm: `rectify(0.01)` if omitted.
        each: whether all arrays of barrier and obstacles have a leading axis, for every knot.
    """
    return residual(_below, (barrier, obstacles), weight, norm or rectify(0.01), each=each)


def value(term: Residual, robot: Robot, terms: Terms, tau: Array) -> Array:
    """The residual (m,) at a knot."""
    return term.function(robot, terms, tau, term.reference)


def slopes(term: Residual, robot: Robot, terms: Terms, tau: Array) -> Slopes:
    """The residual's derivatives at a knot."""
    outer, inner = factors(term, robot, terms, tau)
    return inner if outer is None else (matmul(outer, inner[0]), matmul(outer, inner[1]))


def factors(term: Residual, robot: Robot, terms: Terms, tau: Array) -> tuple[Array | None, Slopes]:
    """The residual's derivatives (m, ...) at a knot as a product.

    Returns:
        its first factor (m, k), None for the identity; and its second, slopes of k rows.
    """
    given = robot, terms, tau, term.reference
    factored = getattr(term.function, "factors", None)
    if factored is not None:
        return factored(*given)  # type: ignore[no-any-return]
    own = getattr(term.function, "slopes", None)
    if own is not None:
        return None, own(*given)

    def at(q: Array, v: Array, tau: Array) -> Array:
        return term.function(robot, compute_terms(robot, q, v), tau, term.reference)

    return None, residual_derivatives(robot, at, terms.q, terms.v, tau)


def bend(term: Residual, robot: Robot, terms: Terms, tau: Array, gradient: Array) -> Array:
    """Second derivative (3 nv, 3 nv) of the residual, weighted with a gradient (m,).

    By the tangent vector `[dq; dv]` and the torques.
    """
    n, dtype = robot.nv, terms.q.dtype
    own = getattr(term.function, "bends", None)
    parts = own(robot) if own is not None else _PARTS
    index = np.array([i + n * _PARTS.index(p) for p in parts for i in range(n)], int)
    whole = jnp.zeros((3 * n, 3 * n), dtype)
    if not len(index):
        return whole

    def weighted(z: Array) -> Array:
        z = jnp.zeros(3 * n, dtype).at[index].set(z)
        q = integrate(robot, terms.q, z[:n], 1.0)
        there = compute_terms(robot, q, terms.v + z[n : 2 * n])
        return jnp.sum(gradient * value(term, robot, there, tau + z[2 * n :]))

    block = jax.hessian(weighted)(jnp.zeros(len(index), dtype))
    return whole.at[np.ix_(index, index)].set(block)


_PARTS = ("q", "v", "tau")

# --- functions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pose:
    frame: str

    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q",)

    def __call__(self, robot: Robot, terms: Terms, tau: Array, target: Any) -> Array:
        return pose_log(*self._seen(robot, terms, target))

    def slopes(self, robot: Robot, terms: Terms, tau: Array, target: Any) -> Slopes:
        position, rotation = self._seen(robot, terms, target)
        own = frame_pose(robot, terms.q, self.frame, kin=terms.kin)[1]
        J = frame_jacobian(robot, terms.q, self.frame, kin=terms.kin)
        local = jnp.concatenate([matmul(own.T, J[:3]), matmul(own.T, J[3:])])
        return of_q(matmul(pose_log_derivative(position, rotation), local))

    def _seen(self, robot: Robot, terms: Terms, target: Any) -> tuple[Array, Array]:
        """The frame's pose in the target's axes."""
        position, rotation = frame_pose(robot, terms.q, self.frame, kin=terms.kin)
        place, turn = (x.astype(terms.q.dtype) for x in target)
        return matmul(turn.T, position - place), matmul(turn.T, rotation)


@dataclass(frozen=True)
class _Position:
    frame: str

    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q",)

    def __call__(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Array:
        return frame_pose(robot, terms.q, self.frame, kin=terms.kin)[0] - target

    def slopes(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Slopes:
        return of_q(frame_jacobian(robot, terms.q, self.frame, kin=terms.kin)[:3])


@dataclass(frozen=True)
class _Orientation:
    frame: str

    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q",)

    def __call__(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Array:
        rotation = frame_pose(robot, terms.q, self.frame, kin=terms.kin)[1]
        return rotation_log(matmul(target.T.astype(rotation.dtype), rotation))

    def slopes(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Slopes:
        turned = right_jacobian_inverse(self(robot, terms, tau, target))
        rotation = frame_pose(robot, terms.q, self.frame, kin=terms.kin)[1]
        J = frame_jacobian(robot, terms.q, self.frame, kin=terms.kin)[3:]
        return of_q(matmul(turned, matmul(rotation.T, J)))


@dataclass(frozen=True)
class _Posture:
    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q",) if robot.topology.quaternions else ()

    def __call__(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Array:
        return displacement(robot, target.astype(terms.q.dtype), terms.q)

    def slopes(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Slopes:
        return of_q(difference_derivatives(robot, target.astype(terms.q.dtype), terms.q)[1])


@dataclass(frozen=True)
class _Velocity:
    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ()

    def __call__(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Array:
        return terms.v - target

    def slopes(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Slopes:
        eye = jnp.eye(robot.nv, dtype=terms.v.dtype)
        return jnp.concatenate([0 * eye, eye], axis=1), 0 * eye


@dataclass(frozen=True)
class _Twist:
    frame: str

    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q", "v")

    def __call__(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Array:
        return frame_velocity(robot, terms.q, terms.v, self.frame, kin=terms.kin) - target

    def slopes(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Slopes:
        at_rest = jnp.zeros_like(terms.v)
        (by,) = frame_derivatives(robot, terms.q, terms.v, at_rest, self.frame, kin=terms.kin)
        J = frame_jacobian(robot, terms.q, self.frame, kin=terms.kin)
        return jnp.concatenate([by.velocity_dq, J], axis=1), jnp.zeros_like(J)


@dataclass(frozen=True)
class _Torque:
    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ()

    def __call__(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Array:
        return tau - target

    def slopes(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Slopes:
        eye = jnp.eye(robot.nv, dtype=tau.dtype)
        return jnp.zeros((robot.nv, 2 * robot.nv), tau.dtype), eye


@dataclass(frozen=True)
class _TorqueBeyondGravity:
    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q",)

    def __call__(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Array:
        return tau - gravity_forces(robot, terms.q, kin=terms.kin) - target

    def slopes(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Slopes:
        at_rest = jnp.zeros_like(terms.v)
        by = inverse_dynamics_derivatives(robot, terms.q, at_rest, at_rest, kin=terms.kin)
        return of_q(-by.dq)[0], jnp.eye(robot.nv, dtype=tau.dtype)


@dataclass(frozen=True)
class _CentreOfMass:
    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q",)

    def __call__(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Array:
        return center_of_mass(robot, terms.q, kin=terms.kin) - target

    def slopes(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Slopes:
        return of_q(center_of_mass_jacobian(robot, terms.q, kin=terms.kin))


@dataclass(frozen=True)
class _Momentum:
    def bends(self, robot: Robot) -> tuple[str, ...]:
        return ("q", "v")

    def __call__(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Array:
        return centroidal_momentum(robot, terms.q, terms.v, kin=terms.kin) - target

    def slopes(self, robot: Robot, terms: Terms, tau: Array, target: Array) -> Slopes:
        by_q = centroidal_momentum_derivative(robot, terms.q, terms.v, kin=terms.kin)
        by_v = centroidal_momentum_matrix(robot, terms.q, kin=terms.kin)
        return jnp.concatenate([by_q, by_v], axis=1), jnp.zeros_like(by_v)


def _below(robot: Robot, terms: Terms, tau: Array, about: tuple[Barrier, Obstacles]) -> Array:
    return -above_margin(robot, terms, *about)


def above_margin(robot: Robot, terms: Terms, barrier: Barrier, obstacles: Obstacles) -> Array:
    """By how much a barrier's values (rows,) are above its margin, in its unit."""
    values = barrier.function(robot, situation(robot, terms, obstacles), barrier)
    return values - jnp.asarray(barrier.margin, values.dtype)


def of_q(by_q: Array) -> Slopes:
    """Derivatives of what depends on the configuration alone, by those (m, nv)."""
    none = jnp.zeros_like(by_q)
    return jnp.concatenate([by_q, none], axis=1), none


def _numbers(what: str, x: ArrayLike, *shape: int) -> Array:
    """An array that ends in a shape.

    Raises:
        ArrayError: it does not.
    """
    x = jnp.asarray(x)
    if x.shape[-len(shape) :] != shape:
        raise ArrayError(f"{what} has shape {x.shape}, expected {shape}, or one for every knot.")
    return x
