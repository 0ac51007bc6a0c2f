"""The rows of all constraints at one state: Jacobians, reference accelerations, weights.

MuJoCo's `efc_J`, `efc_aref` and `efc_D`, with a fixed number of rows: those of a constraint that is
not active have the weight zero. The contacts of a pair of geoms share the relative motion of its
bodies, and differ by their points only, so that products with many of them are done per pair.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..body_motion import body_motion
from ..kinematics import Kinematics
from ..manifold import scalar_coordinates
from ..math.algebra import cross, einsum, matmul
from ..math.pytree import pytree_dataclass, static
from ..math.rotation import (
    matrix_to_quaternion,
    quaternion_log,
    quaternion_multiply,
    quaternion_to_matrix,
    skew,
)
from ..model.robot import WORLD, Robot
from .cones import (
    Friction,
    bounded_cost,
    bounded_curvature,
    bounded_force,
    elliptic_cost,
    elliptic_force,
    elliptic_hessian,
    pyramidal_cost,
    pyramidal_force,
    pyramidal_hessian,
)
from .impedance import impedance, spring, weights
from .model import Cone, Constraints, Layout, PairParameters
from .narrowphase import Contacts, mixed_parameters

PER_PAIR = 3
"""Contact slots of a pair from which on products with their rows are done per pair."""

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


@pytree_dataclass
class ContactRows:
    """The rows of n contact slots of the same dimension d.

    Attributes:
        slots: their places among all slots.
        pairs: of those whose products are done per pair, each slot's row of `maps`; else empty.
        cone: elliptic or pyramidal; none for d = 1.
        maps: (p, 6, nv), of each pair the relative twist of its bodies in world axes, about a point
            that moves with one of them: few entries of a free body are not zero there; or the
            Jacobians (n, d, nv).
        axes: (p, 6, 6), from such twists to those in the contact's axes; or (0, 6, 6).
        levers: (n, 3), m, from that point to the contact, in the contact's axes; or (0, 3).
        reference: (n, d), `aref`, m/s^2 or rad/s^2, in the contact's axes.
        weight: (n,), `D` of the normal row, of pyramids of all rows; zero where inactive.
        coefficients: (n, d - 1), friction of tangents, spin (m) and rolls (m).
        regularised: (n,), friction of the first tangent, divided by the square root of `impratio`.
    """

    slots: tuple[int, ...] = static()
    pairs: tuple[int, ...] = static()
    cone: Cone = static()
    maps: Array
    axes: Array
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
            hessian = _symmetric(einsum("pn,nij->pij", self._of_pairs(hessian), stiffness))
            hessian = matmul(self.axes.swapaxes(1, 2), matmul(hessian, self.axes))
            hessian = _symmetric(hessian)
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
        of_contacts = (contact_force(rows, y) for rows, y in zip(self.contacts, x[1:], strict=True))
        return (bounded_force(x[0], s.weight, s.lower, s.upper), *of_contacts)

    def hessian(self, x: Values) -> Array:
        """`J' H J` (nv, nv) with the Hessian of `cost`; only its upper triangle is meant."""
        s = self.scalar
        curvature = bounded_curvature(x[0], s.weight, s.lower, s.upper)
        total = matmul(s.jacobian.T, curvature[:, None] * s.jacobian)
        for rows, y in zip(self.contacts, x[1:], strict=True):
            total = total + rows.gram(contact_hessian(rows, y))
        return total

    def cost(self, x: Values) -> Array:
        """The cost of violations `x`."""
        s = self.scalar
        total = jnp.sum(bounded_cost(x[0], s.weight, s.lower, s.upper))
        for rows, y in zip(self.contacts, x[1:], strict=True):
            total = total + jnp.sum(_cost(rows, y))
        return total


def contact_force(rows: ContactRows, x: Array) -> Array:
    """Forces (n, d) of contacts at violations `x` (n, d)."""
    if x.shape[1] == 1:
        return jnp.maximum(-rows.weight[:, None] * x, 0)
    return (elliptic_force if rows.cone == "elliptic" else pyramidal_force)(x, rows.friction)


def contact_hessian(rows: ContactRows, x: Array) -> Array:
    """Hessians (n, d, d) of contacts' costs at violations `x` (n, d)."""
    if x.shape[1] == 1:
        return jnp.where(x < 0, rows.weight[:, None], 0)[:, :, None]
    return (elliptic_hessian if rows.cone == "elliptic" else pyramidal_hessian)(x, rows.friction)


