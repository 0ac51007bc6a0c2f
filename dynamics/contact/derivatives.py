"""Derivatives of the forces that contacts put on the joints, in closed form.

A contact feels the relative pose, velocity and acceleration of two bodies only. So of each pair six
relative displacements are enough, whatever the number of joints: with the relative twists `W` of
the bodies by axis, about a point fixed in space, and the wrench `w` on the second, the joint forces
are `W' w`, and a displacement along axis k changes them by

    W' (T W_k + N (W_k x sum_j y_jk W_j v_j) + L (W_k x sum_j y_jk W_j a_j)) - y_k o W' (W_k x* w)

where T, N and L are the derivatives of `w` by the relative pose, velocity and acceleration. Of axes
of the second body, `y_jk` is whether k carries j; of axes of the first, whether it does not. This
is the chain rule for spatial vectors (Featherstone, "Rigid Body Dynamics Algorithms", 2008, 2.9).

`-L` is the pair's stiffness against its relative acceleration, symmetric. Where all directions of a
contact are damped alike, N is a multiple of L, and `W' N W` one of `W' L W`.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..kinematics import Kinematics
from ..math.algebra import cross, einsum, matmul, matvec, mirrored
from ..math.rotation import skew
from ..math.spatial import force_cross, motion_cross
from ..model.robot import WORLD, Robot
from ..model.tree import axis_rates, dof_forces
from .colliders.points import Placed
from .cones import Friction, contact_force, contact_hessian
from .contact_rows import contact_resistance
from .mixing import mixed_parameters
from .model import Constraints
from .narrowphase import Contacts, contacts_between, placed_pairs
from .twist_maps import axis_twists, moves, reference_body


class Geometry(NamedTuple):
    """Where n contacts are: `distance` (n,), `position` (n, 3), `frame` (n, 3, 3); or tangents."""

    distance: Array
    position: Array
    frame: Array


class MovedContacts(NamedTuple):
    """The contacts of a scene, and how they change as the geoms of pairs move.

    Attributes:
        contacts: of all n slots.
        points: (np, 3), m, about which twists are taken, of each pair.
        by_pose: tangents (6, n, ...) as each pair's second geom moves along the six unit twists
            about the pair's point.
        turned: (3, n, 3, 3), how frames turn otherwise than their geoms, as both turn about the
            world's axes; None where forces do not depend on which tangents a frame has.
    """

    contacts: Contacts
    points: Array
    by_pose: Geometry
    turned: Array | None


class ContactForceDerivatives(NamedTuple):
    """Derivatives (nv, nv) of contacts' joint forces by `q`, on the tangent space, `v` and `a`."""

    dq: Array
    dv: Array
    da: Array


def moved_contacts(robot: Robot, constraints: Constraints, kin: Kinematics) -> MovedContacts:
    """Contacts at a configuration, and their derivatives by the relative poses of pairs.

    Args:
        robot: the forest.
        constraints: geoms and pairs.
        kin: the bodies' poses.
    """
    first, second = placed_pairs(constraints, kin)
    points, to_first, to_second = _points(robot, constraints, kin, first, second)

    def found(first: Placed, second: Placed) -> tuple[Geometry, Contacts]:
        contacts = contacts_between(constraints, first, second)
        return Geometry(contacts.distance, contacts.position, contacts.frame), contacts

    def moved(twist: Array) -> tuple[Geometry, Contacts]:
        tangent = _carried(second, to_second, twist)
        _, by_pose, contacts = jax.jvp(partial(found, first), (second,), (tangent,), has_aux=True)
        return by_pose, contacts

    def turned(axis: Array) -> Array:
        twist = jnp.concatenate([jnp.zeros_like(axis), axis])
        tangents = (_carried(first, to_first, twist), _carried(second, to_second, twist))
        at, tangent, _ = jax.jvp(found, (first, second), tangents, has_aux=True)
        beyond: Array = tangent.frame - cross(axis, at.frame)
        return beyond

    eye = jnp.eye(6, dtype=points.dtype)
    by_pose, contacts = jax.vmap(moved, out_axes=(0, None))(eye)
    gauge = jax.vmap(turned)(eye[:3, :3]) if _tangents_matter(constraints) else None
    return MovedContacts(contacts, points, by_pose, gauge)


