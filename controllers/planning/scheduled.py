"""Contacts that are known beforehand: which frames are held at every knot, and when they hit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.linalg import block_diag
from jax.typing import ArrayLike

from fraxenv.dynamics import (
    ConstrainedStepDerivatives,
    FrameConstraints,
    Robot,
    Terms,
    constrained_step,
    constrained_step_derivatives,
)
from fraxenv.dynamics.constrained_dynamics import Rows
from fraxenv.dynamics.math.algebra import einsum
from fraxenv.dynamics.math.pytree import pytree_dataclass
from fraxenv.errors import ArrayError, ConfigError, is_concrete

from .residuals import Residual, Slopes, residual


@pytree_dataclass
class Schedule:
    """Of `schedule`, or of one knot: without the leading axes N.

    Attributes:
        constraints: frames, with `active` (N, n) bool and `gain` (N,).
        impacts: (N,) bool.
        damping: (N,), 1/kg.
    """

    constraints: FrameConstraints
    impacts: Array
    damping: Array


def schedule(
    frames: Sequence[str],
    active: ArrayLike,
    impacts: ArrayLike = False,
    *,
    rows: Rows = "position",
    gain: ArrayLike = 0.0,
    damping: ArrayLike = 0.0,
) -> Schedule:
    """Rigid contacts for `Problem(contacts=...)`, whose steps are then `constrained_step`'s.

    Args:
        frames: names of links or of end effectors, n of them, such as feet.
        active: (N, n) bool, whether a frame is held in the step from a knot to the next, or hits
            something in an impact.
        impacts: (N,) bool, whether that step is an impact instead, which takes no time: what is
            active has no velocity after it.
        rows: what is held: "position", or "pose".
        gain: () or (N,), 1/s, how fast velocities of frames that are held fade.
        damping: () or (N,), 1/kg, as of `constrained_dynamics`.

    Raises:
        ArrayError: an array has the wrong shape.
        ConfigError: there are no frames, or no such rows.
    """
    held = jnp.asarray(active, bool)
    n = len(tuple(frames))
    if held.ndim != 2 or held.shape[1] != n:
        raise ArrayError(
            f"schedule: active has shape {held.shape}, expected (N, {n}): a row for every step, "
            f"of {tuple(frames)}."
        )
    steps = len(held)

    def each(name: str, x: ArrayLike) -> Array:
        found = jnp.asarray(x)
        if found.shape not in ((), (steps,)):
            raise ArrayError(f"schedule: {name} has shape {found.shape}, expected ({steps},).")
        if is_concrete(x) and not np.all(np.asarray(x) >= 0):
            raise ConfigError(f"schedule: {name}={x!r}, expected numbers of at least 0.")
        return jnp.broadcast_to(found, (steps,))

    constraints = FrameConstraints(tuple(frames), rows, held, each("gain", gain))
    hits = each("impacts", jnp.asarray(impacts, bool))
    return Schedule(constraints, hits, each("damping", damping))


def held_step(
    robot: Robot, terms: Terms, tau: Array, dt: ArrayLike, now: Schedule
) -> tuple[Array, Array, Array]:
    """`constrained_step` of a knot whose contacts are `now`: q, v and the forces (n, k)."""
    state, held = (terms.q, terms.v, tau, dt), (now.constraints, now.impacts)
    return constrained_step(robot, *state, *held, damping=now.damping, terms=terms)


def held_step_derivatives(
    robot: Robot, terms: Terms, tau: Array, dt: ArrayLike, now: Schedule
) -> ConstrainedStepDerivatives:
    """Derivatives of `held_step`."""
    state, held = (terms.q, terms.v, tau, dt), (now.constraints, now.impacts)
    return constrained_step_derivatives(robot, *state, *held, damping=now.damping, terms=terms)


class Held(NamedTuple):
    """The reference of a residual of held frames, at a knot.

    Attributes:
        contacts: the problem's, at this knot.
        dt: (), s, the problem's.
        reference: the residual's own.
    """

    contacts: Schedule
    dt: ArrayLike
    reference: Any


def with_contacts(
    terms: Mapping[str, Residual], contacts: Schedule | None, dt: ArrayLike
) -> Mapping[str, Residual]:
    """The terms at a knot, of which those of held frames are told which are."""
    if contacts is None:
        return terms
    return {
        name: dataclasses.replace(term, reference=Held(contacts, dt, term.reference))
        if needs_contacts(term)
        else term
        for name, term in terms.items()
    }


def needs_contacts(term: Residual) -> bool:
    """Whether a residual's reference is `Held`, with what the problem says of contacts."""
    return isinstance(term.function, _Cone)


def friction_cone(
    friction: ArrayLike = 0.7,
    weight: ArrayLike = 1.0,
    *,
    normal: Sequence[float] = (0.0, 0.0, 1.0),
    **options: Any,
) -> Residual:
    """By how much forces on the problem's held frames are outside of their friction cones (5 n,).

    N; of each of the n frames: beyond a pyramid of four sides that contains the cone, along two
    tangents and back, and pulling. Impacts have none. Crocoddyl's `FrictionCone` with four facets,
    and a quadratic barrier.

    Args:
        friction: () coefficient.
        weight: (5 n,) or ().
        normal: (3,), of the ground, in the world.
        **options: `norm`, as of `residual`.

    Raises:
        ArrayError: the normal is none.
    """
    up = np.asarray(normal, float)
    if up.shape != (3,) or not np.linalg.norm(up) > 0:
        raise ArrayError(f"friction_cone: normal={normal!r}, expected three numbers, not all zero.")
    up = up / np.linalg.norm(up)
    # Along x where the ground is level.
    first = np.cross(np.eye(3)[1 if abs(up[1]) < 0.9 else 0], up)
    first /= np.linalg.norm(first)
    sides = np.array([first, -first, np.cross(up, first), -np.cross(up, first)])
    rows = jnp.concatenate([sides - jnp.asarray(friction) * up, -up[None]])
    return residual(_Cone(), rows, weight, **options)


@dataclass(frozen=True)
class _Cone:
    def __call__(self, robot: Robot, terms: Terms, tau: Array, at: Held) -> Array:
        return jnp.maximum(self._beyond(robot, terms, tau, at), 0).ravel()

    def factors(self, robot: Robot, terms: Terms, tau: Array, at: Held) -> tuple[Array, Slopes]:
        """Rows by forces (5 n, 3 n), of frames by their own, and the forces' slopes (3 n, ...)."""
        found = held_step_derivatives(robot, terms, tau, at.dt, at.contacts)
        outside = self._beyond(robot, terms, tau, at) > 0
        own = jnp.where(outside[..., None], at.reference, 0)

        def of(slope: Array) -> Array:
            return slope[:, :3].reshape(-1, slope.shape[-1])

        return block_diag(*own), (of(found.force_x), of(found.force_tau))

    def _beyond(self, robot: Robot, terms: Terms, tau: Array, at: Held) -> Array:
        """(n, 5), N, positive outside."""
        _, _, forces = held_step(robot, terms, tau, at.dt, at.contacts)
        beyond = einsum("ri,ni->nr", at.reference, forces[:, :3])
        return jnp.where(at.contacts.impacts, 0, beyond)