def _cost(rows: ContactRows, x: Array) -> Array:
    if x.shape[1] == 1:
        pressed = jnp.minimum(x, 0)
        return 0.5 * rows.weight[:, None] * pressed * pressed
    return (elliptic_cost if rows.cone == "elliptic" else pyramidal_cost)(x, rows.friction)


def constraint_rows(
    robot: Robot,
    constraints: Constraints,
    kin: Kinematics,
    q: Array,
    v: Array,
    contacts: Contacts,
    timestep: Array,
) -> Rows:
    """The rows of all constraints at a state.

    Args:
        robot: the forest.
        constraints: what constrains it.
        kin: kinematics at `q`.
        q: (nq,), rad and m.
        v: (nv,), rad/s and m/s.
        contacts: `find_contacts(robot, constraints, kin)`.
        timestep: s, of which no time constant is less than twice.
    """
    scalar = scalar_rows(robot, constraints, kin, q, v, timestep)
    return Rows(scalar, _contact_rows(robot, constraints, kin, v, contacts, timestep))


def scalar_rows(
    robot: Robot, constraints: Constraints, kin: Kinematics, q: Array, v: Array, timestep: Array
) -> ScalarRows:
    """The rows of equalities, friction loss and limits: see `constraint_rows`."""
    parts = [
        *_equalities(robot, constraints, kin, q, v, timestep),
        *_friction_loss(robot, constraints, v, timestep),
        *_limits(robot, constraints, q, v, timestep),
    ]
    parts.append(_Part(jnp.zeros((0, robot.nv), v.dtype), *(jnp.zeros(0, v.dtype),) * 4))
    return ScalarRows(*(jnp.concatenate(columns) for columns in zip(*parts, strict=True)))


class _Part(NamedTuple):
    """Fields of `ScalarRows`."""

    jacobian: Array
    reference: Array
    weight: Array
    lower: Array
    upper: Array


def _part(
    jacobian: Array,
    v: Array,
    position: Array,
    pull: tuple[Array, Array, Array],
    inverse_weight: Array,
    bounds: tuple[Array | float, Array | float],
    bias: Array | float = 0.0,
) -> _Part:
    """Scalar rows (m) from their parameters.

    Args:
        jacobian: (m, nv).
        v: (nv,).
        position: (m,), violation less the margin.
        pull: stiffness, damping and impedance, each (m,).
        inverse_weight: (m,).
        bounds: of the force.
        bias: (m,), `J_dot v`.
    """
    stiffness, damping, d = pull
    reference = -damping * matmul(jacobian, v) - stiffness * d * position - bias
    lower, upper = (jnp.broadcast_to(jnp.asarray(b, v.dtype), reference.shape) for b in bounds)
    return _Part(jacobian, reference, weights(d, inverse_weight), lower, upper)


def _friction_loss(robot: Robot, c: Constraints, v: Array, timestep: Array) -> list[_Part]:
    dofs = np.array(c.layout.friction_loss, int)
    if not dofs.size:
        return []
    solref, solimp = (
        jnp.asarray(x, v.dtype)[dofs] for x in (c.joints.friction_solref, c.joints.friction_solimp)
    )
    position = jnp.zeros(len(dofs), v.dtype)
    pull = (position, spring(solref, solimp, timestep).damping, impedance(solimp, position))
    loss = jnp.asarray(robot.friction, v.dtype)[dofs]
    inverse = jnp.asarray(c.weights.dof, v.dtype)[dofs]
    return [_part(_units(robot, dofs, v), v, position, pull, inverse, (-loss, loss))]


