"""Cost, force and curvature of constraints, as functions of their violated acceleration.

MuJoCo's "Computation: Constraint solver: primal". Every constraint pays a convex cost `s(x)` for
`x = J a - aref`; its force is minus the gradient, and its curvature the generalized Hessian. All of
them are quadratic in zones, and smooth once across their borders.

Arrays have one row per constraint: `x` (n, d), of a contact the accelerations along the normal, the
two tangents, the spin about the normal and the two rolls, of which the first d. A constraint whose
weight `D` is zero pays, and does, nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from .model import Cone


def bounded_force(x: Array, weight: Array, lower: Array, upper: Array) -> Array:
    """Forces (n,) of scalar constraints: `-D x`, within bounds.

    Equalities are unbounded, limits and frictionless contacts only push (0, inf), and friction loss
    is within plus and minus the Coulomb force.
    """
    return jnp.clip(-weight * x, lower, upper)


def bounded_curvature(x: Array, weight: Array, lower: Array, upper: Array) -> Array:
    """Curvature (n,) of `bounded_cost`: `D`, zero where the force is at a bound."""
    force = -weight * x
    return jnp.where((force > lower) & (force < upper), weight, 0.0)


def bounded_cost(x: Array, weight: Array, lower: Array, upper: Array) -> Array:
    """Costs (n,): quadratic, and linear (Huber's) beyond a bound."""
    force = bounded_force(x, weight, lower, upper)
    safe = jnp.where(weight > 0, weight, 1.0)
    return -force * (x + 0.5 * force / safe)


class Friction(NamedTuple):
    """What shapes the cone of n contacts with friction.

    Attributes:
        weight: (n,), `D` of the normal row.
        coefficients: (n, d - 1), friction of the two tangents, spin (m) and rolls (m).
        regularised: (n,), `mu`, the friction of the cone: that of the first tangent, divided by the
            square root of `impratio`.
    """

    weight: Array
    coefficients: Array
    regularised: Array


class _Projection(NamedTuple):
    """The scaled acceleration `U` and the part of it that a force opposes, and its derivative.

    With `t` the unit vector along the tangential part of U, the projection is `(normal, along U_t)`
    and its derivative `[[nn, nt t'], [nt t, along I + tt t t']]`.
    """

    U: Array
    scale: Array
    t: Array
    normal: Array
    along: Array
    nn: Array
    nt: Array
    tt: Array


def _project(x: Array, f: Friction) -> _Projection:
    """The part of an elliptic contact's acceleration that it opposes.

    Scaled by `g = (mu, mu_1, ..., mu_{d-1})`, the cone is round: `U = g x` is split into its part
    in the dual cone, which is free, and the orthogonal rest.
    """
    mu = f.regularised
    scale = jnp.concatenate([mu[:, None], f.coefficients], axis=1)
    U = scale * x
    N, tangential = U[:, 0], U[:, 1:]
    square = jnp.sum(tangential * tangential, axis=1)
    turns = square > 0
    length = jnp.sqrt(jnp.where(turns, square, 1.0))
    inverse = jnp.where(turns, 1 / length, 0.0)
    T = jnp.where(turns, length, 0.0)

    sticks = (mu * N + T <= 0) & (N < 0)
    slides = (mu * N + T > 0) & (mu * T > N)
    share = 1 / (1 + mu * mu)
    border = share * (N - mu * T)  # negative where it slides
    along = jnp.where(sticks, 1.0, jnp.where(slides, -mu * border * inverse, 0.0))
    return _Projection(
        U,
        scale,
        tangential * inverse[:, None],
        jnp.where(sticks, N, jnp.where(slides, border, 0.0)),
        along,
        jnp.where(sticks, 1.0, jnp.where(slides, share, 0.0)),
        jnp.where(slides, -mu * share, 0.0),
        jnp.where(slides, mu * mu * share - along, 0.0),
    )


def _stiffness(f: Friction) -> Array:
    """`D_0 / mu^2` (n,): all rows of a contact weigh alike in scaled accelerations."""
    return f.weight / (f.regularised * f.regularised)


def elliptic_force(x: Array, f: Friction) -> Array:
    """Forces (n, d) of contacts with elliptic cones."""
    p = _project(x, f)
    opposed = jnp.concatenate([p.normal[:, None], p.along[:, None] * p.U[:, 1:]], axis=1)
    return -_stiffness(f)[:, None] * p.scale * opposed


def elliptic_hessian(x: Array, f: Friction) -> Array:
    """Hessians (n, d, d) of `elliptic_cost`, positive semidefinite."""
    p = _project(x, f)
    eye = jnp.eye(x.shape[1] - 1, dtype=x.dtype)
    coupled = p.nt[:, None] * p.t
    block = p.along[:, None, None] * eye + (p.tt[:, None] * p.t)[:, :, None] * p.t[:, None, :]
    top = jnp.concatenate([p.nn[:, None], coupled], axis=1)[:, None, :]
    rest = jnp.concatenate([coupled[:, :, None], block], axis=2)
    hessian = jnp.concatenate([top, rest], axis=1)
    outer = p.scale[:, :, None] * (_stiffness(f)[:, None] * p.scale)[:, None, :]
    return outer * hessian


def pyramidal_force(x: Array, f: Friction) -> Array:
    """Forces (n, d) of contacts whose cones are pyramids, in the contact's axes.

    Each edge of the pyramid, `x_0 + mu_k x_k` and `x_0 - mu_k x_k`, only pushes.
    """
    plus, minus = _edges(x, f)
    plus, minus = (f.weight[:, None] * jnp.maximum(-e, 0) for e in (plus, minus))
    normal = jnp.sum(plus + minus, axis=1, keepdims=True)
    return jnp.concatenate([normal, f.coefficients * (plus - minus)], axis=1)


def pyramidal_hessian(x: Array, f: Friction) -> Array:
    """Hessians (n, d, d) of `pyramidal_cost`."""
    plus, minus = ((e < 0).astype(x.dtype) for e in _edges(x, f))
    mu, both = f.coefficients, plus + minus
    coupled = mu * (plus - minus)
    eye = jnp.eye(x.shape[1] - 1, dtype=x.dtype)
    block = (mu * mu * both)[:, :, None] * eye
    normal = jnp.sum(both, axis=1, keepdims=True)
    top = jnp.concatenate([normal, coupled], axis=1)[:, None, :]
    rest = jnp.concatenate([coupled[:, :, None], block], axis=2)
    return f.weight[:, None, None] * jnp.concatenate([top, rest], axis=1)


def cone_cost(x: Array, force: Array) -> Array:
    """Costs (n,) of contacts whose forces (n, d) at `x` are known: of second degree in `x`."""
    return -0.5 * jnp.sum(force * x, axis=1)


def _edges(x: Array, f: Friction) -> tuple[Array, Array]:
    """Accelerations (n, d - 1) along the pyramid's edges, on both sides."""
    sideways = f.coefficients * x[:, 1:]
    return x[:, :1] + sideways, x[:, :1] - sideways


def contact_force(cone: Cone, x: Array, f: Friction) -> Array:
    """Forces (n, d) of contacts, in their axes."""
    if x.shape[1] == 1:
        return jnp.maximum(-f.weight[:, None] * x, 0)
    return (elliptic_force if cone == "elliptic" else pyramidal_force)(x, f)


def contact_hessian(cone: Cone, x: Array, f: Friction) -> Array:
    """Hessians (n, d, d) of contacts' costs."""
    if x.shape[1] == 1:
        return jnp.where(x < 0, f.weight[:, None], 0)[:, :, None]
    return (elliptic_hessian if cone == "elliptic" else pyramidal_hessian)(x, f)
