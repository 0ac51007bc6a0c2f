"""The rows of all constraints at one state: Jacobians, reference accelerations, weights.

MuJoCo's `efc_J`, `efc_aref` and `efc_D`, with a fixed number of rows: those of a constraint that is
not active have the weight zero. The contacts of a pair of geoms share the relative motion of its
bodies, and differ by their points only, so that products with many of them are done per pair.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..math.algebra import einsum, matmul, mirrored
from ..math.pytree import pytree_dataclass, static
from ..math.rotation import skew
from .blocks import Block, assembled
from .cones import (
    Friction,
    bounded_cost,
    bounded_curvature,
    bounded_force,
    cone_cost,
    contact_force,
    contact_hessian,
)
from .model import Cone

Values = tuple[Array, ...]
"""One number per row: of the scalar rows (m,), then of each group of contacts (n, d)."""


@pytree_dataclass
class ScalarRows:
    """Rows that are constraints on their own: equalities, friction loss, joint limits.

    Attributes:
        jacobian: (m, nv).
        reference: (m,), `aref`, m/s^2 or rad/s^2.
        weight: (m,), `D`; zero where inactive.
        lower: (m,), N or N m, the least force.
        upper: (m,), the greatest.
    """

    jacobian: Array
    reference: Array
    weight: Array
    lower: Array
    upper: Array

    def gram(self, x: Array) -> Array:
        """`J' H J` (nv, nv) with the Hessian of `bounded_cost` at violations `x` (m,)."""
        curvature = bounded_curvature(x, self.weight, self.lower, self.upper)
        return matmul(self.jacobian.T, curvature[:, None] * self.jacobian)


@pytree_dataclass
class ContactRows:
    """The rows of n contact slots of the same dimension d.

    Attributes:
        slots: their places among all slots.
        pairs: of those whose products are done per pair, each slot's row of `maps`; else empty.
        blocks: of such pairs, what their Hessian consists of; else empty.
        cone: elliptic or pyramidal; none for d = 1.
        maps: (p, 6, nv), of each pair the relative twist of its bodies in world axes, about a point
            that moves with one of them: few entries of a free body are not zero there; or the
            Jacobians (n, d, nv).
        axes: (p, 6, 6), from such twists to those in the contact's axes; or (0, 6, 6).
        origins: (p, 3), m, that point in the world; or (0, 3).
        levers: (n, 3), m, from that point to the contact, in the contact's axes; or (0, 3).
        reference: (n, d), `aref`, m/s^2 or rad/s^2, in the contact's axes.
        weight: (n,), `D` of the normal row, of pyramids of all rows; zero where inactive.
        coefficients: (n, d - 1), friction of tangents, spin (m) and rolls (m).
        regularised: (n,), friction of the first tangent, divided by the square root of `impratio`.
    """

    slots: tuple[int, ...] = static()
    pairs: tuple[int, ...] = static()
    blocks: tuple[Block, ...] = static()
    cone: Cone = static()
    maps: Array
    axes: Array
    origins: Array
    levers: Array
    reference: Array
    weight: Array
    coefficients: Array
    regularised: Array

    @property
    def friction(self) -> Friction:
        """What shapes the cones."""
        return Friction(self.weight, self.coefficients, self.regularised)

    def apply(self, a: Array) -> Array:
        """Accelerations (n, d) in the contacts' axes of joint accelerations (nv,): `J a`."""
        moved = matmul(self.maps, a)
        if not self.pairs:
            return moved
        moved = einsum("pij,pj->pi", self.axes, moved)
        return einsum("nij,nj->ni", self._points(), moved[np.array(self.pairs)])

    def transpose(self, f: Array) -> Array:
        """Joint forces (nv,) of forces (n, d) in the contacts' axes: `J' f`."""
        if self.pairs:
            f = matmul(self._of_pairs(f), einsum("nij,ni->nj", self._points(), f))
            f = einsum("pij,pi->pj", self.axes, f)
        return einsum("nij,ni->j", self.maps, f)

    def gram(self, hessian: Array) -> Array:
        """`J' H J` (nv, nv) with blocks `H` (n, d, d); only its upper triangle is meant."""
        if self.pairs:
            points = self._points()
            stiffness = einsum("nji,njk,nkl->nil", points, hessian, points)
            hessian = mirrored(einsum("pn,nij->pij", self._of_pairs(hessian), stiffness))
            hessian = matmul(self.axes.swapaxes(1, 2), matmul(hessian, self.axes))
            return assembled(self.blocks, self.maps, self.origins, mirrored(hessian))
        return einsum("nij,nik->jk", self.maps, matmul(hessian, self.maps))

    def _points(self) -> Array:
        """Matrices (n, d, 6) from the twists of pairs to the motion at the contacts."""
        d, dtype = self.reference.shape[1], self.levers.dtype
        eye = jnp.broadcast_to(jnp.eye(6, dtype=dtype), (len(self.slots), 6, 6))
        return eye.at[:, :3, 3:].set(skew(-self.levers))[:, :d]

    def _of_pairs(self, like: Array) -> Array:
        """Which slots (n) belong to which pair (p): a constant mask (p, n)."""
        mask = np.arange(len(self.maps))[:, None] == np.array(self.pairs)
        return jnp.asarray(mask, like.dtype)


@pytree_dataclass
class Rows:
    """All rows at one state.

    Attributes:
        scalar: equalities, then friction loss, then limits.
        contacts: contacts by dimension and by how products with them are done.
    """

    scalar: ScalarRows
    contacts: tuple[ContactRows, ...]

    def apply(self, a: Array) -> Values:
        """`J a` of joint accelerations (or velocities) (nv,)."""
        return (matmul(self.scalar.jacobian, a), *(c.apply(a) for c in self.contacts))

    def violation(self, a: Array) -> Values:
        """`x = J a - aref`, what costs are paid for."""
        references = (self.scalar.reference, *(c.reference for c in self.contacts))
        return tuple(x - r for x, r in zip(self.apply(a), references, strict=True))

    def transpose(self, f: Values) -> Array:
        """Joint forces `J' f` (nv,)."""
        total = matmul(f[0], self.scalar.jacobian)
        for rows, force in zip(self.contacts, f[1:], strict=True):
            total = total + rows.transpose(force)
        return total

    def force(self, x: Values) -> Values:
        """Forces, N and N m, at violations `x`: minus the gradient of `cost`."""
        s = self.scalar
        of_contacts = (
            contact_force(rows.cone, y, rows.friction)
            for rows, y in zip(self.contacts, x[1:], strict=True)
        )
        return (bounded_force(x[0], s.weight, s.lower, s.upper), *of_contacts)

    def hessian(self, x: Values) -> Array:
        """`J' H J` (nv, nv) with the Hessian of `cost`; only its upper triangle is meant."""
        total = self.scalar.gram(x[0])
        for rows, y in zip(self.contacts, x[1:], strict=True):
            total = total + rows.gram(contact_hessian(rows.cone, y, rows.friction))
        return total

    def cost(self, x: Values) -> Array:
        """The cost of violations `x`."""
        s = self.scalar
        total = jnp.sum(bounded_cost(x[0], s.weight, s.lower, s.upper))
        for rows, y in zip(self.contacts, x[1:], strict=True):
            total = total + jnp.sum(cone_cost(y, contact_force(rows.cone, y, rows.friction)))
        return total