def _limits(robot: Robot, c: Constraints, q: Array, v: Array, timestep: Array) -> list[_Part]:
    """Limits of joints with one axis, lower then upper of each, and of spherical joints."""
    layout, parts = c.layout, []
    if layout.limited:
        dofs = np.repeat(np.array(layout.limited, int), 2)
        side = jnp.asarray(np.tile([1.0, -1.0], len(layout.limited)), v.dtype)
        limits = jnp.asarray(robot.position_limits, v.dtype)[np.array(layout.limited)].reshape(-1)
        gap = side * (scalar_coordinates(robot, q)[dofs] - limits)
        parts.append(_limit(c, dofs, side[:, None] * _units(robot, dofs, v), v, gap, timestep))
    for body in layout.limited_balls:
        start = int(robot.topology.v_index[body])
        at = int(robot.topology.q_index[body])
        turned = quaternion_log(q[at : at + 4])
        square = jnp.sum(turned * turned)
        turns = square > 0
        angle = jnp.sqrt(jnp.where(turns, square, 1.0))
        axis = jnp.where(turns, turned / angle, jnp.asarray([1.0, 0.0, 0.0], v.dtype))
        jacobian = jnp.zeros((1, robot.nv), v.dtype).at[0, start : start + 3].set(-axis)
        largest = jnp.max(jnp.asarray(robot.position_limits, v.dtype)[start])
        gap = (largest - jnp.where(turns, angle, 0.0))[None]
        parts.append(_limit(c, np.array([start]), jacobian, v, gap, timestep))
    return parts


def _limit(
    c: Constraints, dofs: np.ndarray, jacobian: Array, v: Array, gap: Array, timestep: Array
) -> _Part:
    """Rows of limits that are `gap` (m,) away, with the parameters of the dofs (m,)."""
    margin, solref, solimp, inverse = (
        jnp.asarray(x, v.dtype)[dofs]
        for x in (c.joints.margin, c.joints.limit_solref, c.joints.limit_solimp, c.weights.dof)
    )
    active = gap < margin
    position = jnp.where(active, gap, 0.0) - jnp.where(active, margin, 0.0)
    pull = (*spring(solref, solimp, timestep), impedance(solimp, position))
    part = _part(jacobian, v, position, pull, inverse, (0.0, np.inf))
    return part._replace(weight=jnp.where(active, part.weight, 0.0))


def _equalities(
    robot: Robot, c: Constraints, kin: Kinematics, q: Array, v: Array, timestep: Array
) -> list[_Part]:
    equalities = c.layout.equalities
    if not equalities:
        return []
    solref, solimp = (jnp.asarray(x, v.dtype) for x in (c.equalities.solref, c.equalities.solimp))
    pull = spring(solref, solimp, timestep)
    active = jnp.asarray(c.equalities.active, v.dtype)
    parts = []
    for i, equality in enumerate(equalities):
        if equality.kind == "joint":
            rows = _equal_joints(robot, c, i, q, v)
        else:
            rows = _equal_points(robot, c, i, kin, v)
        m = len(rows.position)
        # An equality of several rows is as hard as its rows together are violated.
        square = jnp.sum(rows.position * rows.position)
        there = square > 0
        length = jnp.where(there, jnp.sqrt(jnp.where(there, square, 1.0)), 0.0)
        d = jnp.broadcast_to(impedance(solimp[i : i + 1], length[None]), (m,))
        stiffness, damping = (jnp.broadcast_to(x[i], (m,)) for x in pull)
        part = _part(
            rows.jacobian, v, rows.position, (stiffness, damping, d), rows.inverse_weight,
            (-np.inf, np.inf), rows.bias,
        )  # fmt: skip
        parts.append(part._replace(weight=jnp.where(active[i] != 0, part.weight, 0.0)))
    return parts


class _EqualityRows(NamedTuple):
    """Jacobian (m, nv), violation (m,), inverse weights (m,) and `J_dot v` (m,)."""

    jacobian: Array
    position: Array
    inverse_weight: Array
    bias: Array


def _equal_joints(robot: Robot, c: Constraints, i: int, q: Array, v: Array) -> _EqualityRows:
    """One joint's coordinate is a polynomial of another's."""
    e, p = c.layout.equalities[i], c.equalities
    reference = jnp.asarray(p.reference, v.dtype)[i]
    factor = jnp.asarray(p.polynomial, v.dtype)[i]
    inverse = jnp.asarray(c.weights.dof, v.dtype)
    coordinate = scalar_coordinates(robot, q)
    x = coordinate[e.second] - reference[1] if e.second >= 0 else jnp.zeros((), v.dtype)
    value = factor[0] + x * (factor[1] + x * (factor[2] + x * (factor[3] + x * factor[4])))
    slope = factor[1] + x * (2 * factor[2] + x * (3 * factor[3] + x * 4 * factor[4]))
    jacobian, inverse_weight = _units(robot, np.array([e.first]), v), inverse[e.first]
    if e.second >= 0:
        jacobian = jacobian - slope * _units(robot, np.array([e.second]), v)
        inverse_weight = inverse_weight + inverse[e.second]
    position = (coordinate[e.first] - reference[0] - value)[None]
    return _EqualityRows(jacobian, position, inverse_weight[None], jnp.zeros(1, v.dtype))