def contact_force_derivatives(
    robot: Robot,
    constraints: Constraints,
    kin: Kinematics,
    v: Array,
    a: Array,
    moved: MovedContacts,
    timestep: Array,
) -> ContactForceDerivatives:
    """Derivatives of `rows.transpose(rows.force(rows.violation(a)))` of contacts, at a fixed `a`.

    Args:
        robot: the forest.
        constraints: what constrains it.
        kin: kinematics at `q`.
        v: (nv,), rad/s and m/s.
        a: (nv,), rad/s^2 and m/s^2.
        moved: `moved_contacts(robot, constraints, kin)`.
        timestep: s, as of `constraint_rows`.
    """
    layout = constraints.layout
    if not layout.slots:
        none = jnp.zeros((robot.nv, robot.nv), v.dtype)
        return ContactForceDerivatives(none, none, none)
    first, second = _bodies(constraints).T
    points, active = moved.points, moved.contacts.active
    W = axis_twists(
        robot, kin, first, second, *(_lever(kin, points, bodies) for bodies in (first, second))
    )
    by_v, by_a = (W * axis_rates(robot, x)[:, None] for x in (v, a))
    motions = (jnp.sum(by_v, axis=1), jnp.sum(by_a, axis=1))

    def wrenches(at: Geometry) -> tuple[Array, _Wrenches]:
        found = _wrenches(constraints, Contacts(*at, active), points, motions, timestep)
        return found.wrench, found

    at = Geometry(*(getattr(moved.contacts, name) for name in Geometry._fields))

    def along(tangent: Geometry) -> tuple[Array, _Wrenches]:
        _, changed, found = jax.jvp(wrenches, (at,), (tangent,), has_aux=True)
        return changed, found

    by_pose, found = jax.vmap(along, out_axes=(-1, None))(moved.by_pose)
    sees = jnp.asarray(_sees(robot, first, second), v.dtype)
    changed = einsum("pij,pkj->pki", by_pose, W)
    rates = found.damping[:, None, None]
    if found.resistance is None:
        felt = [(found.stiffness, rates * by_v + by_a)]
    else:
        felt = [(found.stiffness, by_a), (found.resistance, by_v)]
    for resists, parts in felt:
        rate = motion_cross(W, einsum("pjk,pji->pki", sees, parts))
        changed = changed - einsum("pij,pkj->pki", resists, rate)
    # Of the two products only one is needed for each pair of axes, which constants tell.
    carried = changed - force_cross(W, found.wrench[:, None])
    dq = jnp.where(
        _sees(robot, first, second),
        einsum("pji,pki->pjk", W, carried),
        einsum("pji,pki->pjk", W, changed),
    )
    dq = jnp.sum(dq, axis=0)
    if moved.turned is not None:
        still = Geometry(*(jnp.zeros_like(x[:3]) for x in moved.by_pose))
        gauge, _ = jax.vmap(along, out_axes=(-1, None))(still._replace(frame=moved.turned))
        rotates = robot.topology.axes.rotates[:, None] & moves(robot, first)[:, :, None]
        changed = einsum("pij,pkj->pki", gauge, jnp.where(rotates, kin.axis, 0.0))
        dq = dq + einsum("pji,pki->jk", W, changed)
    gram = mirrored(einsum("pji,pki->pjk", W, einsum("pij,pkj->pki", found.stiffness, W)))
    if found.resistance is None:
        dv = -jnp.sum(rates * gram, axis=0)
    else:
        dv = -einsum("pji,pki->jk", W, einsum("pij,pkj->pki", found.resistance, W))
    return ContactForceDerivatives(*(_to_dofs(robot, x) for x in (dq, dv, -jnp.sum(gram, axis=0))))


