"""Dynamics of a robot some of whose frames are held: rigid contacts that are known beforehand.

The acceleration `a` and the forces `f` on the frames fulfil

    M a - J^T f = tau - bias        J a + J_dot v = -gain J v

Featherstone, "Rigid Body Dynamics Algorithms" (2008), section 8; solved by a Cholesky factorisation
of `J M^-1 J^T`. Pinocchio has them as `constraintDynamics` and `impulseDynamics`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike
from jaxtyping import Float, Real

from fraxenv.errors import ArrayError, ConfigError, check_choice

from .forward_dynamics import spd_solve
from .jacobian import frame_acceleration, frame_jacobian
from .kinematics import checked_tangent
from .math.algebra import matmul
from .math.pytree import pytree_dataclass, static
from .model.robot import Robot
from .terms import Terms, compute_terms

Rows = Literal["position", "pose"]
ROWS = {"position": 3, "pose": 6}


@pytree_dataclass
class FrameConstraints:
    """Frames that are held where they are.

    Attributes:
        frames: names of links or of end effectors, n of them.
        rows: what of them is held: "position", as that of a point foot, or "pose".
        active: (n,) bool, or one for all: which of them are held now.
        gain: (), 1/s, how fast velocities of frames that are held fade (Baumgarte).
    """

    frames: tuple[str, ...] = static()
    rows: Rows = static(default="position")
    active: ArrayLike = True
    gain: ArrayLike = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "frames", tuple(self.frames))
        check_choice("FrameConstraints: rows", self.rows, tuple(ROWS))
        if not self.frames:
            raise ConfigError("FrameConstraints: no frames, expected the name of one at least.")


class Reaction(NamedTuple):
    """What holds the frames.

    Attributes:
        motion: (nv,), what `M^-1 (force + J^T reaction)` is.
        reaction: (m,).
    """

    motion: Array
    reaction: Array


def constrained_dynamics(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    tau: Real[ArrayLike, " nv"],
    constraints: FrameConstraints,
    *,
    damping: ArrayLike = 0.0,
    terms: Terms | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, "n k"]]:
    """Joint accelerations while frames are held, and the forces that hold them.

    As `forward_dynamics`, without damping and friction of joints.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s.
        tau: N m and N.
        constraints: what is held.
        damping: (), 1/kg, added to the diagonal of `J M^-1 J^T`: with a positive one frames may be
            held twice, and give way a little.
        terms: `compute_terms(robot, q, v)`, if already computed.

    Returns:
        Accelerations (nv,), and on each frame its force (3,), N, in world axes; for whole poses its
        force and moment (6,), N and N m. Zero where a frame is not held.

    Raises:
        ArrayError: an argument has the wrong shape.
        UnknownNameError: the robot has no such frame.
    """
    terms = compute_terms(robot, q, v) if terms is None else terms
    v, tau = terms.v, checked_tangent(robot, "tau", tau)
    J, held = constraint_jacobian(robot, terms, constraints)
    wanted = -held * frames_acceleration(robot, terms, jnp.zeros_like(v), constraints)
    M_J, M_force = _accelerations(terms.mass_matrix, J, tau - terms.bias)
    found = reaction(J, held, M_J, M_force, wanted, damping)
    return found.motion, found.reaction.reshape(len(constraints.frames), -1)


def impulse_dynamics(
    robot: Robot,
    q: Real[ArrayLike, " nq"],
    v: Real[ArrayLike, " nv"],
    constraints: FrameConstraints,
    restitution: ArrayLike = 0.0,
    *,
    damping: ArrayLike = 0.0,
    terms: Terms | None = None,
) -> tuple[Float[Array, " nv"], Float[Array, "n k"]]:
    """Joint velocities after frames have hit something, and the impulses on them.

    Args:
        robot: the model.
        q: rad and m.
        v: rad/s and m/s, before.
        constraints: what is hit; it has no velocity afterwards, but for the restitution.
        restitution: (), share of a frame's velocity that it has afterwards, turned around.
        damping: as of `constrained_dynamics`.
        terms: `compute_terms(robot, q, v)`, if already computed.

    Returns:
        Velocities (nv,), rad/s and m/s, and on each frame its impulse (3,) or (6,), N s and N m s.

    Raises:
        ArrayError: an argument has the wrong shape.
        UnknownNameError: the robot has no such frame.
    """
    terms = compute_terms(robot, q, v) if terms is None else terms
    J, held = constraint_jacobian(robot, terms, constraints)
    wanted = -(1 + jnp.asarray(restitution, J.dtype)) * matmul(J, terms.v)
    M_J, rest = _accelerations(terms.mass_matrix, J, jnp.zeros_like(terms.v))
    found = reaction(J, held, M_J, rest, wanted, damping)
    return terms.v + found.motion, found.reaction.reshape(len(constraints.frames), -1)


def constraint_jacobian(
    robot: Robot, terms: Terms, constraints: FrameConstraints
) -> tuple[Array, Array]:
    """Jacobian (m, nv) of all frames, zero in rows that are not held; and which are, (m,), 0 or 1.

    Raises:
        ArrayError: there is not one number of `active` for every frame.
    """
    n, k = len(constraints.frames), ROWS[constraints.rows]
    active = jnp.asarray(constraints.active)
    if active.shape not in ((), (n,)):
        raise ArrayError(
            f"FrameConstraints: active has shape {active.shape}, expected ({n},): one for each of "
            f"{constraints.frames}; or ()."
        )
    held = jnp.repeat(jnp.broadcast_to(active, n), k).astype(terms.v.dtype)
    rows = [frame_jacobian(robot, terms.q, f, kin=terms.kin)[:k] for f in constraints.frames]
    return held[:, None] * jnp.concatenate(rows), held


def frames_acceleration(
    robot: Robot, terms: Terms, a: Array, constraints: FrameConstraints
) -> Array:
    """`J a + J_dot v + gain J v` of all frames (m,), held or not."""
    k, gain = ROWS[constraints.rows], jnp.asarray(constraints.gain, a.dtype)
    fading = a + gain * terms.v
    rows = [
        frame_acceleration(robot, terms.q, terms.v, fading, f, kin=terms.kin)[:k]
        for f in constraints.frames
    ]
    return jnp.concatenate(rows)


def reaction(
    J: Array, held: Array, M_J: Array, M_force: Array, wanted: Array, damping: ArrayLike
) -> Reaction:
    """The motion `M_force + M_J reaction` that `J` maps to what is wanted.

    Args:
        J: (m, nv), zero in rows that are not held.
        held: (m,), 0 or 1.
        M_J: (nv, m), `M^-1 J^T`.
        M_force: (nv,), `M^-1 force`.
        wanted: (m,), zero in rows that are not held.
        damping: ().
    """
    found = spd_solve(delassus(J, held, M_J, damping), wanted - matmul(J, M_force))
    return Reaction(M_force + matmul(M_J, found), found)


def delassus(J: Array, held: Array, M_J: Array, damping: ArrayLike) -> Array:
    """`J M^-1 J^T` (m, m) and its damping; of rows that are not held one on the diagonal."""
    diagonal = 1 - held + held * jnp.asarray(damping, J.dtype)
    return matmul(J, M_J) + jnp.diag(diagonal)


def _accelerations(mass_matrix: Array, J: Array, force: Array) -> tuple[Array, Array]:
    """`M^-1 J^T` (nv, m) and `M^-1 force` (nv,), by one factorisation."""
    both = spd_solve(mass_matrix, jnp.concatenate([J.T, force[:, None]], axis=1))
    return both[:, :-1], both[:, -1]