def _equal_points(robot: Robot, c: Constraints, i: int, kin: Kinematics, v: Array) -> _EqualityRows:
    """Two points coincide ("connect"), and two frames ("weld"): the first's less the second's."""
    e, p = c.layout.equalities[i], c.equalities
    motion = body_motion(robot, kin, v, jnp.zeros_like(v))
    links = np.array(e.links)
    translation = jnp.sum(jnp.asarray(c.weights.translation, v.dtype)[links])
    rotation = jnp.sum(jnp.asarray(c.weights.rotation, v.dtype)[links])
    maps, points, accelerations, bodies = [], [], [], []
    for body, local in zip((e.first, e.second), jnp.asarray(p.position, v.dtype)[i], strict=True):
        moves = body != WORLD
        turned = kin.rotation[body] if moves else jnp.eye(3, dtype=v.dtype)
        lever = matmul(turned, local)
        index = np.array([body])
        maps.append(twist_maps(robot, kin, np.array([WORLD]), index, lever[None], lever[None])[0])
        points.append((kin.position[body] if moves else 0.0) + lever)
        if moves:
            linear = motion.acceleration[body] + matmul(motion.gradient[body], lever)
            accelerations.append((linear, motion.angular_acceleration[body]))
            bodies.append((turned, motion.angular_velocity[body]))
        else:
            zero = jnp.zeros(3, v.dtype)
            accelerations.append((zero, zero))
            bodies.append((turned, zero))
    twist = maps[0] - maps[1]
    position, bias = points[0] - points[1], accelerations[0][0] - accelerations[1][0]
    inverse_weight = jnp.broadcast_to(translation, (3,))
    if e.kind == "connect":
        return _EqualityRows(twist[:3], position, inverse_weight, bias)

    # With unit quaternions a and b of both frames, and the rate of a (half the angular velocity
    # times a), the angular violation is the vector part of conj(b) a.
    scale = jnp.asarray(p.torque_scale, v.dtype)[i]
    frames = [
        matmul(turned, quaternion_to_matrix(local))
        for (turned, _), local in zip(bodies, jnp.asarray(p.rotation, v.dtype)[i], strict=True)
    ]
    b, between = frames[1], matrix_to_quaternion(matmul(frames[1].T, frames[0]))

    def turned_by(pure: Array) -> Array:
        """`conj(b) w a` for the columns w (3, k) of `pure`: its vector part (3, k)."""
        w = matmul(b.T, pure)
        return between[0] * w + matmul(skew(-between[1:]), w)

    jacobian = 0.5 * scale * turned_by(twist[3:])
    first, second = bodies[0][1], bodies[1][1]
    difference = _pure(first - second)
    # d/dt of conj(b) w a / 2, with the rates of b and of a.
    rates = 0.5 * (
        quaternion_multiply(difference, _pure(first))
        - quaternion_multiply(_pure(second), difference)
    )
    rates = rates + _pure(accelerations[0][1] - accelerations[1][1])
    inside = jnp.concatenate([rates[:1], matmul(b.T, rates[1:])])
    angular_bias = 0.5 * scale * quaternion_multiply(inside, between)[1:]
    return _EqualityRows(
        jnp.concatenate([twist[:3], jacobian]),
        jnp.concatenate([position, scale * between[1:]]),
        jnp.concatenate([inverse_weight, jnp.broadcast_to(rotation, (3,))]),
        jnp.concatenate([bias, angular_bias]),
    )


def _pure(w: Array) -> Array:
    return jnp.concatenate([jnp.zeros_like(w[:1]), w])


def _units(robot: Robot, dofs: np.ndarray, v: Array) -> Array:
    """Rows (m, nv) of the identity."""
    return jnp.asarray(np.eye(robot.nv)[dofs], v.dtype)


def twist_maps(
    robot: Robot,
    kin: Kinematics,
    first: np.ndarray,
    second: np.ndarray,
    from_first: Array,
    from_second: Array,
) -> Array:
    """Maps (n, 6, nv) from joint velocities to the twist of second bodies relative to first ones.

    See `axis_twists`.
    """
    columns = axis_twists(robot, kin, first, second, from_first, from_second)
    axes = robot.topology.axes
    if axes.has_mimics:
        columns = einsum("av,nai->nvi", jnp.asarray(axes.dof, columns.dtype), columns)
    return columns.swapaxes(1, 2)