class _Wrenches(NamedTuple):
    """Wrenches (np, 6) on the second bodies of pairs about their points, in world axes.

    What they lose, (np, 6, 6), with relative acceleration and velocity: `stiffness`, symmetric, and
    `resistance`. Where all directions of a contact are damped alike, the second is None: it is
    `damping` (np,), 1/s, times the first.
    """

    wrench: Array
    stiffness: Array
    resistance: Array | None
    damping: Array


def _wrenches(
    c: Constraints,
    contacts: Contacts,
    points: Array,
    motions: tuple[Array, Array],
    timestep: Array,
) -> _Wrenches:
    """What the contacts do at relative velocities and accelerations (np, 6) of pairs."""
    layout, dtype = c.layout, points.dtype
    parameters = mixed_parameters(c, dtype)
    condims = np.array([layout.pairs[p].condim for p in layout.slot_pair])
    alike = layout.cone == "pyramidal" or all(p.parameters < 0 for p in layout.pairs)
    wrench = jnp.zeros((len(layout.pairs), 6), dtype)
    stiffness = resistance = jnp.zeros((len(layout.pairs), 6, 6), dtype)
    rates = jnp.zeros(len(layout.pairs), dtype)
    for d in sorted(set(condims)):
        slots = np.flatnonzero(condims == d)
        pair = layout.slot_pair[slots]
        felt = _Felt(int(d), contacts.frame[slots], contacts.position[slots] - points[pair])
        resisted = contact_resistance(
            c, parameters, int(d), slots, contacts.distance[slots], contacts.active[slots], timestep
        )
        velocity, acceleration = (m[pair] for m in motions)
        if alike:
            rate = resisted.damping[:, 0]
            rates = rates.at[pair].set(rate)
            x = felt.motion(acceleration + rate[:, None] * velocity) + resisted.pull
        else:
            braked = resisted.damping * felt.motion(velocity)
            x = felt.motion(acceleration) + braked + resisted.pull
        friction = Friction(resisted.weight, resisted.coefficients, resisted.regularised)
        of_pair = jnp.asarray(pair == np.arange(len(layout.pairs))[:, None], dtype)
        wrench = wrench + matmul(of_pair, felt.wrench(contact_force(layout.cone, x, friction)))
        hessian = contact_hessian(layout.cone, x, friction)
        stiffness = stiffness + einsum("pn,nij->pij", of_pair, felt.against_twists(hessian))
        if not alike:
            slowed = felt.against_twists(hessian * resisted.damping[:, None, :])
            resistance = resistance + einsum("pn,nij->pij", of_pair, slowed)
    return _Wrenches(wrench, mirrored(stiffness), None if alike else resistance, rates)


