"""The rows of contacts, by dimension and by how products with them are done."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..kinematics import Kinematics
from ..math.algebra import einsum, matmul
from ..model.robot import Robot
from .blocks import blocks
from .impedance import impedance, spring, weights
from .model import Constraints, Layout, PairParameters
from .narrowphase import Contacts, mixed_parameters
from .rows import ContactRows
from .twist_maps import reference_body, twist_maps

PER_PAIR = 3
"""Contact slots of a pair from which on products with their rows are done per pair."""


def contact_rows(
    robot: Robot, c: Constraints, kin: Kinematics, v: Array, contacts: Contacts, timestep: Array
) -> tuple[ContactRows, ...]:
    """Rows of all slots, in groups: see `ContactRows`."""
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
        origins = kin.position[base]
        levers = einsum("nij,nj->ni", frame, position - origins[of_pair])
        parts = blocks(robot, bodies, base)
    else:
        of_slot = np.searchsorted(pairs, pair)
        bodies = bodies[of_slot]
        twist = twist_maps(robot, kin, *bodies.T, *(position - kin.position[b] for b in bodies.T))
        maps = matmul(frame, twist[:, :3])
        if condim > 3:
            turns = matmul(frame, twist[:, 3:])[:, : condim - 3]
            maps = jnp.concatenate([maps, turns], axis=1)
        maps, of_pair, parts = maps[:, :condim], np.zeros(0, int), ()
        axes = jnp.zeros((0, 6, 6), v.dtype)
        origins = levers = jnp.zeros((0, 3), v.dtype)

    resisted = contact_resistance(
        c, p, condim, slots, contacts.distance[slots], contacts.active[slots], timestep
    )
    rows = ContactRows(
        slots=tuple(slots.tolist()),
        pairs=tuple(of_pair.tolist()),
        blocks=parts,
        cone=layout.cone,
        maps=maps,
        axes=axes,
        origins=origins,
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