def axis_twists(
    robot: Robot,
    kin: Kinematics,
    first: np.ndarray,
    second: np.ndarray,
    from_first: Array,
    from_second: Array,
) -> Array:
    """Twists (n, na, 6) of second bodies relative to first ones, when each axis has the rate one.

    `[linear; angular]` in world axes, of the bodies' points at a place that is given for each pair.
    Joints that move both bodies do not count.

    Args:
        robot: the forest.
        kin: kinematics.
        first: (n,) int, bodies, or `WORLD`.
        second: likewise.
        from_first: (n, 3), m, from the origin of the first body to the place, in world axes.
        from_second: likewise.
    """
    axes = robot.topology.axes
    moves = np.concatenate([axes.moves, np.zeros_like(axes.moves[:1])])
    of_second, of_first = moves[second], moves[first]
    carrier = np.where(of_second & ~of_first, second[:, None], first[:, None])
    sign = of_second.astype(int) - of_first
    carrier = np.where(sign == 0, axes.body, carrier)

    along_tree = kin.relative[carrier] - kin.relative[axes.body]
    along_tree = jnp.where((carrier == axes.body)[:, :, None], 0.0, along_tree)
    from_carrier = jnp.where(of_second[:, :, None], from_second[:, None], from_first[:, None])
    rotates = axes.rotates[:, None]
    turning = cross(kin.axis, along_tree + from_carrier)
    linear = jnp.where(rotates, turning, kin.axis)
    angular = jnp.broadcast_to(jnp.where(rotates, kin.axis, 0.0), linear.shape)
    columns = jnp.concatenate([linear, angular], axis=-1) * sign[:, :, None].astype(linear.dtype)
    return jnp.where(sign[:, :, None] == 0, 0.0, columns)


def _contact_rows(
    robot: Robot, c: Constraints, kin: Kinematics, v: Array, contacts: Contacts, timestep: Array
) -> tuple[ContactRows, ...]:
    layout = c.layout
    if not layout.slots:
        return ()
    parameters = mixed_parameters(c, v.dtype)
    return tuple(
        _group_rows(robot, c, kin, v, contacts, timestep, parameters, condim, pairs)
        for condim, pairs in _groups(layout)
    )


def _groups(layout: Layout) -> list[tuple[int, np.ndarray]]:
    """Contact dimensions, and the pairs (k,) int that have them: those done per pair apart."""
    keys = [(p.condim, p.slots >= PER_PAIR) for p in layout.pairs]
    return [
        (key[0], np.array([i for i, k in enumerate(keys) if k == key]))
        for key in dict.fromkeys(keys)
    ]


def _group_rows(
    robot: Robot,
    c: Constraints,
    kin: Kinematics,
    v: Array,
    contacts: Contacts,
    timestep: Array,
    p: PairParameters,
    condim: int,
    pairs: np.ndarray,
) -> ContactRows:
    """The rows of all slots of some pairs of the same dimension."""
    layout = c.layout
    first_slot = np.cumsum([0, *(p.slots for p in layout.pairs)])
    slots = np.concatenate([np.arange(first_slot[i], first_slot[i + 1]) for i in pairs])
    pair = layout.slot_pair[slots]
    geoms = np.array([layout.pairs[i].geoms for i in pairs])
    bodies = np.array([[layout.geoms[g].body for g in both] for both in geoms])
    per_pair = layout.pairs[pairs[0]].slots >= PER_PAIR

    position, frame = contacts.position[slots], contacts.frame[slots]
    if per_pair:
        of_pair = np.searchsorted(pairs, pair)
        base = np.array([reference_body(robot, both) for both in bodies])
        to_base = [
            jnp.where((b == base)[:, None], 0.0, kin.position[base] - kin.position[b])
            for b in bodies.T
        ]
        maps = twist_maps(robot, kin, *bodies.T, *to_base)
        # The contacts of such a pair lie in one plane, and share its axes.
        shared = contacts.frame[first_slot[pairs]]
        axes = jnp.zeros((len(pairs), 6, 6), v.dtype)
        axes = axes.at[:, :3, :3].set(shared).at[:, 3:, 3:].set(shared)
        levers = einsum("nij,nj->ni", frame, position - kin.position[base][of_pair])
    else:
        of_slot = np.searchsorted(pairs, pair)
        bodies = bodies[of_slot]
        twist = twist_maps(robot, kin, *bodies.T, *(position - kin.position[b] for b in bodies.T))
        maps = matmul(frame, twist[:, :3])
        if condim > 3:
            turns = matmul(frame, twist[:, 3:])[:, : condim - 3]
            maps = jnp.concatenate([maps, turns], axis=1)
        maps, levers, of_pair = maps[:, :condim], jnp.zeros((0, 3), v.dtype), np.zeros(0, int)
        axes = jnp.zeros((0, 6, 6), v.dtype)

    resisted = contact_resistance(
        c, p, condim, slots, contacts.distance[slots], contacts.active[slots], timestep
    )
    rows = ContactRows(
        slots=tuple(slots.tolist()),
        pairs=tuple(of_pair.tolist()),
        cone=layout.cone,
        maps=maps,
        axes=axes,
        levers=levers,
        reference=jnp.zeros((len(slots), condim), v.dtype),
        weight=resisted.weight,
        coefficients=resisted.coefficients,
        regularised=resisted.regularised,
    )
    reference = -resisted.damping * rows.apply(v) - resisted.pull
    return dataclasses.replace(rows, reference=reference)