class _Felt(NamedTuple):
    """How n contacts of dimension d feel twists of their pairs about the pairs' points.

    Attributes:
        condim: d.
        frame: (n, 3, 3), of the contacts.
        lever: (n, 3), m, from the points to the contacts.
    """

    condim: int
    frame: Array
    lever: Array

    @property
    def axes(self) -> tuple[Array, Array]:
        """Rows: those along which, and those about which motions are felt."""
        return self.frame[:, : min(self.condim, 3)], self.frame[:, : max(self.condim - 3, 0)]

    def motion(self, twist: Array) -> Array:
        """Motions (n, d) in the contacts' axes, of twists (n, 6)."""
        along, about = self.axes
        linear, angular = twist[:, :3], twist[:, 3:]
        linear = linear + cross(angular, self.lever)
        return jnp.concatenate([matvec(along, linear), matvec(about, angular)], axis=1)

    def wrench(self, force: Array) -> Array:
        """Wrenches (n, 6) about the points, of forces (n, d) in the contacts' axes."""
        along, about = (x.swapaxes(1, 2) for x in self.axes)
        pushed = matvec(along, force[:, :3])
        turned = cross(self.lever, pushed) + matvec(about, force[:, 3:])
        return jnp.concatenate([pushed, turned], axis=1)

    def against_twists(self, matrices: Array) -> Array:
        """Matrices (n, 6, 6) against twists, of those (n, d, d) against contacts' motions."""
        (n, d), (along, about) = matrices.shape[:2], self.axes
        axes = jnp.zeros((n, d, 6), self.frame.dtype)
        axes = axes.at[:, :3, :3].set(along).at[:, 3:, 3:].set(about)
        there = matmul(axes.swapaxes(1, 2), matmul(matrices, axes))
        eye = jnp.broadcast_to(jnp.eye(6, dtype=self.lever.dtype), (n, 6, 6))
        moved = eye.at[:, :3, 3:].set(-skew(self.lever))
        return matmul(moved.swapaxes(1, 2), matmul(there, moved))


def _bodies(c: Constraints) -> np.ndarray:
    """(np, 2) int, bodies of the geoms of all pairs."""
    geoms = c.layout.geoms
    return np.array([[geoms[g].body for g in p.geoms] for p in c.layout.pairs], int).reshape(-1, 2)


def _points(
    robot: Robot, c: Constraints, kin: Kinematics, first: Placed, second: Placed
) -> tuple[Array, Array, Array]:
    """Of each pair the point about which twists are taken, and both geoms' places from there.

    All (np, 3), m: the centre of a sphere that is second, which feels no turn about it; otherwise
    where a moving body has its origin.
    """
    geoms = c.layout.geoms
    origin = kin.position[np.array([reference_body(robot, both) for both in _bodies(c)], int)]
    kinds = np.array([geoms[p.geoms[1]].kind == "sphere" for p in c.layout.pairs], bool)
    is_sphere = kinds[:, None]
    points = jnp.where(is_sphere, second.position, origin)
    to_second = jnp.where(is_sphere, 0.0, second.position - origin)
    return points, first.position - points, to_second


def _lever(kin: Kinematics, points: Array, bodies: np.ndarray) -> Array:
    """From bodies' origins to points (np, 3), m; without meaning for the world."""
    return points - kin.position[np.maximum(bodies, 0)]


def _carried(geoms: Placed, levers: Array, twist: Array) -> Placed:
    """Tangent of geoms that move along a twist (6,) about points, which they are `levers` (np, 3)
    from, m.
    """
    linear = twist[:3] + cross(twist[3:], levers)
    turned = matmul(skew(twist[3:]), geoms.rotation)
    return Placed(linear, turned, jnp.zeros_like(geoms.size))


def _tangents_matter(c: Constraints) -> bool:
    """Whether a force may depend on which tangents a contact's frame has.

    That of a round cone does not; a pair's own friction may differ between the two tangents.
    """
    pairs = [p for p in c.layout.pairs if (_bodies_of(c, p.geoms) != WORLD).all() and p.condim > 1]
    return any(c.layout.cone == "pyramidal" or p.parameters >= 0 for p in pairs)


def _bodies_of(c: Constraints, geoms: tuple[int, int]) -> np.ndarray:
    return np.array([c.layout.geoms[g].body for g in geoms])


def _sees(robot: Robot, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """`y_jk` (np, na, na) bool: of axes k of second bodies, whether k carries j; of first, not."""
    axes = robot.topology.axes
    carried = moves(robot, axes.carrier)
    of_first = moves(robot, first) & ~moves(robot, second)
    return np.where(of_first[:, None, :], ~carried, carried)


def _to_dofs(robot: Robot, matrix: Array) -> Array:
    if not robot.topology.axes.has_mimics:
        return matrix
    return dof_forces(robot, dof_forces(robot, matrix).T).T
