"""Followers freed: joints that follow others exactly, as joints of their own with a soft coupling.

What follows has no coordinate here. MuJoCo couples two coordinates by a constraint instead, so that
is what it gets of a scene with a gripper: one more coordinate for each follower, an equality, and
the leader's resistance shared out so that moving all of them together costs the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from ..contact.model import Equality
from ..model.combine import MemberSlices
from ..model.robot import Robot, Topology
from .equalities import equality_constraints, joint_equality
from .scene import Scene

Array = NDArray[np.floating[Any]]

SOLREF, SOLIMP = (0.004, 1.0), (0.99, 0.9999, 0.001, 0.5, 2.0)
"""Of the coupling: as stiff as two timesteps of 2 ms allow."""


class Spread(NamedTuple):
    """Coordinates (n,) from fewer (m,): `scale * x[source] + shift`.

    Attributes:
        source: (n,) int, the leader of each.
        scale: (n,), 1 of leaders.
        shift: (n,), 0 of leaders.
        share: (n,), by which a leader takes back what its followers have; of several the least
            squares.
    """

    source: NDArray[np.intp]
    scale: Array
    shift: Array
    share: Array

    def out(self, x: Array) -> Array:
        """All coordinates (n,)."""
        return self.scale * x[self.source] + self.shift

    def back(self, full: Array) -> Array:
        """Those of the leaders (m,), nearest to all coordinates (n,)."""
        # Typed as counts, though weighted ones are real.
        return np.bincount(self.source, self.share * (full - self.shift)).astype(float)


class Freed(NamedTuple):
    """A scene whose followers are free, and how its coordinates and velocities are those of it."""

    scene: Scene
    q: Spread
    v: Spread


def free_followers(scene: Scene) -> Freed:
    """The scene with a joint of its own for each that follows another.

    Each is coupled to its leader by a stiff equality. Armature, damping, friction and stiffness of
    a leader are shared among it and its followers; contacts are as soft as before. Limits and
    actuators stay with the leaders; keyframes are left out.

    Args:
        scene: with concrete leaves, not batched.

    Raises:
        ConfigError: a coupling's name is one of the scene's.
    """
    old = scene.system.topology
    new = dataclasses.replace(
        old, joints=tuple(dataclasses.replace(j, mimic=None) for j in old.joints)
    )
    q, v = _spread(old, new, "q"), _spread(old, new, "v")
    follows = np.concatenate(
        [np.full(j.nv, o.mimic is not None) for o, j in zip(old.joints, new.joints, strict=True)]
    )
    own = np.flatnonzero(~follows)
    system = _system(scene.system, new, q, v, follows)
    constraints, actuators = scene.constraints, scene.actuators
    layout, reference = constraints.layout, q.out(np.asarray(constraints.reference, float))
    couplings, numbers = equality_constraints(system, reference, _couplings(old), scene.name)
    equalities = (*(_moved(e, own) for e in layout.equalities), *couplings)
    weights = constraints.weights
    constraints = dataclasses.replace(
        constraints,
        layout=dataclasses.replace(
            layout,
            equalities=equalities,
            limited=tuple(int(own[i]) for i in layout.limited),
            friction_loss=tuple(
                np.flatnonzero(np.isin(v.source, np.array(layout.friction_loss, int))).tolist()
            ),
        ),
        joints=jax.tree.map(lambda x: np.asarray(x)[v.source], constraints.joints),
        equalities=jax.tree.map(
            lambda a, b: np.concatenate([np.asarray(a), np.asarray(b)]),
            constraints.equalities,
            numbers,
        ),
        reference=reference,
        weights=dataclasses.replace(weights, dof=np.asarray(weights.dof)[v.source]),
    )
    joint_range = np.asarray(actuators.joint_range, float)[v.source]
    joint_range[follows] = [-np.inf, np.inf]
    freed = dataclasses.replace(
        scene,
        system=system,
        constraints=constraints,
        stiffness=_shared(scene.stiffness, v),
        spring_reference=q.out(np.asarray(scene.spring_reference, float)),
        actuators=dataclasses.replace(
            actuators, dofs=tuple(int(own[i]) for i in actuators.dofs), joint_range=joint_range
        ),
        stored_keyframes=(),
        stored_members=tuple((n, _slices(new, m)) for n, m in scene.members.items()),
    )
    return Freed(freed, q, v)


def _spread(old: Topology, new: Topology, kind: str) -> Spread:
    """How the coordinates `q`, or the velocities `v`, of the new joints are those of the old."""
    index = old.q_index if kind == "q" else old.v_index
    source: list[int] = []
    scale: list[float] = []
    shift: list[float] = []
    for i, (before, now) in enumerate(zip(old.joints, new.joints, strict=True)):
        size, mimic = now.nq if kind == "q" else now.nv, before.mimic
        start = index[i if mimic is None else mimic.joint]
        source += range(start, start + size)
        scale += [1.0 if mimic is None else mimic.multiplier] * size
        shift += [0.0 if mimic is None or kind == "v" else mimic.offset] * size
    at, by = np.array(source, int), np.array(scale)
    return Spread(at, by, np.array(shift), by / np.bincount(at, by * by)[at])


def _shared(values: Any, v: Spread) -> Array:
    """Resistance (n,) of all joints, which together resist as the leaders' (m,) did."""
    shares = np.bincount(v.source, v.scale**2)
    each: Array = np.broadcast_to(np.asarray(values, float), shares.shape) / shares
    return each[v.source]


def _system(system: Robot, new: Topology, q: Spread, v: Spread, follows: Array) -> Robot:
    limits = np.array(np.broadcast_to(np.asarray(system.position_limits), (system.nv, 2))[v.source])
    limits[follows] = [-np.inf, np.inf]

    def same(values: Any) -> Array:
        return np.broadcast_to(np.asarray(values, float), (system.nv,))[v.source]

    return dataclasses.replace(
        system,
        topology=new,
        armature=_shared(system.armature, v),
        damping=_shared(system.damping, v),
        friction=_shared(system.friction, v),
        stop_stiffness=_shared(system.stop_stiffness, v),
        stop_damping=_shared(system.stop_damping, v),
        position_limits=limits,
        velocity_limits=same(system.velocity_limits),
        effort_limits=same(system.effort_limits),
        effort_rate_limits=same(system.effort_rate_limits),
        q_default=q.out(np.asarray(system.q_default, float)),
    )


def _couplings(old: Topology) -> list[Any]:
    # Both count from the reference, where the follower is where it has to be.
    return [
        joint_equality(
            j.name,
            old.joints[j.mimic.joint].name,
            (0.0, j.mimic.multiplier),
            name=f"{j.name} follows",
            solref=SOLREF,
            solimp=SOLIMP,
        )
        for j in old.joints
        if j.mimic is not None
    ]


def _moved(equality: Equality, own: Sequence[int] | Any) -> Equality:
    """An equality of the old scene in the new numbers of degrees of freedom."""
    if equality.kind != "joint":
        return equality
    second = equality.second
    return dataclasses.replace(
        equality,
        first=int(own[equality.first]),
        second=second if second < 0 else int(own[second]),
    )


def _slices(new: Topology, member: MemberSlices) -> MemberSlices:
    bodies = member.bodies
    return MemberSlices(
        q=slice(int(new.q_index[bodies.start]), int(new.q_index[bodies.stop])),
        v=slice(int(new.v_index[bodies.start]), int(new.v_index[bodies.stop])),
        bodies=bodies,
        axes=member.axes,
    )