class Resistance(NamedTuple):
    """What n contacts of dimension d do against their velocity and their depth.

    Attributes:
        weight: (n,), as of `ContactRows`.
        damping: (n, d), 1/s.
        pull: (n, d), m/s^2: the reference acceleration is `-damping velocity - pull`.
        coefficients: (n, d - 1), as of `ContactRows`.
        regularised: (n,), as of `ContactRows`.
    """

    weight: Array
    damping: Array
    pull: Array
    coefficients: Array
    regularised: Array


def contact_resistance(
    c: Constraints,
    p: PairParameters,
    condim: int,
    slots: np.ndarray,
    distance: Array,
    active: Array,
    timestep: Array,
) -> Resistance:
    """Resistance of some contact slots.

    Args:
        c: the constraints.
        p: parameters of all pairs, mixed.
        condim: of these slots.
        slots: (n,) int, their places among all slots.
        distance: (n,), m.
        active: (n,) bool.
        timestep: s.
    """
    layout, dtype = c.layout, distance.dtype
    pair = layout.slot_pair[slots]
    links = np.array([[layout.geoms[g].link for g in both.geoms] for both in layout.pairs])[pair]
    inverse = jnp.sum(jnp.asarray(c.weights.translation, dtype)[links], axis=1)
    margin = jnp.asarray(p.margin)[pair]
    violation = jnp.where(active, distance - margin, 0.0)
    solref, solimp, own, friction = (
        jnp.asarray(x)[pair] for x in (p.solref, p.solimp, p.solref_friction, p.friction)
    )
    d = impedance(solimp, violation)
    stiffness, damping = spring(solref, solimp, timestep)
    coefficients = friction[:, : condim - 1]
    regularised = friction[:, 0] * (1 / jnp.sqrt(jnp.asarray(c.impratio, dtype)))
    if condim > 1 and layout.cone == "pyramidal":
        inverse = inverse * (1 + friction[:, 0] ** 2)
    weight = weights(d, inverse)
    if condim > 1 and layout.cone == "pyramidal":
        weight = weight / (2 * regularised**2)
        sideways = damping
    else:
        given = jnp.any(own != 0, axis=1)
        sideways = jnp.where(given, spring(own, solimp, timestep).damping, damping)
    rates = jnp.concatenate(
        [damping[:, None], jnp.broadcast_to(sideways[:, None], coefficients.shape)], axis=1
    )
    pull = jnp.zeros_like(rates).at[:, 0].set(stiffness * d * violation)
    weight = jnp.where(active, weight, 0.0)
    return Resistance(weight, rates, pull, coefficients, regularised)


def reference_body(robot: Robot, bodies: np.ndarray) -> int:
    """The body about whose origin a pair's twist is taken: a free one, of which it is simplest."""
    moving = [int(b) for b in bodies if b != WORLD]
    free = [b for b in moving if robot.topology.joints[b].kind == "floating"]
    return (free or moving[::-1])[0]


def _symmetric(matrices: Array) -> Array:
    """Symmetric matrices (n, k, k) of which only the upper triangles are computed."""
    k = matrices.shape[-1]
    return jnp.where(np.tri(k, k=-1, dtype=bool), matrices.swapaxes(-1, -2), matrices)
